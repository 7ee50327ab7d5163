"""Sweeps whose launches the structural sampler chooses, on the stand-in server."""

import json

import pytest

from sweeper.runs.directory import find_run, read_run
from sweeper.search.earlier import known_beforehand
from sweeper.search.samplers import make_sampler
from sweeper.space import enumerate_space
from sweeper.study_file.reading import load_study_file
from tests.command_line import sweeper
from tests.conftest import WriteStudy


@pytest.mark.usefixtures("on_shared_ray")
def test_a_sweep_ends_by_itself_and_the_next_one_takes_up_what_it_learned(write_study: WriteStudy) -> None:
    """The stand-in speaks of the same accept lengths and step times each time, so little is left to be gained soon."""
    path = write_study(
        space={"grids": [{"algorithm": "EAGLE3", "num_steps": [1, 2, 3, 4, 6, 8]}]},
        search={"sampler": "structural", "min_expected_gain": 0.5},
        measurement={"min_requests": 4, "max_requests": 4},
        workload={"concurrency": [1]},
    )
    done = sweeper("run", str(path))
    assert done.returncode == 0, done.stderr
    assert "search stopped by itself after " in done.stdout
    runs = path.parent / "runs"
    report = json.loads(sweeper("report", str(runs / "small"), "--json").stdout)
    assert report["search"]["enough"] is True
    assert report["search"]["launches"] == len(report["trials"]) < report["search"]["candidates"] == 12
    assert 0 <= report["search"]["near_best"] <= 1

    config = load_study_file(path)
    candidates = enumerate_space(config.space).candidates
    _, study = read_run(find_run("small", str(runs)))
    later = make_sampler(config.search, candidates, config.objective_loads)
    assert later.enough(study)  # the same command launches nothing

    search = config.search.model_copy(update={"warm_start": ["small"]})
    warm = config.model_copy(update={"study": "warm", "search": search})
    hints, _ = known_beforehand(warm, [candidate.effective for candidate in candidates], runs)
    launched = {str(trial.user_attrs["config"]) for trial in study.trials}
    assert {str(hint.config) for hint in hints.accept_length} == launched
    assert {str(hint.config) for hint in hints.cost} == launched


def test_a_run_that_cannot_be_warmed_up_from_is_one_error(write_study: WriteStudy) -> None:
    path = write_study(search={"sampler": "structural", "warm_start": "last_week"})
    done = sweeper("check", str(path))
    assert done.returncode == 2
    assert "no run 'last_week'" in done.stderr
    done = sweeper("check", str(write_study(search={"sampler": "tpe", "warm_start": "last_week"})))
    assert done.returncode == 2
    assert "warm_start needs sampler: structural" in done.stderr
