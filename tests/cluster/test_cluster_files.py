"""The files of Ray's cluster launcher: valid by Ray's own checks, in the driver's versions, complete."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest
import tomllib
from packaging.requirements import Requirement

from sweeper.server import ports
from tests.cluster_files import ALL, AWS, DOCKERFILE, LAUNCHER, LOCAL, ROOT, VENV, content

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray's command line
each_launcher_file = pytest.mark.parametrize("file", LAUNCHER, ids=lambda file: file.stem)


def pinned(name: str) -> str:
    """The version of a package that this project is tested with."""
    lists = (ROOT / "requirements-dev.txt", ROOT / "sweeper" / "testbed" / "requirements.txt")
    found = re.search(rf"^{name}==(\S+)$", "\n".join(file.read_text() for file in lists), re.MULTILINE)
    assert found, name
    return found.group(1)


def start_commands(config: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """``ray start`` of head and workers: "head" or "worker", and its options as Ray's own command line reads them."""
    from ray.scripts.scripts import start

    commands = []
    for role in ("head", "worker"):
        for line in config[f"{role}_start_ray_commands"]:
            if "ray start " in line:
                arguments = shlex.split(line.split("ray start ")[1])
                commands.append((role, start.make_context("start", arguments).params))
    assert [role for role, _ in commands] == ["head", "worker"]
    return commands


# Ray's own checks


@each_launcher_file
def test_ray_finds_the_file_valid(file: Path) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(content(file)))


@pytest.mark.parametrize("file", LOCAL, ids=lambda file: file.stem)
def test_ray_up_would_keep_every_machine(file: Path) -> None:
    from ray.autoscaler._private.commands import _bootstrap_config

    config = _bootstrap_config(content(file), no_config_cache=True)
    node_type = config["available_node_types"][config["head_node_type"]]
    machines = len(content(file)["provider"]["worker_ips"])
    assert (node_type["min_workers"], node_type["max_workers"]) == (machines, machines)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"file_mount": {}}, "file_mount"),
        ({"idle_timeout_minutes": "ten"}, "is not of type 'number'"),
        ({"auth": {"ssh_key": "~/.ssh/id"}}, "ssh_key"),
        ({"docker": {"image": "x", "container_name": "y", "gpus": "all"}}, "gpus"),
    ],
)
def test_ray_refuses_a_wrong_file(change: dict[str, Any], message: str) -> None:
    from jsonschema import ValidationError
    from ray.autoscaler._private.util import prepare_config, validate_config

    with pytest.raises(ValidationError, match=message):
        validate_config(prepare_config(content(VENV) | change))


def test_aws_has_gpu_nodes_that_come_and_go_and_a_head_without_tasks() -> None:
    config = content(AWS)
    types = dict(config["available_node_types"])
    assert types.pop(config["head_node_type"])["resources"]["CPU"] == 0
    assert all(node["node_config"]["InstanceType"].startswith(("g", "p")) for node in types.values())
    assert sum(node["max_workers"] for node in types.values()) == config["max_workers"]
    assert config["idle_timeout_minutes"] >= 10


# Versions and packages


def test_every_file_names_the_driver_s_ray_and_sglang() -> None:
    text = "\n".join(file.read_text() for file in ALL)
    rays = re.findall(r"ray\[default\]==([\d.]+)|rayVersion: \"([\d.]+)\"", text)
    assert len(rays) == 4  # ray_cluster.yaml, Dockerfile, two of KubeRay
    assert {one or other for one, other in rays} == {pinned("ray")} == {version("ray")}
    sglangs = re.findall(
        r"sglang==([\d.]+)|sglang:v([\d.]+)|__version__ == .\"([\d.]+)|/sweeper:([\d.]+)", text
    )
    assert {next(filter(None, groups)) for groups in sglangs} == {pinned("sglang")}


@pytest.mark.parametrize(
    "command",
    [
        *content(VENV)["setup_commands"][1:2],
        re.findall(r"^RUN .*pip install .*$", DOCKERFILE, re.MULTILINE)[0],
    ],
)
def test_nodes_install_the_wheel_with_everything_that_it_needs(command: str) -> None:
    assert "dist/sweeper-*.whl" in command
    assert "--no-deps" not in command


def test_the_wheel_s_folder_goes_to_the_nodes() -> None:
    assert content(VENV)["file_mounts"]["~/sweeper-dist"] == "dist"
    assert "COPY dist/ /opt/sweeper/dist/" in DOCKERFILE
    assert "dist/" in (ROOT / ".gitignore").read_text().split()


def test_the_wheel_brings_every_dependency_and_all_code(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("sweeper", "actors", "reports"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        "dist",
        ".",
    ]
    subprocess.run(build, cwd=tree, check=True, timeout=120)
    (wheel,) = (tree / "dist").glob("sweeper-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    needs = {Requirement(line).name for line in re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {Requirement(line).name for line in project["dependencies"]} <= needs
    code = {
        str(path.relative_to(tree))
        for name in ("sweeper", "actors", "reports")
        for path in (tree / name).rglob("*.py")
    }
    assert code <= set(names)


@each_launcher_file
def test_what_is_copied_to_the_nodes_is_there_or_made_by_a_command_that_the_file_names(file: Path) -> None:
    made = {
        "dist": "pip wheel --no-deps --wheel-dir dist .",
        "~/.ray/auth_token": "ray get-auth-token --generate",
    }
    for source in content(file)["file_mounts"].values():
        assert made.get(source, "\0") in file.read_text() or (ROOT / source).is_file(), source


# How Ray starts


@each_launcher_file
def test_the_head_starts_the_workers_and_keeps_the_job_server_to_itself(file: Path) -> None:
    (_, head), (_, worker) = start_commands(content(file))
    assert head["head"]
    assert head["autoscaling_config"] == "~/ray_bootstrap_config.yaml"  # where `ray up` leaves it on the head
    assert head["dashboard_host"] == "127.0.0.1"
    assert worker["address"] == "$RAY_HEAD_IP:6379"
    assert int(head["port"]) == 6379


@each_launcher_file
def test_ray_s_ports_are_fixed_and_leave_the_servers_theirs(file: Path) -> None:
    for _, options in start_commands(content(file)):
        assert options["node_manager_port"] > 0
        assert options["object_manager_port"] > 0
        assert options["max_worker_port"] < ports.FIRST


def test_an_option_that_ray_start_lacks_would_be_noticed() -> None:
    with pytest.raises(click.NoSuchOption):
        start_commands(
            {"head_start_ray_commands": ["ray start --head --dash-host=x"], "worker_start_ray_commands": []}
        )
