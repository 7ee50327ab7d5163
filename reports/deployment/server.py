"""The server to deploy, as every format needs it: flags, environment, nodes, GPUs, files."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from reports.deployment.choice import Choice
from reports.deployment.evidence import evidence
from reports.deployment.variables import Variable, variables
from reports.study_report import StudyReport
from sweeper.adaptive import SGLANG_DEFAULT, AdaptivePolicy
from sweeper.config import StudyConfig
from sweeper.releases import release
from sweeper.server.command import arguments
from sweeper.server.setup import EngineSetup, Flags, server_flags
from sweeper.speculation import NO_DRAFT, NO_SPECULATION, SpeculationConfig

BENCHMARK_ONLY = frozenset(
    ["disable-radix-cache", "random-seed", "incremental-streaming-output", "stream-output"]
)
"""Flags that made the arms comparable; deploying does not need them."""

PORT = 30000
MEETING_PORT = 20000
"""Where the ranks of a server on several nodes find each other, on rank 0's node."""

ADAPTIVE_FLAG = "speculative-adaptive-config"
LONGEST_NAME = 40


@dataclass(frozen=True)
class Deployment:
    """One server. ``gpus`` counts those on each of its ``nodes``; ``adaptive`` is the content of the file that
    ``--speculative-adaptive-config`` names, "" where there is none.
    """

    name: str
    notes: tuple[str, ...]
    flags: Flags
    variables: tuple[Variable, ...]
    nodes: int
    gpus: int
    image: str
    version: str
    device: str
    start_timeout_s: float
    checkpoints: tuple[str, ...]
    adaptive: str = ""

    def arguments(self, adaptive_at: str = "") -> list[str]:
        """The words after ``python -m sglang.launch_server``; ``adaptive_at``: where its adaptive file lies."""
        return arguments(self.flags_with(adaptive_at))

    def flags_with(self, adaptive_at: str) -> Flags:
        """The flags, with the adaptive file at a path."""
        return {**self.flags, ADAPTIVE_FLAG: adaptive_at} if self.adaptive else dict(self.flags)

    @property
    def local_checkpoints(self) -> tuple[str, ...]:
        """Directories that a container must see at the same path; none lies in another one."""
        local = sorted({path for path in self.checkpoints if PurePosixPath(path).is_absolute()})
        return tuple(p for p in local if not any(PurePosixPath(p).is_relative_to(o) for o in local if o != p))

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the variables whose values come from elsewhere."""
        return tuple(dict.fromkeys(name for variable in self.variables for name in variable.references))

    @property
    def ready_path(self) -> str:
        """What answers 200 once requests are served: /ready costs nothing, /health generates a token when idle."""
        return "/ready" if release(self.version) >= (0, 5, 21) else "/health"


def deployment_of(config: StudyConfig, report: StudyReport, choice: Choice, image: str = "") -> Deployment:
    """The server that was measured, without the flags that only measuring needed."""
    trial = choice.trial
    chosen = trial.config if trial else NO_SPECULATION
    setup = EngineSetup(
        report.engine_version, pins=tuple(trial.pins if trial else report.pins), nodes=report.nodes
    )
    flags = {n: v for n, v in server_flags(config, chosen, setup).items() if n not in BENCHMARK_ONLY}
    checkpoints = [config.engine.model]
    if chosen.draft != NO_DRAFT:
        checkpoints.append(config.space.drafts[chosen.draft].path)
    return Deployment(
        name=object_name(report.study),
        notes=tuple(evidence(report, choice)),
        flags=flags | _adaptive_flags(chosen, config.engine.device),
        variables=variables(config.engine.env, checkpoints),
        nodes=report.nodes,
        gpus=max(1, math.ceil(config.gpus_per_server / report.nodes))
        if config.engine.device == "cuda"
        else 0,
        image=image or f"lmsysorg/sglang:v{report.engine_version}",
        version=report.engine_version,
        device=config.engine.device,
        start_timeout_s=config.engine.start_timeout_s,
        checkpoints=tuple(checkpoints),
        adaptive=adaptive_file(chosen),
    )


def _adaptive_flags(config: SpeculationConfig, device: str) -> Flags:
    """Also for a policy that was put together, whose study need not have known of any."""
    if config.option("adaptive") is None:
        return {}
    return {"speculative-adaptive": True, **({"disable-decode-cuda-graph": True} if device == "cpu" else {})}


def adaptive_file(config: SpeculationConfig) -> str:
    """The content of the file that an adaptive config needs, "" for all others."""
    policy = config.option("adaptive")
    if policy is None or policy == SGLANG_DEFAULT:
        return ""
    return AdaptivePolicy.parse(str(policy)).file_text()


def object_name(study: str) -> str:
    """The study's name as Kubernetes takes it: lower case letters, digits and dashes, begun with a letter.

    >>> object_name("Kimi_K2.5")
    'sglang-kimi-k2-5'
    """
    plain = re.sub(r"[^a-z0-9]+", "-", study.lower()).strip("-")
    return f"sglang-{plain}"[:LONGEST_NAME].rstrip("-")
