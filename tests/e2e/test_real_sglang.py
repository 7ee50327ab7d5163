"""The whole path on real SGLang: study file, Ray, servers, study, report, export, and a server from the export."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
import requests
import yaml
from optuna.trial import FrozenTrial, TrialState

from reports.deployment.choice import Choice
from reports.deployment.server import deployment_of
from reports.deployment.sglang import sglang_yaml
from reports.study_report import build_report
from sweeper.runs.directory import RunDirectory, read_run
from sweeper.server.process import ServerProcess, fresh_address, session_members
from sweeper.storage.stored_trial import config_of
from sweeper.testbed.environment import server_environment
from tests.command_line import servers, start_sweeper, sweeper

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

KILLED = "--speculative-eagle-topk 4"


@dataclass(frozen=True)
class Finished:
    """A sweep that has ended, with a server killed on the way."""

    path: Path
    trials: list[FrozenTrial]
    exit_code: int
    session: int
    """Of the killed server."""

    @property
    def run(self) -> Path:
        return self.path / "runs" / "real"

    def trial(self, shape: str) -> FrozenTrial:
        return next(t for t in self.trials if config_of(t).shape == shape)


@pytest.fixture(scope="module")
def finished(testbed: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Baseline and three trials; the tree's launcher is killed with SIGKILL while it is measured."""
    path = tmp_path_factory.mktemp("real")
    study: dict[str, Any] = {
        "study": "real",
        "engine": {"model": str(testbed / "target"), "device": "cpu", "start_timeout_s": 240},
        "space": {
            "drafts": {
                "full": {"path": str(testbed / "draft_eagle3_100")},
                "standalone": {"path": str(testbed / "draft_standalone")},
            },
            "grids": [
                {"algorithm": "EAGLE3", "drafts": "full", "num_steps": 4, "num_draft_tokens": 24},
                {"algorithm": "EAGLE3", "drafts": "full", "num_steps": 4, "topk": 4, "num_draft_tokens": 12},
                {"algorithm": "EAGLE3", "drafts": "full", "num_steps": 4},
                {
                    "algorithm": "EAGLE3",
                    "drafts": "full",
                    "num_steps": 3,
                    "topk": 2,
                    "num_draft_tokens": [12, 16],
                },
                {"algorithm": "STANDALONE", "drafts": "standalone", "num_steps": 2},
            ],
        },
        "workload": {
            "prompts": str(testbed / "prompts.jsonl"),
            "concurrency": [1, 4],
            "max_new_tokens": 48,
            "ignore_eos": True,
        },
        "measurement": {"min_requests": 8, "rounds": 2, "max_requests": 8, "warmup_seconds": 4},
        "search": {"sampler": "grid", "prune": False},
        "confirmation": {"repeats": 0},
        "baseline": {"cache_dir": str(path / "baselines"), "laps": 1},
        "resources": {"cpus_per_server": 2},
        "runs_dir": str(path / "runs"),
    }
    file = path / "real.yaml"
    file.write_text(yaml.safe_dump(study))
    process = start_sweeper("run", str(file))
    session = kill_while_serving(process)
    exit_code = process.wait(timeout=900)
    storage = f"sqlite:///{path}/runs/real/study.db"
    trials = optuna.load_study(study_name="real", storage=storage).trials
    return Finished(path, trials, exit_code, session)


def kill_while_serving(driver: Any) -> int:
    """Wait until the tree's server has served a while, then SIGKILL its launcher; returns its session."""
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline:
        assert driver.poll() is None
        for server in servers(KILLED, "--max-running-requests 4"):  # other tests start servers too
            if any(c.status == psutil.CONN_LISTEN for c in server.net_connections("tcp")):
                time.sleep(3)
                session = server.ppid()
                server.send_signal(signal.SIGKILL)
                return session
        time.sleep(0.2)
    raise AssertionError("the tree's server never served")


def test_check_said_beforehand_what_would_be_changed_and_refused(finished: Finished) -> None:
    said = json.loads(sweeper("check", str(finished.path / "real.yaml"), "--json").stdout)
    assert said["asked"] == 6
    assert [m["requested"]["num_draft_tokens"] for m in said["merges"]] == [5]
    assert [r["requested"]["num_draft_tokens"] for r in said["rejections"]] == [12, 16]
    assert said["candidates"][0]["overrides"][0].startswith("num_draft_tokens 24 -> 5")
    assert said["flags_looked_up"]
    shapes = {config_of(t).shape for t in finished.trials}
    assert shapes == {"4/1/5", "4/4/12", "2/1/3"}


def test_the_study_finishes_with_one_failed_trial(finished: Finished) -> None:
    assert finished.exit_code == 0
    states = sorted(t.state.name for t in finished.trials)
    assert states == ["COMPLETE", "COMPLETE", "FAIL"]


def test_the_killed_server_is_a_classified_failure_with_its_log(finished: Finished) -> None:
    trial = finished.trial("4/4/12")
    assert trial.state == TrialState.FAIL
    assert trial.user_attrs["failure"].startswith("CRASH: ")
    assert any(
        "sglang" in line or "batch" in line for line in trial.user_attrs["record"]["failure"]["log_tail"]
    )
    assert (finished.run / "logs" / f"trial-{trial.number:04d}.log").stat().st_size > 1000


def test_no_process_is_left(finished: Finished) -> None:
    assert session_members(finished.session) == []
    assert servers(str(finished.path)) == []


def test_the_silent_override_is_recorded_and_launched_once(finished: Finished) -> None:
    trial = finished.trial("4/1/5")
    assert trial.user_attrs["requested"] == "EAGLE3 full 4/1/24"
    assert "num_draft_tokens 24 -> 5" in trial.user_attrs["overrides"][0]
    assert any("is adjusted to" in line for line in trial.user_attrs["record"]["warnings"])


def test_greedy_outputs_equal_the_baselines(finished: Finished) -> None:
    for trial in finished.trials:
        if trial.state == TrialState.COMPLETE:
            comparison = trial.user_attrs["record"]["comparison"]
            assert comparison["compared"] == 16
            assert trial.user_attrs["outputs_equal"], comparison


def test_counters_are_consistent(finished: Finished) -> None:
    for point in finished.trial("4/1/5").user_attrs["record"]["load_points"]:
        rounds = sum(point["histogram"])
        drafts = sum(i * count for i, count in enumerate(point["histogram"]))
        assert len(point["histogram"]) <= 5
        assert 1 < point["accept_length"]["value"] <= 1 + drafts / rounds <= 5
        assert point["output_tok_s"]["low"] < point["output_tok_s"]["value"] < point["output_tok_s"]["high"]


def test_the_report_ranks_what_was_measured_and_crowns_only_what_is_sure(finished: Finished) -> None:
    """How fast which config is depends on the machine's mood; what follows from it does not."""
    report = json.loads(sweeper("report", str(finished.run), "--json").stdout)
    best, second, failed = report["trials"]
    assert best["objective"]["value"] > 0.5
    assert second["objective"] is not None
    assert failed["failure_class"] == "CRASH"
    assert best["loads"][0]["accept_length"]["value"] > 2
    sure = [t["number"] for t in (best, second) if t["objective"]["low"] > 1]
    assert (report["winner"] in sure) if sure else report["winner"] is None
    assert report["checks"][-1]["drift"]["low"] < report["checks"][-1]["drift"]["value"]


def test_the_baseline_repeats_its_own_outputs(finished: Finished) -> None:
    report = json.loads(sweeper("report", str(finished.run), "--json").stdout)
    floor = report["noise_floor"]
    if floor is None:  # no check held: the machine's own speed moved too far between them
        assert all(check["beyond_tolerance"] for check in report["checks"])
        return
    assert floor["compared"] >= 8
    assert all(d["gap"] is not None and d["gap"] <= floor["near_tie"] for d in floor["divergences"])


def test_every_number_can_be_computed_again_from_the_requests(finished: Finished) -> None:
    done = sweeper("report", str(finished.run), "--recompute")
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split("stored ones by ")[1].split()[0]) < 1e-6


@contextmanager
def server_from(file: Path, log: Path) -> Iterator[ServerProcess]:
    with fresh_address() as address:
        command = [sys.executable, "-m", "sglang.launch_server", "--config", str(file)]
        command += ["--port", str(address.port), "--api-key", address.api_key]
        with ServerProcess(command, {**os.environ, **server_environment()}, address, log) as server:
            server.wait_until_ready(240)
            yield server


def test_an_exported_yaml_starts_a_server_with_its_config(finished: Finished) -> None:
    config, study = read_run(RunDirectory(finished.run))
    report = build_report(config, study)
    [chain] = [trial for trial in report.trials if trial.config.shape == "4/1/5"]
    winner = chain.config
    file = finished.path / "chain.yaml"
    choice = Choice(chain, report.objective_loads)
    file.write_text(sglang_yaml(deployment_of(config, report, choice)))
    with server_from(file, finished.path / "export.log") as server:
        assert server.client.info().effective(winner) == winner
        reply = requests.post(
            f"{server.address.url}/generate",
            json={"text": "def main():", "sampling_params": {"max_new_tokens": 8, "temperature": 0}},
            headers={"Authorization": f"Bearer {server.address.api_key}"},
            timeout=60,
        )
    assert reply.status_code == 200
    assert reply.json()["meta_info"]["completion_tokens"] == 8
