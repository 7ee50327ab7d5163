"""The cluster's nodes as Ray knows them, and those that Ray may start yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ray
import yaml

from actors.placement import Node
from sweeper.config import StudyConfig

BOOTSTRAP = Path("~/ray_bootstrap_config.yaml")
"""What the cluster launcher leaves on the head node: the cluster file that its autoscaler works by."""

WAIT_S = 1800.0
MOST = 64
"""Nodes of one type that are looked at: more than any server spans."""


def living_nodes() -> dict[str, Node]:
    """Resources of the nodes that are there, by Ray's node id."""
    return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}


def startable_nodes() -> list[Node]:
    """Resources of the nodes that Ray's autoscaler may start; empty where there is none, or nobody tells.

    Ray tells where it runs as a service; a cluster that the launcher started has the launcher's file on its head.
    KubeRay tells nobody: there ``resources.wait_for_nodes_s`` must say that nodes may come.
    """
    return _of_ray() or _of_launcher(BOOTSTRAP.expanduser())


def patience_s(study: StudyConfig) -> float:
    """How long to wait for nodes that do not exist yet."""
    asked = study.resources.wait_for_nodes_s
    if asked is not None:
        return asked
    return WAIT_S if startable_nodes() else 0.0


def _of_ray() -> list[Node]:
    try:
        config: Any = ray._private.state.state.get_cluster_config()
    except AttributeError:  # Ray's own state, which another release may keep elsewhere
        return []
    groups = config.node_group_configs if config else []
    return [
        dict(g.resources) for g in groups for _ in range(MOST if g.max_count < 0 else min(g.max_count, MOST))
    ]


def _of_launcher(path: Path) -> list[Node]:
    try:
        cluster = yaml.safe_load(path.read_text())
        if cluster["provider"]["type"] in ("local", "readonly"):  # these start no machines
            return []
        most = int(cluster.get("max_workers", MOST))
        return [
            dict(kind.get("resources") or {})
            for kind in cluster["available_node_types"].values()
            for _ in range(min(int(kind.get("max_workers", most)), most, MOST))
        ]
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError):
        return []  # no such file, or none of the launcher's
