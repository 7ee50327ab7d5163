"""Where the cluster files are, and what they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "cluster"
VENV = ROOT / "ray_cluster.yaml"
DOCKER = DOCS / "on_prem_docker.yaml"
AWS = DOCS / "aws.yaml"
LOCAL = [VENV, DOCKER]
LAUNCHER = [*LOCAL, AWS]
ALL = [VENV, *sorted(DOCS.iterdir())]
DOCKERFILE = (DOCS / "Dockerfile").read_text()


def content(file: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(file.read_text())
    return loaded
