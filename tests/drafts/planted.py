"""Drafts of the test bed with one fault each, trained once per machine and kept beside the test bed."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

from sweeper.drafts.eagle3 import Eagle3Head
from sweeper.testbed.corpus import load_corpus
from sweeper.testbed.llama import Llama
from sweeper.testbed.recipe import RECIPE
from sweeper.testbed.train import eagle3_agreement, train_eagle3

STEPS = 200
TRAINED_ON = (0, 2, 6)
"""Embedding, layer 2 and layer 6, where SGLang serves layers 2, 6 and 9: the case that this project was born from."""


def wired_from_the_embedding(testbed: Path) -> Path:
    """A draft of a fair training whose features were taken one place too early; half a minute the first time."""
    directory = testbed.with_name(f"{testbed.name}-planted") / f"embed-2-6-{STEPS}"
    if (directory / "agreement.json").exists():
        return directory
    target = Llama.load(testbed / "target").requires_grad_(False)
    target.captured = TRAINED_ON
    corpus = load_corpus(RECIPE.vocab_size)
    recipe = replace(RECIPE, eagle3=replace(RECIPE.eagle3, steps=STEPS), eagle3_checkpoints=(100,))
    head: Eagle3Head = next(train_eagle3(target, corpus, recipe, lambda phase, step, loss: None))
    scratch = directory.with_name(f"{directory.name}.{os.getpid()}")
    head.save(scratch)
    agreement = eagle3_agreement(head, target, corpus, RECIPE.eagle3.length, 4)
    (scratch / "agreement.json").write_text(json.dumps(agreement))
    shutil.rmtree(directory, ignore_errors=True)
    scratch.rename(directory)
    return directory
