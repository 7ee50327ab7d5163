"""Whole jobs of probe and map, from names to results: what a command, or a Ray task, runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from sweeper.config import StudyConfig
from sweeper.drafts.acceptance_map import AcceptanceMap
from sweeper.drafts.agreement import Text
from sweeper.drafts.draft_tree import TreeSize
from sweeper.drafts.eagle3 import Eagle3Error, Eagle3Head
from sweeper.drafts.feature_files import OuterMatrices, feature_files, known_alternatives, texts_of
from sweeper.drafts.fingerprint import local_checkpoint
from sweeper.drafts.map_pass import MapWork, make_map
from sweeper.drafts.probe import ProbeNames, ProbeWork, probe
from sweeper.drafts.probe_report import ProbeReport
from sweeper.drafts.served_draft import ServedDraft
from sweeper.drafts.target import Target, target_config
from sweeper.drafts.texts import Continuation, continued, prompts_fingerprint, prompts_of
from sweeper.drafts.wiring import alternatives, served_wiring
from sweeper.errors import SweeperError

Progress = Callable[[str, int, int], None]
"""Called with a stage's name, how many of its texts are done, and how many there are."""


@dataclass(frozen=True)
class ProbeJob:
    """Drafts of a study to probe on ``prompts`` prompts, or on dumped ``features`` (then nothing is generated)."""

    study: StudyConfig
    drafts: Mapping[str, str]
    prompts: int = 32
    features: Path | None = None
    depth: int = 5


@dataclass(frozen=True)
class MapJob:
    """Drafts of a study to map on ``prompts`` prompts, with at most one size per topk."""

    study: StudyConfig
    drafts: Mapping[str, str]
    sizes: Sequence[TreeSize]
    prompts: int = 64


def device() -> str:
    """The GPU of this process, or the CPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def run_probe(
    job: ProbeJob, progress: Progress, cannot: Callable[[str, str], None] | None = None
) -> list[ProbeReport]:
    """A report per draft. ``cannot`` is told of drafts that cannot be run, and why; without it, that is an error.

    Raises:
        SweeperError: target, drafts, prompts or dumps cannot be read, or do not belong together.
    """
    if job.features is not None:
        return [_probe_features(job, name, path, progress) for name, path in job.drafts.items()]
    target = _target(job.study)
    texts = _texts(target, job.study, job.prompts, progress)
    reports = []
    for name, path in job.drafts.items():
        try:
            reports.append(_probe_target(job, target, texts, (name, path), progress))
        except SweeperError as error:
            if cannot is None:
                raise
            cannot(name, str(error))
    return reports


def _target(study: StudyConfig) -> Target:
    """The study's target, which ends its outputs where the study's server would."""
    target = Target.load(str(local_checkpoint(study.engine.model)), device())
    if study.workload.ignore_eos:
        target.end_tokens = frozenset()
    return target


def _texts(target: Target, study: StudyConfig, count: int, progress: Progress) -> list[Continuation]:
    prompts = prompts_of(study, count)
    stage = _stage(progress, "the target's own outputs", len(prompts))
    return continued(target, prompts, study.workload.max_new_tokens, stage)


def _stage(progress: Progress, name: str, count: int) -> Callable[[int], None]:
    done = 0

    def more(finished: int) -> None:
        nonlocal done
        done += finished
        progress(name, done, count)

    progress(name, 0, count)
    return more


def _probe_target(
    job: ProbeJob, target: Target, texts: Sequence[Continuation], named: tuple[str, str], progress: Progress
) -> ProbeReport:
    name, path = named
    draft = ServedDraft.load(local_checkpoint(path), target)
    others = [w for w in alternatives(draft.wiring, target.layers) if all(map(target.has, w.taps))]
    usable = [text for text in texts if text.output_tokens > 1]

    def read() -> Iterator[Text]:
        taps = {tap for wiring in (draft.wiring, *others) for tap in wiring.taps}
        for text in usable:
            ids = torch.tensor(text.ids, device=target.device)
            reading = target.read(ids, taps)
            answer = torch.arange(len(ids)) >= text.start
            yield Text(ids, reading.states, reading.choices, answer)

    work = ProbeWork(draft, target.embed, others, target.layers, target.architecture, job.depth)
    source = f"greedy continuations of {job.study.workload.prompts}"
    names = ProbeNames(name, job.study.engine.model, source)
    return probe(work, read(), names, _stage(progress, f"draft {name}", len(usable)))


def _probe_features(job: ProbeJob, name: str, path: str, progress: Progress) -> ProbeReport:
    assert job.features is not None
    directory = local_checkpoint(job.study.engine.model)
    config = target_config(str(directory))
    layers, architecture = int(config["num_hidden_layers"]), str(config["architectures"][0])
    head = Eagle3Head.load(local_checkpoint(path)).eval().requires_grad_(False)
    wiring = served_wiring(head.config.raw, layers, architecture)
    if len(wiring.taps) != head.config.num_aux_hidden_states:
        raise Eagle3Error(
            f"{path}: reads {head.config.num_aux_hidden_states} states, SGLang captures {wiring.name(layers)}"
        )
    outer = OuterMatrices.load(directory)
    files = feature_files(job.features, job.prompts)
    work = ProbeWork(
        ServedDraft(head, wiring),
        outer.embed,
        known_alternatives(wiring, layers),
        layers,
        architecture,
        job.depth,
    )
    note = (
        f"the dumped states are taken for {wiring.name(layers)}, in this order; if the dump was made with other "
        "layers, a draft that does well here reads those, not what SGLang serves: probe it on the target to tell"
    )
    names = ProbeNames(name, job.study.engine.model, f"hidden states in {job.features}", (note,))
    return probe(
        work, texts_of(files, wiring, layers, outer), names, _stage(progress, f"draft {name}", len(files))
    )


def run_map(job: MapJob, progress: Progress) -> AcceptanceMap:
    """The acceptance map of all drafts.

    Raises:
        SweeperError: target, drafts or prompts cannot be read, or do not belong together.
    """
    directory = local_checkpoint(job.study.engine.model)
    target = _target(job.study)
    prompts = prompts_of(job.study, job.prompts)
    length = job.study.workload.max_new_tokens
    texts = continued(target, prompts, length, _stage(progress, "the target's own outputs", len(prompts)))
    work = MapWork(
        directory,
        {name: local_checkpoint(path) for name, path in job.drafts.items()},
        job.sizes,
        job.study.workload.prompts,
        prompts_fingerprint(prompts, length),
        length,
    )
    usable = sum(text.output_tokens > 1 for text in texts)
    return make_map(target, work, texts, _stage(progress, "draft trees", usable))
