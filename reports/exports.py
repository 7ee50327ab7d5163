"""Writes deployment files into a run's ``deploy/`` folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pydantic import BaseModel, Field

from reports.deployment.adaptive import adaptive_choice, adaptive_notes
from reports.deployment.choice import Choice, RefusedExportError, Wishes, choose, confirmed
from reports.deployment.compose import compose_yaml
from reports.deployment.dynamo import dynamo_yaml
from reports.deployment.helm import helm_values
from reports.deployment.kubernetes import kubernetes_yaml
from reports.deployment.leader_worker_set import leader_worker_set_yaml
from reports.deployment.ray_serve import ray_serve_yaml, ray_service_yaml
from reports.deployment.server import Deployment, deployment_of
from reports.deployment.sglang import sglang_yaml
from reports.deployment.shell import shell_script
from reports.study_report import StudyReport
from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.runs.directory import RunDirectory
from sweeper.speculation import SpeculationConfig


@dataclass(frozen=True)
class Format:
    """A kind of deployment file; ``use`` is the command that deploys it."""

    file: str
    render: Callable[[Deployment], str]
    use: str


FORMATS: dict[str, Format] = {
    "sglang": Format("sglang.yaml", sglang_yaml, "python -m sglang.launch_server --config FILE"),
    "shell": Format("start.sh", shell_script, "sh FILE"),
    "kubernetes": Format("kubernetes.yaml", kubernetes_yaml, "kubectl apply -f FILE"),
    "lws": Format("leaderworkerset.yaml", leader_worker_set_yaml, "kubectl apply -f FILE"),
    "compose": Format("compose.yaml", compose_yaml, "docker compose -f FILE up"),
    "ray-serve": Format("ray-serve.yaml", ray_serve_yaml, "serve deploy FILE"),
    "kuberay": Format("rayservice.yaml", ray_service_yaml, "kubectl apply -f FILE"),
    "dynamo": Format("dynamo.yaml", dynamo_yaml, "kubectl apply -f FILE"),
    "helm": Format("values.yaml", helm_values, "helm install NAME oci://.../app-template -f FILE"),
    "adaptive": Format("adaptive.yaml", sglang_yaml, "python -m sglang.launch_server --config FILE"),
}


class Export(BaseModel):
    """What was exported: ``speculates`` is false where nothing beats the baseline."""

    format: str
    path: str
    speculates: bool
    trial: int | None = Field(description="null: the server without speculation, or several trials' chains")
    config: str
    loads: list[str] = Field(description="the loads it is for")
    confirmed: bool = Field(description="whether the config was measured again, in turns with the baseline")
    lossy: bool = Field(description="whether it may change the target's output")
    also: list[str] = Field(description="further files that it needs")
    use: str = Field(description="the command that deploys it")


def write_export(config: StudyConfig, report: StudyReport, run: RunDirectory, wishes: Wishes) -> Export:
    """Write the winner (or the plain server), or what else was wished for, in a format.

    Raises:
        SweeperError: nothing was measured yet, or the format has no place for this server.
        RefusedExportError: the config is lossy or unconfirmed, and nobody asked for it all the same.
    """
    if wishes.format == "adaptive":
        return _write_adaptive(config, report, run, wishes)
    choice = choose(report, wishes, config.confirmation.tie)
    trial = choice.trial
    done = Export(
        format=wishes.format,
        path="",
        speculates=trial is not None,
        trial=trial.number if trial else None,
        config=str(trial.config) if trial else "no speculation",
        loads=choice.loads,
        confirmed=trial is not None and confirmed(trial, choice.loads),
        lossy=bool(trial and trial.lossy),
        also=[],
        use="",
    )
    return _write(run, deployment_of(config, report, choice, wishes.image), done)


def _write_adaptive(config: StudyConfig, report: StudyReport, run: RunDirectory, wishes: Wishes) -> Export:
    """The policy as JSON, and the server's YAML that names it."""
    if not report.baseline or not report.finished:
        raise SweeperError(f"study {report.study!r}: no trial is complete yet, so there is nothing to export")
    if wishes.load or wishes.trial is not None:
        raise SweeperError("--format adaptive is for all loads and takes neither --load nor --trial")
    chosen = adaptive_choice(report, wishes.allow_lossy)
    if not wishes.allow_unconfirmed:
        raise RefusedExportError(
            f"the policy {chosen.policy} is put together from several trials and was never measured as a whole; add "
            f"this to the study's grids to have it measured: {chosen.grid}; --allow-unconfirmed exports it as it is"
        )
    most = max(chosen.policy.steps)
    whole = SpeculationConfig(
        chosen.algorithm, chosen.draft, most, 1, most + 1, (("adaptive", str(chosen.policy)),)
    )
    loads = [base.load for base in report.baseline]
    trial = chosen.widest.model_copy(update={"config": whole})
    server = deployment_of(config, report, Choice(trial, loads), wishes.image)
    done = Export(
        format="adaptive",
        path="",
        speculates=True,
        trial=None,
        config=str(whole),
        loads=loads,
        confirmed=False,
        lossy=any(t.lossy for t in chosen.trials.values() if t),
        also=[],
        use="",
    )
    return _write(run, replace(server, notes=tuple(adaptive_notes(report, chosen))), done)


def _write(run: RunDirectory, server: Deployment, done: Export) -> Export:
    form = FORMATS[done.format]
    also = []
    text = form.render(server)
    if server.adaptive and form.render is sglang_yaml:
        name = form.file.replace(".yaml", ".json").replace("sglang", "sglang-adaptive")
        path = run.write_deployment(name, server.adaptive).resolve()
        also.append(str(path))
        text = sglang_yaml(server, str(path))
    path = run.write_deployment(form.file, text)
    return done.model_copy(
        update={"path": str(path), "also": also, "use": form.use.replace("FILE", str(path))}
    )
