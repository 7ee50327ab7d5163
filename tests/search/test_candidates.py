"""Every sampler proposes valid candidates only, each once, through Optuna's own ask and tell."""

import warnings
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from sweeper.config import Search, Space
from sweeper.search.candidates import REQUEUE, config_from, parameters
from sweeper.search.samplers import SAMPLERS, make_sampler
from sweeper.space import Candidate, enumerate_space
from sweeper.storage.stored_trial import config_of


@pytest.fixture
def candidates() -> tuple[Candidate, ...]:
    space = Space.model_validate(
        {
            "drafts": {"a": {"path": "o/a"}, "b": {"path": "o/b"}},
            "grids": [
                {"algorithm": "EAGLE3", "num_steps": [1, 3, 7], "topk": 1},
                {"algorithm": "EAGLE3", "num_steps": [3, 5], "topk": 4, "num_draft_tokens": [8, 32]},
                {"algorithm": "NGRAM", "breadth": 2, "num_draft_tokens": 8, "max_trie_depth": [12, 18]},
                {"algorithm": "NGRAM", "breadth": 4, "num_draft_tokens": 8},
            ],
        }
    )
    return enumerate_space(space).candidates


def make_study(sampler: optuna.samplers.BaseSampler, path: Path) -> optuna.Study:
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}/study.db")
    return optuna.create_study(
        study_name="s", storage=storage, sampler=sampler, direction="maximize", load_if_exists=True
    )


def speed(candidate_params: dict[str, object]) -> float:
    return (
        1
        + 0.1 * int(str(candidate_params["num_steps"]))
        - 0.01 * int(str(candidate_params["num_draft_tokens"]))
    )


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_all_candidates_come_once(name: str, candidates: tuple[Candidate, ...], tmp_path: Path) -> None:
    sampler = make_sampler(Search(sampler=name, seed=3), candidates)
    study = make_study(sampler, tmp_path)
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        while sampler.remaining(study):
            trial = study.ask(sampler.space)
            seen.append(config_of(study.trials[trial.number]))
            study.tell(trial, speed(trial.params))
    assert sorted(seen) == sorted(c.effective for c in candidates)


def test_running_candidates_are_not_proposed_again(candidates: tuple[Candidate, ...], tmp_path: Path) -> None:
    sampler = make_sampler(Search(sampler="random"), candidates)
    study = make_study(sampler, tmp_path)
    asked = [study.ask(sampler.space).params for _ in candidates]
    assert len({tuple(p.values()) for p in asked}) == len(candidates)
    assert sampler.remaining(study) == []


def test_failed_configs_stay_failed_but_interrupted_ones_come_back(
    candidates: tuple[Candidate, ...], tmp_path: Path
) -> None:
    sampler = make_sampler(Search(sampler="grid"), candidates)
    study = make_study(sampler, tmp_path)
    crashed, interrupted = study.ask(sampler.space), study.ask(sampler.space)
    study.tell(crashed, state=TrialState.FAIL)
    interrupted.set_user_attr(REQUEUE, True)
    study.tell(interrupted, state=TrialState.FAIL)
    remaining = [c.effective for c in sampler.remaining(study)]
    assert config_from(crashed.params) not in remaining
    assert config_from(interrupted.params) in remaining
    study.enqueue_trial(interrupted.params)
    assert config_from(interrupted.params) not in [c.effective for c in sampler.remaining(study)]
    assert study.ask(sampler.space).params == interrupted.params


def test_grid_keeps_the_order_of_the_study_file(candidates: tuple[Candidate, ...], tmp_path: Path) -> None:
    sampler = make_sampler(Search(sampler="grid"), candidates)
    study = make_study(sampler, tmp_path)
    asked = [config_from(study.ask(sampler.space).params) for _ in range(4)]
    assert asked == [c.effective for c in candidates[:4]]


def test_skipped_candidates_are_not_proposed(candidates: tuple[Candidate, ...], tmp_path: Path) -> None:
    sampler = make_sampler(Search(sampler="random"), candidates)
    study = make_study(sampler, tmp_path)
    sampler.skipped = {c.effective: "because" for c in candidates[1:]}
    assert config_from(study.ask(sampler.space).params) == candidates[0].effective
    assert sampler.remaining(study) == []


def test_tpe_learns_on_the_candidate_list(candidates: tuple[Candidate, ...]) -> None:
    """Over seeds, TPE meets the best of the candidates no later than the middle of the list on average."""
    best = max(candidates, key=lambda c: speed(parameters(c.effective)))
    positions = []
    for seed in range(6):
        sampler = make_sampler(Search(sampler="tpe", seed=seed), candidates)
        study = optuna.create_study(sampler=sampler, direction="maximize")
        while sampler.remaining(study):
            trial = study.ask(sampler.space)
            study.tell(trial, speed(trial.params))
        order = [config_of(t) for t in study.trials]
        positions.append(order.index(best.effective))
    assert sum(positions) / len(positions) < len(candidates) / 2
