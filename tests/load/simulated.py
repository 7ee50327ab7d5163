"""An engine on paper: steps in lock-step over all slots, with a machine whose mood drifts. Gives request records."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from sweeper.records import Load, RequestRecord


@dataclass(frozen=True)
class Engine:
    """``step_s`` seconds a step; its log scatters by ``mood``, which ``stick`` correlates from step to step.

    ``chain`` drafts a step: prompt by prompt, each is accepted with a probability of its own. ``slow_from`` [s] on, all
    steps take ``slowness`` times as long.
    """

    concurrency: int = 4
    step_s: float = 0.02
    mood: float = 0.1
    stick: float = 0.8
    chain: int = 0
    slow_from: float = math.inf
    slowness: float = 1.0


@dataclass
class _Slot:
    prompt: int
    sent_s: float
    random: np.random.Generator
    acceptance: float
    arrivals: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    histogram: list[int] = field(default_factory=list)

    def step(self, now: float, chain: int, tokens: int) -> bool:
        """Take what a step gives; whether the request is complete."""
        kept = 0
        while self.arrivals and kept < chain and self.random.random() < self.acceptance:
            kept += 1
        if self.arrivals:
            self.histogram[kept] += 1
        self.arrivals.append(now)
        self.counts.append(min(1 + kept, tokens - sum(self.counts)))
        return sum(self.counts) >= tokens


def requests(
    engine: Engine, count: int, seed: int, prompts: int = 0, tokens: int = 48
) -> list[RequestRecord]:
    """``count`` answered requests; ``seed`` is the machine's, ``prompts`` says which prompts they are."""
    mood_of = np.random.default_rng(seed)
    now, mood = 0.0, 0.0
    waiting = [_slot(prompts + i, engine.chain) for i in range(count)]
    active: list[_Slot] = []
    done: list[RequestRecord] = []
    while active or waiting:
        while waiting and len(active) < engine.concurrency:
            active.append(waiting.pop(0))
            active[-1].sent_s = now
        mood = engine.stick * mood + math.sqrt(1 - engine.stick**2) * mood_of.normal() * engine.mood
        now += engine.step_s * math.exp(mood) * (engine.slowness if now >= engine.slow_from else 1.0)
        for slot in list(active):
            if slot.step(now, engine.chain, tokens):
                active.remove(slot)
                done.append(_record(slot, engine))
    return sorted(done, key=lambda r: r.sent_s)


def _slot(prompt: int, chain: int) -> _Slot:
    random = np.random.default_rng(prompt)
    return _Slot(prompt, 0.0, random, random.uniform(0.4, 0.9), histogram=[0] * (chain + 1))


def _record(slot: _Slot, engine: Engine) -> RequestRecord:
    rounds = sum(slot.histogram)
    return RequestRecord(
        prompt=f"p{slot.prompt}",
        load=str(Load(engine.concurrency)),
        sent_s=slot.sent_s,
        first_token_s=slot.arrivals[0],
        done_s=slot.arrivals[-1],
        prompt_tokens=8,
        completion_tokens=sum(slot.counts),
        cached_tokens=0,
        finish_reason="length",
        arrival_s=tuple(slot.arrivals),
        arrival_tokens=tuple(slot.counts),
        verify_rounds=rounds if engine.chain else None,
        accepted_drafts=sum(i * n for i, n in enumerate(slot.histogram)) if engine.chain else None,
        histogram=tuple(slot.histogram) if engine.chain else None,
    )
