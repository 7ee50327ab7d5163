"""What ``sweeper check`` says about a study before anything is launched."""

from __future__ import annotations

import shlex

from pydantic import BaseModel, ConfigDict, Field

from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.search import make_sampler
from sweeper.server.command import Address, launch_command, public_command
from sweeper.server.install import installed_version
from sweeper.space import Enumeration, enumerate_space
from sweeper.speculation import SpeculationConfig
from sweeper.workload.prompts import plan_prompts

NEWEST_KNOWN = "0.5.23"
"""The newest SGLang release whose flags and rules were read."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class CheckedCandidate(_Model):
    requested: SpeculationConfig
    effective: SpeculationConfig
    overrides: list[str] = Field(description="what SGLang changes in the request, and by which rule")


class CheckedMerge(_Model):
    requested: SpeculationConfig
    effective: SpeculationConfig = Field(description="the candidate that this request runs as")
    rule: str


class CheckedRejection(_Model):
    requested: SpeculationConfig
    rule: str = Field(description="why SGLang would refuse it or crash")


class CheckReport(_Model):
    """asked = candidates + merges + rejections; nothing but the candidates would be launched."""

    study: str
    asked: int
    candidates: list[CheckedCandidate]
    merges: list[CheckedMerge]
    rejections: list[CheckedRejection]
    launches: int = Field(description="servers a run would start, the baseline not counted")
    prompts: int = Field(description="requests measured per launch")
    engine_version: str
    engine_found: bool = Field(
        description="whether SGLang is installed here; if not, the newest known rules were used"
    )
    command: str = Field(description="server command of the first candidate, quoted for a shell")


def usable_space(config: StudyConfig) -> Enumeration:
    """The enumerated space of a study.

    Raises:
        SweeperError: not one valid config is left.
    """
    space = enumerate_space(config.space)
    if not space.candidates:
        rules = "; ".join(dict.fromkeys(f"{r.requested.shape}: {r.rule}" for r in space.rejections[:3]))
        raise SweeperError(
            f"space: all {space.asked} combinations are invalid, nothing is left to launch ({rules})"
        )
    return space


def check_study(config: StudyConfig) -> CheckReport:
    """Everything that can be known without launching a server.

    Raises:
        SweeperError: empty space, unusable prompts, or a sampler whose packages are missing.
    """
    space = usable_space(config)
    prompts = plan_prompts(config)
    make_sampler(config.search, space.candidates)
    try:
        version, found = installed_version(config.engine.python), True
    except SweeperError:
        version, found = NEWEST_KNOWN, False
    command = launch_command(config, space.candidates[0].requested, version, Address(30000, "KEY"))
    return CheckReport(
        study=config.study,
        asked=space.asked,
        candidates=[
            CheckedCandidate(
                requested=c.requested, effective=c.effective, overrides=[str(o) for o in c.overrides]
            )
            for c in space.candidates
        ],
        merges=[
            CheckedMerge(requested=m.requested, effective=m.effective, rule=m.rule) for m in space.merges
        ],
        rejections=[CheckedRejection(requested=r.requested, rule=r.rule) for r in space.rejections],
        launches=min(config.search.max_trials or len(space.candidates), len(space.candidates)),
        prompts=sum(len(group) for group in prompts.by_load.values()),
        engine_version=version,
        engine_found=found,
        command=shlex.join(public_command(command)),
    )
