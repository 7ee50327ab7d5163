"""KubeRay's manifests: valid by KubeRay's fields and Kubernetes' own schemas, and complete."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from sweeper.study_file.reading import load_study_file
from tests.cluster_files import DOCKERFILE, DOCS, ROOT

SCHEMA = json.loads((ROOT / "tests" / "data" / "kuberay.schema.json").read_text())
KUBERNETES = "1.37"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray's command line

Manifest = dict[str, Any]


def manifests(name: str) -> list[Manifest]:
    return list(yaml.safe_load_all((DOCS / name).read_text()))


def every_manifest() -> list[Manifest]:
    return [manifest for file in sorted(DOCS.glob("kuberay_*.yaml")) for manifest in manifests(file.name)]


def cluster_spec(manifest: Manifest) -> Manifest:
    """The Ray cluster of a RayCluster or RayJob."""
    spec: Manifest = manifest["spec"]
    return spec if manifest["kind"] == "RayCluster" else spec["rayClusterSpec"]


def groups(spec: Manifest) -> list[Manifest]:
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def validate(manifest: Manifest) -> None:
    """Refuses what the API server would, and any field that it does not know."""
    if not manifest["apiVersion"].startswith("ray.io/"):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
        return
    jsonschema.validate(manifest, SCHEMA["$defs"][manifest["kind"]] | {"$defs": SCHEMA["$defs"]})
    for group in groups(cluster_spec(manifest)):
        template = {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"name": "x"},
            "template": group["template"],
        }
        kubernetes_validate.validate(template, KUBERNETES, strict=True)


RAY = [manifest for manifest in every_manifest() if manifest["apiVersion"] == "ray.io/v1"]
each_ray_manifest = pytest.mark.parametrize("manifest", RAY, ids=lambda manifest: manifest["kind"])


@pytest.mark.parametrize("manifest", every_manifest(), ids=lambda m: f"{m['kind']}-{m['metadata']['name']}")
def test_the_manifest_is_valid(manifest: Manifest) -> None:
    validate(manifest)


def _worker(manifest: Manifest) -> Manifest:
    group: Manifest = cluster_spec(manifest)["workerGroupSpecs"][0]
    return group


def _container(manifest: Manifest) -> Manifest:
    container: Manifest = _worker(manifest)["template"]["spec"]["containers"][0]
    return container


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda m: m["spec"].update(entryPoint="x"), "entryPoint"),
        (lambda m: m["spec"].update(submissionMode="K8SJobMode"), "K8SJobMode"),
        (lambda m: m["spec"].update(shutdownAfterJobFinishes=False), "True was expected"),
        (lambda m: cluster_spec(m).update(enableInTreeAutoscaling="true"), "boolean"),
        (lambda m: cluster_spec(m).update(rayVersion=2.6), "string"),
        (lambda m: cluster_spec(m)["autoscalerOptions"].update(idleTimeoutSecond=1), "idleTimeoutSecond"),
        (lambda m: _worker(m).update(maxReplicas="4"), "integer"),
        (lambda m: _worker(m).pop("groupName"), "groupName"),
        (lambda m: _worker(m)["rayStartParams"].update({"num-gpus": 8}), "string"),
        (lambda m: _worker(m)["template"]["spec"].update(toleration=[]), "toleration"),
        (lambda m: _container(m).update(volumeMount=[]), "volumeMount"),
        (lambda m: _container(m)["env"][-1]["valueFrom"]["secretKeyRef"].pop("key"), "key"),
        (lambda m: _container(m)["volumeMounts"][0].update(readOnly="no"), "boolean"),
    ],
)
def test_a_wrong_manifest_is_refused(spoil: Callable[[Manifest], Any], complaint: str) -> None:
    manifest = copy.deepcopy(next(m for m in RAY if m["kind"] == "RayJob"))
    spoil(manifest)
    with pytest.raises(jsonschema.ValidationError, match=complaint):
        validate(manifest)


@each_ray_manifest
def test_ray_s_autoscaler_reads_gpu_nodes_and_a_head_without_tasks(manifest: Manifest) -> None:
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    cluster = {"metadata": {"name": "x", "namespace": "y"}, "spec": cluster_spec(manifest)}
    config = _derive_autoscaling_config_from_ray_cr(cluster)
    types = dict(config["available_node_types"])
    assert types.pop(config["head_node_type"])["resources"]["CPU"] == 0
    assert [
        (kind["resources"]["GPU"], kind["min_workers"], kind["max_workers"]) for kind in types.values()
    ] == [(8, 1, 4)]
    assert config["idle_timeout_minutes"] == 15


@each_ray_manifest
def test_what_ray_start_gets_are_options_that_it_has(manifest: Manifest) -> None:
    from ray.scripts.scripts import start

    for group in groups(cluster_spec(manifest)):
        options = [part for name, value in group["rayStartParams"].items() for part in (f"--{name}", value)]
        start.make_context("start", options)


@each_ray_manifest
def test_only_who_has_the_token_reaches_the_cluster_and_from_inside_only(manifest: Manifest) -> None:
    assert cluster_spec(manifest)["authOptions"] == {"mode": "token"}
    assert cluster_spec(manifest)["headGroupSpec"]["serviceType"] == "ClusterIP"


@each_ray_manifest
def test_every_volume_is_mounted_and_every_claim_and_secret_is_named_in_the_files(manifest: Manifest) -> None:
    claims = {m["metadata"]["name"] for m in manifests("kuberay_storage.yaml")}
    studies = {m["metadata"]["name"] for m in manifests("kuberay_job.yaml") if m["kind"] == "ConfigMap"}
    for group in groups(cluster_spec(manifest)):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {
            volume["name"] for volume in pod["volumes"]
        }
        for volume in pod["volumes"]:
            assert volume.get("persistentVolumeClaim", {}).get("claimName") in claims | {None}
            assert volume.get("configMap", {}).get("name") in studies | {None}
        (token,) = (variable for variable in container["env"] if variable["name"] == "HF_TOKEN")
        secret = token["valueFrom"]["secretKeyRef"]
        command = f"kubectl create secret generic {secret['name']} --from-literal={secret['key']}=$HF_TOKEN"
        assert command in (DOCS / "kuberay_storage.yaml").read_text()


@each_ray_manifest
def test_results_checkpoints_and_kernels_outlive_the_pods(manifest: Manifest) -> None:
    spec = cluster_spec(manifest)

    def mounts(group: Manifest) -> dict[str, str]:
        pod = group["template"]["spec"]
        kinds = {v["name"]: "claim" if "persistentVolumeClaim" in v else "other" for v in pod["volumes"]}
        return {mount["mountPath"]: kinds[mount["name"]] for mount in pod["containers"][0]["volumeMounts"]}

    assert mounts(spec["headGroupSpec"])["/var/lib/sweeper"] == "claim"
    worker = mounts(spec["workerGroupSpecs"][0])
    assert worker["/var/lib/sweeper/models"] == worker["/var/lib/sweeper/jit"] == "claim"
    assert worker["/dev/shm"] == "other"


def test_the_study_is_a_disk_s_since_sqlite_fails_on_network_file_systems() -> None:
    (claim,) = (m for m in manifests("kuberay_storage.yaml") if m["metadata"]["name"] == "sweeper-results")
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_the_job_runs_the_study_of_its_config_map_for_days(tmp_path: Path) -> None:
    config_map, job = manifests("kuberay_job.yaml")
    (name, text), *_ = config_map["data"].items()
    prompts = re.sub(r"/opt/sweeper/", f"{ROOT}/", text)  # where the image has them
    assert "COPY search_spaces/ /opt/sweeper/search_spaces/" in DOCKERFILE
    (tmp_path / name).write_text(prompts)
    assert load_study_file(tmp_path / name).study == "llama31_8b_eagle3"
    (mount,) = (
        mount
        for mount in cluster_spec(job)["headGroupSpec"]["template"]["spec"]["containers"][0]["volumeMounts"]
        if mount["name"] == "study"
    )
    assert job["spec"]["entrypoint"] == f"python -m sweeper run {mount['mountPath']}/{name}"
    assert "activeDeadlineSeconds" not in job["spec"]
