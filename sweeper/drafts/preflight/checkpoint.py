"""A checkpoint as its small files describe it: config.json, headers of weights, tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sweeper.drafts.preflight.checkpoint_files import CheckpointFiles, UnreachableError, files_of
from sweeper.drafts.preflight.config_json import text_config
from sweeper.drafts.preflight.safetensors_header import TensorInfo, read_header

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")


class BadConfigError(Exception):
    """config.json is missing or no JSON object."""


@dataclass(frozen=True)
class Checkpoint:
    """``config`` is config.json as it stands, ``text`` the part of it that describes the language model."""

    path: str
    files: CheckpointFiles
    config: Mapping[str, Any]

    @property
    def architecture(self) -> str:
        """The first of its ``architectures``, empty where it names none."""
        names = self.config.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else ""

    @cached_property
    def text(self) -> Mapping[str, Any]:
        return text_config(self.config)

    @cached_property
    def weight_files(self) -> tuple[str, ...]:
        """Its safetensors files, as SGLang would read them: what an index names, else all there are."""
        index = self._json(INDEX)
        there = self.files.names()
        if index and isinstance(index.get("weight_map"), dict):
            return tuple(sorted({str(name) for name in index["weight_map"].values()}))
        if there is not None:
            return tuple(sorted(name for name in there if name.endswith(".safetensors")))
        try:
            return (SINGLE,) if self.files.read_range(SINGLE, 0, 1) else ()
        except UnreachableError:
            return ()

    @cached_property
    def has_pickled_weights(self) -> bool:
        """Whether it has PyTorch's pickled weights; they can run code, and are never opened."""
        there = self.files.names()
        if there is not None:
            return any(name.endswith((".bin", ".pt", ".pth")) for name in there)
        return any(self._exists(name) for name in PICKLED)

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor of the safetensors files; none where there are only pickled weights.

        Raises:
            BrokenWeightsError: a file cannot be read as weights.
            UnreachableError: a file is not there.
        """
        found: dict[str, TensorInfo] = {}
        for name in self.weight_files:
            found |= read_header(self.files, name)
        return found

    @cached_property
    def tensor_names(self) -> frozenset[str]:
        """The names alone: from the index where there is one, so that a large target costs one small file."""
        index = self._json(INDEX)
        if index and isinstance(index.get("weight_map"), dict):
            return frozenset(index["weight_map"])
        return frozenset(self.tensors)

    def json_file(self, name: str) -> Mapping[str, Any]:
        """A JSON object of the checkpoint, empty where there is none or it cannot be read."""
        return self._json(name) or {}

    def _json(self, name: str) -> dict[str, Any] | None:
        content = self.files.read(name)
        try:
            read = json.loads(content) if content is not None else None
        except ValueError:
            return None
        return read if isinstance(read, dict) else None

    def _exists(self, name: str) -> bool:
        try:
            return bool(self.files.read_range(name, 0, 1))
        except UnreachableError:
            return False


def open_checkpoint(path: str, revision: str | None = None) -> Checkpoint:
    """A checkpoint's config.json, and access to the rest.

    Raises:
        UnreachableError: its files are not here.
        BadConfigError: it has no usable config.json.
    """
    files = files_of(path, revision)
    content = files.read(CONFIG)
    if content is None:
        raise BadConfigError(f"{path} has no {CONFIG}")
    try:
        config = json.loads(content)
    except ValueError as error:
        raise BadConfigError(f"{path}/{CONFIG} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise BadConfigError(f"{path}/{CONFIG} is not a JSON object")
    return Checkpoint(path, files, config)
