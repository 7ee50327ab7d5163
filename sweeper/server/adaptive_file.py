"""The file that an adaptive config's server reads: made on the server's own node, named by its content."""

from __future__ import annotations

from pathlib import Path

from sweeper.adaptive import SGLANG_DEFAULT, AdaptivePolicy
from sweeper.speculation import SpeculationConfig, Value
from sweeper.user_cache import cached_answer, write_cached

FLAG = "speculative-adaptive-config"


def adaptive_flags(config: SpeculationConfig) -> dict[str, Value | bool]:
    """The flags that turn a chain into an adaptive one; none for other configs. SGLang's own policy needs no file."""
    text = _file_text(config)
    if text is None:
        return {}
    return {"speculative-adaptive": True, **({FLAG: str(_path(text))} if text else {})}


def write_adaptive_file(config: SpeculationConfig) -> None:
    """Put the file there, before the server starts. Where that fails, SGLang says so."""
    text = _file_text(config)
    if text:
        write_cached(_path(text), text.encode())


def _file_text(config: SpeculationConfig) -> str | None:
    """None for a config that is not adaptive, "" for SGLang's own policy."""
    policy = config.option("adaptive")
    if policy is None:
        return None
    return "" if policy == SGLANG_DEFAULT else AdaptivePolicy.parse(str(policy)).file_text()


def _path(text: str) -> Path:
    return cached_answer("adaptive", text)
