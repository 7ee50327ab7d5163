"""YAML as plain data with the line of every value, in bounded time and memory, whatever the file holds.

YAML is more than people want of it: aliases that multiply (a "billion laughs"), tags that construct objects, dates,
keys that are lists. Here it is mappings, lists, texts, numbers, truth values and null; all else is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from sweeper.errors import StudyFileError
from sweeper.printable import one_line, shown
from sweeper.study_file.regular_file import UnreadableFileError, read_text

MAX_BYTES = 250_000
MAX_VALUES = 10_000
MAX_DEPTH = 30
MAX_KEY = 200
MAX_DIGITS = 64
"""The slowest file within these limits takes 0.2 s with libyaml, and 2 s without it."""

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml is ten times faster, and part of PyYAML's own builds."""

YamlPath = tuple[str | int, ...]

_PLAIN = "tag:yaml.org,2002:"
_TEXT, _MERGE = f"{_PLAIN}str", f"{_PLAIN}merge"
_NUMBERS = (f"{_PLAIN}int", f"{_PLAIN}float")
_WORDS = (*_NUMBERS, f"{_PLAIN}bool")
_ALLOWED = (_TEXT, _MERGE, *_WORDS, *(f"{_PLAIN}{name}" for name in ("null", "map", "seq")))
_NOT_YAML = re.compile("[^\t\n\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class YamlFile:
    """One file: ``data`` is what it holds, ``lines`` tells where, by path, counted from 1."""

    def __init__(self, path: Path) -> None:
        """Raises StudyFileError: the file is unreadable, too large, or holds anything but plain YAML."""
        self.path = path
        self.lines: dict[YamlPath, int] = {}
        text = self._text()
        try:
            self._measure(text)
            root = yaml.compose(text, Loader=Loader)
            if not isinstance(root, yaml.MappingNode):
                raise StudyFileError(
                    "a study file is a mapping with at least study, engine, space, workload", str(path)
                )
            for count, (where, node) in enumerate(self._nodes(root, ())):
                if count > MAX_VALUES:
                    raise self._too_many()
                self.lines.setdefault(where, node.start_mark.line + 1)
            self.data: dict[str, Any] = Loader(text).construct_document(root)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f":{mark.line + 1}" if mark else ""
            raise StudyFileError(f"no valid YAML: {one_line(str(error.problem))}", f"{path}{line}") from None
        except (yaml.YAMLError, ValueError) as error:
            raise StudyFileError(f"no valid YAML: {one_line(str(error))}", str(path)) from None

    def _text(self) -> str:
        try:
            text = read_text(self.path, MAX_BYTES)
        except UnreadableFileError as error:
            line = f":{error.line}" if error.line else ""
            hint = ": this is no study file" if error.reason.startswith("larger") else ""
            raise StudyFileError(error.reason + hint, f"{self.path}{line}") from None
        if found := _NOT_YAML.search(text):
            line_number = 1 + text.count("\n", 0, found.start())
            raise StudyFileError(
                f"no valid YAML: control character {shown(found[0])}", f"{self.path}:{line_number}"
            )
        return text

    def _measure(self, text: str) -> None:
        """Count before anything is built: the parser's events come one by one, however deep the file is."""
        depth = count = 0
        for event in yaml.parse(text, Loader=Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            count += isinstance(event, yaml.NodeEvent)
            if depth > MAX_DEPTH:
                raise self._too_deep(event.start_mark)
            if count > 2 * MAX_VALUES:  # keys and values
                raise self._too_many()

    def _too_many(self) -> StudyFileError:
        return StudyFileError(f"more than {MAX_VALUES:,} values (aliases count each time)", str(self.path))

    def _too_deep(self, mark: Any) -> StudyFileError:
        return StudyFileError(
            f"nested more than {MAX_DEPTH} levels deep, or an alias of itself", f"{self.path}:{mark.line + 1}"
        )

    def _nodes(self, node: yaml.Node, where: YamlPath) -> Iterator[tuple[YamlPath, yaml.Node]]:
        """Every value under a node; an alias stands for all that it names."""
        self._require_plain(node, where)
        if len(where) > MAX_DEPTH:
            raise self._too_deep(node.start_mark)
        yield where, node
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                name = self._key(key, where)
                line = key.start_mark.line + 1
                if name in seen:
                    raise self.error("this key stands twice", (*where, name), line)
                seen.add(name)
                self.lines[(*where, name)] = line
                yield from self._nodes(value, (*where, name))
        elif isinstance(node, yaml.SequenceNode):
            for i, value in enumerate(node.value):
                yield from self._nodes(value, (*where, i))

    def _key(self, key: yaml.Node, where: YamlPath) -> str:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or key.tag not in _ALLOWED:
            raise self.error("a key must be a plain text", where, line)
        name = str(key.value)
        if key.tag not in (_TEXT, _MERGE):
            kind = key.tag.removeprefix(_PLAIN)
            raise self.error(
                f"the key {one_line(name, 40)} is read as {kind}, not as text; quote it", where, line
            )
        if len(name) > MAX_KEY:
            raise self.error(f"a key has at most {MAX_KEY} characters, not {len(name):,}", where, line)
        return name

    def _require_plain(self, node: yaml.Node, where: YamlPath) -> None:
        line = node.start_mark.line + 1
        if node.tag not in _ALLOWED:
            kind = node.tag.removeprefix(_PLAIN)
            if kind in ("timestamp", "value"):  # YAML 1.1 finds them in plain words
                raise self.error(
                    f"{one_line(str(node.value), 40)} is read as a {kind}; quote it", where, line
                )
            tag = one_line(node.tag.replace(_PLAIN, "!!"), 80)
            raise self.error(f"the tag {tag} is not allowed: plain values only", where, line)
        if node.tag in _NUMBERS and len(node.value) > MAX_DIGITS:
            raise self.error(f"a number has at most {MAX_DIGITS} digits", where, line)
        if node.tag in _WORDS:
            try:
                SafeConstructor().construct_object(node)
            except (ValueError, LookupError):  # !!float abc, !!bool maybe, !!int with nothing after it
                kind = node.tag.removeprefix(_PLAIN)
                raise self.error(f"{one_line(str(node.value), 40)!r} is no {kind}", where, line) from None

    def error(self, message: str, where: YamlPath, line: int | None = None) -> StudyFileError:
        """An error at a YAML path; the line is that of the nearest known parent."""
        known = where
        while known and known not in self.lines:
            known = known[:-1]
        line = line or self.lines.get(known, 1)
        return StudyFileError(one_line(message), f"{self.path}:{line}", yaml_path(where))


def yaml_path(parts: YamlPath) -> str:
    """``("space", "grids", 0, "topk")`` -> ``space.grids[0].topk``."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return one_line(text, 300)
