"""NVIDIA Dynamo: a DynamoGraphDeployment (nvidia.com/v1beta1) with a frontend and one SGLang worker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reports.deployment.pod import (
    ADAPTIVE_PATH,
    SHARED_MEMORY,
    Manifest,
    adaptive_config_map,
    environment,
    literal,
    manifests_text,
    mounts,
    node_cache,
    secret_notes,
    volumes,
)
from reports.deployment.server import Deployment

RUNTIME = "nvcr.io/nvidia/ai-dynamo/sglang-runtime:1.6.1"
"""Dynamo's own build of SGLang; ``--image`` names another one."""

OPERATORS = frozenset(["nnodes"])
"""Flags that Dynamo's operator sets for a component of several nodes, beside rank and address."""


def dynamo_yaml(server: Deployment) -> str:
    """Frontend and worker; the operator adds ports, probes, shared memory, and the ranks of several nodes."""
    image = RUNTIME if server.image.startswith("lmsysorg/") else server.image
    notes = (
        *server.notes,
        *secret_notes(server),
        f"{image} brings an SGLang of its own: the numbers above hold only if that is {server.version};",
        "look with: docker run --rm IMAGE python3 -c 'import sglang; print(sglang.__version__)'",
        *(f"{path} is a directory of every node." for path in server.local_checkpoints),
    )
    manifest: Manifest = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": server.name},
        "spec": {
            "backendFramework": "sglang",
            "components": [
                {
                    "name": "Frontend",
                    "type": "frontend",
                    "replicas": 1,
                    "podTemplate": {"spec": {"containers": [{"name": "main", "image": image}]}},
                },
                _worker(server, image),
            ],
        },
    }
    return manifests_text(notes, [*adaptive_config_map(server), manifest])


def _worker(server: Deployment, image: str) -> Manifest:
    main: Manifest = {
        "name": "main",
        "image": image,
        "command": ["python3", "-m", "dynamo.sglang"],
        "args": _words(server),
        "env": environment(server),
        "volumeMounts": [mount for mount in mounts(server) if mount["name"] != "shm"],
    }
    if server.gpus:
        main["resources"] = {"limits": {"nvidia.com/gpu": str(server.gpus)}}
    own_volumes = [v for v in volumes(server, node_cache(server)) if v["name"] != "shm"]
    worker: dict[str, Any] = {
        "name": "worker",
        "type": "worker",
        "replicas": 1,
        "sharedMemorySize": SHARED_MEMORY,
        "podTemplate": {"spec": {"containers": [main], "volumes": own_volumes}},
    }
    return worker | ({"multinode": {"nodeCount": server.nodes}} if server.nodes > 1 else {})


def _words(server: Deployment) -> list[str]:
    kept = {name: value for name, value in server.flags.items() if name not in OPERATORS}
    named = {"served-model-name": server.flags["model-path"], **kept}
    return [literal(word) for word in replace(server, flags=named).arguments(ADAPTIVE_PATH)]
