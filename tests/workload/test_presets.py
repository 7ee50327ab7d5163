"""Named prompt sets come through ``datasets``; without it, or without a hub, the error says what to do."""

from __future__ import annotations

import importlib.util
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.workload import presets
from sweeper.workload.conversation import WorkloadError
from sweeper.workload.presets import PRESETS, conversations, find_preset, is_preset_name, load_preset
from sweeper.workload.sources import read_conversations
from tests.workload.conftest import MakeStudy

STAND_IN = '''
"""As much of datasets as a fetch uses: 40 rows of GSM8K's columns, one of them twice."""
import sys

class _Rows(list):
    column_names = ["question", "answer"]

def load_dataset(dataset, config, split):
    print("Downloading ...")
    if (dataset, config, split) != ("openai/gsm8k", "main", "test"):
        raise ConnectionError(f"Couldn't reach {dataset!r} on the Hub")
    return _Rows({"question": f"question {max(i, 1)}?", "answer": "42"} for i in range(40))
'''


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "modules" / "datasets").mkdir(parents=True)
    (tmp_path / "modules" / "datasets" / "__init__.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("mt-bench", "mt-bench"),
        ("MT_Bench", "mt-bench"),
        ("GSM8K", "gsm8k"),
        ("human-eval", "humaneval"),
        ("MATH500", "math-500"),
        ("mbpp", "mbpp"),
        ("testbed", "testbed"),
    ],
)
def test_a_preset_may_be_written_in_any_usual_way(text: str, name: str) -> None:
    preset = find_preset(text)
    assert preset is not None
    assert preset.name == name
    assert is_preset_name(text)


@pytest.mark.parametrize("text", ["gsm8k.jsonl", "./gsm8k", "/data/mbpp", "prompts", ""])
def test_a_path_is_no_preset(text: str) -> None:
    assert find_preset(text) is None
    assert not is_preset_name(text)


@pytest.mark.parametrize(
    "text", ["random", "random-ids", "random_ids", "RANDOM-token-ids", "random-input-ids"]
)
def test_random_tokens_are_refused_with_the_reason(text: str) -> None:
    assert is_preset_name(text)
    with pytest.raises(
        WorkloadError, match=f"{text}: random tokens are refused.*say nothing about real traffic; give"
    ):
        find_preset(text)


ROWS: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "mt-bench": ({"prompt": ["A?", "B?"], "prompt_id": 81}, "mt-bench-81", ["A?", "B?"]),
    "gsm8k": ({"question": "How many?"}, "gsm8k-0", ["How many?"]),
    "humaneval": (
        {"prompt": "def f():\n", "task_id": "HumanEval/0"},
        "humaneval-HumanEval/0",
        ["def f():\n```"],
    ),
    "math-500": ({"problem": "x?", "unique_id": "test/a/1.json"}, "math-500-test/a/1.json", ["x?"]),
    "mbpp": (
        {"text": "Add.", "test_list": ["assert 1", "assert 2"], "task_id": 11},
        "mbpp-11",
        ["assert 1\nassert 2"],
    ),
}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_a_row_of_each_becomes_a_conversation(preset: presets.Preset) -> None:
    row, name, says = ROWS[preset.name]
    (found,) = conversations(preset, [row])
    assert (found.id, found.plain, found.where) == (name, False, f"{preset.name}[0]")
    assert len(found.turns) == len(says)
    assert all(text in turn[0].content for text, turn in zip(says, found.turns, strict=True))
    assert set(preset.columns) <= row.keys()


@pytest.mark.parametrize("row", [{}, {"question": None}, {"question": " "}])
def test_a_row_that_changed_on_the_hub_is_named(row: dict[str, Any]) -> None:
    gsm8k = find_preset("gsm8k")
    assert gsm8k
    with pytest.raises(
        WorkloadError, match=r"gsm8k\[0\]: not as expected in openai/gsm8k \(main\), split test"
    ):
        conversations(gsm8k, [row])


@pytest.mark.usefixtures("stand_in")
def test_a_preset_is_fetched_and_its_repetitions_left_out(make_study: MakeStudy) -> None:
    found = read_conversations(make_study("gsm8k"))
    assert len(found) == 39
    assert found.notes[0] == "gsm8k: openai/gsm8k (main), split test"
    assert "1 rows that repeat another are left out; the first: gsm8k[1]" in found.notes[1]


@pytest.mark.usefixtures("stand_in")
def test_what_the_library_says_is_passed_on() -> None:
    preset = find_preset("mbpp")
    assert preset
    with pytest.raises(
        WorkloadError, match=r"mbpp .*cannot be had \(HF_HUB_OFFLINE is set\): ConnectionError.*or give a"
    ):
        load_preset(preset)


def test_other_columns_are_named(stand_in: None, monkeypatch: pytest.MonkeyPatch) -> None:
    preset = presets.Preset("other", "openai/gsm8k", "main", columns=("problem",))
    with pytest.raises(WorkloadError, match=r"no column problem any more \(there: question, answer\)"):
        load_preset(preset)


def test_without_the_library_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "datasets.py").write_text("raise ImportError('none here', name='datasets')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    preset = find_preset("gsm8k")
    assert preset
    with pytest.raises(
        WorkloadError, match=r"needs the Python package 'datasets'; pip install 'sweeper\[presets\]'"
    ):
        load_preset(preset)


def test_a_hub_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "datasets.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(presets, "TIMEOUT_S", 1.0)
    preset = find_preset("gsm8k")
    assert preset
    started = time.monotonic()
    with pytest.raises(WorkloadError, match="no answer within 1 s"):
        load_preset(preset)
    assert time.monotonic() - started < 20


real_library = pytest.mark.skipif(
    not importlib.util.find_spec("datasets"), reason="pip install 'sweeper[presets]'"
)


@real_library
def test_rows_of_the_real_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    folder = tmp_path / "mbpp"
    folder.mkdir()
    rows = [{"task_id": i, "text": f"Add {i}.", "test_list": [f"assert {i}"], "code": "x"} for i in range(3)]
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mbpp = find_preset("mbpp")
    assert mbpp
    local = replace(mbpp, dataset=str(folder), config=None)
    assert load_preset(local) == conversations(mbpp, rows)


@real_library
def test_an_unreachable_hub_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # the discard port: nobody listens
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    preset = find_preset("gsm8k")
    assert preset
    started = time.monotonic()
    with pytest.raises(WorkloadError, match="the hub cannot be reached, and the local cache has not got it"):
        load_preset(preset)
    assert time.monotonic() - started < 60
