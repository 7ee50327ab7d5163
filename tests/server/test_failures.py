"""Log lines seen on real servers give their class."""

import pytest

from sweeper.records import FailureClass
from sweeper.server.failures import classify, warnings

SEEN = [
    (FailureClass.TREE_TOO_LARGE, "RuntimeError: selected index k out of range"),
    (
        FailureClass.DRAFT_MISSING,
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
    ),
    (
        FailureClass.DRAFT_MISSING,
        "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/x'.",
    ),
    (FailureClass.DRAFT_MISSING, "RuntimeError: Cannot find any model weights with `/x`"),
    (
        FailureClass.DRAFT_INCOMPATIBLE,
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (29x192 and 96x32)",
    ),
    (
        FailureClass.DRAFT_INCOMPATIBLE,
        "AssertionError: Attempted to load weight (torch.Size([32, 96])) into parameter",
    ),
    (
        FailureClass.DRAFT_INCOMPATIBLE,
        "AttributeError: 'LlamaForCausalLM' object has no attribute 'hot_token_id'",
    ),
    (FailureClass.INVALID_CONFIG, "ValueError: Unknown speculative algorithm name: FOO"),
    (FailureClass.ARGS, "launch_server.py: error: argument --tp-size: invalid int value: 'x'"),
    (FailureClass.CONTEXT_LENGTH, "context_length (4096) is greater than the derived context_length (2048)."),
    (
        FailureClass.VOCAB_MISMATCH,
        "STANDALONE speculative decoding requires the draft model to share the same vocabulary",
    ),
    (
        FailureClass.PORT,
        "[Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use",
    ),
    (
        FailureClass.OOM_STATIC,
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    ),
    (FailureClass.OOM_RUNTIME, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
    (FailureClass.GPU_LOST, "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"),
    (FailureClass.GPU_LOST, "RuntimeError: No CUDA GPUs are available"),
    (FailureClass.WARMUP, "Initialization failed. warmup error: Traceback"),
]


@pytest.mark.parametrize(("kind", "line"), SEEN, ids=[line[:40] for _, line in SEEN])
def test_seen_lines(kind: FailureClass, line: str) -> None:
    failure = classify("exit code 137", f"loading\n[2026-01-01 00:00:00] {line}\nSIGQUIT received\n")
    assert failure.kind is kind
    assert line[:30] in failure.message
    assert failure.log_tail[-1] == "SIGQUIT received"


def test_a_tree_failure_in_graph_capture_is_no_memory_problem() -> None:
    log = "Capture cuda graph failed: selected index k out of range\nPossible solutions:\n1. set --mem-fraction-static"
    assert classify("died", log).kind is FailureClass.TREE_TOO_LARGE


def test_exit_code_137_alone_is_a_crash() -> None:
    assert classify("the server exited with code 137", "nothing said").kind is FailureClass.CRASH


def test_override_warnings_are_kept_once_and_without_time_stamps() -> None:
    line = "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1"
    assert warnings(f"[2026-01-01 00:00:00] {line}\n[2026-01-01 00:00:01] {line}\n[x] other\n") == (line,)
