"""Step rates of configs from visits to their servers, at one load: a mixed model.

ln step rate of a visit = its shape's + its draft's + what is its config's own besides + the machine's mood in that
group of visits + the prompts' + that launch of the server + what is left. Shapes and drafts are fixed effects, the
others are random ones, whose sizes are estimated by restricted maximum likelihood. How launches differ shows from the
second one on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from benchmarks.side_by_side import Visit
from sweeper.analysis.intervals import Array
from sweeper.speculation import NO_SPECULATION

PLAIN = str(NO_SPECULATION)
LEAST = 0.005
"""Standard deviation of every effect, at least: few visits often show none of one that is there."""


@dataclass(frozen=True)
class Kind:
    """What a config is made of, by name; without speculation, both are empty."""

    shape: str
    draft: str


@dataclass(frozen=True)
class Pooled:
    """ln step rate of every config, the standard error of its difference from the mean of all, and the random effects.

    ``effects``: their standard deviations; one that these visits cannot tell is nan. ``mood``: ln speed of the machine
    by group of visits.
    """

    value: dict[str, float]
    error: dict[str, float]
    effects: dict[str, float]
    mood: dict[int, float]


def pooled(visits: Sequence[Visit], kinds: Mapping[str, Kind]) -> Pooled:
    """All visits must be of one load; ``kinds`` knows their configs.

    Raises:
        ValueError: these visits do not show by how much they scatter.
    """
    names = sorted({v.config for v in visits})
    shapes = sorted({kinds[name].shape for name in names})
    drafts = sorted({kinds[name].draft for name in names if name != PLAIN})
    groups = sorted({v.group for v in visits})
    y = np.log([v.step_rate for v in visits])
    is_config, in_group = (
        _indicators([v.config for v in visits], names),
        _indicators([v.group for v in visits], groups),
    )
    of_shape, of_draft = [kinds[name].shape for name in names], [kinds[name].draft for name in names]
    fixed_of = np.hstack([_indicators(of_shape, shapes), _indicators(of_draft, drafts[1:])])
    own_of = np.eye(len(names))[:, [name != PLAIN and len(drafts) > 1 for name in names]]
    fixed, own = is_config @ fixed_of, is_config @ own_of
    if len(y) <= np.linalg.matrix_rank(np.hstack([fixed, in_group])):
        raise ValueError(f"{len(y)} visits do not show by how much they scatter; it takes more laps")
    labels = {
        "prompts": [v.block for v in visits],
        "launch": [(v.launch, kinds[v.config].shape) for v in visits],
    }
    alike = {"mood": in_group @ in_group.T, "config": own @ own.T, "rest": np.eye(len(y))}
    for name, each in labels.items():
        columns = _indicators(each, sorted(set(each)))
        alike[name] = columns @ columns.T
    told = {
        "prompts": len(set(labels["prompts"])) > 1,
        "launch": len({v.launch for v in visits}) > 1,
        "config": len(drafts) > 1,
    }
    effects = [name for name in alike if told.get(name, True)]

    def covariance(sizes: Array, without: str = "") -> Array:
        found = [np.exp(2 * size) * alike[e] for e, size in zip(effects, sizes, strict=True) if e != without]
        return np.asarray(sum(found))

    def loss(sizes: Array) -> float:
        factor = cho_factor(covariance(sizes), lower=True)
        information = fixed.T @ cho_solve(factor, fixed)
        residual = y - fixed @ np.linalg.solve(information, fixed.T @ cho_solve(factor, y))
        determinant = 2 * np.log(np.diag(factor[0])).sum() + np.linalg.slogdet(information)[1]
        return float(determinant + residual @ cho_solve(factor, residual)) / 2

    best = minimize(
        loss,
        np.full(len(effects), np.log(0.03)),
        method="L-BFGS-B",
        bounds=[(np.log(LEAST), 0)] * len(effects),
    )
    sizes = dict(zip(effects, map(float, np.exp(best.x)), strict=True))
    # The fixed effects and the configs' own ones, which have a prior, at once.
    factor = cho_factor(covariance(best.x, without="config"), lower=True)
    both = np.hstack([fixed, own])
    prior = np.repeat([0.0, sizes.get("config", 1.0) ** -2], [fixed.shape[1], own.shape[1]])
    spread = np.linalg.inv(both.T @ cho_solve(factor, both) + np.diag(prior))
    found = spread @ (both.T @ cho_solve(factor, y))
    rows = np.hstack([fixed_of, own_of])
    centred = rows - rows.mean(axis=0)
    mood = sizes["mood"] ** 2 * in_group.T @ cho_solve(factor, y - both @ found)
    return Pooled(
        dict(zip(names, map(float, rows @ found), strict=True)),
        dict(zip(names, map(float, np.sqrt(np.diag(centred @ spread @ centred.T))), strict=True)),
        {name: sizes.get(name, math.nan) for name in alike},
        dict(zip(groups, map(float, mood), strict=True)),
    )


def _indicators(labels: Sequence[object], of: Sequence[object]) -> Array:
    """1 where a row's label is the column's; [labels, of]."""
    return np.array([[label == each for each in of] for label in labels], float).reshape(len(labels), len(of))
