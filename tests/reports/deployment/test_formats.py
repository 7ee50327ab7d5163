"""Every format: accepted by its own ecosystem's validator, with the server's words in it as they are."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from compose_spec import PyCompose
from ray.serve.schema import ServeDeploySchema

from reports.deployment.compose import compose_yaml
from reports.deployment.dynamo import dynamo_yaml
from reports.deployment.helm import helm_values
from reports.deployment.kubernetes import kubernetes_yaml
from reports.deployment.leader_worker_set import leader_worker_set_yaml
from reports.deployment.ray_serve import ray_serve_yaml, ray_service_yaml
from reports.deployment.server import Deployment, object_name
from reports.deployment.sglang import sglang_yaml
from reports.deployment.shell import shell_script
from reports.exports import FORMATS
from sweeper.cli.export import ExportFormat
from sweeper.errors import SweeperError
from tests.reports.deployment.servers import ADAPTIVE, HOSTILE, NASTY, ONE, SECRETS, TWO_NODES
from tests.reports.deployment.validators import Manifest, documents, schema, valid_pod, validate

ONE_NODE = [ONE, ADAPTIVE, SECRETS, NASTY]


def of_kind(text: str, kind: str) -> Manifest:
    return next(manifest for manifest in documents(text) if manifest["kind"] == kind)


def container(text: str) -> Manifest:
    pod = of_kind(text, "Deployment")["spec"]["template"]["spec"]
    found: Manifest = pod["containers"][0]
    return found


def test_the_command_line_names_every_format() -> None:
    assert [f.value for f in ExportFormat] == [*FORMATS, "all"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_begins_with_its_evidence_and_a_note_stays_a_comment(name: str) -> None:
    text = FORMATS[name].render(ONE)
    lines = [line for line in text.splitlines() if line != "#!/bin/sh"]
    assert lines[0] == "# Written by sweeper from study 'my_study'."
    assert lines[1] == "# A note with\\na line break."


@pytest.mark.parametrize("server", ONE_NODE)
def test_kubernetes_accepts_deployment_service_and_volume(server: Deployment) -> None:
    manifests = documents(kubernetes_yaml(server))
    assert [m["kind"] for m in manifests][-3:] == ["PersistentVolumeClaim", "Deployment", "Service"]
    for manifest in manifests:
        validate(manifest)


def test_a_pod_may_load_as_long_as_the_study_allowed_before_it_counts_as_dead() -> None:
    own = container(kubernetes_yaml(ONE))
    startup = own["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == ONE.start_timeout_s
    assert own["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert own["livenessProbe"]["timeoutSeconds"] > 20  # how long /health itself waits for a token
    assert own["resources"]["limits"]["nvidia.com/gpu"] == 2


def test_releases_without_ready_are_asked_for_their_health() -> None:
    own = container(kubernetes_yaml(replace(ONE, version="0.5.18")))
    assert own["readinessProbe"]["httpGet"]["path"] == "/health"


def test_a_checkpoint_of_the_node_is_mounted_where_it_was() -> None:
    own = container(kubernetes_yaml(ONE))
    assert {"name": "checkpoint-0", "mountPath": "/checkpoints/draft one", "readOnly": True} in own[
        "volumeMounts"
    ]


def test_secrets_are_referenced_and_the_hubs_token_is_optional() -> None:
    [mode, token] = container(kubernetes_yaml(ONE))["env"]
    assert mode == {"name": "MODE", "value": "fast"}
    assert token["valueFrom"]["secretKeyRef"] == {
        "name": "sglang-my-study-env",
        "key": "HF_TOKEN",
        "optional": True,
    }
    text = kubernetes_yaml(SECRETS)
    entries = container(text)["env"]
    assert [e["name"] for e in entries] == ["API_TOKEN", "AUTH", "HF_TOKEN", "SIZE"]
    assert entries[1]["value"] == "Bearer $(API_TOKEN)"
    assert entries[3]["value"] == "4"
    assert '--from-literal=API_TOKEN="$API_TOKEN" --from-literal=HF_TOKEN="$HF_TOKEN"' in text


def test_kubernetes_replaces_nothing_in_words_that_are_meant_literally() -> None:
    own = container(kubernetes_yaml(NASTY))
    assert HOSTILE.replace("$(", "$$(") in own["args"]
    assert "$$(id)" in own["env"][0]["value"]


def test_an_adaptive_policy_travels_as_a_config_map() -> None:
    text = kubernetes_yaml(ADAPTIVE)
    content = of_kind(text, "ConfigMap")["data"]["adaptive.json"]
    assert json.loads(content) == {
        "1": {"candidate_steps": [3]},
        "2": {"candidate_steps": [1]},
        "8": {"candidate_steps": [0]},
    }
    words = container(text)["args"]
    assert words[words.index("--speculative-adaptive-config") + 1] == "/etc/sglang/adaptive.json"


@pytest.mark.parametrize("render", [kubernetes_yaml, compose_yaml, helm_values])
def test_formats_of_one_node_refuse_a_server_of_two_and_name_the_one_that_does_not(render: Any) -> None:
    with pytest.raises(SweeperError, match="--format lws"):
        render(TWO_NODES)


@pytest.mark.parametrize("server", [*ONE_NODE, TWO_NODES])
def test_leader_worker_set_is_accepted(server: Deployment) -> None:
    for manifest in documents(leader_worker_set_yaml(server)):
        validate(manifest)


def test_every_rank_of_a_group_knows_its_number_and_its_leader_and_only_rank_0_serves() -> None:
    text = leader_worker_set_yaml(TWO_NODES)
    template = of_kind(text, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    pods = [template[name] for name in ("leaderTemplate", "workerTemplate")]
    for pod in pods:
        words = pod["spec"]["containers"][0]["args"]
        assert words[words.index("--nnodes") + 1] == "2"
        assert words[words.index("--node-rank") + 1] == "$(LWS_WORKER_INDEX)"
        assert words[words.index("--dist-init-addr") + 1].startswith("$(LWS_LEADER_ADDRESS):")
        assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert ["readinessProbe" in pod["spec"]["containers"][0] for pod in pods] == [True, False]
    selector = of_kind(text, "Service")["spec"]["selector"]
    assert selector.items() <= pods[0]["metadata"]["labels"].items()
    assert not selector.items() <= pods[1]["metadata"]["labels"].items()


@pytest.mark.parametrize("server", ONE_NODE)
def test_compose_accepts_the_file(server: Deployment) -> None:
    PyCompose.from_yaml(compose_yaml(server)).validate()


def test_compose_gets_gpus_shared_memory_and_secrets_by_reference() -> None:
    service = yaml.safe_load(compose_yaml(SECRETS))["services"]["sglang"]
    assert service["deploy"]["resources"]["reservations"]["devices"][0]["count"] == 2
    assert service["shm_size"] == "16gb"
    assert service["environment"]["AUTH"] == "Bearer ${API_TOKEN:?must be set}"
    assert service["ports"] == ["127.0.0.1:30000:30000"]


def test_compose_interpolates_nothing_that_is_meant_literally() -> None:
    service = yaml.safe_load(compose_yaml(NASTY))["services"]["sglang"]
    assert HOSTILE.replace("$", "$$") in service["command"]


@pytest.mark.parametrize("server", [ONE, SECRETS, NASTY, TWO_NODES])
def test_ray_serve_accepts_the_config(server: Deployment) -> None:
    config = yaml.safe_load(ray_serve_yaml(server))
    ServeDeploySchema.parse_obj(config)
    [llm] = config["applications"][0]["args"]["llm_configs"]
    assert llm["engine_kwargs"]["speculative_num_steps"] == 3
    assert "enable_metrics" not in llm["engine_kwargs"]


def test_ray_serve_reserves_one_bundle_per_node() -> None:
    [llm] = yaml.safe_load(ray_serve_yaml(TWO_NODES))["applications"][0]["args"]["llm_configs"]
    assert llm["placement_group_config"]["placement_group_bundles"] == [{"CPU": 1, "GPU": 8}] * 2
    assert llm["engine_kwargs"]["nnodes"] == 2


def test_a_ray_serve_config_cannot_bring_a_file() -> None:
    with pytest.raises(SweeperError, match="--format kuberay"):
        ray_serve_yaml(ADAPTIVE)


@pytest.mark.parametrize("server", [*ONE_NODE, TWO_NODES])
def test_kuberay_accepts_the_service_and_ray_the_config_in_it(server: Deployment) -> None:
    manifests = documents(ray_service_yaml(server))
    for manifest in manifests:
        validate(manifest)
    ServeDeploySchema.parse_obj(yaml.safe_load(manifests[-1]["spec"]["serveConfigV2"]))
    [group] = manifests[-1]["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    assert group["replicas"] == server.nodes


@pytest.mark.parametrize("server", [*ONE_NODE, TWO_NODES])
def test_dynamo_accepts_the_graph(server: Deployment) -> None:
    for manifest in documents(dynamo_yaml(server)):
        validate(manifest)


def test_dynamos_operator_sets_the_ranks_itself() -> None:
    [frontend, worker] = of_kind(dynamo_yaml(TWO_NODES), "DynamoGraphDeployment")["spec"]["components"]
    assert frontend["type"] == "frontend"
    assert worker["multinode"] == {"nodeCount": 2}
    main = worker["podTemplate"]["spec"]["containers"][0]
    assert "--nnodes" not in main["args"]
    assert main["command"] == ["python3", "-m", "dynamo.sglang"]
    assert main["args"][:2] == ["--served-model-name", "meta-llama/Llama-3.1-8B-Instruct"]


@pytest.mark.parametrize("server", [ONE, ADAPTIVE, SECRETS])
def test_the_charts_values_are_accepted(server: Deployment) -> None:
    values = yaml.safe_load(helm_values(server))
    jsonschema.validate(values, schema("app_template"))
    own = values["controllers"]["main"]["containers"]["main"]
    pod = {
        "name": "main",
        "image": f"{own['image']['repository']}:{own['image']['tag']}",
        **{name: own[name] for name in ("command", "args", "env", "resources")},
        **{f"{name}Probe": probe["spec"] for name, probe in own["probes"].items()},
    }
    valid_pod({"spec": {"containers": [pod]}})


def test_helms_templates_find_nothing_to_replace() -> None:
    with pytest.raises(SweeperError, match="--format kubernetes"):
        helm_values(replace(ONE, flags={**ONE.flags, "chat-template": "{{ x }}"}))


def run_script(server: Deployment, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The script with a stand-in for Python that prints its words and one variable, each on a line."""
    stand_in = directory / "python3"
    stand_in.write_text(
        '#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\nprintf "%s" "${WORDS-}"\n'
    )
    stand_in.chmod(0o755)
    script = directory / "start.sh"
    script.write_text(shell_script(server))
    sh = shutil.which("sh")
    assert sh
    return subprocess.run(
        [sh, str(script)],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(stand_in), "TMPDIR": str(directory), **environment},
        timeout=20,
    )


def test_the_script_hands_over_every_word_as_it_is(tmp_path: Path) -> None:
    done = run_script(NASTY, tmp_path)
    words = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert words[:2] == ["-m", "sglang.launch_server"]
    assert words[2 : 2 + len(NASTY.arguments())] == NASTY.arguments()
    assert words[-1] == HOSTILE.replace("${HF_TOKEN}", "$HF_TOKEN")
    assert words[words.index("--port") + 1] == "30000"


def test_the_script_stops_where_a_secret_is_not_set(tmp_path: Path) -> None:
    assert "API_TOKEN: must be set" in run_script(SECRETS, tmp_path).stderr
    assert run_script(SECRETS, tmp_path, API_TOKEN="x", HF_TOKEN="y").returncode == 0


def test_the_script_of_several_nodes_asks_for_rank_and_leader(tmp_path: Path) -> None:
    assert "NODE_RANK: 0 to 1" in run_script(TWO_NODES, tmp_path).stderr
    words = run_script(TWO_NODES, tmp_path, NODE_RANK="1", LEADER="host a").stdout.splitlines()
    assert words[words.index("--dist-init-addr") + 1] == "host a:20000"
    assert words[words.index("--node-rank") + 1] == "1"


def test_the_script_writes_the_adaptive_file_that_it_names(tmp_path: Path) -> None:
    words = run_script(ADAPTIVE, tmp_path).stdout.splitlines()
    file = Path(words[words.index("--speculative-adaptive-config") + 1])
    assert file.read_text() == ADAPTIVE.adaptive


def test_the_servers_yaml_holds_the_flags_and_tells_of_the_ranks() -> None:
    text = sglang_yaml(TWO_NODES)
    assert yaml.safe_load(text) == TWO_NODES.flags
    assert "# One server on 2 nodes: start it on each, with --node-rank 0 to" in text


def test_the_servers_yaml_holds_no_flag_that_sglang_refuses_in_a_config_file() -> None:
    """SGLang 0.5.23: "Unsupported config option 'disable_cuda_graph' with action 'DeprecatedStoreTrueAction'"."""
    old = {"disable-cuda-graph": True, "enable-dp-attention": True, "dp-size": 8}
    flags = yaml.safe_load(sglang_yaml(replace(ONE, flags={**ONE.flags, **old})))
    assert not flags.keys() & old.keys()
    assert flags["attn-dp-size"] == 8
    assert flags["disable-decode-cuda-graph"] is flags["disable-prefill-cuda-graph"] is True
    before = yaml.safe_load(sglang_yaml(replace(ONE, version="0.5.12", flags={**ONE.flags, **old})))
    assert before.items() >= old.items()


def test_words_that_a_shell_would_read_are_quoted_in_what_people_copy() -> None:
    assert shlex.quote("/checkpoints/draft one") in shell_script(ONE)


def test_names_of_objects_are_those_that_kubernetes_takes() -> None:
    assert object_name("Kimi_K2.5") == "sglang-kimi-k2-5"
    assert len(object_name("x" * 64)) <= 40
    assert object_name("a" * 32 + "-b") == "sglang-" + "a" * 32
