"""The structural sampler, on landscapes instead of servers."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from sweeper.records import FailureClass, Load
from sweeper.search.candidates import CandidateSampler, config_from, params_of
from sweeper.search.contest import sampler_for
from sweeper.search.hints import Hint, Hints
from sweeper.search.landscape import Landscape, read_landscape
from sweeper.search.replay import Replay, Rules, measured, replay
from sweeper.search.structural import StructuralSampler
from sweeper.speculation import SpeculationConfig
from sweeper.storage.stored_trial import config_of
from sweeper.study.ending import end_trial, enqueue, give_up

optuna.logging.set_verbosity(optuna.logging.WARNING)
LANDSCAPES = Path(__file__).parents[2] / "search_spaces" / "landscapes"
ONE = Load(1)


@pytest.fixture(scope="module")
def dense() -> Landscape:
    return read_landscape(LANDSCAPES / "synthetic_dense.json")


@pytest.fixture(scope="module")
def experts() -> Landscape:
    return read_landscape(LANDSCAPES / "synthetic_experts.json")


def search(
    landscape: Landscape, load: Load = ONE, rules: Rules = Rules(), hints: Hints | None = None
) -> Replay:
    def make(land: Landscape, loads: object, seed: int) -> CandidateSampler:
        sampler = sampler_for("structural", land, [load], seed)
        assert isinstance(sampler, StructuralSampler)
        if hints:
            sampler.hints = hints
        return sampler

    return replay(landscape, [load], make, rules)


def near_best(landscape: Landscape, load: Load, seed: int, hints: Hints | None = None) -> int:
    found = search(landscape, load, Rules(seed, launches=30, stop_near_best=0.02), hints).until_near_best()
    return found or 31


def test_the_first_launch_is_a_long_chain(dense: Landscape) -> None:
    first = search(dense, rules=Rules(launches=1)).launches[0].config
    assert first.topk == 1
    assert 4 <= first.num_steps <= 12


def test_few_launches_find_a_config_within_two_percent(dense: Landscape) -> None:
    launches = [near_best(dense, load, 0) for load in dense.loads]
    assert np.median(launches) <= 6
    assert max(launches) <= 12


def test_every_candidate_comes_once_and_what_cannot_run_is_left_for_the_end(experts: Landscape) -> None:
    run = search(experts, Load(32), Rules(launches=20))
    configs = [launch.config for launch in run.launches]
    assert len(set(configs)) == len(configs)
    failing = {entry.config for entry in experts.entries if entry.failure is FailureClass.OOM_RUNTIME}
    assert len(failing) == 10
    assert sum(config in failing for config in configs) <= 2


def test_running_candidates_are_taken_into_account(dense: Landscape) -> None:
    """Of eight that are proposed before any result, none repeats, and all drafts and kinds are among them."""
    sampler = sampler_for("structural", dense, [ONE], 0)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    asked = [config_from(study.ask(sampler.space).params) for _ in range(8)]
    assert len(set(asked)) == 8
    assert {config.draft for config in asked} == {"s1000", "s4000", "s8000"}
    assert {config.topk for config in asked} >= {1, 4}


def test_what_gains_nothing_beside_the_running_ones_still_has_an_order(dense: Landscape) -> None:
    """A server that is up already takes a sibling that is hopeless, if that costs next to nothing."""
    sampler = sampler_for("structural", dense, [ONE], 0)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    study.ask(sampler.space)
    hopeless = SpeculationConfig("EAGLE3", "s1000", 1, 1, 2)
    assert hopeless in {candidate.effective for candidate in sampler.remaining(study)}
    sampler.near = {hopeless: 1e-12}
    assert config_from(study.ask(sampler.space).params) == hopeless


def run_until(study: optuna.Study, landscape: Landscape, launches: int) -> list[SpeculationConfig]:
    """Goes on to that many trials, each with the result that its config always has."""
    entries = {entry.config: entry for entry in landscape.entries}
    assert isinstance(study.sampler, CandidateSampler)
    while len(study.trials) < launches:
        trial = study.ask(study.sampler.space)
        entry = entries[config_of(study.trials[trial.number])]
        record, speedups = measured(landscape, entry, np.random.default_rng(entry.num_draft_tokens))
        end_trial(study, trial, record, speedups, [ONE])
    return [config_of(trial) for trial in study.trials]


def open_study(name: str, file: Path, landscape: Landscape) -> optuna.Study:
    return optuna.create_study(
        study_name=name,
        storage=f"sqlite:///{file}",
        sampler=sampler_for("structural", landscape, [ONE], 3),
        direction="maximize",
        load_if_exists=True,
    )


def test_a_study_whose_driver_was_killed_proposes_what_an_uninterrupted_one_does(
    dense: Landscape, tmp_path: Path
) -> None:
    """The first driver, a process of its own, ends without a word while its third launch runs."""
    file = tmp_path / "study.db"
    whole = run_until(open_study("whole", file, dense), dense, 5)
    driver = f"""
import os
from pathlib import Path
from tests.search.test_structural import LANDSCAPES, open_study, read_landscape, run_until
dense = read_landscape(LANDSCAPES / "synthetic_dense.json")
study = open_study("cut", Path({str(file)!r}), dense)
run_until(study, dense, 2)
study.ask(study.sampler.space)
os._exit(9)
"""
    killed = subprocess.run(
        [sys.executable, "-c", driver], cwd=Path(__file__).parents[2], capture_output=True, text=True
    )
    assert killed.returncode == 9, killed.stderr
    study = open_study("cut", file, dense)
    cut_off = study.trials[2]
    assert cut_off.state == TrialState.RUNNING
    give_up(study, optuna.Trial(study, cut_off._trial_id), "the driver ended")
    enqueue(study, params_of(cut_off), 1)
    again = run_until(study, dense, 6)
    assert again[:3] == whole[:3]
    assert again[3:] == whole[2:]


def test_it_stops_where_little_is_to_be_gained_and_says_how_sure_it_is(dense: Landscape) -> None:
    samplers: list[StructuralSampler] = []

    def make(land: Landscape, loads: object, seed: int) -> CandidateSampler:
        samplers.append(StructuralSampler(land.candidates, [ONE], seed, 0.01))
        return samplers[-1]

    run = replay(dense, [ONE], make, Rules(obey=True))
    assert len(run.launches) <= 15
    assert run.regret(len(run.launches)) < 0.04
    prospect = samplers[0].prospect(run.study)
    assert prospect.gain < 0.01
    assert 0.3 < prospect.near_best <= 1
    assert prospect.launches == len(run.launches)


def test_a_threshold_of_zero_never_stops(dense: Landscape) -> None:
    sampler = StructuralSampler(dense.candidates, [ONE], 0, 0.0)
    run = replay(dense, [ONE], lambda *_: sampler, Rules(launches=12, obey=True))
    assert len(run.launches) == 12


def opposite(landscape: Landscape) -> dict[SpeculationConfig, float]:
    """ln A as if the drafts had exchanged their names, the best with the worst."""
    lengths = {e.config: float(np.log(e.points["c=1"].accept_length)) for e in landscape.entries}
    other = {"s1000": "s8000", "s4000": "s1000", "s8000": "s4000"}
    return {c: lengths[replace(c, draft=other[c.draft])] for c in lengths}


def test_earlier_knowledge_saves_launches_and_a_wrong_one_costs_three_at_most(dense: Landscape) -> None:
    """Right: accept lengths as a map gives them. Wrong: the drafts' names exchanged; drafting that costs nothing."""
    lengths = {e.config: float(np.log(e.points["c=1"].accept_length)) for e in dense.entries}
    right = Hints(tuple(Hint(c, value, 0.03) for c, value in lengths.items()))
    wrong = Hints(tuple(Hint(c, value, 0.03) for c, value in opposite(dense).items()))
    free = Hints(cost=tuple(Hint(c, 0.1, 0.12) for c in lengths))
    plain, helped, misled, cheated = (
        np.array([near_best(dense, ONE, seed, hints) for seed in range(2)])
        for hints in (None, right, wrong, free)
    )
    assert np.median(helped) <= np.median(plain)
    assert (misled <= plain + 3).all()
    assert (cheated <= plain + 3).all()
