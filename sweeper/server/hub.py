"""The hub that checkpoints come from, and what to do where it cannot be reached."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import requests

from sweeper.config import StudyConfig
from sweeper.server.command import launch_environment

HUB = "https://huggingface.co"
ANSWER_S = 5.0


def asking_environment(study: StudyConfig) -> dict[str, str]:
    """The environment of a launch, for a process that only looks at the study's checkpoints.

    Where these lie on a hub that does not answer, it says so: the hub's own client would try again for half a minute.
    """
    environment = launch_environment(study)
    checkpoints = [study.engine.model, *(draft.path for draft in study.space.drafts.values())]
    on_hub = not all(Path(checkpoint).exists() for checkpoint in checkpoints)
    if on_hub and "HF_HUB_OFFLINE" not in environment and not answers(environment.get("HF_ENDPOINT") or HUB):
        environment["HF_HUB_OFFLINE"] = "1"
    return environment


@lru_cache(maxsize=4)
def answers(url: str) -> bool:
    """Whether anything at all comes back from there within ``ANSWER_S`` seconds; asked once per process."""
    try:
        requests.head(url, timeout=ANSWER_S)
    except requests.RequestException:
        return False
    return True
