"""Which config an export is of, what is refused, and what it says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from reports.deployment.adaptive import adaptive_choice
from reports.deployment.choice import RefusedExportError, Wishes, choose
from reports.exports import FORMATS, write_export
from reports.study_report import LoadRow, StudyReport, TrialRow
from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.records import Interval
from sweeper.runs.directory import RunDirectory
from sweeper.speculation import SpeculationConfig
from tests.reports.test_study_report import FAST, SOME, report, row

SLOW = Interval(0.9, 0.85, 0.95)


def at(load: str, speedup: Interval, confirmed: Interval | None = None) -> LoadRow:
    concurrency = int(load.split()[0].removeprefix("c="))
    base = row(0, speedup, confirmed=confirmed).loads[0]
    return base.model_copy(update={"load": load, "concurrency": concurrency})


def chain(number: int, steps: int, *loads: LoadRow, draft: str = "a") -> TrialRow:
    config = SpeculationConfig("EAGLE3", draft, steps, 1, steps + 1)
    return row(number, loads[0].speedup).model_copy(update={"config": config, "loads": list(loads)})


def two_loads(*trials: TrialRow) -> StudyReport:
    found = report(*trials)
    more = found.baseline[0].model_copy(update={"load": "c=16", "concurrency": 16})
    return found.model_copy(update={"baseline": [*found.baseline, more]})


def written(study: StudyConfig, found: StudyReport, tmp_path: Path, wishes: Wishes) -> str:
    return Path(write_export(study, found, RunDirectory(tmp_path / "run"), wishes).path).read_text()


def test_the_winner_is_exported_if_it_was_confirmed() -> None:
    found = report(row(0, FAST, confirmed=SOME), row(1, SOME))
    chosen = choose(found, Wishes(), 0.01)
    assert chosen.trial is not None
    assert chosen.trial.number == 0


def test_an_unconfirmed_winner_needs_a_word() -> None:
    found = report(row(0, FAST))
    with pytest.raises(RefusedExportError, match="--allow-unconfirmed"):
        choose(found, Wishes(), 0.01)
    assert choose(found, Wishes(allow_unconfirmed=True), 0.01).trial is not None


def test_a_lossy_trial_needs_a_word_of_its_own() -> None:
    found = report(row(0, FAST, lossy="3 of 16 outputs differ", confirmed=FAST))
    with pytest.raises(RefusedExportError, match=r"3 of 16 outputs differ.*--allow-lossy"):
        choose(found, Wishes(trial=0), 0.01)
    assert choose(found, Wishes(trial=0, allow_lossy=True), 0.01).trial is not None


def test_the_plain_server_needs_no_confirmation(study: StudyConfig, tmp_path: Path) -> None:
    """It says why, and what accept length the nearest config would have needed."""
    text = written(study, report(row(0, SLOW)), tmp_path, Wishes())
    assert "# No speculation: no config that was measured is clearly faster" in text
    assert "c=1: the nearest, EAGLE3 a 1/1/2, reaches 0.900 [0.850, 0.950]; its" in text
    assert "accept length 2.500 would have to exceed 2.000." in text
    assert "speculative-algorithm" not in text


def test_a_load_has_a_best_config_of_its_own() -> None:
    short = chain(0, 1, at("c=1", SOME, SOME), at("c=16", SOME, SOME))
    long = chain(1, 5, at("c=1", FAST, FAST), at("c=16", SLOW, SLOW))
    found = two_loads(short, long)
    for load, number in (("1", 1), ("c=16", 0)):
        chosen = choose(found, Wishes(load=load), 0.01)
        assert chosen.trial is not None
        assert chosen.trial.number == number


def test_at_a_load_where_nothing_pays_the_plain_server_is_exported() -> None:
    found = two_loads(chain(0, 5, at("c=1", FAST, FAST), at("c=16", SLOW, SLOW)))
    assert choose(found, Wishes(load="16"), 0.01).trial is None


def test_a_load_that_was_not_measured_is_an_error_with_those_that_were() -> None:
    with pytest.raises(SweeperError, match="--load 3: not measured in this study; measured: c=1, c=16"):
        choose(two_loads(row(0, FAST)), Wishes(load="3"), 0.01)


def test_a_trial_that_failed_cannot_be_exported() -> None:
    failed = row(1, FAST).model_copy(update={"state": "FAILED"})
    with pytest.raises(SweeperError, match="--trial 1: that trial is FAILED; measured: 0"):
        choose(report(row(0, FAST), failed), Wishes(trial=1), 0.01)


def test_every_format_says_where_it_comes_from(study: StudyConfig, tmp_path: Path) -> None:
    found = report(row(0, FAST, confirmed=SOME))
    for name in FORMATS.keys() - {"adaptive"}:
        text = written(study, found, tmp_path, Wishes(format=name))
        assert "# Trial 0: EAGLE3 a 1/1/2." in text
        assert (
            "#   c=1: confirmed 1.500 [1.400, 1.600], in the search 1.900 [1.800, 2.000]; 190.0 tok/s" in text
        )
        assert "# Measured on 1x H with SGLang 0.5.23, target m," in text
        assert "UNCONFIRMED" not in text


def test_the_best_chain_per_load_makes_an_adaptive_policy() -> None:
    long = chain(0, 5, at("c=1", FAST), at("c=16", SLOW))
    short = chain(1, 1, at("c=1", SOME), at("c=16", SOME))
    other = chain(2, 3, at("c=1", SOME), at("c=16", SOME), draft="b")
    chosen = adaptive_choice(two_loads(long, short, other), allow_lossy=False)
    assert str(chosen.policy) == "1:5 4:1"
    assert (chosen.draft, chosen.widest.number) == ("a", 0)


def test_where_no_chain_pays_the_policy_drafts_nothing() -> None:
    chosen = adaptive_choice(two_loads(chain(0, 5, at("c=1", FAST), at("c=16", SLOW))), allow_lossy=False)
    assert str(chosen.policy) == "1:5 4:0"
    assert chosen.grid == '{algorithm: EAGLE3, drafts: a, num_steps: 5, adaptive: "1:5 4:0"}'


def test_one_chain_that_is_best_everywhere_needs_no_policy() -> None:
    with pytest.raises(SweeperError, match="5 steps are best at every load"):
        adaptive_choice(two_loads(chain(0, 5, at("c=1", FAST), at("c=16", FAST))), allow_lossy=False)


def test_chains_that_pay_nowhere_leave_nothing_to_adapt() -> None:
    with pytest.raises(SweeperError, match="surely pays at any load"):
        adaptive_choice(two_loads(chain(0, 5, at("c=1", SLOW), at("c=16", SLOW))), allow_lossy=False)


def test_a_policy_that_was_never_measured_as_a_whole_needs_a_word(study: StudyConfig, tmp_path: Path) -> None:
    found = two_loads(chain(0, 5, at("c=1", FAST), at("c=16", SLOW)))
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(RefusedExportError, match=r'adaptive: "1:5 4:0"}; --allow-unconfirmed'):
        write_export(study, found, run, Wishes(format="adaptive"))
    done = write_export(study, found, run, Wishes(format="adaptive", allow_unconfirmed=True))
    text = Path(done.path).read_text()
    flags = yaml.safe_load(text)
    assert flags["speculative-adaptive"] is True
    assert flags["speculative-adaptive-config"] == done.also[0]
    assert flags["speculative-num-steps"] == 5
    assert Path(done.also[0]).read_text().startswith('{\n  "1"')
    assert "#   concurrency 16: no drafting, since no chain surely pays there" in text
