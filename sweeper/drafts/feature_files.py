"""Hidden states that a training dumped: SpecForge's offline files, and the target's two outer matrices to read them.

One file per text (``*.ckpt``, or gzipped ``*.ckpt.gz``, in any subdirectory), written by ``torch.save``: a dict with

=====================  =====================  ==========================================================
``input_ids``          int [L] or [1, L]      the text
``loss_mask``          [L] or [1, L]          1 where the token is the assistant's
``aux_hidden_state``   float [1, L, A * h]    the A captured states side by side, in the order of the layers
``hidden_state``       float [1, L, h]        what the target's output matrix reads: after the final norm
=====================  =====================  ==========================================================

Other keys are ignored. Files are read with ``weights_only=True``: nothing in them is executed.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sweeper.drafts.agreement import Text
from sweeper.drafts.wiring import Tap, Wiring, alternatives
from sweeper.errors import SweeperError

_KEYS = ("input_ids", "loss_mask", "aux_hidden_state", "hidden_state")


class FeatureFileError(SweeperError):
    """A dump that cannot be read, or does not belong to the target and draft."""


@dataclass(frozen=True)
class OuterMatrices:
    """The target's embedding and output matrix, [V, h] each, in float32."""

    embedding: Tensor
    output: Tensor

    @classmethod
    def load(cls, directory: Path) -> OuterMatrices:
        """Read only these two tensors of a checkpoint.

        Raises:
            FeatureFileError: it has no safetensors files, or none of them has an embedding.
        """
        embedding = _tensor(directory, "embed_tokens.weight")
        if embedding is None:
            raise FeatureFileError(f"{directory}: its *.safetensors files hold no embed_tokens.weight")
        output = _tensor(directory, "lm_head.weight")
        return cls(embedding, embedding if output is None else output)

    def embed(self, ids: Tensor) -> Tensor:
        return self.embedding[ids]


def _tensor(directory: Path, suffix: str) -> Tensor | None:
    for path in sorted(directory.glob("*.safetensors")):
        try:
            with safe_open(path, "pt") as file:
                name = next((name for name in file.keys() if name.endswith(suffix)), None)  # noqa: SIM118
                if name:
                    return cast(Tensor, file.get_tensor(name)).float()
        except (OSError, SafetensorError) as error:
            raise FeatureFileError(f"{path}: cannot be read: {error}") from None
    return None


def feature_files(directory: Path, most: int) -> list[Path]:
    """The first dumps of a directory by name.

    Raises:
        FeatureFileError: there is none.
    """
    found = sorted((*directory.rglob("*.ckpt"), *directory.rglob("*.ckpt.gz")))
    if not found:
        raise FeatureFileError(
            f"{directory}: holds no *.ckpt files (what SpecForge's prepare_hidden_states.py writes)"
        )
    return found[:most]


def read_features(path: Path, taps: tuple[Tap, ...], layers: int, outer: OuterMatrices) -> Text:
    """One text. ``taps`` are the places that the dumped states come from, in their order.

    Raises:
        FeatureFileError: it is no dump, or its widths are not those of the target and of ``taps``.
    """
    content = _load(path)
    ids, mask = content["input_ids"].flatten().long(), content["loss_mask"].flatten() > 0
    last, aux = content["hidden_state"].float(), content["aux_hidden_state"].float()
    last, aux = last.reshape(-1, last.shape[-1]), aux.reshape(-1, aux.shape[-1])
    width = outer.embedding.shape[1]
    if {len(mask), len(last), len(aux)} != {len(ids)}:
        raise FeatureFileError(
            f"{path}: lengths differ: {len(ids)} ids, {len(mask)} in the mask, {len(last)} and {len(aux)} states"
        )
    if last.shape[1] != width or aux.shape[1] != width * len(taps):
        raise FeatureFileError(
            f"{path}: hidden_state is {last.shape[1]} wide and aux_hidden_state {aux.shape[1]}; with this target and "
            f"draft they would be {width} and {len(taps)} x {width}"
        )
    if len(ids) and int(ids.max()) >= len(outer.embedding):
        raise FeatureFileError(f"{path}: holds token {int(ids.max())}, the target has {len(outer.embedding)}")
    states = dict(zip(taps, aux.split(width, dim=1), strict=True))
    states |= {Tap(0): outer.embed(ids), Tap(layers, normed=True): last}
    return Text(ids, states, (last @ outer.output.T).argmax(-1), mask)


def known_alternatives(served: Wiring, layers: int) -> list[Wiring]:
    """The alternatives whose states a dump holds: other orders, the embedding, and the last state."""
    there = {*served.taps, Tap(0), Tap(layers, normed=True)}
    return [wiring for wiring in alternatives(served, layers) if set(wiring.taps) <= there]


def texts_of(files: list[Path], served: Wiring, layers: int, outer: OuterMatrices) -> Iterator[Text]:
    """All texts that are long enough to draft in."""
    for path in files:
        text = read_features(path, served.taps, layers, outer)
        if len(text.ids) > 2:
            yield text


def _load(path: Path) -> dict[str, Tensor]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            content = torch.load(cast(IO[bytes], file), map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, UnpicklingError) as error:
        raise FeatureFileError(
            f"{path}: cannot be read as tensors alone: {str(error).splitlines()[0]}"
        ) from None
    missing = [
        key for key in _KEYS if not (isinstance(content, dict) and isinstance(content.get(key), Tensor))
    ]
    if missing:
        raise FeatureFileError(
            f"{path}: has no tensor {' nor '.join(missing)}; the format is SpecForge's EAGLE-3 one"
        )
    return cast(dict[str, Tensor], content)
