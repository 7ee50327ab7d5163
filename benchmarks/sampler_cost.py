"""``python -m benchmarks.sampler_cost``: what one choice of the structural sampler costs among thousands of candidates.

Made-up results, 5,000 candidates of 14 drafts; seconds of CPU per choice and the process's memory, by trials that have
ended. Fails where a choice after 100 of them takes a second or longer.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time

import numpy as np
import optuna

from sweeper.config import Search, Space
from sweeper.records import FailureClass, Load
from sweeper.search.candidates import CandidateSampler, parameters
from sweeper.search.landscape import Entry, Landscape, Point
from sweeper.search.replay import measured
from sweeper.search.samplers import make_sampler
from sweeper.space import Candidate, enumerate_space
from sweeper.speculation import SpeculationConfig
from sweeper.study.ending import end_trial

CANDIDATES = 5000
STAGES = (0, 25, 50, 100, 200, 400)
LIMIT_S = 1.0
ONE = Load(1)
PLAIN_TOK_S = 50.0


def space() -> tuple[Candidate, ...]:
    grids = [
        {"algorithm": "EAGLE3", "num_steps": {"min": 1, "max": 12}, "topk": 1},
        {
            "algorithm": "EAGLE3",
            "num_steps": {"min": 2, "max": 10},
            "topk": [2, 4, 8],
            "num_draft_tokens": {"min": 4, "max": 64, "step": 3},
        },
    ]
    drafts = {f"d{i}": {"path": f"d{i}"} for i in range(14)}
    return enumerate_space(Space.model_validate({"drafts": drafts, "grids": grids})).candidates[:CANDIDATES]


def world(config: SpeculationConfig, fails: bool) -> Landscape:
    """A landscape of this config alone."""
    length = 1 + 0.6 * min(config.num_steps, 4)
    rate = PLAIN_TOK_S * length / (1 + 0.08 * config.num_steps + 0.02 * config.num_draft_tokens)
    plain, point = (
        Point(
            output_tok_s=tok_s,
            half_width=0,
            scatter=0.01,
            accept_length=accepted,
            step_time_s=0.01,
            histogram=(3, 2, 1),
        )
        for tok_s, accepted in ((PLAIN_TOK_S, 1.0), (rate, length))
    )
    entry = Entry(
        algorithm=config.algorithm,
        draft=config.draft,
        num_steps=config.num_steps,
        topk=config.topk,
        num_draft_tokens=config.num_draft_tokens,
        start_s=1,
        measure_s=1,
        points={} if fails else {"c=1": point},
        failure=FailureClass.OOM_RUNTIME if fails else None,
    )
    return Landscape(name="one", origin="synthetic", about="", baseline={"c=1": plain}, entries=(entry,))


def finish(study: optuna.Study, sampler: CandidateSampler, count: int) -> None:
    """Trials with made-up results, spread over the space; every tenth fails."""
    stride = len(sampler.candidates) // max(STAGES)
    for number in range(len(study.get_trials(deepcopy=False)), count):
        config = sampler.candidates[number * stride].effective
        there = world(config, number % 10 == 9)
        study.enqueue_trial(parameters(config, sampler.options))
        record, speedups = measured(there, there.entries[0], np.random.default_rng(0))
        end_trial(study, study.ask(sampler.space), record, speedups, [ONE])


def seconds_of_a_choice(study: optuna.Study, sampler: CandidateSampler) -> float:
    """Median of three; nothing is told in between, so that they choose the same."""
    spent = []
    trial = study.get_trials(deepcopy=False)[-1]
    for _ in range(3):
        begun = time.process_time()
        sampler.choose(study, trial, sampler.remaining(study))
        spent.append(time.process_time() - begun)
    return statistics.median(spent)


def main() -> int:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = make_sampler(Search(sampler="structural"), space(), [ONE])
    study = optuna.create_study(sampler=sampler, direction="maximize")
    study.ask(sampler.space)
    print("| trials | CPU s per choice | memory, MiB |\n|---|---|---|")
    late = False
    for ended in STAGES:
        finish(study, sampler, ended)
        spent = seconds_of_a_choice(study, sampler)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"| {ended} | {spent:.2f} | {memory:.0f} |", flush=True)
        late = late or (ended <= 100 and spent >= LIMIT_S)
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
