"""The case this project was born from, on real SGLang: wired wrongly, named by the probe, mended by its config."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.planted_faults.wrong_states import wired_from_the_embedding
from sweeper.cli.probe import command_line_study
from sweeper.config import StudyConfig
from sweeper.drafts.probing import ProbeJob, run_probe
from sweeper.drafts.texts import prompts_of
from sweeper.server.command import launch_command, launch_environment
from sweeper.server.prepare import look_up
from sweeper.server.process import ServerProcess, fresh_address
from sweeper.speculation import SpeculationConfig

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

TOKENS, PROMPTS, STEPS = 64, 12, 4


def study_with(testbed: Path, draft: Path) -> StudyConfig:
    study = command_line_study(str(testbed / "target"), [str(draft)], str(testbed / "prompts.jsonl"))
    return study.model_copy(
        update={
            "engine": study.engine.model_copy(update={"device": "cpu"}),
            "workload": study.workload.model_copy(update={"max_new_tokens": TOKENS, "chat_template": False}),
        }
    )


def served_accept_length(study: StudyConfig, log: Path) -> float:
    name = next(iter(study.space.drafts))
    config = SpeculationConfig("EAGLE3", name, STEPS, 1, STEPS + 1)
    with fresh_address() as address:
        command = launch_command(study, config, look_up(study), address)
        with ServerProcess(command, launch_environment(study), address, log) as server:
            server.wait_until_ready(900)
            sampling = {"temperature": 0, "max_new_tokens": TOKENS}  # ends where the target ends
            replies = [
                server.client.generate(prompt.text, TOKENS, 300, sampling_params=sampling)
                for prompt in prompts_of(study, PROMPTS)
            ]
    rounds = sum(reply["meta_info"]["spec_verify_ct"] for reply in replies)
    return sum(len(reply["output_ids"]) - 1 for reply in replies) / rounds


def test_the_probe_predicts_the_server_and_its_remedy_mends_the_draft(testbed: Path, tmp_path: Path) -> None:
    draft = wired_from_the_embedding(testbed)
    study = study_with(testbed, draft)
    job = ProbeJob(study, {"planted": str(draft)}, PROMPTS, depth=STEPS)
    report = run_probe(job, lambda stage, done, of: None)[0]
    assert report.trained_on == "[embed, 2, 6]"
    before = served_accept_length(study, tmp_path / "before.log")
    assert before == pytest.approx(report.served.accept_length.value, rel=0.01)

    mended = tmp_path / "mended"
    shutil.copytree(draft, mended)
    config = json.loads((mended / "config.json").read_text())
    config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [-1, 1, 5]}  # what the report says
    (mended / "config.json").write_text(json.dumps(config))
    assert "[-1, 1, 5]" in (report.remedy or "")
    after = served_accept_length(study_with(testbed, mended), tmp_path / "after.log")
    assert after == pytest.approx(report.best.accept_length.value, rel=0.01)
    assert after > before
