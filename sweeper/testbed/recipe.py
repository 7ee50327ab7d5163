"""What is built: sizes and numbers of training steps.  Nothing here needs torch.

Budgets are steps, not seconds, so that the models are about the same on every machine.
"""

from dataclasses import dataclass

# Part of the directory name: raise it whenever a change makes other models.
RECIPE_VERSION = "1"


@dataclass(frozen=True)
class Training:
    """One training run.

    ``batch`` windows of ``length`` tokens per step; ``matrix_rate`` is Muon's learning rate,
    ``other_rate`` AdamW's for embedding, output head and norms.
    """

    steps: int
    batch: int
    length: int
    matrix_rate: float
    other_rate: float


@dataclass(frozen=True)
class Recipe:
    """Everything the test bed is made from.

    ``grow_at``: shares of the target's steps after which its depth doubles, so that it starts with
    ``layers / 2 ** len(grow_at)`` layers.  ``eagle3_checkpoints``: shares of the draft's steps that are
    saved, in percent.  ``eagle3_depths``: (share, depth): from this share of the steps on, the draft is
    unrolled ``depth`` steps.
    """

    target: Training
    eagle3: Training
    standalone: Training
    vocab_size: int = 2048
    hidden_size: int = 192
    intermediate_size: int = 512
    layers: int = 12
    heads: int = 3
    head_dim: int = 64
    max_position_embeddings: int = 2048
    grow_at: tuple[float, ...] = (0.62, 0.86)
    eagle3_checkpoints: tuple[int, ...] = (10, 35, 100)
    eagle3_depths: tuple[tuple[float, int], ...] = ((0.0, 1), (0.5, 2), (0.75, 4))
    standalone_layers: int = 2
    prompts: int = 256
    prompt_tokens: int = 64


# Deep and thin on purpose: on a CPU the cost of a step follows the number of layers, so that one step of
# a one-layer draft costs about a sixth of the target's, as it does on large models.
RECIPE = Recipe(
    target=Training(steps=450, batch=8, length=128, matrix_rate=0.014, other_rate=4e-3),
    eagle3=Training(steps=500, batch=4, length=128, matrix_rate=0.035, other_rate=3e-3),
    standalone=Training(steps=90, batch=4, length=128, matrix_rate=0.014, other_rate=3e-3),
)
