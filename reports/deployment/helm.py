"""Values for a Helm chart: SGLang has none of its own, so they are for bjw-s' app-template (common library 4 or 5)."""

from __future__ import annotations

from typing import Any

from reports.deployment.evidence import commented
from reports.deployment.kubernetes import CACHE_SIZE
from reports.deployment.pod import (
    ADAPTIVE_DIRECTORY,
    ADAPTIVE_FILE,
    CACHE,
    SHARED_MEMORY,
    container,
    secret_notes,
)
from reports.deployment.server import PORT, Deployment
from reports.deployment.yaml_text import yaml_text
from sweeper.errors import SweeperError

CHART = "oci://ghcr.io/bjw-s-labs/helm/app-template"


def helm_values(server: Deployment) -> str:
    """Values of one release.

    Raises:
        SweeperError: the server spans several nodes, or Helm would read something else in a value.
    """
    if server.nodes > 1:
        raise SweeperError(
            f"this chart has no servers of several nodes, and this one was measured on {server.nodes}: "
            "use --format lws"
        )
    values: dict[str, Any] = {
        "controllers": {
            "main": {
                "type": "deployment",
                "replicas": 1,
                "strategy": "Recreate",
                "containers": {"main": _container(server)},
            }
        },
        "service": {"main": {"controller": "main", "ports": {"http": {"port": PORT}}}},
        "persistence": _persistence(server),
    }
    if server.adaptive:
        values["configMaps"] = {"adaptive": {"data": {ADAPTIVE_FILE: server.adaptive}}}
    notes = (
        *server.notes,
        *secret_notes(server),
        f"Values for bjw-s' app-template: helm install {server.name} {CHART} -f values.yaml",
    )
    text = yaml_text(values)
    if "{{" in text:  # the chart runs its values through Helm's templates
        raise SweeperError("a flag or a variable holds '{{', which Helm would read: use --format kubernetes")
    return commented(notes) + text


def _container(server: Deployment) -> dict[str, Any]:
    own = container(server, [])
    repository, _, tag = server.image.rpartition(":")
    found: dict[str, Any] = {
        "image": {"repository": repository, "tag": tag} if repository and "/" not in tag else server.image,
        "command": own["command"],
        "args": own["args"],
        "env": own["env"],
        "probes": {
            name: {"enabled": True, "custom": True, "spec": _on_port(own[f"{name}Probe"])}
            for name in ("liveness", "readiness", "startup")
        },
    }
    return found | ({"resources": own["resources"]} if "resources" in own else {})


def _on_port(probe: dict[str, Any]) -> dict[str, Any]:
    """The chart names no container port, so the probe has to give its number."""
    return {**probe, "httpGet": {**probe["httpGet"], "port": PORT}}


def _persistence(server: Deployment) -> dict[str, Any]:
    found: dict[str, Any] = {
        "shm": {
            "type": "emptyDir",
            "medium": "Memory",
            "sizeLimit": SHARED_MEMORY,
            "globalMounts": [{"path": "/dev/shm"}],
        },
        "cache": {
            "type": "persistentVolumeClaim",
            "accessMode": "ReadWriteOnce",
            "size": CACHE_SIZE,
            "globalMounts": [{"path": CACHE}],
        },
    }
    for index, path in enumerate(server.local_checkpoints):
        found[f"checkpoint-{index}"] = {
            "type": "hostPath",
            "hostPath": path,
            "hostPathType": "Directory",
            "globalMounts": [{"path": path, "readOnly": True}],
        }
    if server.adaptive:
        found["adaptive"] = {
            "type": "configMap",
            "identifier": "adaptive",
            "globalMounts": [{"path": ADAPTIVE_DIRECTORY, "readOnly": True}],
        }
    return found
