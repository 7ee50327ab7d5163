"""Texts to judge drafts on: prompts of a workload with the target's own greedy continuation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from sweeper.config import StudyConfig
from sweeper.drafts.target import Progress, Target
from sweeper.errors import SweeperError
from sweeper.workload.chat import render
from sweeper.workload.conversation import Prompt
from sweeper.workload.prompts import read_conversations


@dataclass(frozen=True)
class Continuation:
    """Token ids of a prompt and its output; ``start`` is the place of the output's first token."""

    prompt: str
    ids: tuple[int, ...]
    start: int

    @property
    def output_tokens(self) -> int:
        return len(self.ids) - self.start


def prompts_of(study: StudyConfig, count: int) -> list[Prompt]:
    """The first ``count`` prompts of a study's workload, as a server is sent them (of conversations: the first turn).

    Raises:
        WorkloadError: the prompts are unusable or cannot be rendered.
    """
    conversations = read_conversations(study)
    few = type(conversations)(conversations.source, conversations.items[:count], conversations.notes)
    return list(render(study, few).prompts)


def prompts_fingerprint(prompts: Sequence[Prompt], max_new_tokens: int) -> str:
    """Hash of the texts in their order, and of how far they are continued."""
    content = json.dumps([max_new_tokens, [prompt.text for prompt in prompts]])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def continued(
    target: Target, prompts: Sequence[Prompt], max_new_tokens: int, progress: Progress | None = None
) -> list[Continuation]:
    """Every prompt with the target's greedy output.

    Raises:
        SweeperError: all outputs are too short to draft from.
    """
    encoded = [target.encode(prompt.text) for prompt in prompts]
    outputs = target.greedy(encoded, max_new_tokens, progress)
    found = [
        Continuation(prompt.id, (*ids, *output), len(ids))
        for prompt, ids, output in zip(prompts, encoded, outputs, strict=True)
    ]
    if not any(each.output_tokens > 1 for each in found):
        raise SweeperError(
            "the target ends every output with its first token, so there is nothing to draft; check the chat template "
            "(workload.chat_template) and the prompts"
        )
    return found
