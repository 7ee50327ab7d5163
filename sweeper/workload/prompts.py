"""A study's prompts from end to end: conversations are rendered, dealt out to the loads, and named by a hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sweeper.config import StudyConfig
from sweeper.records import Load
from sweeper.workload.chat import needs_tokenizer, render
from sweeper.workload.conversation import (
    Conversations,
    History,
    Prompt,
    TooFewPromptsError,
    WorkloadError,
)
from sweeper.workload.dealing import Hands, deal, most_conversations, usable
from sweeper.workload.sources import read_conversations

__all__ = [
    "History",
    "Prompt",
    "PromptPlan",
    "WorkloadError",
    "needs_tokenizer",
    "plan_prompts",
    "read_conversations",
]


@dataclass(frozen=True)
class PromptPlan:
    """The prompts of every load, in the order they are sent. No prompt stands in two loads.

    ``warmup`` prompts are never measured; loads of one bucket share them. ``quality`` prompts are sent greedily where
    the temperature is not 0. ``notes`` say how the texts came about.
    """

    by_load: Mapping[Load, tuple[Prompt, ...]]
    warmup: Mapping[Load, tuple[Prompt, ...]]
    quality: tuple[Prompt, ...]
    fingerprint: str
    notes: tuple[str, ...] = ()


def plan_prompts(study: StudyConfig, conversations: Conversations) -> PromptPlan:
    """Render the conversations and deal them out, in their order.

    Where ``needs_tokenizer`` is true this starts the engine's interpreter, so call it where the servers will run.

    Raises:
        WorkloadError: the chat template refuses a conversation, or there are fewer prompts than the loads need.
        SweeperError: a variable of ``engine.env`` is not set here.
    """
    # A large source is rendered and tokenized only as far as it is used; buckets may need all of it.
    enough = usable(study) if study.workload.input_lengths else most_conversations(study)
    few = replace(conversations, items=conversations.items[:enough])
    try:
        return _plan(study, few)
    except TooFewPromptsError:
        if len(few) == len(conversations):
            raise
    return _plan(study, conversations)


def _plan(study: StudyConfig, conversations: Conversations) -> PromptPlan:
    rendered = render(study, conversations)
    hands = deal(study, rendered.prompts)
    notes = (*conversations.notes, *rendered.notes, *_turn_notes(hands))
    return PromptPlan(hands.by_load, hands.warmup, hands.quality, fingerprint(hands), notes)


def _turn_notes(hands: Hands) -> tuple[str, ...]:
    prompts = [prompt for hand in hands.by_load.values() for prompt in hand]
    several = [prompt for prompt in prompts if prompt.follow_ups]
    if not several:
        return ()
    requests = sum(prompt.requests for prompt in several)
    return (
        f"{len(several)} of {len(prompts)} prompts are conversations of {requests} requests; "
        "the server's own replies are their history",
    )


def fingerprint(hands: Hands) -> str:
    """Hash of every text in its place, so that two studies with equal traffic share a baseline."""

    def texts(prompts: tuple[Prompt, ...]) -> list[object]:
        rules = [
            [p.history.tail, p.history.through, p.history.strips] if p.follow_ups else [] for p in prompts
        ]
        return [[p.text, *p.follow_ups, rule] for p, rule in zip(prompts, rules, strict=True)]

    groups = [
        [[str(load), texts(hand)] for load, hand in group.items()] for group in (hands.warmup, hands.by_load)
    ]
    return hashlib.sha256(json.dumps([groups, texts(hands.quality)]).encode()).hexdigest()[:16]
