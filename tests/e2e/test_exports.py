"""Exported commands on real SGLang start the server that was measured; adaptive chains switch with the load."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import requests
import yaml

from reports.deployment.choice import Choice
from reports.deployment.compose import compose_yaml
from reports.deployment.server import Deployment, deployment_of
from reports.deployment.sglang import sglang_yaml
from reports.deployment.shell import shell_script
from reports.study_report import TrialRow
from sweeper.adaptive import AdaptivePolicy
from sweeper.records import Interval
from sweeper.server.process import ServerProcess, fresh_address
from sweeper.server.setup import shared_pins
from sweeper.speculation import SpeculationConfig
from sweeper.study_file.reading import load_study_file
from sweeper.testbed.environment import server_environment
from tests.reports.test_study_report import report, row

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

CHAIN = SpeculationConfig("EAGLE3", "full", 3, 1, 4)
POLICY = AdaptivePolicy.parse("1:3 2:1 4:0")
ADAPTIVE = replace(CHAIN, options=(("adaptive", str(POLICY)),))


def deployment(testbed: Path, directory: Path, config: SpeculationConfig) -> Deployment:
    """The export of a study on the test bed, had it found that ``config`` is best."""
    study = {
        "study": "exported",
        "engine": {"model": str(testbed / "target"), "device": "cpu", "env": {"WORDS": "a 'b' $c"}},
        "space": {
            "drafts": {"full": {"path": str(testbed / "draft_eagle3_100")}},
            "grids": [{"algorithm": "EAGLE3", "num_steps": 3}],
        },
        "workload": {"prompts": str(testbed / "prompts.jsonl"), "concurrency": [1, 8], "max_new_tokens": 32},
    }
    file = directory / "study.yaml"
    file.write_text(yaml.safe_dump(study))
    found = load_study_file(file)
    fast = Interval(1.5, 1.4, 1.6)
    trial: TrialRow = row(0, fast, confirmed=fast).model_copy(
        update={"config": config, "pins": list(shared_pins(found, "0.5.23"))}
    )
    return deployment_of(found, report(trial), Choice(trial, ["c=1"]))


@contextmanager
def started(command: list[str], log: Path) -> Iterator[ServerProcess]:
    """The exported command, with a port and a key of its own behind it."""
    with fresh_address() as address:
        words = [*command, *address.arguments()]
        environment = {**os.environ, **server_environment(), "PYTHON": sys.executable}
        with ServerProcess(words, environment, address, log) as server:
            server.wait_until_ready(420)
            yield server


def generate(server: ServerProcess, number: int) -> int:
    """One request; its count of output tokens."""
    reply = requests.post(
        f"{server.address.url}/generate",
        json={
            "text": f"def function_{number}(",
            "sampling_params": {"max_new_tokens": 64, "temperature": 0, "ignore_eos": True},
        },
        headers={"Authorization": f"Bearer {server.address.api_key}"},
        timeout=120,
    )
    return int(reply.json()["meta_info"]["completion_tokens"])


def test_the_script_starts_the_server_that_was_measured(testbed: Path, tmp_path: Path) -> None:
    script = tmp_path / "start.sh"
    script.write_text(shell_script(deployment(testbed, tmp_path, CHAIN)))
    sh = shutil.which("sh")
    assert sh
    with started([sh, str(script)], tmp_path / "log") as server:
        assert server.client.info().effective(CHAIN) == CHAIN
        assert generate(server, 0) == 64


def test_the_compose_files_command_starts_the_server_that_was_measured(testbed: Path, tmp_path: Path) -> None:
    """Image and devices are Docker's; the words are what it would start."""
    file = yaml.safe_load(compose_yaml(deployment(testbed, tmp_path, CHAIN)))
    service = file["services"]["sglang"]
    words = [word.replace("$$", "$") for word in [*service["entrypoint"][1:], *service["command"]]]
    assert service["environment"]["WORDS"].replace("$$", "$") == "a 'b' $c"
    with started([sys.executable, *words], tmp_path / "log") as server:
        assert server.client.info().effective(CHAIN) == CHAIN


def test_adaptive_chains_switch_with_the_load(testbed: Path, tmp_path: Path) -> None:
    """One request at a time gets chains of 3, eight at once no drafts, and the chains come back."""
    server_of = deployment(testbed, tmp_path, ADAPTIVE)
    policy = tmp_path / "adaptive.json"
    policy.write_text(server_of.adaptive)
    file = tmp_path / "adaptive.yaml"
    file.write_text(sglang_yaml(server_of, str(policy)))
    command = [sys.executable, "-m", "sglang.launch_server", "--config", str(file)]
    with started(command, tmp_path / "log") as server:
        assert server.client.info().effective(ADAPTIVE) == ADAPTIVE
        assert generate(server, 0) == 64
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda i: generate(server, i), range(8))) == [64] * 8
        assert generate(server, 9) == 64
        log = server.log()
    switches = [
        line.split("state: ")[1] for line in log.splitlines() if "Switch adaptive runtime state" in line
    ]
    steps = [line.split(",")[0].split()[-1] for line in switches]
    assert "0" in steps
    assert steps[steps.index("0") :].count("3") >= 1
