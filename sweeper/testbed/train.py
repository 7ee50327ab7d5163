"""Training of the tiny target and its drafts.

Shapes: B sequences, T positions, h hidden size.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from sweeper.drafts.eagle3 import Eagle3Config, Eagle3Head
from sweeper.drafts.layers import LayerShape
from sweeper.testbed.corpus import Corpus
from sweeper.testbed.llama import Llama, LlamaConfig, LlamaOutput, initialise
from sweeper.testbed.optimizer import Optimizer, schedule
from sweeper.testbed.recipe import Recipe, Training

Report = Callable[[str, int, float], None]
"""Called after every step with the name of the phase, the number of steps done, and the loss in nats."""

_DEPTH_DECAY = 0.85  # weight of a chained draft step relative to the one before
_HELD_OUT_WINDOWS = 32


def batches(corpus: Corpus, training: Training, extra: int, seed: int) -> Iterator[Tensor]:
    """Endless batches [B, T + ``extra``] of shuffled windows; each is used once per pass."""
    while True:
        for batch in corpus.windows(training.length + extra, seed).split(training.batch):
            if len(batch) == training.batch:
                yield batch
        seed += 1


def fit(model: nn.Module, training: Training, steps: range, loss: Callable[[int], Tensor]) -> Iterator[float]:
    """Take ``steps`` of a training run and yield the loss of each."""
    optimizer = Optimizer(model, training.matrix_rate, training.other_rate)
    for step in steps:
        value = loss(step)
        value.backward()
        optimizer.step(schedule(step, training.steps))
        yield value.item()


def train_target(corpus: Corpus, recipe: Recipe, report: Report) -> Llama:
    """A Llama that predicts the next token of the corpus."""
    torch.manual_seed(0)
    training = recipe.target
    model = Llama(_target_config(recipe, recipe.layers >> len(recipe.grow_at)))
    source = batches(corpus, training, extra=1, seed=1)

    def loss(step: int) -> Tensor:
        ids = next(source)
        return _cross_entropy(model(ids[:, :-1]).logits, ids[:, 1:])

    bounds = [0, *(int(share * training.steps) for share in recipe.grow_at), training.steps]
    for begin, end in pairwise(bounds):
        if begin:
            model.grow()
        for step, value in enumerate(fit(model, training, range(begin, end), loss), start=begin + 1):
            report("target", step, value)
    return model


def train_eagle3(target: Llama, corpus: Corpus, recipe: Recipe, report: Report) -> Iterator[Eagle3Head]:
    """An EAGLE-3 head, yielded at each of ``recipe.eagle3_checkpoints`` (the same object each time).

    The labels are the target's own choices, not its probabilities: greedy drafts are judged by agreement,
    and hard labels reach more of it in the same time.
    """
    torch.manual_seed(1)
    training = recipe.eagle3
    head = _new_head(target)
    deepest = recipe.eagle3_depths[-1][1]
    source = batches(corpus, training, extra=deepest, seed=2)

    def loss(step: int) -> Tensor:
        depth = [d for share, d in recipe.eagle3_depths if step >= share * training.steps][-1]
        ids = next(source)
        output = _run(target, ids)
        weights = torch.tensor([_DEPTH_DECAY**j for j in range(depth)])
        losses = [
            _cross_entropy(logits, _labels(output, j + 1, logits.shape[1]))
            for j, logits in enumerate(draft_logits(head, target, output, ids, depth))
        ]
        return (torch.stack(losses) * weights / weights.sum()).sum()

    ends = {round(percent / 100 * training.steps) for percent in recipe.eagle3_checkpoints}
    for step, value in enumerate(fit(head, training, range(training.steps), loss), start=1):
        report("eagle3", step, value)
        if step in ends:
            yield head


def train_standalone(target: Llama, corpus: Corpus, recipe: Recipe, report: Report) -> Llama:
    """A shallow Llama that imitates the target's choices; it starts from the target's first layers."""
    torch.manual_seed(2)
    training = recipe.standalone
    model = target.shallow(recipe.standalone_layers)
    source = batches(corpus, training, extra=0, seed=3)

    def loss(step: int) -> Tensor:
        ids = next(source)
        return _cross_entropy(model(ids).logits, _run(target, ids).logits.argmax(-1))

    for step, value in enumerate(fit(model, training, range(training.steps), loss), start=1):
        report("standalone", step, value)
    return model


def draft_logits(
    head: Eagle3Head, target: Llama, output: LlamaOutput, ids: Tensor, depth: int
) -> list[Tensor]:
    """Logits of ``depth`` draft steps at all positions of ``ids`` [B, T] that have ``depth`` tokens after."""
    positions = ids.shape[1] - depth
    with torch.no_grad():
        embeddings = target.embed(ids[:, 1:])
    return head.unroll(output.features[:, :positions], embeddings, depth)


@torch.no_grad()
def held_out_loss(model: Llama, corpus: Corpus, length: int) -> float:
    """Cross entropy in nats per token on held-out text."""
    ids = corpus.held_out_windows(_HELD_OUT_WINDOWS, length + 1)
    return float(_cross_entropy(model(ids[:, :-1]).logits, ids[:, 1:]))


@torch.no_grad()
def eagle3_agreement(head: Eagle3Head, target: Llama, corpus: Corpus, length: int, depth: int) -> list[float]:
    """Share of held-out positions where draft step 1, 2, ... proposes what the target chooses.

    Every step is given the true text before it, so this is the accuracy a training reports, not the
    acceptance of a server.
    """
    ids = corpus.held_out_windows(_HELD_OUT_WINDOWS, length + depth)
    output = _run(target, ids)
    return [
        float((logits.argmax(-1) == _labels(output, step + 1, logits.shape[1])).float().mean())
        for step, logits in enumerate(draft_logits(head, target, output, ids, depth))
    ]


@torch.no_grad()
def standalone_agreement(model: Llama, target: Llama, corpus: Corpus, length: int) -> float:
    """Share of held-out positions where both models choose the same token."""
    ids = corpus.held_out_windows(_HELD_OUT_WINDOWS, length)
    same = model(ids).logits.argmax(-1) == target(ids).logits.argmax(-1)
    return float(same.float().mean())


def _target_config(recipe: Recipe, layers: int) -> LlamaConfig:
    shape = LayerShape(
        recipe.hidden_size, recipe.intermediate_size, recipe.heads, recipe.heads, recipe.head_dim
    )
    return LlamaConfig(shape, recipe.vocab_size, layers, recipe.max_position_embeddings)


def _new_head(target: Llama) -> Eagle3Head:
    """A fresh head whose output side is a copy of the target's."""
    config = {
        **replace(target.config, num_hidden_layers=1).as_dict(),
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": target.config.vocab_size,
    }
    head = Eagle3Head(Eagle3Config.from_dict(config))
    initialise(head, depth=1)
    own = target.state_dict()
    head.lm_head.weight.data.copy_(own["lm_head.weight"])
    head.norm.weight.data.copy_(own["model.norm.weight"])
    return head


@torch.no_grad()
def _run(target: Llama, ids: Tensor) -> LlamaOutput:
    output: LlamaOutput = target(ids)
    return output


def _labels(output: LlamaOutput, offset: int, length: int) -> Tensor:
    """The target's choices [B, ``length``] at positions ``offset``, ``offset`` + 1, ..."""
    return output.logits[:, offset : offset + length].argmax(-1)


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
