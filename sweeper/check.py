"""What ``sweeper check`` says about a study before anything is launched."""

from __future__ import annotations

import shlex

from pydantic import BaseModel, ConfigDict, Field

from sweeper.config import StudyConfig
from sweeper.drafts.preflight import DraftReport, failing, preflight
from sweeper.driver.drives import inside_job, run_path
from sweeper.errors import SweeperError
from sweeper.records import Interval, Pin
from sweeper.releases import NEWEST_KNOWN, warning_about
from sweeper.search import make_sampler
from sweeper.server.command import Address, launch_command, launch_environment, public_command
from sweeper.server.install import NoHelpError, installed_version
from sweeper.server.prepare import look_up
from sweeper.server.setup import EngineSetup, context_of, shared_pins, wants_resolving
from sweeper.space import Enumeration, enumerate_space
from sweeper.speculation import SpeculationConfig
from sweeper.workload.chat import raw_warning
from sweeper.workload.conversation import CannotRenderHereError
from sweeper.workload.prompts import plan_prompts, read_conversations


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class CheckedCandidate(_Model):
    requested: SpeculationConfig
    effective: SpeculationConfig
    overrides: list[str] = Field(description="what SGLang changes in the request, and by which rule")
    predicted_accept_length: Interval | None = Field(
        None, description="by the acceptance map, where one is given and covers the config"
    )


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
    launches: int = Field(
        description="servers a run would start, the baseline not counted, nor drafts with an error in preflight"
    )
    confirming: int = Field(
        description="further launches that measure the finalists and the baseline again, at least"
    )
    most_confirming: int = Field(description="at most, where these leave open whether speculation pays")
    prompts: int = Field(description="requests measured per launch, at least")
    most_prompts: int | None = Field(
        description="requests measured per launch, at most: where a rate stays uncertain; null: not rendered here"
    )
    prompt_notes: list[str] = Field([], description="how the prompts' texts came about")
    engine_version: str
    flags_looked_up: bool = Field(
        description="whether engine.extra_args was compared with the flags of the SGLang that is installed here"
    )
    pins: list[Pin] = Field(description="flags that the baseline and every trial get explicitly, and why")
    resolved_at_start: bool = Field(
        description="whether further pins (attention backend, page size, memory share) follow on the servers' own node"
    )
    preflight: list[DraftReport] = Field(
        [], description="what the drafts' own files tell of how they will be served; see docs/drafts.md"
    )
    warnings: list[str] = []
    command: str = Field(description="server command of the first candidate, quoted for a shell")


def usable_space(config: StudyConfig, setup: EngineSetup) -> Enumeration:
    """The space of a study as one SGLang release sees it.

    Raises:
        SweeperError: not one valid config is left.
    """
    space = enumerate_space(config.space, context_of(config, setup))
    if not space.candidates:
        rules = "; ".join(dict.fromkeys(f"{r.requested}: {r.rule}" for r in space.rejections[:3]))
        raise SweeperError(
            f"space: all {space.asked} combinations are invalid, nothing is left to launch ({rules})"
        )
    return space


def local_setup(config: StudyConfig) -> tuple[EngineSetup, list[str]]:
    """The SGLang that is installed here, or else the newest known release; and what of it could not be looked up.

    Raises:
        SweeperError: it is installed and lacks a flag of the study.
    """
    try:
        environment = launch_environment(config)
    except SweeperError as error:  # a secret that only the servers' nodes have
        setup = EngineSetup(pins=shared_pins(config, NEWEST_KNOWN))
        return setup, [f"rules and flags are those of {NEWEST_KNOWN}: {error}"]
    try:
        version = installed_version(config.engine.python, environment.get("PYTHONPATH"))
    except SweeperError:
        setup = EngineSetup(pins=shared_pins(config, NEWEST_KNOWN))
        return setup, [f"SGLang is not installed here: rules and flags are those of {NEWEST_KNOWN}"]
    try:
        return look_up(config), []
    except NoHelpError as error:  # installed, but for other processors than this machine has
        setup = EngineSetup(version, pins=shared_pins(config, version))
        return setup, [f"flags of engine.extra_args were not looked up: {error}"]


def _about_prior_knowledge(config: StudyConfig, space: Enumeration) -> list[str]:
    """Raises SweeperError where ``search.warm_start`` or ``search.acceptance_map`` cannot be used."""
    if config.search.sampler != "structural":
        return []
    from sweeper.search.earlier import known_beforehand

    configs = [candidate.effective for candidate in space.candidates]
    return known_beforehand(config, configs, run_path(config.runs_dir, "", inside_job()))[1]


def check_study(config: StudyConfig) -> CheckReport:
    """Everything that can be known without launching a server.

    Raises:
        SweeperError: empty space, unusable prompts, an unknown server flag, or a sampler whose packages are missing.
    """
    setup, warnings = local_setup(config)
    space = usable_space(config, setup)
    conversations = read_conversations(config)
    prompts = None
    try:
        prompts = plan_prompts(config, conversations)
    except CannotRenderHereError as error:
        warnings.append(f"prompts were not rendered, and their number not checked: {error}")
    make_sampler(config.search, space.candidates, config.objective_loads)
    warnings += _about_prior_knowledge(config, space)
    reports = preflight(config, setup, space.candidates)
    left = len(space.candidates) - len(failing(reports, [c.effective for c in space.candidates]))
    asked = config.confirmation
    together = 1 + min(asked.finalists, left)
    command = launch_command(config, space.candidates[0].requested, setup, Address(30000, "KEY"))
    warnings += [w for w in (warning_about(setup.version), raw_warning(config, conversations)) if w]
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
        confirming=together * asked.repeats,
        most_confirming=together * (max(asked.repeats, asked.most_repeats) if asked.repeats else 0),
        launches=min(config.search.max_trials or left, left),
        preflight=list(reports),
        prompts=sum(config.measurement.least_requests(load) for load in config.workload.loads),
        most_prompts=sum(p.requests for group in prompts.by_load.values() for p in group)
        if prompts
        else None,
        prompt_notes=list(prompts.notes if prompts else conversations.notes),
        engine_version=setup.version,
        flags_looked_up=setup.flags is not None,
        pins=list(setup.pins),
        resolved_at_start=wants_resolving(config, setup.pins),
        warnings=warnings,
        command=shlex.join(public_command(command)),
    )
