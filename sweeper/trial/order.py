"""What the driver sends to an actor: the plan that all trials share, and the order for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sweeper.config import StudyConfig
from sweeper.drafts.preflight.findings import DraftReport
from sweeper.records import UNKNOWN_REPEATABILITY, Load, OutputComparison, Repeatability
from sweeper.server.ranks import ONE_NODE, Ranks
from sweeper.server.setup import EngineSetup
from sweeper.space import Candidate
from sweeper.study.pruning import Bar
from sweeper.workload.prompts import PromptPlan


@dataclass(frozen=True)
class TrialPlan:
    """What all trials of a study share; shipped to every actor once.

    ``preflight`` tells what is known of the drafts before anything is launched.
    """

    study: StudyConfig
    setup: EngineSetup
    prompts: PromptPlan
    preflight: tuple[DraftReport, ...] = ()


@dataclass(frozen=True)
class HotSwapOrder:
    """What a trial may do with servers that outlive their trials, for a sibling's weights.

    ``take`` one, if it is there; launch one all the same, to ``prove`` that both give the same; ``keep`` it
    afterwards. ``floor``: how far the plain server's outputs differ from themselves.
    """

    take: bool = False
    prove: bool = False
    keep: bool = False
    floor: OutputComparison | None = None


LAUNCH = HotSwapOrder()


@dataclass(frozen=True)
class TrialOrder:
    """One trial to run: a candidate, the loads to measure it at in their order, and what to compare it with.

    ``reference`` holds the baseline's token ids by prompt; None while measuring the baseline. ``bar`` is what it
    must be able to reach at the objective loads to be measured at the rest; None: it is measured at all. A ``short``
    trial sends the least requests only. The loads are visited in turns, ``laps`` times; ``repeats``: by how much such
    visits are known to differ.
    """

    candidate: Candidate
    loads: tuple[Load, ...]
    reference: Mapping[str, tuple[int, ...]] | None = None
    bar: Bar | None = None
    short: bool = False
    laps: int = 1
    repeats: Repeatability = UNKNOWN_REPEATABILITY
    hot_swap: HotSwapOrder = LAUNCH


@dataclass(frozen=True)
class Watch:
    """What a running trial has around it: ``phase`` is told what happens, ``stop`` is asked.

    ``ranks``: the other nodes of a server that spans several. ``rate`` is told output tokens per second so far, while
    a load is measured.
    """

    phase: Callable[[str], None] = lambda text: None
    stop: Callable[[], bool] = lambda: False
    ranks: Ranks = ONE_NODE
    rate: Callable[[float], None] = lambda tokens_per_second: None
