"""Files of every kind are read to the last row, and an unusable one says where."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sweeper.workload.conversation import Conversations, WorkloadError
from sweeper.workload.sources import read_conversations, read_file
from tests.workload.conftest import MakeStudy


@pytest.fixture
def read(make_study: MakeStudy) -> Callable[..., Conversations]:
    return lambda path, **workload: read_file(str(path), make_study(path, workload=workload).workload)


def texts(found: Conversations) -> list[str]:
    return [item.turns[0][0].content for item in found]


def wheres(found: Conversations) -> list[str]:
    return [item.where.rpartition("/")[2] for item in found]


def test_jsonl(tmp_path: Path, read: Callable[..., Conversations]) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('\ufeff{"prompt": "a\u2028b"}\n\n{"id": "x", "prompt": "c"}\r\n', "utf-8")
    found = read(path)
    assert texts(found) == ["a\u2028b", "c"]
    assert [item.id for item in found] == ["1", "x"]
    assert wheres(found) == ["p.jsonl:1", "p.jsonl:3"]


def test_one_json_list_has_a_line_for_every_entry(tmp_path: Path, read: Callable[..., Conversations]) -> None:
    rows = [{"id": f"r{i}", "conversations": [{"from": "human", "value": f"q{i}"}]} for i in range(3)]
    path = tmp_path / "share.json"
    path.write_text("\n" + json.dumps(rows, indent=1))
    found = read(path)
    assert texts(found) == ["q0", "q1", "q2"]
    assert wheres(found) == ["share.json:3 (entry 1)", "share.json:12 (entry 2)", "share.json:21 (entry 3)"]
    path.write_text(json.dumps(rows))
    assert wheres(read(path))[2] == "share.json:1 (entry 3)"


@pytest.mark.parametrize("rest", [', {"conversations"', ', {"conversations": []} ', ', "a" "b"]'])
def test_a_torn_json_list_is_an_error(tmp_path: Path, read: Callable[..., Conversations], rest: str) -> None:
    path = tmp_path / "share.json"
    path.write_text('[{"conversations": [{"from": "human", "value": "q"}]}\n' + rest)
    with pytest.raises(WorkloadError, match=r"share.json:2 \(entry \d\): "):
        read(path)


def test_csv_takes_its_column_and_knows_lines(tmp_path: Path, read: Callable[..., Conversations]) -> None:
    path = tmp_path / "p.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerows([["id", "question"], ["a", "one\nand a half"], ["b", "x" * 200_000], ["", "three"]])
    found = read(path, prompt_column="question")
    assert [len(text) for text in texts(found)] == [14, 200_000, 5]
    assert [item.id for item in found] == ["a", "b", "3"]
    assert wheres(found) == ["p.csv:2", "p.csv:4", "p.csv:5"]
    assert all(item.plain for item in found)


def test_csv_faults_are_named(tmp_path: Path, read: Callable[..., Conversations]) -> None:
    path = tmp_path / "p.csv"
    path.write_text("id,question\n1,x\n")
    with pytest.raises(
        WorkloadError, match=r"p.csv:1: no column 'prompt' \(there: id, question\); set workload.prompt_co"
    ):
        read(path)
    path.write_text('prompt\nx\n"y\n')
    with pytest.raises(WorkloadError, match="p.csv:3: no CSV"):
        read(path)
    path.write_text("id,prompt\n1,x\n2,\n")
    with pytest.raises(WorkloadError, match="p.csv:3: 'prompt' must hold a non-empty text"):
        read(path)
    path.write_text("")
    with pytest.raises(WorkloadError, match="there: none"):
        read(path)


def test_tab_separated(tmp_path: Path, read: Callable[..., Conversations]) -> None:
    path = tmp_path / "p.tsv"
    path.write_text("id\tprompt\n1\ta, b\n")
    assert texts(read(path)) == ["a, b"]


def test_a_text_file_has_a_prompt_a_line(tmp_path: Path, read: Callable[..., Conversations]) -> None:
    path = tmp_path / "p.txt"
    path.write_text("one\n\n  two \n")
    assert texts(read(path)) == ["one", "two"]
    assert wheres(read(path)) == ["p.txt:1", "p.txt:3"]


def test_dashes_separate_longer_prompts_of_a_text_file(
    tmp_path: Path, read: Callable[..., Conversations]
) -> None:
    path = tmp_path / "p.txt"
    path.write_text("one\n  indented\n---\n\n---\n\ntwo\n---\n")
    assert texts(read(path)) == ["one\n  indented", "two"]
    assert wheres(read(path)) == ["p.txt:1", "p.txt:7"]


def test_the_named_format_wins_over_the_files_name(
    tmp_path: Path, read: Callable[..., Conversations]
) -> None:
    path = tmp_path / "p.txt"
    path.write_text('{"prompt": "x"}\n')
    assert texts(read(path, format="prompt")) == ["x"]
    path = tmp_path / "p.data"
    path.write_text("prompt\nx\n")
    assert texts(read(path, format="csv")) == ["x"]
    with pytest.raises(WorkloadError, match="p.data:1: no JSON.*workload.format"):
        read(path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"id": "1", "prompt": "y"}', "id '1' stands twice, first in .*p.jsonl:1"),
        ('{"id": "2", "prompt": "x"}', "the same prompt as in .*p.jsonl:1; prompts must differ"),
    ],
)
def test_wrong_lines_are_named(
    tmp_path: Path, read: Callable[..., Conversations], line: str, said: str
) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"id": "1", "prompt": "x"}) + "\n" + line + "\n")
    with pytest.raises(WorkloadError, match=f"p.jsonl:2: .*{said}"):
        read(path)


def test_conversations_with_the_same_first_turn_are_the_same(
    jsonl: Callable[..., Path], read: Callable[..., Conversations]
) -> None:
    with pytest.raises(WorkloadError, match="p.jsonl:2: the same prompt as in"):
        read(jsonl({"turns": ["a", "b"]}, {"turns": ["a", "c"]}, name="p.jsonl"))


def test_an_id_must_not_look_like_anothers_later_turn(
    jsonl: Callable[..., Path], read: Callable[..., Conversations]
) -> None:
    with pytest.raises(
        WorkloadError, match="prompts.jsonl:2: id 'q#2' is how turn 2 of .*prompts.jsonl:1 is recorded"
    ):
        read(jsonl({"id": "q", "turns": ["a", "b"]}, {"id": "q#2", "prompt": "c"}))
    assert len(read(jsonl({"id": "q", "turns": ["a"]}, {"id": "q#2", "prompt": "c"}))) == 2


def test_a_dumps_repetitions_and_empty_rows_are_left_out_and_counted(
    jsonl: Callable[..., Path], read: Callable[..., Conversations]
) -> None:
    asks = [{"id": i, "conversations": [{"from": "human", "value": text}]} for i, text in enumerate("aba")]
    found = read(jsonl(*asks, {"id": 9, "conversations": []}, {"id": 0, **asks[1], "conversations": []}))
    assert texts(found) == ["a", "b"]
    assert "2 rows without a question are left out" in found.notes[0]
    assert "1 rows that repeat another are left out; the first: " in found.notes[1]
    assert "prompts.jsonl:3: the same prompt as in" in found.notes[1]


def test_unreadable_files_are_named(tmp_path: Path, read: Callable[..., Conversations]) -> None:
    with pytest.raises(WorkloadError, match="none.jsonl: cannot be read: No such file"):
        read(tmp_path / "none.jsonl")
    (tmp_path / "p.jsonl.gz").write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(WorkloadError, match="p.jsonl.gz:1: not UTF-8 text"):
        read(tmp_path / "p.jsonl.gz")


def test_an_empty_file_is_an_error(tmp_path: Path, make_study: MakeStudy) -> None:
    for name, content in [("p.jsonl", "\n"), ("p.json", "[]"), ("p.txt", "---\n"), ("p.csv", "prompt\n")]:
        (tmp_path / name).write_text(content)
        with pytest.raises(WorkloadError, match=f"{name}: holds no prompt"):
            read_conversations(make_study(tmp_path / name))


def test_the_seed_fixes_the_order(jsonl: Callable[..., Path], make_study: MakeStudy) -> None:
    path = jsonl(*({"prompt": f"p{i}"} for i in range(60)))
    first = read_conversations(make_study(path))
    assert first == read_conversations(make_study(path))
    other = read_conversations(make_study(path, measurement={"seed": 2}))
    assert first != other
    assert sorted(texts(first)) == sorted(texts(other))


def test_a_large_source_is_cut_to_what_can_be_used_but_not_with_buckets(
    jsonl: Callable[..., Path], make_study: MakeStudy
) -> None:
    path = jsonl(*({"prompt": f"p{i}"} for i in range(2000)))
    assert len(read_conversations(make_study(path))) == 10 * (16 + 2 + 16 + 4)
    assert len(read_conversations(make_study(path, workload={"input_lengths": [[1, 9]]}))) == 2000


def test_the_test_beds_held_out_prompts_have_a_name(
    monkeypatch: pytest.MonkeyPatch, jsonl: Callable[..., Path], make_study: MakeStudy
) -> None:
    path = jsonl({"prompt": "x"})
    monkeypatch.setenv("SWEEPER_TESTBED", str(path.parent))
    assert texts(read_conversations(make_study("testbed"))) == ["x"]
    path.unlink()
    with pytest.raises(WorkloadError, match="no such file; build the CPU test bed"):
        read_conversations(make_study("testbed"))
