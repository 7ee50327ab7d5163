"""The header of a safetensors file: names, types, shapes and places of its tensors, without the tensors.

A file begins with the header's length (8 bytes, little endian) and the header, a JSON object; the tensors'
``data_offsets`` count from its end. Format: https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.drafts.preflight.checkpoint_files import CheckpointFiles

LENGTH_BYTES = 8
LONGEST = 100 * 2**20
"""What the format itself allows."""

_INTEGERS = {"I64": "q", "I32": "i", "I16": "h", "I8": "b", "U8": "B", "BOOL": "?"}


class BrokenWeightsError(Exception):
    """A file of weights that no loader can read; the message says why."""


@dataclass(frozen=True)
class TensorInfo:
    """One tensor: its type by the format's names (F32, BF16, I64, ...), its shape, and where its bytes are."""

    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    length: int

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith(("F", "BF"))


def read_header(files: CheckpointFiles, name: str) -> dict[str, TensorInfo]:
    """Every tensor of a file.

    Raises:
        BrokenWeightsError: it is not a safetensors file, or ends before its tensors do.
        UnreachableError: it cannot be read.
    """
    prefix = files.read_range(name, 0, LENGTH_BYTES)
    if prefix == b"version ":
        raise BrokenWeightsError(f"{name} is a Git LFS pointer, not weights: run git lfs pull")
    if len(prefix) < LENGTH_BYTES:
        raise BrokenWeightsError(f"{name} has {len(prefix)} bytes")
    (length,) = struct.unpack("<Q", prefix)
    if not 2 <= length <= LONGEST:
        raise BrokenWeightsError(f"{name} does not begin like a safetensors file")
    try:
        header = json.loads(files.read_range(name, LENGTH_BYTES, length))
        tensors = {
            tensor: _info(name, entry, LENGTH_BYTES + length)
            for tensor, entry in header.items()
            if tensor != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BrokenWeightsError(f"{name} has a header that cannot be read") from None
    _require_complete(files, name, tensors)
    return tensors


def _info(file: str, entry: Mapping[str, Any], after_header: int) -> TensorInfo:
    begin, end = entry["data_offsets"]
    shape = tuple(int(n) for n in entry["shape"])
    return TensorInfo(str(entry["dtype"]), shape, file, after_header + int(begin), int(end) - int(begin))


def _require_complete(files: CheckpointFiles, name: str, tensors: Mapping[str, TensorInfo]) -> None:
    size, needed = files.size(name), max((t.start + t.length for t in tensors.values()), default=0)
    if size is not None and size < needed:
        raise BrokenWeightsError(f"{name} has {size:,} bytes of {needed:,}: its download or copy was cut off")


def read_integers(files: CheckpointFiles, tensor: TensorInfo) -> list[int]:
    """The values of a small integer tensor.

    Raises:
        ValueError: it is of another type.
        UnreachableError: it cannot be read.
    """
    if tensor.dtype not in _INTEGERS:
        raise ValueError(tensor.dtype)
    code = _INTEGERS[tensor.dtype]
    content = files.read_range(tensor.file, tensor.start, tensor.length)
    return [int(n) for n in struct.unpack(f"<{len(content) // struct.calcsize(code)}{code}", content)]
