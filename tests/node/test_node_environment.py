"""What the nodes' environment holds: caches that outlive a launch, the token, and no secret in any file."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from sweeper.driver.drives import run_path
from sweeper.user_cache import user_cache
from tests.cluster_files import ALL, AWS, DOCKER, DOCKERFILE, DOCS, ROOT, VENV, content


def node_environment(home: Path, **given: str) -> dict[str, str]:
    """What node_env.sh leaves in the environment of a node's user."""
    script = f". {shlex.quote(str(DOCS / 'node_env.sh'))} && env"
    clean = {"HOME": str(home), "PATH": "/usr/bin:/bin", **given}
    done = subprocess.run(
        ["bash", "-c", script], env=clean, capture_output=True, text=True, check=True, timeout=20
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def image_environment() -> dict[str, str]:
    block = DOCKERFILE.split("\nENV ")[1].replace("\\\n", " ")
    return dict(item.split("=", 1) for item in block.split())


def cache_variables() -> set[str]:
    """What SGLang 0.5.23 points its compilers' caches at, read from its source, and what it reads itself."""
    spec = importlib.util.find_spec("sglang")
    assert spec
    assert spec.submodule_search_locations
    tree = ast.parse((Path(spec.submodule_search_locations[0]) / "srt" / "environ.py").read_text())
    (function,) = (
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "third_party_cache_defaults"
    )
    named = {
        key.value
        for node in ast.walk(function)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }
    assert "TRITON_CACHE_DIR" in named
    return {str(name) for name in named} | {
        "HF_HOME", "SGLANG_CACHE_DIR", "SGLANG_JIT_CACHE_DIR", "SGLANG_DG_CACHE_DIR", "TVM_FFI_CACHE_DIR"
    }  # fmt: skip


def test_every_cache_of_sglang_outlives_a_launch_on_bare_machines(tmp_path: Path) -> None:
    environment = node_environment(tmp_path)
    assert all(environment[name].startswith(str(tmp_path)) for name in cache_variables())
    elsewhere = node_environment(tmp_path, HF_HOME="/nfs/models", NODE_CACHE="/scratch/me")
    assert elsewhere.pop("HF_HOME") == "/nfs/models"
    assert all(elsewhere[name].startswith("/scratch/me/") for name in cache_variables() - {"HF_HOME"})


def test_what_the_image_s_containers_leave_is_where_a_disk_is_mounted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = image_environment()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_variables() | {"XDG_CACHE_HOME", "XDG_DATA_HOME"} == set(environment)
    assert run_path("runs", "study", in_job=True) == Path("/var/lib/sweeper/runs/study")
    assert user_cache("baselines").is_relative_to("/var/lib/sweeper")
    assert all(environment[name].startswith("/var/lib/sweeper/") for name in cache_variables())
    for file in (DOCKER, AWS):
        assert "--volume /var/lib/sweeper:/var/lib/sweeper" in content(file)["docker"]["run_options"]


def test_the_node_s_secrets_are_read_from_a_file_of_the_node(tmp_path: Path) -> None:
    secrets = tmp_path / ".config" / "sweeper" / "secrets.env"
    secrets.parent.mkdir(parents=True)
    secrets.write_text("export HF_TOKEN=from-the-node\n")
    assert node_environment(tmp_path)["HF_TOKEN"] == "from-the-node"


@pytest.mark.parametrize("file", ALL, ids=lambda file: file.name)
def test_no_file_holds_a_secret(file: Path) -> None:
    text = file.read_text()
    assert not re.search(r"hf_[A-Za-z0-9]{8}|AKIA[A-Z0-9]{8}|PRIVATE KEY|[a-z]+://[^/\s]+:[^/\s]+@", text)
    code = re.sub(r"#.*", "", text)
    assert not re.search(r"(TOKEN|SECRET|PASSWORD)[A-Z_]*[=:]\s*\S", code), "a secret's value"


@pytest.mark.parametrize("file", [VENV, DOCKER, AWS], ids=lambda file: file.stem)
def test_only_who_has_the_token_runs_jobs(file: Path, tmp_path: Path) -> None:
    assert content(file)["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    if file == VENV:
        assert node_environment(tmp_path)["RAY_AUTH_MODE"] == "token"
    else:
        assert "--env RAY_AUTH_MODE=token" in content(file)["docker"]["run_options"]


def test_a_job_s_python_is_the_one_with_sweeper(tmp_path: Path) -> None:
    assert node_environment(tmp_path)["PATH"].startswith(f"{tmp_path}/sweeper-venv/bin:")
    for role in ("head", "worker"):
        assert all(
            line.startswith(". ~/sweeper-env.sh && ") for line in content(VENV)[f"{role}_start_ray_commands"]
        )


def test_the_walk_through_names_files_that_are_there() -> None:
    guide = ROOT / "docs" / "cluster.md"
    named = re.findall(r"\]\(([^)#:]+)\)", guide.read_text()) + re.findall(
        r"-f (docs/\S+\.yaml)", guide.read_text()
    )
    assert len(named) >= 8
    for name in named:
        assert (ROOT / name if name.startswith("docs/") else guide.parent / name).is_file(), name
    assert {file.name for file in DOCS.iterdir()} <= set(
        re.findall(r"[\w.]+\.\w+|Dockerfile", guide.read_text())
    )
