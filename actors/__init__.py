"""Ray: actors that own the processors of one SGLang server each, and the pool that keeps them busy."""
