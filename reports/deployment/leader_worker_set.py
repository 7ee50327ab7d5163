"""A LeaderWorkerSet (leaderworkerset.x-k8s.io/v1): one server whose ranks lie on several nodes."""

from __future__ import annotations

from reports.deployment.pod import (
    Manifest,
    adaptive_config_map,
    container,
    labels,
    manifests_text,
    node_cache,
    secret_notes,
    service,
    volumes,
)
from reports.deployment.server import MEETING_PORT, Deployment

LEADER = {"role": "leader"}
RANK = ["--node-rank", "$(LWS_WORKER_INDEX)", "--dist-init-addr", f"$(LWS_LEADER_ADDRESS):{MEETING_PORT}"]
"""LeaderWorkerSet sets these variables in every container, LWS_WORKER_INDEX since its release 0.6."""


def leader_worker_set_yaml(server: Deployment) -> str:
    """LeaderWorkerSet and a Service of its leaders: the ranks share one life, only rank 0 serves."""
    notes = (
        *server.notes,
        "Needs the LeaderWorkerSet controller, release 0.6 or newer.",
        *secret_notes(server),
        f"Rank 0 listens on port {MEETING_PORT} for the other ranks; add the cluster's NCCL settings and network "
        "devices.",
        *(f"{path} is a directory of every node." for path in server.local_checkpoints),
    )
    manifest: Manifest = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": server.name, "labels": labels(server)},
        "spec": {
            "replicas": 1,
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": {
                "size": server.nodes,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": _template(server, leads=True),
                "workerTemplate": _template(server, leads=False),
            },
        },
    }
    selector = {**labels(server), **LEADER}
    return manifests_text(notes, [*adaptive_config_map(server), manifest, service(server, selector)])


def _template(server: Deployment, leads: bool) -> Manifest:
    own = {**labels(server), **LEADER} if leads else {**labels(server), "role": "worker"}
    return {
        "metadata": {"labels": own},
        "spec": {
            "terminationGracePeriodSeconds": 60,
            "containers": [container(server, RANK if server.nodes > 1 else [], serves=leads)],
            "volumes": volumes(server, node_cache(server)),
        },
    }
