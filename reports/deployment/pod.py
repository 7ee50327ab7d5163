"""The pod that serves: what Kubernetes, LeaderWorkerSet, KubeRay and Dynamo manifests share.

A container's words and values may hold ``$(NAME)``, which Kubernetes replaces; a literal one is written ``$$(NAME)``.
"""

from __future__ import annotations

import math
from typing import Any

from reports.deployment.evidence import commented
from reports.deployment.server import PORT, Deployment
from reports.deployment.variables import Reference, Variable
from reports.deployment.yaml_text import yaml_text

Manifest = dict[str, Any]

ADAPTIVE_DIRECTORY = "/etc/sglang"
ADAPTIVE_FILE = "adaptive.json"
ADAPTIVE_PATH = f"{ADAPTIVE_DIRECTORY}/{ADAPTIVE_FILE}"
CACHE = "/root/.cache"
SHARED_MEMORY = "16Gi"
PROBE_S = 10
HEALTH_TIMEOUT_S = 30
"""/health waits up to 20 s for a token of a busy server before it says 503."""


def manifests_text(notes: tuple[str, ...], manifests: list[Manifest]) -> str:
    """Comments, then one YAML document per manifest."""
    return commented(notes) + yaml_text(*manifests)


def secret_name(server: Deployment) -> str:
    return f"{server.name}-env"


def secret_notes(server: Deployment) -> list[str]:
    """How to make the secret that the pods read."""
    if not server.secrets:
        return []
    literals = " ".join(f'--from-literal={name}="${name}"' for name in server.secrets)
    need = any(variable.references and not variable.optional for variable in server.variables)
    when = "First" if need else "For gated checkpoints first"
    return [f"{when}: kubectl create secret generic {secret_name(server)} {literals}"]


def literal(text: str) -> str:
    """A word that Kubernetes must not look into."""
    return text.replace("$(", "$$(")


def environment(server: Deployment) -> list[Manifest]:
    """The container's ``env``: values as they are, references to the secret."""
    entries: dict[str, Manifest] = {}
    for variable in server.variables:
        if len(variable.parts) == 1 and variable.references:
            entries[variable.name] = _from_secret(server, variable.name, variable.references[0], variable)
            continue
        for name in variable.references:  # Kubernetes wants them defined before they are used
            entries.setdefault(name, _from_secret(server, name, name, variable))
        value = "".join(f"$({p.name})" if isinstance(p, Reference) else literal(p) for p in variable.parts)
        entries[variable.name] = {"name": variable.name, "value": value}
    return list(entries.values())


def _from_secret(server: Deployment, name: str, key: str, variable: Variable) -> Manifest:
    source: Manifest = {"name": secret_name(server), "key": key}
    if variable.optional:
        source["optional"] = True
    return {"name": name, "valueFrom": {"secretKeyRef": source}}


def container(server: Deployment, more: list[str], serves: bool = True) -> Manifest:
    """The container of a rank; ``more`` are words for this platform, those of other ranks than 0 serve nothing."""
    words = [literal(word) for word in server.arguments(ADAPTIVE_PATH)]
    found: Manifest = {
        "name": "sglang",
        "image": server.image,
        "command": ["python3", "-m", "sglang.launch_server"],
        "args": [*words, "--host", "0.0.0.0", "--port", str(PORT), *more],
        "env": environment(server),
    }
    if serves:
        found["ports"] = [{"name": "http", "containerPort": PORT}]
        found |= probes(server)
    if server.gpus:
        found["resources"] = {"limits": {"nvidia.com/gpu": server.gpus}}
    return found | {"volumeMounts": mounts(server)}


def probes(server: Deployment) -> Manifest:
    """Not alive before it has loaded: the start gets the study's own limit, and only then the others count.

    /health tells a hanging scheduler from a busy one by a token, after 20 s; SGLang's own watchdog ends it after 300.
    """
    health = {"path": "/health", "port": "http"}
    return {
        "startupProbe": {
            "httpGet": health,
            "periodSeconds": PROBE_S,
            "timeoutSeconds": HEALTH_TIMEOUT_S,
            "failureThreshold": math.ceil(server.start_timeout_s / PROBE_S),
        },
        "readinessProbe": {
            "httpGet": {"path": server.ready_path, "port": "http"},
            "periodSeconds": PROBE_S,
            "timeoutSeconds": HEALTH_TIMEOUT_S,
            "failureThreshold": 3,
        },
        "livenessProbe": {
            "httpGet": health,
            "periodSeconds": 60,
            "timeoutSeconds": HEALTH_TIMEOUT_S,
            "failureThreshold": 5,
        },
    }


def mounts(server: Deployment) -> list[Manifest]:
    found: list[Manifest] = [
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "cache", "mountPath": CACHE},
    ]
    for index, path in enumerate(server.local_checkpoints):
        found.append({"name": f"checkpoint-{index}", "mountPath": path, "readOnly": True})
    if server.adaptive:
        found.append({"name": "adaptive", "mountPath": ADAPTIVE_DIRECTORY, "readOnly": True})
    return found


def volumes(server: Deployment, cache: Manifest) -> list[Manifest]:
    """Shared memory (64 MiB by default starves tensor parallelism), caches, checkpoints of the node, the policy."""
    found: list[Manifest] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY}},
        {"name": "cache", **cache},
    ]
    for index, path in enumerate(server.local_checkpoints):
        found.append({"name": f"checkpoint-{index}", "hostPath": {"path": path, "type": "Directory"}})
    if server.adaptive:
        found.append({"name": "adaptive", "configMap": {"name": f"{server.name}-adaptive"}})
    return found


def node_cache(server: Deployment) -> Manifest:
    """The node keeps downloads and compiled kernels, so that a restarted pod has them."""
    return {"hostPath": {"path": f"/var/cache/{server.name}", "type": "DirectoryOrCreate"}}


def adaptive_config_map(server: Deployment) -> list[Manifest]:
    """The file of an adaptive policy; none for other configs."""
    if not server.adaptive:
        return []
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{server.name}-adaptive", "labels": labels(server)},
            "data": {ADAPTIVE_FILE: server.adaptive},
        }
    ]


def labels(server: Deployment) -> dict[str, str]:
    return {"app.kubernetes.io/name": server.name, "app.kubernetes.io/component": "sglang"}


def service(server: Deployment, selector: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": server.name, "labels": labels(server)},
        "spec": {"selector": selector, "ports": [{"name": "http", "port": PORT, "targetPort": "http"}]},
    }
