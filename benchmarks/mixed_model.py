"""Step rates of configs from visits to their servers, at one load: mixed models.

Steps per second of all requests = those of a request while it is answered (1 / step time) x the share of the time in
which requests step, instead of waiting for their first token. The machine's speed moves the first, which depends on
everything; it cancels in the second, which is nearly the same for all configs. So they have a model each:

    ln value of a visit = fixed effects + what is its shape's and its config's own + the machine's mood in that group
                          + the prompts' + that launch of the server + what is left

Fixed are, for the pace, every draft, a polynomial of second degree in the logarithms of steps, topk and draft tokens,
and the tokens per step; for the share, what share of their time requests of that pace would wait. The others are
random effects, among them what is a shape's own besides the polynomial; their sizes are estimated by restricted
maximum likelihood, so it is the visits that say how far to believe a shape against its neighbours. How launches
differ shows from the second one on. What is left has a variance in inverse proportion to the visit's time; moods move
the plain server more or less than the others, so its visits have a further variance of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve, orth
from scipy.optimize import minimize

from benchmarks.side_by_side import Visit
from sweeper.analysis.intervals import Array
from sweeper.records import Load
from sweeper.speculation import NO_SPECULATION, SpeculationConfig

PLAIN = str(NO_SPECULATION)
EFFECTS = ("mood", "prompts", "launch", "shape", "config", "rest")
LEAST = 0.005
"""Standard deviation of every effect, at least: few visits often show none of one that is there."""


@dataclass(frozen=True)
class Pooled:
    """ln of something for every config, the standard error of its difference from the mean of all, and the effects.

    ``effects``: standard deviations of the random effects, the rest's of a visit of median time; one that these visits
    cannot tell is nan. ``mood``: ln speed of the machine by group of visits.
    """

    value: dict[str, float]
    error: dict[str, float]
    effects: dict[str, float]
    mood: dict[int, float]


@dataclass(frozen=True)
class StepRates:
    """``pace``: ln steps per second of one request; ``share``: ln share of the time in which requests step."""

    pace: Pooled
    share: Pooled
    load: Load

    def value(self, name: str) -> float:
        """ln steps per second of all requests together."""
        return self.pace.value[name] + self.share.value[name] + math.log(self.load.concurrency)

    def error(self, name: str) -> float:
        return math.hypot(self.pace.error[name], self.share.error[name])

    def mood(self, group: int) -> float:
        return self.pace.mood[group] + self.share.mood[group]

    def effect(self, name: str) -> float:
        """Of the step rate; nan where these visits cannot tell."""
        return math.hypot(self.pace.effects[name], self.share.effects[name])


def step_rates(visits: Sequence[Visit], configs: Mapping[str, SpeculationConfig]) -> StepRates:
    """All visits must be of one load, which has a concurrency; ``configs``: theirs, by name.

    Raises:
        ValueError: these visits do not show by how much they scatter.
    """
    load = Load.parse(visits[0].load)
    names = sorted({v.config for v in visits})
    shape = {name: str(replace(configs[name], draft="")) for name in names}
    drafts = sorted({configs[name].draft for name in names if name != PLAIN})
    own = {
        "shape": _indicators(list(shape.values()), sorted(set(shape.values()) - {PLAIN})),
        "config": np.eye(len(names))[:, [name != PLAIN and len(drafts) > 1 for name in names]],
    }
    tokens = [np.mean([v.tokens_per_step for v in visits if v.config == name]) for name in names]
    pace = _fitted(
        visits,
        shape,
        -np.log([v.step_time_s for v in visits]),
        np.hstack(
            [
                _indicators([configs[name].draft for name in names], [NO_SPECULATION.draft, *drafts]),
                [_powers(configs[name]) for name in names],
                np.array(tokens)[:, None],
            ]
        ),
        own,
    )
    # Who waits P seconds for a first token, and decodes for N steps of t, steps N t / (P + N t) of the time; N is one
    # over the tokens per step: ln share is about -P x tokens per step / t.
    waits = np.array([count * math.exp(pace.value[name]) for name, count in zip(names, tokens, strict=True)])
    share = _fitted(
        visits,
        shape,
        np.log([v.step_rate * v.step_time_s / load.concurrency for v in visits]),
        np.stack([np.ones(len(names)), waits / waits.mean()], axis=1),
        own,
    )
    return StepRates(pace, share, load)


def _fitted(
    visits: Sequence[Visit],
    shape: Mapping[str, str],
    y: Array,
    fixed_of: Array,
    own_of: Mapping[str, Array],
) -> Pooled:
    """``y`` [visits] by fixed effects [configs, any] and random ones [configs, any] of the configs, in their order."""
    names = sorted({v.config for v in visits})
    fixed_of = orth(fixed_of)
    groups = sorted({v.group for v in visits})
    is_config = _indicators([v.config for v in visits], names)
    in_group = _indicators([v.group for v in visits], groups)
    fixed = is_config @ fixed_of
    own_of = {name: columns for name, columns in own_of.items() if columns.shape[1]}
    if len(y) <= np.linalg.matrix_rank(
        np.hstack([fixed, *(is_config @ c for c in own_of.values()), in_group])
    ):
        raise ValueError(f"{len(y)} visits do not show by how much they scatter; it takes more laps")
    labels: dict[str, Sequence[object]] = {
        "mood": [v.group for v in visits],
        "prompts": [v.block for v in visits],
        "launch": [(v.launch, shape[v.config]) for v in visits],
    }
    if len({v.launch for v in visits}) == 1:
        del labels["launch"]
    columns = {name: is_config @ each for name, each in own_of.items()}
    columns |= {name: _indicators(each, sorted(set(each), key=str)) for name, each in labels.items()}
    alike = {name: each @ each.T for name, each in columns.items() if each.shape[1] > 1}
    seconds = np.array([v.seconds for v in visits])
    alike["rest"] = np.diag(np.median(seconds) / seconds)
    if len(plain := np.flatnonzero([v.config == PLAIN for v in visits])) > 1:
        alike["plain"] = np.diag([float(i in plain) for i in range(len(y))])

    def covariance(sizes: Array, without: Mapping[str, Array] | None = None) -> Array:
        found = [
            np.exp(2 * size) * like
            for (name, like), size in zip(alike.items(), sizes, strict=True)
            if name not in (without or {})
        ]
        return np.asarray(sum(found))

    def loss(sizes: Array) -> float:
        factor = cho_factor(covariance(sizes), lower=True)
        information = fixed.T @ cho_solve(factor, fixed)
        residual = y - fixed @ np.linalg.solve(information, fixed.T @ cho_solve(factor, y))
        determinant = 2 * np.log(np.diag(factor[0])).sum() + np.linalg.slogdet(information)[1]
        return float(determinant + residual @ cho_solve(factor, residual)) / 2

    best = minimize(
        loss,
        np.full(len(alike), np.log(0.03)),
        method="L-BFGS-B",
        bounds=[(np.log(LEAST), 0)] * len(alike),
    )
    sizes = dict(zip(alike, map(float, np.exp(best.x)), strict=True))
    # The fixed effects and the configs' own ones, which have a prior, at once.
    factor = cho_factor(covariance(best.x, without=own_of), lower=True)
    rows = np.hstack([fixed_of, *own_of.values()])
    prior = np.concatenate(
        [np.zeros(fixed_of.shape[1]), *(np.full(c.shape[1], sizes[n] ** -2) for n, c in own_of.items())]
    )
    both = is_config @ rows
    spread = np.linalg.inv(both.T @ cho_solve(factor, both) + np.diag(prior))
    found = spread @ (both.T @ cho_solve(factor, y))
    centred = rows - rows.mean(axis=0)
    mood = sizes.get("mood", 0.0) ** 2 * in_group.T @ cho_solve(factor, y - both @ found)
    return Pooled(
        dict(zip(names, map(float, rows @ found), strict=True)),
        dict(zip(names, map(float, np.sqrt(np.diag(centred @ spread @ centred.T))), strict=True)),
        {name: sizes.get(name, math.nan) for name in EFFECTS},
        dict(zip(groups, map(float, mood), strict=True)),
    )


def _powers(config: SpeculationConfig) -> list[float]:
    """Of ln steps, topk and draft tokens, up to the second; zeros for the plain server."""
    logs = np.log([config.num_steps or 1, config.topk or 1, config.num_draft_tokens])
    return [*logs, *np.outer(logs, logs)[np.triu_indices(len(logs))]]


def _indicators(labels: Sequence[object], of: Sequence[object]) -> Array:
    """1 where a row's label is the column's; [labels, of]."""
    return np.array([[label == each for each in of] for label in labels], float).reshape(len(labels), len(of))
