"""A draft that was trained on other hidden states than SGLang serves; made once, and kept beside the test bed."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from sweeper.drafts.eagle3 import Eagle3Head
from sweeper.testbed.corpus import Corpus, load_corpus
from sweeper.testbed.llama import Llama
from sweeper.testbed.recipe import RECIPE
from sweeper.testbed.train import batches, draft_logits, eagle3_agreement, fit

STEPS = 80
DEPTH = 3
WINDOWS = 96
SERVED = (2, 6, 9)
TRAINED_ON = (0, 2, 6)
"""Embedding, layer 2 and layer 6, where SGLang serves layers 2, 6 and 9: the case that this project was born from."""


def wired_from_the_embedding(testbed: Path) -> Path:
    """A draft as good as a training on the wrong hidden states makes it; a minute the first time.

    A fresh draft only begins to use what it reads after hundreds of steps, so this one is the healthy draft, brought to
    read other states: ``fc`` by least squares, then everything by some steps of training.
    """
    directory = testbed.with_name(f"{testbed.name}-planted") / f"embed-2-6-{STEPS}"
    if (directory / "agreement.json").exists():
        return directory
    torch.set_num_threads(1)
    target = Llama.load(testbed / "target").requires_grad_(False)
    corpus = load_corpus(RECIPE.vocab_size)
    head = Eagle3Head.load(testbed / "draft_eagle3_100")
    _read_other_states(head, target, corpus)
    _train(head, target, corpus)
    scratch = directory.with_name(f"{directory.name}.{os.getpid()}")
    head.save(scratch)
    agreement = eagle3_agreement(head, target, corpus, RECIPE.eagle3.length, 4)
    (scratch / "agreement.json").write_text(json.dumps(agreement))
    shutil.rmtree(directory, ignore_errors=True)
    scratch.rename(directory)
    return directory


def _read_other_states(head: Eagle3Head, target: Llama, corpus: Corpus) -> None:
    """Let ``fc`` make of the wrong states what it made of the right ones, as nearly as a linear map can."""
    ids = corpus.windows(RECIPE.eagle3.length, 9)[:WINDOWS]
    features = {}
    for captured in (SERVED, TRAINED_ON):
        target.captured = captured
        features[captured] = torch.cat([target(part).features for part in ids.split(8)]).flatten(0, 1)
    with torch.no_grad():
        wanted = head.fc(features[SERVED])
        head.fc.weight.copy_(torch.linalg.lstsq(features[TRAINED_ON], wanted).solution.T)


def _train(head: Eagle3Head, target: Llama, corpus: Corpus) -> None:
    """``target`` hands out the wrong states from ``_read_other_states`` on."""
    training = replace(RECIPE.eagle3, steps=STEPS, matrix_rate=0.01, other_rate=1e-3)
    source = batches(corpus, training, extra=DEPTH, seed=5)

    def loss(_: int) -> Tensor:
        ids = next(source)
        output = target(ids)
        losses = []
        for step, logits in enumerate(draft_logits(head, target, output, ids, DEPTH)):
            labels = output.logits[:, step + 1 : step + 1 + logits.shape[1]].argmax(-1)
            losses.append(functional.cross_entropy(logits.flatten(0, 1), labels.flatten()))
        return torch.stack(losses).mean()

    for _ in fit(head, training, range(STEPS), loss):
        pass
