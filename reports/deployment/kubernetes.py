"""A Kubernetes Deployment with its Service and the volume that keeps downloads and compiled kernels."""

from __future__ import annotations

from reports.deployment.pod import (
    Manifest,
    adaptive_config_map,
    container,
    labels,
    manifests_text,
    secret_notes,
    service,
    volumes,
)
from reports.deployment.server import Deployment
from sweeper.errors import SweeperError

CACHE_SIZE = "200Gi"


def kubernetes_yaml(server: Deployment) -> str:
    """Deployment, Service and PersistentVolumeClaim.

    Raises:
        SweeperError: the server spans several nodes.
    """
    if server.nodes > 1:
        raise SweeperError(
            f"a Deployment holds servers of one node, and this one was measured on {server.nodes}: use --format lws"
        )
    claim = f"{server.name}-cache"
    notes = (
        *server.notes,
        *secret_notes(server),
        f"{claim}: downloads and compiled kernels; size it to the checkpoints.",
        *(f"{path} is a directory of the node." for path in server.local_checkpoints),
    )
    own = labels(server)
    deployment: Manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": server.name, "labels": own},
        "spec": {
            "replicas": 1,
            "strategy": {
                "type": "Recreate"
            },  # a second server beside the first would need as many GPUs again
            "selector": {"matchLabels": own},
            "template": {
                "metadata": {"labels": own},
                "spec": {
                    "terminationGracePeriodSeconds": 60,
                    "containers": [container(server, [])],
                    "volumes": volumes(server, {"persistentVolumeClaim": {"claimName": claim}}),
                },
            },
        },
    }
    storage: Manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim, "labels": own},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": CACHE_SIZE}}},
    }
    return manifests_text(notes, [*adaptive_config_map(server), storage, deployment, service(server, own)])
