"""A real server whose target changes under it gives other outputs: the trial is LOSSY and is not exported.

By NGRAM, since ``/update_weights_from_disk`` would put the target's weights into a draft model, too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import optuna
import psutil
import pytest
import requests
import yaml
from optuna.trial import FrozenTrial

from tests.command_line import servers, start_sweeper, sweeper, value_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def corrupted(testbed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target with its last layer disturbed: another model, which still writes something."""
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    directory = tmp_path_factory.mktemp("corrupted") / "target"
    shutil.copytree(testbed / "target", directory)
    for path in directory.glob("*.safetensors"):
        tensors = safetensors.load_file(path)
        for name, tensor in tensors.items():
            if "layers.11." in name and tensor.ndim == 2:
                scale = float(tensor.std())
                noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(1))
                tensors[name] = tensor + noise * scale
        safetensors.save_file(tensors, path, metadata={"format": "pt"})
    return directory


def replace_weights(driver: subprocess.Popen[bytes], weights: Path) -> None:
    """Give the speculating server other weights, as soon as it listens."""
    said = ""
    deadline = time.monotonic() + 800
    while time.monotonic() < deadline:
        assert driver.poll() is None
        for server in servers("--speculative-algorithm NGRAM"):
            if any(c.status == psutil.CONN_LISTEN for c in server.net_connections("tcp")):
                port, key = (value_of(flag, server) for flag in ("--port", "--api-key"))
                answer = requests.post(
                    f"http://127.0.0.1:{port}/update_weights_from_disk",
                    json={"model_path": str(weights)},
                    headers={"Authorization": f"Bearer {key}"},
                    timeout=120,
                )
                said = answer.text
                if answer.status_code == 200 and answer.json()["success"]:
                    return
        time.sleep(0.1)
    raise AssertionError(f"the speculating server took no weights: {said}")


@pytest.fixture(scope="module")
def lossy_run(testbed: Path, corrupted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lossy")
    study = {
        "study": "lossy",
        "engine": {"model": str(testbed / "target"), "device": "cpu", "start_timeout_s": 240},
        "space": {"grids": [{"algorithm": "NGRAM", "num_draft_tokens": 8}]},
        "workload": {
            "prompts": "testbed",
            "chat_template": False,
            "concurrency": [1],
            "max_new_tokens": 48,
            "ignore_eos": True,
        },
        "measurement": {"min_requests": 12, "rounds": 2, "max_requests": 12},
        "search": {"prune": False},
        "confirmation": {"repeats": 0},
        "baseline": {"cache_dir": str(path / "baselines")},
        "resources": {"cpus_per_server": 2},
        "runs_dir": str(path / "runs"),
    }
    file = path / "lossy.yaml"
    file.write_text(yaml.safe_dump(study))
    driver = start_sweeper("run", str(file))
    try:
        replace_weights(driver, corrupted)
        assert driver.wait(timeout=800) == 0
    finally:
        if driver.poll() is None:
            driver.terminate()
    return path / "runs" / "lossy"


def trial_of(run: Path) -> FrozenTrial:
    [trial] = optuna.load_study(study_name="lossy", storage=f"sqlite:///{run}/study.db").trials
    return trial


def test_the_outputs_were_seen_to_differ(lossy_run: Path) -> None:
    comparison = trial_of(lossy_run).user_attrs["record"]["comparison"]
    assert comparison["compared"] == 12
    assert comparison["identical"] < 12
    assert trial_of(lossy_run).user_attrs["outputs_equal"] is False


def test_the_report_calls_it_lossy_and_it_does_not_win(lossy_run: Path) -> None:
    report = json.loads(sweeper("report", str(lossy_run), "--json").stdout)
    assert "where the server was sure" in report["trials"][0]["lossy"][0]
    assert report["winner"] is None
    assert report["noise_floor"]["identical"] == report["noise_floor"]["compared"] > 0
    assert "LOSSY" in sweeper("report", str(lossy_run)).stdout


def test_it_is_not_exported(lossy_run: Path) -> None:
    done = json.loads(sweeper("export", str(lossy_run), "--json").stdout)
    assert not done["speculates"]
    assert "speculative" not in Path(done["path"]).read_text().replace("# No speculation", "")
