"""Reads prompts and deals them out: every load point gets its own, the same ones for every config."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sweeper.config import StudyConfig
from sweeper.errors import SweeperError


class WorkloadError(SweeperError):
    """The prompt file is unusable or too short for the loads asked for."""


@dataclass(frozen=True)
class Prompt:
    """One request's text; ``id`` names it in every record."""

    id: str
    text: str


@dataclass(frozen=True)
class PromptPlan:
    """The prompts of every load, in the order they are sent. No prompt stands in two loads."""

    by_load: Mapping[int, tuple[Prompt, ...]]
    warmup: Mapping[int, tuple[Prompt, ...]]
    fingerprint: str


def read_prompts(path: str | Path) -> list[Prompt]:
    """All prompts of a JSONL file with one ``{"id": ..., "prompt": "..."}`` a line; ``id`` may be left out.

    Raises:
        WorkloadError: a line is no such object, is empty, or repeats an earlier prompt or id.
    """
    prompts: dict[str, Prompt] = {}
    texts: dict[str, int] = {}
    try:
        lines = (
            Path(path).read_text("utf-8").split("\n")
        )  # splitlines would also split at U+2028 inside a text
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{path}: cannot be read as UTF-8 text: {error}") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise WorkloadError(f"{where}: no JSON: {error.msg}") from None
        text = row.get("prompt") if isinstance(row, dict) else None
        if not isinstance(text, str) or not text.strip():
            raise WorkloadError(f'{where}: a line needs "prompt" with a non-empty text')
        if text in texts:
            raise WorkloadError(f"{where}: the same prompt as in line {texts[text]}; prompts must differ")
        prompt = Prompt(str(row.get("id", number)), text)
        if prompt.id in prompts:
            raise WorkloadError(f"{where}: id {prompt.id!r} stands twice")
        prompts[prompt.id], texts[text] = prompt, number
    return list(prompts.values())


def plan_prompts(study: StudyConfig) -> PromptPlan:
    """Deal the prompts out to the loads and their warm-ups, in an order that the seed fixes.

    Raises:
        WorkloadError: there are fewer prompts than the loads need.
    """
    prompts = read_prompts(study.workload.prompts)
    measurement = study.measurement
    random.Random(measurement.seed).shuffle(prompts)
    loads = study.workload.concurrency
    needed = sum(measurement.requests(c) + measurement.warmup_requests for c in loads)
    if len(prompts) < needed:
        raise WorkloadError(
            f"{study.workload.prompts}: {len(prompts)} prompts, but concurrency {loads} with "
            f"{measurement.min_requests} requests or {measurement.rounds} rounds each need {needed} distinct ones; "
            "add prompts or lower measurement.min_requests, measurement.rounds or workload.concurrency"
        )
    deck = iter(prompts)
    warmup = {c: tuple(next(deck) for _ in range(measurement.warmup_requests)) for c in loads}
    by_load = {c: tuple(next(deck) for _ in range(measurement.requests(c))) for c in loads}
    return PromptPlan(by_load, warmup, _fingerprint(warmup, by_load))


def _fingerprint(*groups: Mapping[int, tuple[Prompt, ...]]) -> str:
    """Hash of every text in its place, so that two studies with equal traffic share a baseline."""
    content = [[load, [p.text for p in prompts]] for group in groups for load, prompts in group.items()]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
