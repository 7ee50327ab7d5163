"""Reads a study file: YAML with line numbers, ``${ENV}`` expansion, and errors a person can act on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from sweeper.config import StudyConfig
from sweeper.errors import StudyFileError
from sweeper.testbed.environment import cache_dir
from sweeper.workload.presets import is_preset_name, preset_names

MAX_BYTES = 1_000_000
MAX_NODES = 50_000
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
KEPT = (("engine", "env"), ("storage",))
"""Values under these paths keep their ``${VAR}``: they may be secrets, are expanded at use and never written down."""

Path_ = tuple[str | int, ...]


def load_study_file(file: str | Path, files_must_exist: bool = True) -> StudyConfig:
    """Read, expand and validate a study file; local paths in it are checked and made absolute.

    ``files_must_exist`` is false for the study file of a run, which may be read on another machine.

    Raises:
        StudyFileError: unreadable file or YAML, unknown key, wrong type, empty space, missing file, unset
            variable; the message names the file, the line and the YAML path.
    """
    path = Path(file)
    reader = _Reader(path, _read(path))
    config = reader.validated()
    return reader.with_absolute_paths(config) if files_must_exist else config


def expand(text: str, environment: dict[str, str] | None = None) -> str:
    """Replace ``${NAME}`` and ``${NAME:-default}`` by environment variables.

    ``SWEEPER_TESTBED`` is always known: the directory of the CPU test bed's models.

    Raises:
        KeyError: a variable is neither set nor has a default.
    """
    known = {"SWEEPER_TESTBED": str(cache_dir())} | (dict(os.environ) if environment is None else environment)

    def value(match: re.Match[str]) -> str:
        name, default = match.groups()
        return known[name] if default is None else known.get(name, default)

    return VARIABLE.sub(value, text)


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise StudyFileError(f"larger than {MAX_BYTES:,} bytes: this is no study file", str(path))
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise StudyFileError(f"not UTF-8 text ({error.reason} at byte {error.start})", str(path)) from None
    except OSError as error:
        raise StudyFileError(f"cannot be read: {error.strerror}", str(path)) from None


def yaml_path(parts: Path_) -> str:
    """``("space", "grids", 0, "topk")`` -> ``space.grids[0].topk``."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


class _Reader:
    """One pass over one file: node tree -> lines by path -> plain data -> StudyConfig."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.lines: dict[Path_, int] = {}
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            if not isinstance(root, yaml.MappingNode):
                raise StudyFileError(
                    "a study file is a mapping with at least study, engine, space, workload", str(path)
                )
            for count, (where, node) in enumerate(self._nodes(root, ())):
                if count > MAX_NODES:
                    raise StudyFileError(
                        f"more than {MAX_NODES:,} values (aliases count each time)", str(path)
                    )
                self.lines[where] = node.start_mark.line + 1
            self.data = yaml.SafeLoader(text).construct_document(root)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise StudyFileError(f"no valid YAML: {error.problem}", f"{path}:{line}") from None
        except (yaml.YAMLError, ValueError, TypeError) as error:
            raise StudyFileError(f"no valid YAML: {error}", str(path)) from None
        except RecursionError:
            raise StudyFileError(
                "no valid YAML: nested too deeply, or an alias of itself", str(path)
            ) from None

    def _nodes(self, node: yaml.Node, where: Path_) -> Iterator[tuple[Path_, yaml.Node]]:
        yield where, node
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if key.value in seen:
                    self.lines[where] = key.start_mark.line + 1
                    raise self.error("this key stands twice", (*where, key.value), key.start_mark.line + 1)
                seen.add(key.value)
                yield from self._nodes(value, (*where, key.value))
                self.lines[(*where, key.value)] = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode):
            for i, value in enumerate(node.value):
                yield from self._nodes(value, (*where, i))

    def error(self, message: str, where: Path_, line: int | None = None) -> StudyFileError:
        """An error at a YAML path; the line is that of the nearest known parent."""
        known = where
        while known and known not in self.lines:
            known = known[:-1]
        line = line or self.lines.get(known, 1)
        return StudyFileError(message, f"{self.path}:{line}", yaml_path(where))

    def validated(self) -> StudyConfig:
        """The file's content as a study, its paths as they stand there."""
        expanded = self._expand(self.data, ())
        try:
            return StudyConfig.model_validate(expanded)
        except ValidationError as error:
            raise self._first(error) from None

    def _expand(self, value: Any, where: Path_) -> Any:
        if isinstance(value, dict):
            return {key: self._expand(item, (*where, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._expand(item, (*where, i)) for i, item in enumerate(value)]
        if isinstance(value, str) and not any(where[: len(kept)] == kept for kept in KEPT):
            try:
                return expand(value)
            except KeyError as error:
                raise self.error(f"environment variable {error.args[0]} is not set", where) from None
        return value

    def _first(self, error: ValidationError) -> StudyFileError:
        """The first finding as an error; unknown keys come first, since they explain missing ones."""
        findings = sorted(error.errors(), key=lambda finding: finding["type"] != "extra_forbidden")
        finding = findings[0]
        where = tuple(part for part in finding["loc"] if self._is_in_file(part))
        message = {
            "extra_forbidden": "unknown key",
            "missing": "this key is missing",
        }.get(finding["type"], finding["msg"].removeprefix("Value error, "))
        if finding["type"] == "extra_forbidden":
            message += self._nearest(where)
        inner = re.match(r"grids\[(\d+)\](?:\.(\w+))?: (.*)", message)
        if inner and where == ("space",):
            where = (*where, "grids", int(inner[1]), *([inner[2]] if inner[2] else []))
            message = inner[3]
        return self.error(message, where)

    def _is_in_file(self, part: str | int) -> bool:
        """Pydantic names union members in its locations (``list[int]``, ``function-before[...]``); skip them."""
        return isinstance(part, int) or (
            bool(re.fullmatch(r"[\w.-]+", part)) and part not in ("int", "float", "str", "bool")
        )

    def _nearest(self, where: Path_) -> str:
        import difflib

        known = _keys_at(StudyConfig, where[:-1])
        match = difflib.get_close_matches(str(where[-1]), known, n=1)
        return (
            f"; did you mean {match[0]}?" if match else f"; known here: {', '.join(known)}" if known else ""
        )

    def with_absolute_paths(self, config: StudyConfig) -> StudyConfig:
        """Check that local files exist; relative ones are relative to the study file."""
        engine = config.engine.model_copy(
            update={"model": self._checkpoint(config.engine.model, ("engine", "model"))}
        )
        drafts = {
            name: draft.model_copy(
                update={"path": self._checkpoint(draft.path, ("space", "drafts", name, "path"))}
            )
            for name, draft in config.space.drafts.items()
        }
        where: Path_ = ("workload", "prompts")
        prompts = self._prompts(config.workload.prompts, where)
        return config.model_copy(
            update={
                "engine": engine,
                "space": config.space.model_copy(update={"drafts": drafts}),
                "workload": config.workload.model_copy(update={"prompts": prompts}),
            }
        )

    def _prompts(self, text: str, where: Path_) -> str:
        """An absolute path, or a preset's name as it is; a file of that name comes first."""
        path = self._local(text, where)
        if path.is_file():
            return str(path)
        if is_preset_name(text):
            return text
        hint = _testbed_hint(path) or f" (nor a preset: {', '.join(preset_names())})"
        raise self.error(f"no such file: {path}{hint}", where)

    def _local(self, text: str, where: Path_) -> Path:
        """A path as seen from the study file."""
        try:
            path = (self.path.resolve().parent / Path(text).expanduser()).resolve()
            path.exists()
            return path
        except (OSError, RuntimeError, ValueError) as error:  # unreadable, unknown user, NUL byte, too long
            raise self.error(f"unusable path: {error}", where) from None

    def _checkpoint(self, text: str, where: Path_) -> str:
        """A checkpoint directory as an absolute path, or a hub id as it is."""
        local = self._local(text, where)
        if local.is_dir():
            if not (local / "config.json").is_file():
                raise self.error(f"no checkpoint: {local} has no config.json", where)
            return str(local)
        if re.fullmatch(r"[\w.-]+/[\w.-]+", text) and not text.startswith("."):
            return text
        raise self.error(
            f"no such directory: {local}{_testbed_hint(local)} (a hub id has the form organisation/name)",
            where,
        )


def _testbed_hint(path: Path) -> str:
    """What to do where a file of the CPU test bed is missing."""
    return "; build the CPU test bed with: sweeper testbed build" if path.is_relative_to(cache_dir()) else ""


def _keys_at(model: Any, where: Path_) -> list[str]:
    """The keys that a section at a path may have, [] where it is no section."""
    for part in where:
        field = getattr(model, "model_fields", {}).get(part) if isinstance(part, str) else None
        if field is not None:
            model = field.annotation
        arguments = getattr(model, "__args__", ())
        if not hasattr(model, "model_fields") and arguments:
            model = arguments[-1]
    return list(getattr(model, "model_fields", {}))
