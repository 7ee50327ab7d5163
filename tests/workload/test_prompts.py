"""Prompts are distinct, dealt out in a fixed order, and too few of them is an error before any launch."""

import json
from pathlib import Path

import pytest

from sweeper.config import StudyConfig
from sweeper.study_file import load_study_file
from sweeper.workload.prompts import WorkloadError, plan_prompts, read_prompts
from tests.conftest import WriteStudy


def test_no_prompt_is_sent_twice(study: StudyConfig) -> None:
    plan = plan_prompts(study)
    groups = [*plan.by_load.values(), *plan.warmup.values()]
    ids = [prompt.id for group in groups for prompt in group]
    assert len(ids) == len(set(ids)) == (8 + 1) + (8 + 1)


def test_the_seed_fixes_the_order(write_study: WriteStudy, study: StudyConfig) -> None:
    assert plan_prompts(study) == plan_prompts(study)
    other = load_study_file(write_study(measurement={"seed": 2}))
    assert plan_prompts(other).fingerprint != plan_prompts(study).fingerprint


def test_too_few_prompts(write_study: WriteStudy) -> None:
    study = load_study_file(write_study(measurement={"min_requests": 50}))
    with pytest.raises(WorkloadError, match="60 prompts, but .* need 102 distinct ones"):
        plan_prompts(study)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "no JSON"),
        ('{"text": "x"}', 'needs "prompt"'),
        ('{"prompt": " "}', 'needs "prompt"'),
        ('{"id": "1", "prompt": "y"}', "id '1' stands twice"),
        ('{"id": "2", "prompt": "x"}', "the same prompt as in line 1"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"id": "1", "prompt": "x"}) + "\n" + line + "\n")
    with pytest.raises(WorkloadError, match=f"p.jsonl:2: .*{said}"):
        read_prompts(path)
