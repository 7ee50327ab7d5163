"""Ray Serve: a config file for ``serve deploy``, and KubeRay's RayService around it.

Ray Serve LLM runs SGLang in its own replica (``SGLangServer``, "in early development" says its documentation), with the
server's arguments as ``engine_kwargs``; the HTTP server and its flags are Ray's.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from reports.deployment.evidence import commented
from reports.deployment.pod import (
    ADAPTIVE_PATH,
    Manifest,
    adaptive_config_map,
    environment,
    manifests_text,
    mounts,
    node_cache,
    secret_notes,
    volumes,
)
from reports.deployment.server import Deployment
from reports.deployment.yaml_text import yaml_text
from sweeper.errors import SweeperError

SERVER = "ray.llm._internal.serve.engines.sglang:SGLangServer"
ALIASES = {
    "attention_context_parallel_size": "attn_cp_size",
    "attention_data_parallel_size": "attn_dp_size",
    "data_parallel_size": "dp_size",
    "enable_hicache": "enable_hierarchical_cache",
    "ep": "ep_size",
    "expert_parallel_size": "ep_size",
    "moe_data_parallel_size": "moe_dp_size",
    "pipeline_parallel_size": "pp_size",
}
"""Flags whose argument in Python has another name."""

VISIBLE_DEVICES = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "0"}


def ray_serve_yaml(server: Deployment) -> str:
    """A Serve config file.

    Raises:
        SweeperError: the config needs a file that such a config cannot bring.
    """
    if server.adaptive:
        raise SweeperError(
            "an adaptive config needs a file, which a Ray Serve config cannot bring: use --format kuberay"
        )
    notes = [*server.notes, *_limits()]
    if server.secrets:
        notes.append(f"Set in the environment of the Ray nodes: {', '.join(server.secrets)}.")
    return commented(notes) + yaml_text(serve_config(server))


def serve_config(server: Deployment) -> dict[str, Any]:
    """What ``serve deploy`` takes: one application with one replica."""
    kwargs = {
        _argument(name): value
        for name, value in server.flags_with(ADAPTIVE_PATH).items()
        if value is not False
    }
    literals = {v.name: "".join(map(str, v.parts)) for v in server.variables if not v.references}
    config: dict[str, Any] = {
        "model_loading_config": {
            "model_id": str(server.flags["model-path"]),
            "model_source": str(server.flags["model-path"]),
        },
        "server_cls": SERVER,
        "engine_kwargs": kwargs,
        "deployment_config": {"num_replicas": 1, "health_check_timeout_s": 60},
        "runtime_env": {"env_vars": {**VISIBLE_DEVICES, **literals}},
    }
    if server.nodes > 1:
        config["placement_group_config"] = {
            "placement_group_bundles": [{"CPU": 1, "GPU": server.gpus}] * server.nodes,
            "placement_group_strategy": "STRICT_SPREAD",
        }
    application = {
        "name": server.name,
        "route_prefix": "/",
        "import_path": "ray.serve.llm:build_openai_app",
        "args": {"llm_configs": [config]},
    }
    return {"applications": [application]}


def _argument(flag: str) -> str:
    name = flag.replace("-", "_")
    return ALIASES.get(name, name)


def ray_service_yaml(server: Deployment) -> str:
    """A RayService (ray.io/v1): a head without GPUs, and one worker per node of the server."""
    notes = (
        *server.notes,
        *_limits(),
        f"Its image: FROM {server.image} and RUN pip install 'ray[serve,llm]=={version('ray')}'; put its name below.",
        *secret_notes(server),
        *(f"{path} is a directory of every GPU node." for path in server.local_checkpoints),
    )
    manifest: Manifest = {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": server.name},
        "spec": {
            "serveConfigV2": yaml_text(serve_config(server)),
            "rayClusterConfig": {
                "rayVersion": version("ray"),
                "headGroupSpec": {
                    "rayStartParams": {"num-cpus": "0", "num-gpus": "0"},
                    "template": _template(server, "ray-head", gpus=0),
                },
                "workerGroupSpecs": [
                    {
                        "groupName": "gpu",
                        "replicas": server.nodes,
                        "minReplicas": server.nodes,
                        "maxReplicas": server.nodes,
                        "rayStartParams": {},
                        "template": _template(server, "ray-worker", gpus=server.gpus),
                    }
                ],
            },
        },
    }
    return manifests_text(notes, [*adaptive_config_map(server), manifest])


def _template(server: Deployment, name: str, gpus: int) -> Manifest:
    """Head and workers see the same files: the driver of the application reads the checkpoint's config."""
    container: Manifest = {
        "name": name,
        "image": server.image,
        "env": environment(server),
        "volumeMounts": mounts(server),
    }
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return {"spec": {"containers": [container], "volumes": volumes(server, node_cache(server))}}


def _limits() -> list[str]:
    return [
        "Ray Serve puts an HTTP proxy of its own before the engine: the speedups above were measured without one.",
        "The nodes need ray[serve,llm] and sglang[ray]; Ray calls its SGLang server early work (SGLangServer).",
    ]
