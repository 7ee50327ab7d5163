"""A compose file: ``docker compose up``. A literal ``$`` is written ``$$`` there."""

from __future__ import annotations

from typing import Any

from reports.deployment.evidence import commented
from reports.deployment.pod import ADAPTIVE_PATH, CACHE, SHARED_MEMORY
from reports.deployment.server import PORT, Deployment
from reports.deployment.variables import Reference, Variable
from reports.deployment.yaml_text import yaml_text
from sweeper.errors import SweeperError

HEALTHY = "import urllib.request as r; r.urlopen('http://127.0.0.1:{port}{path}', timeout=25)"


def compose_yaml(server: Deployment) -> str:
    """One service with its GPUs, caches, and a health check that waits for the weights.

    Raises:
        SweeperError: the server spans several nodes.
    """
    if server.nodes > 1:
        raise SweeperError(
            f"a compose file is for one machine, and this server was measured on {server.nodes}: use --format lws"
        )
    probe = HEALTHY.format(port=PORT, path=server.ready_path)
    service: dict[str, Any] = {
        "image": _escaped(server.image),
        "entrypoint": ["python3", "-m", "sglang.launch_server"],
        "command": [
            *(_escaped(word) for word in server.arguments(ADAPTIVE_PATH)),
            *("--host", "0.0.0.0", "--port", str(PORT)),
        ],
        "ports": [f"127.0.0.1:{PORT}:{PORT}"],
        "shm_size": SHARED_MEMORY.lower().removesuffix("i") + "b",
        "restart": "unless-stopped",
        "environment": {v.name: _value(v) for v in server.variables},
        "volumes": [
            {"type": "volume", "source": "cache", "target": CACHE},
            *(
                {"type": "bind", "source": _escaped(path), "target": _escaped(path), "read_only": True}
                for path in server.local_checkpoints
            ),
        ],
        "healthcheck": {
            "test": ["CMD", "python3", "-c", probe],
            "interval": "30s",
            "timeout": "30s",
            "retries": 5,
            "start_period": f"{round(server.start_timeout_s)}s",
        },
    }
    if server.gpus:
        device = {"driver": "nvidia", "count": server.gpus, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    file: dict[str, Any] = {
        "name": server.name,
        "services": {"sglang": service},
        "volumes": {"cache": {}},
    }
    if server.adaptive:
        service["configs"] = [{"source": "adaptive", "target": ADAPTIVE_PATH}]
        file["configs"] = {"adaptive": {"content": _escaped(server.adaptive)}}
    notes = [*server.notes, f"It listens on this machine's loopback alone: {service['ports'][0]}."]
    if server.secrets:
        notes.append(
            f"Taken from the environment or from .env beside this file: {', '.join(server.secrets)}."
        )
    return commented(notes) + yaml_text(file)


def _escaped(text: str) -> str:
    return text.replace("$", "$$")


def _value(variable: Variable) -> str:
    """References by compose's own rules: a missing one stops it, an optional one is empty."""
    rest = ":-" if variable.optional else ":?must be set"
    return "".join(
        f"${{{part.name}{rest}}}" if isinstance(part, Reference) else _escaped(part)
        for part in variable.parts
    )
