"""The probe on the test bed: a healthy draft is found healthy, the original case is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.planted_faults.wrong_states import wired_from_the_embedding
from sweeper.analysis.intervals import LogEstimate
from sweeper.cli.probe import command_line_study
from sweeper.drafts.diagnosis import Case, Kind, Trained, Verdict, diagnose
from sweeper.drafts.feature_files import FeatureFileError, OuterMatrices, feature_files, read_features
from sweeper.drafts.probe import clearly_better
from sweeper.drafts.probe_report import ProbeReport
from sweeper.drafts.probing import ProbeJob, run_probe
from sweeper.drafts.run_cases import probed
from sweeper.drafts.target import Target
from sweeper.drafts.texts import continued, prompts_of
from sweeper.drafts.wiring import Tap


def probe_of(testbed: Path, draft: Path, prompts: int, features: Path | None = None) -> ProbeReport:
    study = command_line_study(str(testbed / "target"), [str(draft)], str(testbed / "prompts.jsonl"))
    short = study.model_copy(update={"workload": study.workload.model_copy(update={"max_new_tokens": 32})})
    job = ProbeJob(short, {"draft": str(draft)}, prompts, features, depth=4)
    return run_probe(job, lambda stage, done, of: None)[0]


def test_a_healthy_draft_does_best_as_served(testbed: Path) -> None:
    report = probe_of(testbed, testbed / "draft_eagle3_100", 4)
    assert report.served.wiring == "[2, 6, 9]"
    assert report.trained_on is None
    assert report.remedy is None
    assert report.served.accept_length.value > 2.5
    assert all(row.over_served is not None and row.over_served.value < 1.1 for row in report.rows[1:])
    assert "No other wiring does clearly better" in report.verdict


@pytest.mark.slow
def test_the_original_case_is_named_and_its_mending_too(testbed: Path) -> None:
    draft = wired_from_the_embedding(testbed)
    report = probe_of(testbed, draft, 12)
    assert report.trained_on == "[embed, 2, 6]"
    assert report.verdict.startswith("This draft was trained on [embed, 2, 6]; SGLang serves [2, 6, 9].")
    assert report.remedy is not None
    assert "[-1, 1, 5]" in report.remedy
    trained = Trained.of(json.loads((draft / "agreement.json").read_text()), Kind.CONDITIONAL)
    assert diagnose(Case("draft", trained=trained, probed=probed(report))).verdict == Verdict.WIRING


def test_an_alternative_must_be_better_beyond_chance_and_by_enough() -> None:
    assert clearly_better(LogEstimate(1.5, 0.05, 20), 1.4, 20)
    assert not clearly_better(LogEstimate(1.5, 0.2, 20), 1.4, 20)  # could be chance
    assert not clearly_better(LogEstimate(1.03, 0.001, 20), 2.5, 20)  # certain, but small
    assert not clearly_better(LogEstimate(0.9, 0.001, 20), 2.5, 20)


def test_dumped_hidden_states_give_what_the_target_gives(testbed: Path, tmp_path: Path) -> None:
    target = Target.load(str(testbed / "target"))
    study = command_line_study(str(testbed / "target"), ["d"], str(testbed / "prompts.jsonl"))
    taps = (Tap(2), Tap(6), Tap(9))
    for number, text in enumerate(continued(target, prompts_of(study, 4), 32)):
        ids = torch.tensor(text.ids)
        reading = target.read(ids, {*taps, Tap(12, normed=True)})
        dump = {
            "input_ids": ids,
            "loss_mask": (torch.arange(len(ids)) >= text.start).long(),
            "hidden_state": reading.states[Tap(12, normed=True)][None],
            "aux_hidden_state": torch.cat([reading.states[tap] for tap in taps], dim=-1)[None],
        }
        (tmp_path / "rows_0-5000").mkdir(exist_ok=True)
        torch.save(dump, tmp_path / "rows_0-5000" / f"data_{number}.ckpt")
    draft = testbed / "draft_eagle3_100"
    dumped = probe_of(testbed, draft, 4, tmp_path)
    study = study.model_copy(update={"workload": study.workload.model_copy(update={"max_new_tokens": 32})})
    live = run_probe(ProbeJob(study, {"draft": str(draft)}, 4, None, 4), lambda stage, done, of: None)[0]
    assert dumped.served.conditional == pytest.approx(live.served.conditional, abs=0.02)
    assert dumped.trained_on is None
    assert "dumped states are taken for [2, 6, 9]" in dumped.notes[0]


def test_a_dump_that_executes_or_belongs_elsewhere_is_refused(testbed: Path, tmp_path: Path) -> None:
    outer = OuterMatrices(torch.zeros(10, 4), torch.zeros(10, 4))
    taps = (Tap(2), Tap(6), Tap(9))
    torch.save({"input_ids": Path("x")}, tmp_path / "code.ckpt")
    torch.save({"input_ids": torch.arange(3)}, tmp_path / "few.ckpt")
    whole = {"input_ids": torch.arange(3), "loss_mask": torch.ones(3), "hidden_state": torch.zeros(1, 3, 4)}
    torch.save({**whole, "aux_hidden_state": torch.zeros(1, 3, 8)}, tmp_path / "narrow.ckpt")
    torch.save({**whole, "aux_hidden_state": torch.zeros(1, 2, 12)}, tmp_path / "short.ckpt")
    for name, said in (
        ("code", "tensors alone"),
        ("few", "loss_mask"),
        ("narrow", "3 x 4"),
        ("short", "lengths"),
    ):
        with pytest.raises(FeatureFileError, match=said):
            read_features(tmp_path / f"{name}.ckpt", taps, 12, outer)
    with pytest.raises(FeatureFileError, match=r"no \*.ckpt files"):
        feature_files(tmp_path / "nowhere", 3)
