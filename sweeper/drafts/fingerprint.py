"""Telling checkpoints apart by content, without reading all of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from sweeper.errors import SweeperError

_ENDS = 1 << 20  # bytes


class CheckpointMissingError(SweeperError):
    """A checkpoint that is not on this machine."""


def local_checkpoint(name: str) -> Path:
    """The directory of a checkpoint: a directory, or a hub id that was downloaded before.

    Raises:
        CheckpointMissingError: it is neither.
    """
    if Path(name).is_dir():
        return Path(name)
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    except ImportError:
        raise CheckpointMissingError(
            f"{name}: is no directory, and huggingface_hub is not installed"
        ) from None
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError, OSError):
        raise CheckpointMissingError(
            f"{name}: is no directory and was not downloaded yet; get it with: hf download {name}"
        ) from None


def checkpoint_fingerprint(directory: Path) -> str:
    """Hash of config.json and of every weight file's size, first and last MiB: another training step changes those.

    Files' names and times do not matter, so a copy has the same fingerprint.
    """
    digest = hashlib.sha256()
    weights = sorted(p for p in directory.iterdir() if p.suffix in (".safetensors", ".bin"))
    for path in (directory / "config.json", *weights):
        if not path.is_file():
            continue
        size = path.stat().st_size
        with path.open("rb") as file:
            digest.update(size.to_bytes(8, "big") + file.read(_ENDS))
            file.seek(max(0, size - _ENDS))
            digest.update(file.read(_ENDS))
    return digest.hexdigest()[:16]
