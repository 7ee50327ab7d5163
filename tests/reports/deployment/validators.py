"""What each ecosystem says of a manifest: Kubernetes' own schemas, and those of the custom resources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

DATA = Path(__file__).parents[2] / "data"
KUBERNETES = "1.37"

Manifest = dict[str, Any]


def documents(text: str) -> list[Manifest]:
    return list(yaml.safe_load_all(text))


def schema(name: str) -> Manifest:
    found: Manifest = json.loads((DATA / f"{name}.schema.json").read_text())
    return found


def valid_pod(template: Manifest, name: str = "x") -> None:
    """Raises where the API server would refuse a pod of this template."""
    whole = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": template}
    kubernetes_validate.validate(whole, KUBERNETES, strict=True)


def validate(manifest: Manifest) -> None:
    """Raises where the API server, or the controller of a custom resource, would refuse a manifest."""
    kind = manifest["kind"]
    if kind == "LeaderWorkerSet":
        jsonschema.validate(manifest, schema("leaderworkerset"))
        template = manifest["spec"]["leaderWorkerTemplate"]
        for pod in (template["leaderTemplate"], template["workerTemplate"]):
            valid_pod(pod)
    elif kind == "RayService":
        whole = schema("kuberay")
        jsonschema.validate(manifest, whole["$defs"][kind] | {"$defs": whole["$defs"]})
        cluster = manifest["spec"]["rayClusterConfig"]
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            valid_pod(group["template"])
    elif kind == "DynamoGraphDeployment":
        jsonschema.validate(manifest, schema("dynamo"))
        for component in manifest["spec"]["components"]:
            valid_pod(component["podTemplate"])
    else:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
