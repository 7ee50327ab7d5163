"""Where a checkpoint's files lie: a directory, or the hub. Whole small files, and ranges of large ones.

Nothing large is ever read: of weights only headers, and the values of a few small tensors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

TIMEOUT_S = 20.0
MOST_BYTES = 256 * 2**20
"""More than any header, index or tokenizer has."""


class UnreachableError(Exception):
    """The checkpoint is not here: no such directory, no network, no such repository, no access."""


class CheckpointFiles(Protocol):
    """Read access to a checkpoint's files by name."""

    def names(self) -> frozenset[str] | None:
        """The files there are; None where nobody can list them."""
        ...

    def read(self, name: str) -> bytes | None:
        """A whole file; None where there is none of that name."""
        ...

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``start`` on; fewer where the file ends before."""
        ...

    def size(self, name: str) -> int | None:
        """Bytes of a file; None where it is not known."""
        ...


@dataclass(frozen=True)
class LocalFiles:
    """A checkpoint's directory."""

    directory: Path

    def names(self) -> frozenset[str]:
        return frozenset(path.name for path in self.directory.iterdir() if path.is_file())

    def read(self, name: str) -> bytes | None:
        path = self.directory / name
        try:
            return path.read_bytes() if path.is_file() else None
        except OSError as error:
            raise UnreachableError(f"{path} cannot be read: {error.strerror or error}") from None

    def read_range(self, name: str, start: int, length: int) -> bytes:
        try:
            with (self.directory / name).open("rb") as file:
                file.seek(start)
                return file.read(length)
        except OSError as error:
            raise UnreachableError(
                f"{self.directory / name} cannot be read: {error.strerror or error}"
            ) from None

    def size(self, name: str) -> int:
        return (self.directory / name).stat().st_size


@dataclass(frozen=True)
class HubFiles:
    """A repository on the hub: files of the local cache where they are there, else HTTP, ranges included.

    Uses ``huggingface_hub`` for addresses, tokens and the cache, and so its settings (HF_ENDPOINT, HF_TOKEN,
    HF_HUB_OFFLINE, HF_HOME).
    """

    repository: str
    revision: str = "main"

    def names(self) -> None:
        return None

    def read(self, name: str) -> bytes | None:
        cached = self._cached(name)
        return cached.read_bytes() if cached else self._get(name)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        cached = self._cached(name)
        if cached:
            return LocalFiles(cached.parent).read_range(cached.name, start, length)
        content = self._get(name, (start, length))
        if content is None:
            raise UnreachableError(f"{self.repository} has no {name}")
        return content

    def size(self, name: str) -> int | None:
        cached = self._cached(name)
        return cached.stat().st_size if cached else None

    def _cached(self, name: str) -> Path | None:
        try:
            from huggingface_hub import try_to_load_from_cache

            found = try_to_load_from_cache(self.repository, name, revision=self.revision)
        except Exception as error:  # not installed, or no hub id: its validation errors are its own
            raise UnreachableError(f"{self.repository} cannot be looked up here: {error}") from None
        return Path(found) if isinstance(found, str) else None

    def _get(self, name: str, span: tuple[int, int] | None = None) -> bytes | None:
        """A file, or ``span`` (start, length) of it, over HTTP; None where there is none."""
        import requests
        from huggingface_hub import constants, hf_hub_url
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        if constants.HF_HUB_OFFLINE:
            raise UnreachableError(f"{self.repository} is not in the local cache, and HF_HUB_OFFLINE is set")
        endpoint = os.environ.get("HF_ENDPOINT") or None
        url = hf_hub_url(self.repository, name, revision=self.revision, endpoint=endpoint)
        headers = build_hf_headers()
        start, length = span or (0, MOST_BYTES)
        if span:
            headers["Range"] = f"bytes={start}-{start + length - 1}"
        try:
            with requests.get(url, headers=headers, timeout=TIMEOUT_S, stream=True) as answer:
                if answer.status_code == 404:
                    return None
                if answer.status_code >= 400:
                    raise UnreachableError(
                        f"{self.repository}: the hub answers {answer.status_code} for {name}"
                    )
                skip = start if span and answer.status_code == 200 else 0  # it does not do ranges
                return _first(answer, skip, length)
        except requests.RequestException as error:
            raise UnreachableError(
                f"{self.repository}: no answer from the hub ({type(error).__name__})"
            ) from None


def _first(answer: object, skip: int, length: int) -> bytes:
    """``length`` bytes of a streamed answer after ``skip``; the rest is not downloaded."""
    got = bytearray()
    for chunk in answer.iter_content(2**16):  # type: ignore[attr-defined]
        got += chunk
        if len(got) >= skip + length:
            break
    return bytes(got[skip : skip + length])


def files_of(checkpoint: str, revision: str | None = None) -> CheckpointFiles:
    """The files of a directory or a hub id.

    Raises:
        UnreachableError: an absolute path that is no directory here.
    """
    directory = Path(checkpoint)
    if directory.is_dir():
        return LocalFiles(directory)
    if directory.is_absolute() or checkpoint.startswith("."):
        raise UnreachableError(f"there is no directory {checkpoint} on this machine")
    return HubFiles(checkpoint, revision or "main")
