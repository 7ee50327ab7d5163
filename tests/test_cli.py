"""The command line as a person uses it, on the fast stand-in server and a real local Ray."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import optuna
import pandas as pd
import pytest
import yaml
from optuna.trial import TrialState

from sweeper.records import RequestRecord
from sweeper.runs.request_table import read_requests, write_requests
from tests.command_line import servers, start_sweeper, sweeper, sweeper_process
from tests.conftest import WriteStudy

on_shared_ray = pytest.mark.usefixtures("on_shared_ray")


def trials(path: Path) -> list[optuna.trial.FrozenTrial]:
    storage = f"sqlite:///{path.parent}/runs/small/study.db"
    return optuna.load_study(study_name="small", storage=storage).trials


def test_help_teaches() -> None:
    for words in ([], ["check"], ["run"], ["report"], ["export"]):
        done = sweeper(*words, "--help")
        assert done.returncode == 0
        assert "sweeper" in done.stdout
    assert "Example" in sweeper("check", "--help").stdout
    assert "sweeper run FILE" in sweeper_process("--help").stdout  # as python -m sweeper


def test_check_counts_merges_and_rejections(write_study: WriteStudy) -> None:
    grid = {"algorithm": "EAGLE3", "drafts": "a", "num_steps": 3, "topk": [1, 2], "num_draft_tokens": [4, 16]}
    path = write_study(space={"grids": [grid]})
    done = sweeper("check", str(path))
    assert done.returncode == 0, done.stderr
    assert "4 combinations asked for, 2 distinct valid configs, 1 merged, 1 rejected" in done.stdout
    assert "sglang.launch_server" in done.stdout
    data = json.loads(sweeper("check", str(path), "--json").stdout)
    assert data["asked"] == 4
    assert [c["effective"]["num_draft_tokens"] for c in data["candidates"]] == [4, 4]
    assert data["rejections"][0]["requested"]["num_draft_tokens"] == 16


@pytest.mark.parametrize("command", ["check", "run"])
def test_bad_input_is_one_error_and_exit_code_2(write_study: WriteStudy, command: str) -> None:
    path = write_study(space={"drafts": {"a": {"path": "./nowhere"}}})
    done = sweeper(command, str(path))
    assert done.returncode == 2
    assert done.stderr.count("error:") == 1
    assert "space.drafts.a.path: no such directory" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (path.parent / "runs").exists()


def test_a_space_without_valid_configs_is_an_error(write_study: WriteStudy) -> None:
    grid = {"algorithm": "EAGLE3", "drafts": "a", "num_steps": 1, "topk": 2, "num_draft_tokens": 9}
    done = sweeper("run", str(write_study(space={"grids": [grid]})))
    assert done.returncode == 2
    assert "all 1 combinations are invalid" in done.stderr


def test_report_of_nothing_names_the_runs_there_are() -> None:
    done = sweeper("report", "no-such-run")
    assert done.returncode == 2
    assert "no run 'no-such-run'" in done.stderr


@on_shared_ray
def test_a_sweep_with_faults_from_start_to_export(write_study: WriteStudy) -> None:
    """Draft b crashes; draft a is measured. Both end in the study, the report, the table and the files.

    The server without speculation is slow and answers are long, so that the winner is sure on a busy machine.
    """
    path = write_study(
        engine={"env": {"FAKE_FAULTS": '{"": "slow", "draft_b": "crash_at_start"}'}},
        workload={"max_new_tokens": 48},
        resources={"max_servers": 1},
        confirmation={"repeats": 1},
    )
    done = sweeper("run", str(path))
    assert done.returncode == 0, done.stderr
    assert "Baseline measured" in done.stdout
    assert "DRAFT_INCOMPATIBLE" in done.stdout
    run = path.parent / "runs" / "small"
    states = [t.state for t in trials(path)]
    assert states.count(TrialState.COMPLETE) == 2
    assert states.count(TrialState.FAIL) == 1  # the draft's other config is not launched
    assert "1 config(s) skipped: fails as trial 2 did: DRAFT_INCOMPATIBLE" in done.stdout
    failed = next(t for t in trials(path) if t.state == TrialState.FAIL)
    assert "mat1 and mat2" in failed.user_attrs["failure"]
    assert failed.user_attrs["record"]["failure"]["log_tail"]
    assert "mat1 and mat2" in (run / "logs" / f"trial-{failed.number:04d}.log").read_text()

    page = (run / "report" / "report.html").read_text()
    assert "mat1 and mat2" in page
    assert "DRAFT_INCOMPATIBLE" in (run / "report" / "summary.md").read_text().replace("\\_", "_")
    complete = [t for t in trials(path) if t.state == TrialState.COMPLETE]
    assert len({t.user_attrs["server"] for t in complete}) == 1
    for trial in complete:
        assert trial.user_attrs["outputs_equal"] is True
        assert set(trial.intermediate_values) == {1, 4}
        assert trial.value == pytest.approx(trial.user_attrs["speedup c=1"], abs=1e-3)
        rows = pd.read_parquet(run / "requests" / f"trial-{trial.number:04d}.parquet")
        assert set(rows.load) == {"c=1", "c=4"}
        assert len(rows) >= 16
        assert set(rows.completion_tokens) == {48}
    assert set(pd.read_csv(run / "trials.csv").trial) == {0, 1, 2}

    report = json.loads(sweeper("report", str(run), "--json").stdout)
    assert list(report["skipped"]) == ["EAGLE3 b 3/1/4"]
    assert {pin["flag"] for pin in report["pins"]} >= {"max-running-requests", "random-seed"}
    assert "disable_overlap_schedule is True, False without speculation (2 trials)" in report["confounders"]
    assert report["trials"][-1]["next_step"].startswith("compare the draft's config.json")
    assert report["winner"] in [t.number for t in complete]
    assert report["trials"][0]["loads"][0]["speedup"]["low"] > 1

    assert report["confirmation_rounds"] == 1
    assert [t["confirmed"] is not None for t in report["trials"][:2]].count(True) == 1
    assert {c["when"] for c in report["checks"]} == {"confirmation 1"}
    assert report["noise_floor"]["compared"] == report["noise_floor"]["identical"] > 0
    assert (run / "requests" / "confirm-1-baseline.parquet").is_file()

    again = sweeper("report", str(run), "--recompute")
    assert again.returncode == 0, again.stderr
    said = re.search(
        r"Computed again .*: (\d+) numbers, which differ from the stored ones by (\S+) at most", again.stdout
    )
    assert said is not None
    assert int(said.group(1)) > 40
    assert float(said.group(2)) < 1e-6

    exported = json.loads(sweeper("export", str(run), "--format", "sglang", "--json").stdout)
    assert exported["speculates"]
    text = Path(exported["path"]).read_text()
    flags = yaml.safe_load(text)
    assert flags["speculative-num-draft-tokens"] == flags["speculative-num-steps"] + 1
    assert "# Trial" in text
    assert "Speedup over no speculation" in text
    assert servers(str(path.parent)) == []

    every = sweeper("export", str(run), "--format", "all")
    assert every.returncode == 0, every.stderr
    assert {"kubernetes.yaml", "compose.yaml", "start.sh"} <= {p.name for p in (run / "deploy").iterdir()}
    assert "adaptive: not written: " in every.stdout
    standing = sweeper("status", str(run)).stdout
    assert re.search(r"small: 3/\S+ trials \(1 failed, 0 running\).*; its driver has ended", standing)
    same = sweeper("compare", str(run), str(run), "--fail-on-regression", "0%")
    assert same.returncode == 0, same.stderr
    assert "measured under the same conditions" in same.stdout

    again = sweeper("run", str(path))
    assert again.returncode == 0
    assert "aseline measured" not in again.stdout  # nothing is left to do, so nothing is launched
    assert len(trials(path)) == 3
    mixed = sweeper("run", str(path), "--remeasure-baseline")
    assert mixed.returncode == 2
    assert "a new baseline needs a new study" in mixed.stderr


@on_shared_ray
def test_what_a_server_really_ran_is_not_launched_again(write_study: WriteStudy) -> None:
    """The server of 3/1/4 says that it runs 1/1/2, against the rules: recorded, and 1/1/2 counts as measured."""
    grid = {"algorithm": "EAGLE3", "drafts": "a", "num_steps": [3, 1]}
    path = write_study(
        engine={"env": {"FAKE_FAULTS": '{"draft_a": "other_steps"}'}},
        space={"grids": [grid]},
        resources={"max_servers": 1},
    )
    done = sweeper("run", str(path))
    assert done.returncode == 0, done.stderr
    [trial] = trials(path)
    assert trial.user_attrs["config"] == "EAGLE3 a 1/1/2"
    assert any("the server runs" in override for override in trial.user_attrs["overrides"])
    assert "1 config(s) skipped: is what the server of trial 0 ran" in done.stdout


@on_shared_ray
def test_a_baseline_serves_other_studies_as_long_as_it_holds_and_nobody_wants_a_new_one(
    write_study: WriteStudy,
) -> None:
    path = write_study(search={"max_trials": 1})
    assert "Baseline measured" in sweeper("run", str(path)).stdout
    [table] = (path.parent / "baselines").glob("*.parquet")
    write_requests(table, [a_hundred_times_as_fast(r) for r in read_requests(table)])
    again = sweeper("run", str(path), "--name", "again")
    assert re.search(r"start, on .*: -9[789]\.\d % .* the cached baseline no longer holds", again.stdout)
    assert "Baseline measured" in again.stdout
    assert "Baseline reused" in sweeper("run", str(path), "--name", "second").stdout
    assert "Baseline measured" in sweeper("run", str(path), "--name", "third", "--remeasure-baseline").stdout


def a_hundred_times_as_fast(r: RequestRecord) -> RequestRecord:
    return replace(
        r,
        sent_s=r.sent_s / 100,
        first_token_s=(r.first_token_s or 0) / 100,
        done_s=r.done_s / 100,
        arrival_s=tuple(at / 100 for at in r.arrival_s),
    )


@on_shared_ray
def test_a_hopeless_config_is_pruned_and_what_it_gave_is_kept(write_study: WriteStudy) -> None:
    """A chain of 60 draft steps on a slow server is slower than none; its second load is never measured."""
    path = write_study(
        engine={"env": {"FAKE_FAULTS": '{"draft_b": "slow"}'}},
        space={
            "grids": [
                {"algorithm": "EAGLE3", "drafts": "b", "num_steps": 60},
                {"algorithm": "EAGLE3", "drafts": "a", "num_steps": 3},
            ]
        },
        search={"prune": True},
        resources={"max_servers": 1},
    )
    done = sweeper("run", str(path))
    assert done.returncode == 0, done.stderr
    pruned, complete = trials(path)
    assert (pruned.state, complete.state) == (TrialState.PRUNED, TrialState.COMPLETE)
    assert 0 < pruned.value < 1
    assert re.search(
        r"surely below the 1.00 of no speculation; not measured: c=4", pruned.user_attrs["pruned"]
    )
    assert [p["load"]["concurrency"] for p in pruned.user_attrs["record"]["load_points"]] == [1]
    assert "surely below" in done.stdout
    assert set(pd.read_csv(path.parent / "runs" / "small" / "trials.csv").state) == {"PRUNED", "COMPLETE"}
    assert "PRUNED" in sweeper("report", str(path.parent / "runs" / "small"), "--recompute").stdout


@on_shared_ray
def test_a_study_goes_on_with_more_to_confirm_but_not_with_other_settings(write_study: WriteStudy) -> None:
    """The server without speculation is slow, so that there is something to confirm on a busy machine too."""
    space = {"grids": [{"algorithm": "EAGLE3", "drafts": "a", "num_steps": 3}]}
    parts = {"space": space, "engine": {"env": {"FAKE_FAULTS": '{"": "slow"}'}}}
    path = write_study(**parts, confirmation={"repeats": 0})
    assert sweeper("run", str(path)).returncode == 0
    run = path.parent / "runs" / "small"
    assert "confirmed" not in sweeper("report", str(run)).stdout.replace("not confirmed", "")

    changed = sweeper("run", str(write_study(**parts, workload={"max_new_tokens": 24})))
    assert changed.returncode == 2
    assert "workload changed" in changed.stderr

    done = sweeper("run", str(write_study(**parts, confirmation={"repeats": 1})))
    assert "confirmation 1 of 1" in done.stdout
    assert "trial 0 done" not in done.stdout
    assert "confirmed" in sweeper("report", str(run)).stdout


@on_shared_ray
def test_when_nothing_pays_the_plain_server_is_exported(write_study: WriteStudy) -> None:
    """All outputs of the drafts differ from the target's: no config may win."""
    faults = '{"": "slow", "draft_a": "other_tokens"}'
    path = write_study(
        engine={"env": {"FAKE_FAULTS": faults}},
        space={"grids": [{"algorithm": "EAGLE3", "drafts": "a", "num_steps": 3}]},
    )
    done = sweeper("run", str(path))
    assert done.returncode == 0, done.stderr
    assert "Do not speculate" in done.stdout
    assert "LOSSY" in done.stdout
    lossy = sweeper("export", str(path.parent / "runs" / "small"), "--allow-lossy", "--json")
    assert lossy.returncode == 2
    assert "--allow-unconfirmed" in lossy.stderr
    allowed = ("--allow-lossy", "--allow-unconfirmed", "--json")
    lossy = sweeper("export", str(path.parent / "runs" / "small"), *allowed)
    assert json.loads(lossy.stdout)["speculates"]
    text = Path(json.loads(lossy.stdout)["path"]).read_text()
    assert "# LOSSY, exported on request: " in text
    assert not json.loads(sweeper("export", str(path.parent / "runs" / "small"), "--json").stdout)[
        "speculates"
    ]
    text = (path.parent / "runs" / "small" / "deploy" / "sglang.yaml").read_text()
    assert "# No speculation" in text
    assert "speculative" not in yaml.safe_load(text)


@on_shared_ray
def test_a_sweep_that_is_interrupted_and_then_killed_goes_on_both_times(
    write_study: WriteStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every driver but the last is a process with a Ray of its own, and measures while its successor is refused."""
    path = write_study(workload={"max_new_tokens": 100}, resources={"max_servers": 1})
    with monkeypatch.context() as alone:
        alone.delenv("RAY_ADDRESS")
        process = start_sweeper("run", str(path))
        wait_for_results(path, process, 0)
        second = sweeper("run", str(path))
        assert second.returncode == 2
        assert f"driven by another process (pid {process.pid}" in second.stderr
        before = wait_for_results(path, process, 1)
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 130
        assert servers(str(path.parent)) == []

        process = start_sweeper("run", str(path))
        kept = wait_for_results(path, process, len(before) + 1)
    assert set(before) < set(kept)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 15
    while servers(str(path.parent)):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    done = sweeper("run", str(path))
    assert done.returncode == 0, done.stderr
    complete = [t for t in trials(path) if t.state == TrialState.COMPLETE]
    assert len(complete) == 4  # every config once
    assert len({tuple(t.params.values()) for t in complete}) == 4
    assert set(kept) <= {t.number for t in complete}


def wait_for_results(path: Path, process: subprocess.Popen[bytes], count: int) -> list[int]:
    """Numbers of the trials that are complete once there are so many, and the study has begun."""
    deadline = time.monotonic() + 120
    while True:
        assert time.monotonic() < deadline
        assert process.poll() is None
        if (path.parent / "runs/small/logs").exists():
            done = [t.number for t in trials(path) if t.state == TrialState.COMPLETE]
            if len(done) >= count:
                return done
        time.sleep(0.2)
