"""A study's prompts from file to plan: distinct, in a fixed order, named by a hash, and checked before any launch."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeper.config import StudyConfig
from sweeper.records import Load
from sweeper.workload import prompts
from sweeper.workload.conversation import WorkloadError
from sweeper.workload.prompts import PromptPlan, plan_prompts, read_conversations
from tests.conftest import FAKE_ENGINE
from tests.workload.conftest import CHATML, MakeStudy, MakeTokenizer


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def plain(jsonl: Callable[..., Path]) -> Path:
    return jsonl(*({"id": f"p{i}", "prompt": f"prompt number {i}"} for i in range(60)))


def plan(study: StudyConfig) -> PromptPlan:
    return plan_prompts(study, read_conversations(study))


def test_no_prompt_is_sent_twice(plain: Path, make_study: MakeStudy) -> None:
    found = plan(make_study(plain))
    groups = [*found.by_load.values(), found.warmup[Load(4)]]
    ids = [prompt.id for group in groups for prompt in group]
    assert len(ids) == len(set(ids)) == 16 + 16 + 4
    assert found.warmup[Load(1)] == found.warmup[Load(4)][:2]
    assert found.quality == ()


def test_the_seed_fixes_the_order(plain: Path, make_study: MakeStudy) -> None:
    assert plan(make_study(plain)) == plan(make_study(plain))
    other = plan(make_study(plain, measurement={"seed": 2}))
    assert other.fingerprint != plan(make_study(plain)).fingerprint


def test_the_fingerprint_is_that_of_the_texts_in_their_places(
    jsonl: Callable[..., Path], make_study: MakeStudy
) -> None:
    rows = [{"id": f"p{i}", "prompt": f"prompt {i}"} for i in range(60)]
    first = plan(make_study(jsonl(*rows))).fingerprint
    renamed = [{**row, "id": f"q{i}"} for i, row in enumerate(rows)]
    assert plan(make_study(jsonl(*renamed, name="other.jsonl"))).fingerprint == first
    changed = [{**row, "prompt": str(row["prompt"]) + "."} for row in rows]
    assert plan(make_study(jsonl(*changed))).fingerprint != first
    assert plan(make_study(jsonl(*rows), measurement={"max_requests": 12})).fingerprint != first


def test_a_plan_travels(plain: Path, make_study: MakeStudy) -> None:
    found = plan(make_study(plain))
    assert pickle.loads(pickle.dumps(found)) == found


def test_too_few_prompts_are_an_error(plain: Path, make_study: MakeStudy) -> None:
    with pytest.raises(
        WorkloadError, match="60 prompts are too few: no prompt is sent twice, and c=1 needs 50, c=4"
    ):
        plan(make_study(plain, measurement={"min_requests": 50}))


def test_a_temperature_adds_prompts_for_the_comparison_of_outputs(plain: Path, make_study: MakeStudy) -> None:
    found = plan(make_study(plain, workload={"temperature": 0.7}, measurement={"quality_requests": 5}))
    assert len(found.quality) == 5
    measured = {prompt.id for hand in found.by_load.values() for prompt in hand}
    assert not measured & {prompt.id for prompt in found.quality}


@pytest.mark.usefixtures("in_process")
def test_buckets_take_prompts_by_their_rendered_length(
    jsonl: Callable[..., Path], make_study: MakeStudy, make_tokenizer: MakeTokenizer
) -> None:
    make_tokenizer(CHATML)
    frame = 3 + len("user\n" + "\n" + "assistant\n")
    path = jsonl(
        *({"messages": [{"role": "user", "content": f"{i:03}" + "x" * (i % 2 * 100)}]} for i in range(100))
    )
    buckets = {"input_lengths": [[1, frame + 3], [frame + 103, 500]]}
    found = plan(make_study(path, engine={"env": {"PYTHONPATH": str(FAKE_ENGINE)}}, workload=buckets))
    for load, hand in found.by_load.items():
        wanted = frame + 3 if load.bucket.startswith("1-") else frame + 103
        assert {prompt.input_tokens for prompt in hand} == {wanted}
        assert len(hand) == 16


@pytest.mark.usefixtures("in_process")
def test_conversations_are_counted_in_the_notes(
    jsonl: Callable[..., Path], make_study: MakeStudy, make_tokenizer: MakeTokenizer
) -> None:
    make_tokenizer(CHATML)
    path = jsonl(*({"turns": [f"a{i}", f"b{i}"]} for i in range(40)))
    found = plan(make_study(path, engine={"env": {"PYTHONPATH": str(FAKE_ENGINE)}}))
    assert all(prompt.requests == 2 for hand in found.by_load.values() for prompt in hand)
    assert found.notes[-1] == (
        "16 of 16 prompts are conversations of 32 requests; the server's own replies are their history"
    )


def test_a_large_source_is_rendered_only_as_far_as_needed(
    plain: Path, make_study: MakeStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless a bucket is not filled from that: then from all."""
    rendered: list[int] = []
    real = prompts.render

    def count(study: StudyConfig, conversations: Any) -> Any:
        rendered.append(len(conversations))
        return real(study, conversations)

    monkeypatch.setattr(prompts, "render", count)
    plan(make_study(plain))
    assert rendered == [16 + 16 + 2 + 4]
    monkeypatch.setattr(prompts, "most_conversations", lambda study: 10)
    plan(make_study(plain))
    assert rendered[1:] == [10, 60]


def test_the_room_imports_nothing_heavy() -> None:
    heavy = "ray torch sglang transformers datasets tokenizers"
    code = f"import sys, sweeper.workload.prompts; print(*{{*'{heavy}'.split()}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
