"""The test bed's drafts, healthy and with one fault each, in the layout that SGLang reads."""

from __future__ import annotations

import json
import random
import shutil
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.planted_faults.wrong_states import wired_from_the_embedding
from sweeper.testbed.corpus import Corpus, load_corpus
from sweeper.testbed.llama import Llama
from sweeper.testbed.recipe import RECIPE
from sweeper.testbed.train import eagle3_agreement, train_eagle3

ORDER = (2, 0, 1)
"""The order in which one draft's training had the three hidden states."""
DEPTH = 5


@dataclass(frozen=True)
class Planted:
    """A draft and what its training would report: agreement by position, given the right tokens before."""

    path: Path
    agreement: list[float]
    algorithm: str = "EAGLE3"


def planted_drafts(testbed: Path, folder: Path) -> dict[str, Planted]:
    """All of them by name; those that must be trained take minutes, once."""
    quality = json.loads((testbed / "manifest.json").read_text())["quality"]
    agreement: dict[str, list[float]] = quality["eagle3_agreement"]
    full = agreement["draft_eagle3_100"]

    def changed(
        name: str,
        config: Mapping[str, Any] | None = None,
        tensors: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda found: found,
        file: tuple[str, str] | None = None,
    ) -> Planted:
        path = folder / name
        if not path.exists():
            _copy(testbed / "draft_eagle3_100", path, config or {}, tensors, file)
        return Planted(path, full)

    embedding = wired_from_the_embedding(testbed)
    return {
        "healthy_100": Planted(testbed / "draft_eagle3_100", full),
        "healthy_035": Planted(testbed / "draft_eagle3_035", agreement["draft_eagle3_035"]),
        "healthy_standalone": Planted(
            testbed / "draft_standalone", [quality["standalone_agreement"]] * DEPTH, "STANDALONE"
        ),
        "undertrained": Planted(testbed / "draft_eagle3_010", agreement["draft_eagle3_010"]),
        "wrong_layers": changed("wrong_layers", _aux(0, 1, 2)),
        "embedding_for_layer": Planted(embedding, json.loads((embedding / "agreement.json").read_text())),
        "unsorted_ids": changed("unsorted_ids", _aux(8, 1, 5), _reordered),
        "absolute_d2t": changed("absolute_d2t", tensors=_absolute_d2t),
        "missing_tensor": changed("missing_tensor", tensors=_renamed),
        "eagle_flag": Planted(testbed / "draft_eagle3_100", full, "EAGLE"),
        "rope_theta": changed("rope_theta", {"rope_theta": 5e5}),
        "tokenizer": changed("tokenizer", file=("tokenizer.json", _shuffled_tokenizer(testbed))),
        "hidden_size": changed("hidden_size", {"hidden_size": 256}),
        "other_text": _trained_on_prose(testbed, folder / "other_text"),
    }


def _copy(
    source: Path,
    path: Path,
    config: Mapping[str, Any],
    tensors: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    file: tuple[str, str] | None,
) -> None:
    path.mkdir(parents=True)
    written = {**json.loads((source / "config.json").read_text()), **config}
    (path / "config.json").write_text(json.dumps(written, indent=1))
    save_file(tensors(load_file(source / "model.safetensors")), path / "model.safetensors")
    if file:
        (path / file[0]).write_text(file[1])


def _aux(*ids: int) -> dict[str, Any]:
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": list(ids)}}


def _reordered(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """``fc`` as a training makes it that concatenates the hidden states in ORDER."""
    blocks = tensors["fc.weight"].chunk(3, dim=1)
    return {**tensors, "fc.weight": torch.cat([blocks[i] for i in ORDER], dim=1)}


def _absolute_d2t(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Target ids where SGLang adds the draft's id to what it reads."""
    return {**tensors, "d2t": torch.arange(len(tensors["lm_head.weight"])) // 2}


def _renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of one tensor, a name that SGLang does not know."""
    own = dict(tensors)
    own["midlayer.mlp.output_proj.weight"] = own.pop("midlayer.mlp.down_proj.weight")
    return own


def _shuffled_tokenizer(testbed: Path) -> str:
    """The target's tokens under other ids."""
    tokenizer = json.loads((testbed / "target" / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    ids = list(vocabulary.values())
    random.Random(1).shuffle(ids)
    tokenizer["model"]["vocab"] = dict(zip(vocabulary, ids, strict=True))
    return json.dumps(tokenizer)


def _trained_on_prose(testbed: Path, path: Path) -> Planted:
    """A head that has seen English prose only, the standard library's help texts, where it serves source code."""
    report = path / "agreement.json"
    if not report.exists():
        torch.set_num_threads(2)
        target = Llama.load(testbed / "target").requires_grad_(False)
        tokenizer = load_corpus(RECIPE.vocab_size).tokenizer
        topics = Path(sysconfig.get_path("stdlib"), "pydoc_data", "topics.py").read_text("utf-8")
        ids = torch.tensor(tokenizer.encode(topics.replace("\\n", "\n")).ids)
        part = len(ids) // 20
        prose = Corpus(tokenizer, ids[:-part], (ids[-part:],))
        *_, head = train_eagle3(target, prose, RECIPE, lambda what, step, loss: None)
        found = eagle3_agreement(head, target, prose, RECIPE.eagle3.length, DEPTH)
        shutil.rmtree(path, ignore_errors=True)
        head.save(path)
        report.write_text(json.dumps(found))
    return Planted(path, json.loads(report.read_text()))
