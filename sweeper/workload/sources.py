"""Reads a study's conversations: from a JSON, JSONL, CSV or text file, or from a preset."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sweeper.config import StudyConfig, Workload
from sweeper.printable import shown
from sweeper.study_file.regular_file import UnreadableFileError, read_text
from sweeper.workload.conversation import Conversation, Conversations, WorkloadError
from sweeper.workload.dealing import usable
from sweeper.workload.presets import Preset, find_preset, load_preset
from sweeper.workload.rows import Row, conversation

MAX_BYTES = 2_000_000_000
"""A file is read at once; a sweep sends some thousand prompts."""

BLOCK_LINE = "---"
"""In a text file: a line that separates prompts of several lines."""

_SPACE = re.compile(r"[\s,]*")


def read_conversations(study: StudyConfig) -> Conversations:
    """The conversations of ``workload.prompts``, in the order that ``measurement.seed`` fixes.

    Reads files and presets only, so it runs where they are: on the driver. Without input-length buckets no more are
    kept than the loads may need.

    Raises:
        WorkloadError: the source is unreadable, unreachable or empty, or a row is unusable or repeats another; the
            message names the file and line.
    """
    workload = study.workload
    preset = find_preset(workload.prompts)
    if preset is None:
        found = read_file(workload.prompts, workload)
    elif preset.file is None:
        found = _from_preset(preset)
    elif preset.file.is_file():
        found = read_file(str(preset.file), workload)
    else:
        raise WorkloadError(
            f"{preset.file}: no such file; build the CPU test bed with: sweeper testbed build"
        )
    if not found.items:
        raise WorkloadError(f"{found.source}: holds no prompt{''.join('; ' + note for note in found.notes)}")
    items = list(found.items)
    random.Random(study.measurement.seed).shuffle(items)
    kept = items if workload.input_lengths else items[: usable(study)]
    return Conversations(found.source, tuple(kept), found.notes)


def read_file(path: str, workload: Workload) -> Conversations:
    """All conversations of a file, in its order. Rows of ShareGPT dumps without a question, or that repeat another,
    are left out, and a note counts them; elsewhere they are errors.

    Raises:
        WorkloadError: as ``read_conversations``.
    """
    distinct, unusable = _Distinct(), 0
    for row in _rows(path, workload):
        found = conversation(row)
        _require_text(found)
        dump = row.shape == "sharegpt" or (row.shape == "auto" and "conversations" in row.data)
        if found is None:
            unusable += 1
        else:
            distinct.add(found, leave_out=dump)
    notes = [f"{path}: {unusable} rows without a question are left out"] if unusable else []
    return distinct.result(path, notes)


def _require_text(found: Conversation | None) -> None:
    """JSON can write half of a surrogate pair (``\\ud800``), which is no character and cannot be sent.

    Raises:
        WorkloadError: an id or a message holds one.
    """
    try:
        for text in (found.id, *(m.content for turn in found.turns for m in turn)) if found else ():
            text.encode()
    except UnicodeEncodeError as error:
        lone = shown(str(error.object)[error.start])
        where = found.where if found else ""
        raise WorkloadError(f"{where}: {lone} is half of a character, not text") from None


def _from_preset(preset: Preset) -> Conversations:
    distinct = _Distinct()
    for item in load_preset(preset):
        distinct.add(item, leave_out=True)
    return distinct.result(preset.name, [f"{preset.name}: {preset.origin}"])


class _Distinct:
    """Collects conversations whose ids and first requests differ from all others'."""

    def __init__(self) -> None:
        self._by_id: dict[str, Conversation] = {}
        self._by_first_turn: dict[object, Conversation] = {}
        self._repeats: list[str] = []

    def add(self, item: Conversation, leave_out: bool) -> None:
        """Raises WorkloadError for a repetition that is not to be left out."""
        twin = self._by_first_turn.get(item.turns[0])
        if twin:
            problem = (
                f"{item.where}: the same prompt as in {twin.where}; prompts must differ, or a cache answers"
            )
        elif item.id in self._by_id:
            problem = f"{item.where}: id {item.id!r} stands twice, first in {self._by_id[item.id].where}"
        else:
            self._by_id[item.id] = self._by_first_turn[item.turns[0]] = item
            return
        if not leave_out:
            raise WorkloadError(problem)
        self._repeats.append(problem)

    def result(self, source: str, notes: Sequence[str]) -> Conversations:
        """Raises WorkloadError where an id is that of another conversation's later turn (``ID#2``)."""
        for item in self._by_id.values():
            for number in range(2, len(item.turns) + 1):
                other = self._by_id.get(f"{item.id}#{number}")
                if other:
                    raise WorkloadError(
                        f"{other.where}: id {other.id!r} is how turn {number} of {item.where} is recorded; rename it"
                    )
        count = len(self._repeats)
        repeats = (
            [f"{count} rows that repeat another are left out; the first: {self._repeats[0]}"] if count else []
        )
        return Conversations(source, tuple(self._by_id.values()), (*notes, *repeats))


def _rows(path: str, workload: Workload) -> Iterator[Row]:
    """The rows of a file: what its extension says, unless ``workload.format`` says otherwise."""
    text, suffix, shape = _read(path), Path(path).suffix.lower(), workload.format
    if shape == "csv" or (shape == "auto" and suffix in (".csv", ".tsv")):
        return _csv_rows(path, text, workload.prompt_column)
    if suffix == ".txt" and shape in ("auto", "text"):
        return _text_rows(path, text)
    if text.lstrip()[:1] == "[":
        return _array_rows(path, text, shape)
    return _json_lines(path, text, shape)


def _read(path: str) -> str:
    try:
        return read_text(Path(path), MAX_BYTES)
    except UnreadableFileError as error:
        where = f"{path}:{error.line}" if error.line else path
        hint = "; unpack or convert it" if error.line else ""
        raise WorkloadError(f"{where}: {error.reason}{hint}") from None


def _json_lines(path: str, text: str, shape: str) -> Iterator[Row]:
    for number, line in enumerate(
        text.split("\n"), start=1
    ):  # splitlines would also split at U+2028 inside a text
        if line.strip():
            where = f"{path}:{number}"
            try:
                yield Row(number, where, json.loads(line), shape)
            except json.JSONDecodeError as error:
                hint = "" if number > 1 else "; a .csv or .txt file may be what is meant, see workload.format"
                raise WorkloadError(f"{where}: no JSON: {error.msg}{hint}") from None
            except (RecursionError, ValueError) as error:
                raise WorkloadError(f"{where}: no JSON: {_unusable(error)}") from None


def _array_rows(path: str, text: str, shape: str) -> Iterator[Row]:
    """One large JSON list, entry by entry, so that an error has its line."""
    decoder = json.JSONDecoder()
    position, line, number = text.index("[") + 1, 1 + text.count("\n", 0, text.index("[")), 0
    while True:
        separator = _SPACE.match(text, position)
        begin = separator.end() if separator else position
        line += text.count("\n", position, begin)
        if text[begin : begin + 1] == "]":
            return
        number += 1
        where = f"{path}:{line} (entry {number})"
        try:
            data, position = decoder.raw_decode(text, begin)
        except json.JSONDecodeError as error:
            raise WorkloadError(f"{where}: no JSON: {error.msg} in line {error.lineno}") from None
        except (RecursionError, ValueError) as error:
            raise WorkloadError(f"{where}: no JSON: {_unusable(error)}") from None
        yield Row(number, where, data, shape)
        line += text.count("\n", begin, position)


def _unusable(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"


def _csv_rows(path: str, text: str, column: str) -> Iterator[Row]:
    end = 0
    limit = csv.field_size_limit(sys.maxsize)  # the default, 128 KiB, is less than a long document
    try:
        comma = "\t" if Path(path).suffix.lower() == ".tsv" else ","
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=comma, strict=True)
        names = reader.fieldnames or []
        if column not in names:
            raise WorkloadError(
                f"{path}:1: no column {column!r} (there: {', '.join(names) or 'none'}); set workload.prompt_column"
            )
        end = reader.line_num
        for number, record in enumerate(reader, start=1):
            begin, end = end + 1, reader.line_num
            yield Row(
                number, f"{path}:{begin}", {"id": record.get("id"), "prompt": record[column] or ""}, "prompt"
            )
    except csv.Error as error:
        raise WorkloadError(f"{path}:{end + 1}: no CSV: {error}") from None
    finally:
        csv.field_size_limit(limit)


def _text_rows(path: str, text: str) -> Iterator[Row]:
    """Every line is a prompt; or, where a line holds only ``---``, everything between two such lines."""
    lines = text.split("\n")
    if not any(line.strip() == BLOCK_LINE for line in lines):
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield Row(number, f"{path}:{number}", {"text": line.strip()}, "text")
        return
    block: list[str] = []
    for number, line in enumerate([*lines, BLOCK_LINE], start=1):
        if line.strip() != BLOCK_LINE:
            block.append(line)
            continue
        content = "\n".join(block).strip("\n")
        if content.strip():
            first = number - len(block) + next(i for i, said in enumerate(block) if said.strip())
            yield Row(first, f"{path}:{first}", {"text": content}, "text")
        block = []
