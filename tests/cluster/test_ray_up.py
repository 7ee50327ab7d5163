"""`ray up`, the real command, to machines whose ssh only notes what it is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster_files import LOCAL, content

SSH = """#!/bin/bash
echo "${@: -1}" >> "$ASKED"
case "$*" in
  *State.Running*) grep -q "docker run" "$ASKED" && echo true ;;
  *Config.Env*) echo '["HOME=/root"]' ;;
  *"printenv HOME"*) echo /root ;;
  *"command -v docker"*) echo /usr/bin/docker ;;
esac
exit 0
"""
RSYNC = """#!/bin/bash
test -e "${@: -2:1}" && echo "copy to ${@: -1}" >> "$ASKED"
"""


@pytest.mark.parametrize("file", LOCAL, ids=lambda file: file.stem)
def test_ray_up_copies_installs_and_starts_the_head(file: Path, tmp_path: Path) -> None:
    given = {
        "bin/ssh": SSH,
        "bin/rsync": RSYNC,
        ".ray/auth_token": "",
        ".ssh/id_ed25519": "",
        "dist/sweeper-1.whl": "",
    }
    for name, text in {**given, "docs/cluster/node_env.sh": "", "cluster.yaml": file.read_text()}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}/bin:{Path(sys.executable).parent}:/usr/bin:/bin"
    own = {name: str(tmp_path / "ray") for name in ("RAY_TMPDIR", "TMPDIR")}
    (tmp_path / "ray").mkdir()
    subprocess.run(
        ["ray", "up", "--yes", "--no-config-cache", "cluster.yaml"],
        env={"HOME": str(tmp_path), "PATH": path, "ASKED": str(tmp_path / "asked"), **own},
        cwd=tmp_path,
        check=True,
        timeout=120,
        capture_output=True,
    )
    asked = (tmp_path / "asked").read_text().splitlines()
    config = content(file)
    prefix = "/tmp/ray_tmp_mount/sweeper/" if "docker" in config else ""
    copied = [*config["file_mounts"], "~/ray_bootstrap_config.yaml", "~/ray_bootstrap_key.pem"]
    wanted = [f"copy to ubuntu@{config['provider']['head_ip']}:{prefix}{target}" for target in copied]
    wanted += config.get("initialization_commands", [])
    wanted += [f"docker pull {config['docker']['image']}", "--gpus all"] if "docker" in config else []
    wanted += [*config.get("setup_commands", []), "ray stop", "ray start --head"]
    found = [
        next((i for i, line in enumerate(asked) if step in line.replace("'\"'\"'", "'")), None)
        for step in wanted
    ]
    assert None not in found, wanted[found.index(None)]
    assert found == sorted(found, key=lambda i: i or 0)
