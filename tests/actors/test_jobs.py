"""Sweeps as Ray jobs, for real: a head and a second node on loopback, the job server, the stand-in for SGLang."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import optuna
import psutil
import pytest
import yaml
from optuna.trial import TrialState

from sweeper.code_identity import code_identity
from tests import command_line
from tests.command_line import REPOSITORY, servers
from tests.conftest import WriteStudy
from tests.ray_cluster import RAY, RayCluster, free_port, ray_cluster

pytestmark = pytest.mark.xdist_group("jobs")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster() as running:
        yield running


@pytest.fixture
def write_job(write_study: WriteStudy, tmp_path: Path) -> WriteStudy:
    """A study as one sends it to a cluster: its checkpoints absolute, its run directory where sweeper puts it."""

    def write(name: str, **changes: object) -> Path:
        path = write_study(study=name, runs_dir="runs", resources={"max_servers": 1}, **changes)
        study = yaml.safe_load(path.read_text())
        study["engine"]["model"] = str(tmp_path / "target")
        for draft in study["space"]["drafts"].values():
            draft["path"] = str(tmp_path / draft["path"])
        path.write_text(yaml.safe_dump(study))
        return path

    return write


def sweeper(
    cluster: RayCluster, *words: str, cwd: Path | None = None, timeout_s: float = 170
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sweeper", *words],
        cwd=cwd or REPOSITORY,
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def state_of(cluster: RayCluster, job: str) -> str:
    [line] = [line for line in sweeper(cluster, "status", job).stdout.splitlines() if job in line]
    return line.split()[2]


def trials(run: Path) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=run.name, storage=f"sqlite:///{run}/study.db").trials


def complete(run: Path) -> list[str]:
    """The effective configs of the complete trials."""
    return [t.user_attrs["config"] for t in trials(run) if t.state == TrialState.COMPLETE]


def wait_for_a_result(run: Path, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not ((run / "study.db").is_file() and (run / "requests").is_dir() and complete(run)):
        assert time.monotonic() < deadline, "no trial was done in time"
        time.sleep(0.3)


ALL = {f"EAGLE3 {draft} {shape}" for draft in "ab" for shape in ("1/1/2", "3/1/4")}


def test_a_job_from_submission_to_report_on_a_node_that_is_not_the_head(
    cluster: RayCluster, write_job: WriteStudy, tmp_path: Path
) -> None:
    path = write_job(
        "far_off", space={"grids": [{"algorithm": "EAGLE3", "drafts": "a", "num_steps": [1, 3]}]}
    )
    done = sweeper(cluster, "submit", str(path), "--driver-resource", "far=0.1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trial 1 done" in done.stdout
    assert done.stdout.count("Baseline measured") == 1
    [job] = re.findall(r"^Job (sweeper-far_off-\d{8}-\d{6}) on ", done.stdout, re.MULTILINE)
    run = cluster.homes["far"] / "sweeper" / "runs" / "far_off"
    assert f":{run}\n" in done.stdout
    assert set(complete(run)) == {"EAGLE3 a 1/1/2", "EAGLE3 a 3/1/4"}
    told = sweeper(cluster, "status", "far_off").stdout
    assert re.search(rf"{job} +far_off +SUCCEEDED +20\d\d-\S+ \S+ +2/2 trials", told), told

    here = tmp_path / "here" / "far_off"
    here.mkdir(parents=True)
    refused = sweeper(cluster, "fetch", job, "--to", str(here.parent))
    assert refused.returncode == 2
    assert "it was not fetched" in refused.stderr
    here.rmdir()
    fetched = sweeper(cluster, "fetch", job, "--to", str(here.parent))
    assert fetched.returncode == 0, fetched.stdout + fetched.stderr
    assert complete(here) == complete(run)
    assert names(here) >= names(run) - {"driver.lock"}
    assert not list(cluster.homes["far"].parent.rglob("sweeper-far_off-*.tar"))
    assert command_line.sweeper("report", str(here)).returncode == 0

    moved = sweeper(cluster, "submit", str(path))
    assert moved.returncode == 0, moved.stdout + moved.stderr
    assert f"continues the run that lies on {os.uname().nodename}:{run}" in moved.stdout
    assert "trial 0 done" not in moved.stdout
    assert complete(cluster.homes["head"] / "sweeper" / "runs" / "far_off") == complete(run)


def names(run: Path) -> set[str]:
    return {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}


def test_the_line_of_the_readme_stopped_and_resumed(
    cluster: RayCluster, write_job: WriteStudy, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    ignored = shutil.ignore_patterns(".venv", "runs", ".git", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(REPOSITORY, checkout, ignore=ignored)
    for heavy in (".git/objects/pack", ".venv/lib", "runs/old"):
        (checkout / heavy).mkdir(parents=True)
        with (checkout / heavy / "large").open("wb") as file:
            file.truncate(150 * 2**20)
    study = write_job("typed", workload={"max_new_tokens": 200})
    shutil.copy(study, checkout / "search_spaces" / "x.yaml")
    shutil.copy(tmp_path / "prompts.jsonl", checkout / "search_spaces" / "prompts.jsonl")
    line = "job submit --working-dir . --no-wait -- python -m sweeper run search_spaces/x.yaml"
    typed = subprocess.run(
        [RAY, *line.split()],
        cwd=checkout,
        env={**cluster.environment, "RAY_AUTH_MODE": "token"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert typed.returncode == 0, typed.stdout + typed.stderr
    job = re.search(r"raysubmit_\w+", typed.stdout)
    assert job is not None
    run = cluster.homes["head"] / "sweeper" / "runs" / "typed"
    wait_for_a_result(run)

    second = sweeper(cluster, "submit", str(study))
    assert second.returncode == 2
    assert f"study 'typed' is run by job {job[0]} already" in second.stderr

    stopped = subprocess.run(
        [RAY, "job", "stop", job[0]],
        env={**cluster.environment, "RAY_AUTH_MODE": "token"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert state_of(cluster, job[0]) == "STOPPED"
    wait_for_no_server(tmp_path)
    kept = complete(run)
    assert 0 < len(kept) < 4

    resumed = sweeper(cluster, "submit", str(study))
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert sorted(complete(run)) == sorted(ALL)
    assert complete(run)[: len(kept)] == kept


def wait_for_no_server(directory: Path, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while servers(str(directory)):
        assert time.monotonic() < deadline, "a server outlives its job"
        time.sleep(0.2)


def test_detached_from_stopped_in_order_and_fetched(
    cluster: RayCluster, write_job: WriteStudy, tmp_path: Path
) -> None:
    study = write_job("left", workload={"max_new_tokens": 200})
    following = subprocess.Popen(
        [sys.executable, "-m", "sweeper", "submit", str(study)],
        cwd=REPOSITORY,
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    run = cluster.homes["head"] / "sweeper" / "runs" / "left"
    wait_for_a_result(run)
    following.send_signal(signal.SIGINT)
    said, complaint = following.communicate(timeout=90)
    assert following.returncode == 130, said + complaint
    assert "The job goes on. Look again: sweeper logs -f sweeper-left-" in said
    assert "Traceback" not in complaint

    told = sweeper(cluster, "stop", "left")
    assert told.returncode == 0, told.stdout + told.stderr
    assert "STOPPED" in told.stdout
    wait_for_no_server(tmp_path, timeout_s=1)
    assert not [t for t in trials(run) if t.state == TrialState.RUNNING]
    assert "Interrupted; the same command continues" in sweeper(cluster, "logs", "left").stdout
    assert sweeper(cluster, "stop", "left").returncode == 2

    fetched = sweeper(cluster, "fetch", "left", "--to", str(tmp_path / "here"))
    assert fetched.returncode == 0, fetched.stdout + fetched.stderr
    assert complete(tmp_path / "here" / "left") == complete(run)


@pytest.mark.slow
def test_a_killed_driver_loses_nothing_that_was_measured(
    cluster: RayCluster, write_job: WriteStudy, tmp_path: Path
) -> None:
    study = write_job("killed", workload={"max_new_tokens": 200})
    sent = sweeper(cluster, "submit", str(study), "--no-wait")
    assert sent.returncode == 0, sent.stderr
    run = cluster.homes["head"] / "sweeper" / "runs" / "killed"
    wait_for_a_result(run)

    second = sweeper(outside_of_jobs(cluster), "run", str(study))
    assert second.returncode == 2, second.stdout + second.stderr
    assert "study 'killed' is driven by another process of this cluster (pid " in second.stderr
    assert f", job {sent.stdout.strip()})" in second.stderr

    driver = [
        p for p in psutil.process_iter(["cmdline"]) if (p.info["cmdline"] or [])[-2:] == ["--name", "killed"]
    ]
    kept = complete(run)
    for process in driver:
        process.kill()
    wait_for_no_server(tmp_path)
    assert state_of(cluster, sent.stdout.strip()) == "FAILED"
    fetched = sweeper(cluster, "fetch", "killed", "--to", str(tmp_path / "here"))
    assert fetched.returncode == 0, fetched.stdout + fetched.stderr
    assert complete(tmp_path / "here" / "killed")[: len(kept)] == kept


def outside_of_jobs(cluster: RayCluster) -> RayCluster:
    """The cluster as a driver sees it that somebody starts by hand on one of its nodes."""
    by_hand = {**cluster.environment, "RAY_ADDRESS": cluster.gcs, "RAY_AUTH_MODE": "token"}
    return replace(cluster, environment=by_hand)


OTHER_CODE = """
import sys, ray
import actors.node_code as node_code
from sweeper.errors import SweeperError
from sweeper.study_file.reading import load_study_file
node_code.code_identity = lambda: "0.0.1+000000000000"
ray.init(address=sys.argv[1], log_to_driver=False)
try:
    node_code.require_same_code(load_study_file(sys.argv[2]))
except SweeperError as error:
    print(error)
"""


def test_nodes_with_another_sweeper_are_named(cluster: RayCluster, write_job: WriteStudy) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OTHER_CODE, cluster.gcs, str(write_job("other"))],
        cwd=REPOSITORY,
        env=outside_of_jobs(cluster).environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    told = f"do not run this sweeper, 0.0.1+000000000000 ({os.uname().nodename}: {code_identity()})"
    assert told in done.stdout, done.stdout + done.stderr


def test_what_is_wrong_shows_before_anything_is_sent(
    cluster: RayCluster, write_study: WriteStudy, write_job: WriteStudy
) -> None:
    relative = command_line.sweeper("submit", str(write_study()))
    assert relative.returncode == 2
    assert re.search(
        r"study\.yaml:\d+: engine\.model: 'target' is relative to the study file", relative.stderr
    )
    bad = command_line.sweeper(
        "submit", str(write_job("bad", search={"objective_load": 3})), "--address", "http://x"
    )
    assert bad.returncode == 2
    assert "objective_load 3 is not among" in bad.stderr
    good = str(write_job("good"))
    unset = command_line.sweeper("submit", good, "--env", "NO_SUCH_VARIABLE", "--address", "http://x")
    assert unset.returncode == 2
    assert "--env NO_SUCH_VARIABLE: this variable is not set here" in unset.stderr
    unknown = sweeper(cluster, "stop", "nobody")
    assert unknown.returncode == 2
    assert "neither the id of a job nor a study" in unknown.stderr
    nowhere = sweeper(cluster, "fetch", "nobody")
    assert nowhere.returncode == 2
    assert "no node of the cluster has a run of study 'nobody'" in nowhere.stderr


class _NoRay(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_wrong_address_is_one_error(cluster: RayCluster, write_job: WriteStudy) -> None:
    path = str(write_job("good"))
    nobody = sweeper(cluster, "submit", path, "--address", f"http://127.0.0.1:{free_port()}")
    assert nobody.returncode == 2
    assert "nothing answers there" in nobody.stderr
    malformed = command_line.sweeper("status", "--address", "10.0.0.1:8265")
    assert malformed.returncode == 2
    assert "for instance http://10.0.0.1:8265" in malformed.stderr
    other = HTTPServer(("127.0.0.1", 0), _NoRay)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    wrong = sweeper(cluster, "status", "--address", f"http://127.0.0.1:{other.server_port}")
    other.shutdown()
    assert wrong.returncode == 2
    assert "what answers there is no Ray job server" in wrong.stderr
    for done in (nobody, malformed, wrong):
        assert done.stderr.count("error:") == 1
        assert "Traceback" not in done.stderr
