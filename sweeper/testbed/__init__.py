"""Real SGLang on a machine without a GPU: CPU operators in plain PyTorch, a tiny target and tiny drafts."""
