"""Muon for the matrices of the layers, AdamW for the rest, under one schedule.

Muon (Jordan et al., 2024) replaces the momentum of a matrix by the nearest orthogonal one.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

# Coefficients (a, b, c) of x -> a x + b x^3 + c x^5, which drive all singular values towards 1.  More
# rounds come closer, but a round costs about as much as a tenth of the gradients at this size.
_POLYNOMIALS = (
    (4.0848, -6.8946, 2.9270),
    (3.7418, -5.5913, 2.3037),
    (2.8366, -3.0525, 1.2012),
)


def orthogonalise(matrices: Tensor) -> Tensor:
    """Approximate the nearest orthogonal matrix of each of ``matrices`` [N, rows, columns]."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) * 1.01 + 1e-7)
    for a, b, c in _POLYNOMIALS:
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon:
    """Momentum with orthogonalised updates; matrices of one shape share their products."""

    def __init__(self, matrices: Iterable[nn.Parameter], momentum: float = 0.95) -> None:
        self._momentum = momentum
        self._groups: dict[torch.Size, list[tuple[nn.Parameter, Tensor]]] = defaultdict(list)
        for matrix in matrices:
            self._groups[matrix.shape].append((matrix, torch.zeros_like(matrix)))

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Apply the gradients; ``rate`` is the size of an update's singular values for square matrices."""
        for shape, group in self._groups.items():
            updates = []
            for matrix, average in group:
                assert matrix.grad is not None
                average.lerp_(matrix.grad, 1 - self._momentum)
                updates.append(matrix.grad.lerp(average, self._momentum))
            scale = max(1.0, shape[0] / shape[1]) ** 0.5
            for (matrix, _), update in zip(group, orthogonalise(torch.stack(updates)), strict=True):
                matrix.add_(update, alpha=-rate * scale)


class Optimizer:
    """Both optimizers over all parameters of ``model`` that want gradients."""

    def __init__(self, model: nn.Module, matrix_rate: float, other_rate: float) -> None:
        self._matrix_rate, self._other_rate = matrix_rate, other_rate
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in model.named_parameters():
            is_table = name.endswith(("embed_tokens.weight", "lm_head.weight"))
            (matrices if parameter.ndim == 2 and not is_table else others).append(parameter)
        self._parameters = matrices + others
        self._muon = Muon(matrices)
        self._adam = torch.optim.AdamW(others, betas=(0.8, 0.95), weight_decay=0.0, fused=True)

    def step(self, scale: float) -> None:
        """Apply and clear the gradients, with both rates times ``scale``."""
        self._muon.step(self._matrix_rate * scale)
        for group in self._adam.param_groups:
            group["lr"] = self._other_rate * scale
        self._adam.step()
        for parameter in self._parameters:
            parameter.grad = None


def schedule(step: int, steps: int) -> float:
    """Factor of the learning rate: 20 steps of warm-up, constant to 40 %, then linear down to 3 %."""
    warm_up = min(1.0, (step + 1) / 20)
    progress = step / steps
    return warm_up * (1.0 if progress < 0.4 else max(0.03, (1 - progress) / 0.6))
