"""What the target's own files say of its tokenizer and context, without loading either.

A hub id is looked up in the local Hugging Face cache; nothing is downloaded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sweeper.config import StudyConfig
from sweeper.server.setup import own_flags

_FILES = (
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer_config.json",
    "tokenizer.json",
    "special_tokens_map.json",
    "tokenizer.model",
    "config.json",
)
_CONTEXT_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)


def tokenizer_of(study: StudyConfig) -> tuple[str, str | None]:
    """The checkpoint whose tokenizer the server uses, and its revision."""
    own = own_flags(study)
    revision = own.get("revision")
    return str(own.get("tokenizer-path", study.engine.model)), None if revision is None else str(revision)


def identity(study: StudyConfig) -> dict[str, list[object]]:
    """Path, size and time of every file that a tokenizer may depend on, its own code included."""
    model, revision = tokenizer_of(study)
    directory = Path(model)
    if directory.is_dir():
        kinds = (".json", ".jinja", ".model", ".txt", ".tiktoken", ".py")
        files = [path for path in sorted(directory.rglob("*")) if path.suffix in kinds and path.is_file()]
    else:
        files = [path for name in _FILES if (path := _file(model, name, revision))]
    return {str(path): [path.stat().st_size, path.stat().st_mtime_ns] for path in files}


def has_chat_template(study: StudyConfig) -> bool | None:
    """Whether the target has a chat template; None where its files are not on this machine."""
    if "chat-template" in own_flags(study):
        return True
    model, revision = tokenizer_of(study)
    if any(_file(model, name, revision) for name in ("chat_template.jinja", "chat_template.json")):
        return True
    config = _file(model, "tokenizer_config.json", revision)
    return bool(_json(config).get("chat_template")) if config else None


def processor_template(study: StudyConfig) -> str | None:
    """The template of a multimodal target that keeps it with its processor; its tokenizer alone has none."""
    model, revision = tokenizer_of(study)
    own = _json(_file(model, "tokenizer_config.json", revision)).get("chat_template")
    if own or _file(model, "chat_template.jinja", revision):
        return None
    template = _json(_file(model, "chat_template.json", revision)).get("chat_template")
    return template if isinstance(template, str) else None


def special_tokens(study: StudyConfig) -> frozenset[str]:
    """Texts of the tokens that frame roles and texts; a prompt that holds one was rendered before."""
    model, revision = tokenizer_of(study)
    added = _json(_file(model, "tokenizer_config.json", revision)).get("added_tokens_decoder")
    entries = added.values() if isinstance(added, dict) else ()
    return frozenset(str(e.get("content")) for e in entries if isinstance(e, dict) and e.get("special"))


def context_tokens(study: StudyConfig) -> int | None:
    """Tokens that one request may have, input and output together; None where it is not known here.

    Never less than what SGLang allows: a scaled context counts in full.
    """
    given = own_flags(study).get("context-length")
    if isinstance(given, int):
        return given
    model, revision = study.engine.model, tokenizer_of(study)[1]
    config = _json(_file(model, "config.json", revision))
    texts = [
        config,
        *(section for key in ("text_config", "llm_config") if isinstance(section := config.get(key), dict)),
    ]
    spans = [
        span * max(_number((text.get("rope_scaling") or {}).get("factor")), 1)
        for text in texts
        for key in _CONTEXT_KEYS
        if (span := _number(text.get(key)))
    ]
    return int(max(spans)) if spans else None


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def _file(model: str, name: str, revision: str | None) -> Path | None:
    if Path(model).is_dir():
        path = Path(model) / name
        return path if path.is_file() else None
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model, name, revision=revision)
    except Exception:  # not installed, or no hub id: its validation errors are its own
        return None
    return Path(found) if isinstance(found, str) else None


def _json(path: Path | None) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8")) if path else {}
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
