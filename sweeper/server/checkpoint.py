"""What a checkpoint's own files say, without loading it. A hub id is looked up in the local cache, never downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def checkpoint_identity(model: str) -> dict[str, Any]:
    """Names, sizes and times of a local checkpoint's files; a hub id is its own identity."""
    directory = Path(model)
    if not directory.is_dir():
        return {"hub_id": model}
    files = sorted(path for path in directory.iterdir() if path.suffix in (".safetensors", ".json", ".bin"))
    return {path.name: [path.stat().st_size, int(path.stat().st_mtime)] for path in files}


def architecture(checkpoint: str) -> str | None:
    """The first architecture in a checkpoint's config.json; None where it cannot be read here."""
    names = _read(checkpoint, "config.json").get("architectures") or [None]
    return str(names[0]) if names[0] else None


def end_tokens(checkpoint: str) -> frozenset[int]:
    """The token ids that end a sequence, from both files that may hold them; empty where they cannot be read here."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        ids = _read(checkpoint, name).get("eos_token_id")
        found |= {i for i in (ids if isinstance(ids, list) else [ids]) if isinstance(i, int)}
    return frozenset(found)


def _read(checkpoint: str, name: str) -> dict[str, Any]:
    """A JSON object of a checkpoint; an empty one where it is not here."""
    file: object = Path(checkpoint) / name
    if not Path(checkpoint).is_dir():
        try:
            from huggingface_hub import try_to_load_from_cache

            file = try_to_load_from_cache(checkpoint, name)
        except Exception:  # not installed, or no hub id: its validation errors are its own
            return {}
    if not isinstance(file, (str, Path)):
        return {}
    try:
        content = json.loads(Path(file).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
