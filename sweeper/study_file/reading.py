"""Reads a study file: plain YAML, ``${ENV}`` expanded, validated, with errors that a person can act on."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweeper.config import StudyConfig
from sweeper.errors import StudyFileError
from sweeper.study_file.values import Values
from sweeper.study_file.yaml_file import YamlFile, YamlPath
from sweeper.testbed.environment import cache_dir
from sweeper.workload.presets import is_preset_name, preset_names

HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")


def load_study_file(file: str | Path, files_must_exist: bool = True) -> StudyConfig:
    """Read, expand and validate a study file; local paths in it are checked and made absolute.

    ``files_must_exist`` is false for the study file of a run. It may be read on another machine, and may have been
    written by anybody: nothing in it is expanded, and no path in it is looked at.

    Raises:
        StudyFileError: unreadable file or YAML, unknown key, wrong type, empty space, missing file, unset
            variable, a secret in clear; the message names the file, the line and the YAML path.
    """
    reader = _Reader(YamlFile(Path(file)))
    config = reader.validated(files_must_exist)
    return reader.with_absolute_paths(config) if files_must_exist else config


def read_study_file(file: str | Path) -> StudyConfig:
    """Read, expand and validate a study that is to run on other machines: no path in it is looked at.

    Raises:
        StudyFileError: as ``load_study_file``, but for missing files.
    """
    return _Reader(YamlFile(Path(file))).validated(expands=True)


class _Reader:
    """From one file's data to a StudyConfig."""

    def __init__(self, file: YamlFile) -> None:
        self.file, self.path, self.error = file, file.path, file.error

    def validated(self, expands: bool) -> StudyConfig:
        """The file's content as a study, its paths as they stand there."""
        data = Values(self.error, expands).checked(self.file.data)
        try:
            return StudyConfig.model_validate(data)
        except ValidationError as error:
            raise self._first(error) from None

    def _first(self, error: ValidationError) -> StudyFileError:
        """The first finding as an error; unknown keys come first, since they explain missing ones."""
        findings = error.errors(include_url=False, include_input=False)
        finding = min(findings, key=lambda finding: finding["type"] != "extra_forbidden")
        where: YamlPath = ()
        for part in finding["loc"]:
            if (*where, part) in self.file.lines or self._is_in_file(part):
                where = (*where, part)
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

    def _nearest(self, where: YamlPath) -> str:
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
        prompts = self._prompts(config.workload.prompts, ("workload", "prompts"))
        search = config.search
        if search.acceptance_map:
            known = self._local(search.acceptance_map, ("search", "acceptance_map"))
            if not known.is_file():
                raise self.error(f"no such file: {known}", ("search", "acceptance_map"))
            search = search.model_copy(update={"acceptance_map": str(known)})
        self._local(config.runs_dir, ("runs_dir",))
        self._local(config.baseline.cache_dir, ("baseline", "cache_dir"))
        return config.model_copy(
            update={
                "engine": engine,
                "space": config.space.model_copy(update={"drafts": drafts}),
                "workload": config.workload.model_copy(update={"prompts": prompts}),
                "search": search,
            }
        )

    def _prompts(self, text: str, where: YamlPath) -> str:
        """An absolute path, or a preset's name as it is; a file of that name comes first."""
        path = self._local(text, where)
        if path.is_file():
            return str(path)
        if is_preset_name(text):
            return text
        hint = _testbed_hint(path) or f" (nor a preset: {', '.join(preset_names())})"
        raise self.error(f"no such file: {path}{hint}", where)

    def _local(self, text: str, where: YamlPath) -> Path:
        """A path as seen from the study file."""
        try:
            path = (self.path.resolve().parent / Path(text).expanduser()).resolve()
            path.exists()
            return path
        except (OSError, RuntimeError, ValueError) as error:  # unreadable, unknown user, NUL byte, too long
            raise self.error(f"unusable path: {error}", where) from None

    def _checkpoint(self, text: str, where: YamlPath) -> str:
        """A checkpoint directory as an absolute path, or a hub id as it is."""
        local = self._local(text, where)
        if local.is_dir():
            if not (local / "config.json").is_file():
                raise self.error(f"no checkpoint: {local} has no config.json", where)
            return str(local)
        if HUB_ID.fullmatch(text):
            return text
        raise self.error(
            f"no such directory: {local}{_testbed_hint(local)} (a hub id has the form organisation/name)",
            where,
        )


def _testbed_hint(path: Path) -> str:
    """What to do where a file of the CPU test bed is missing."""
    return "; build the CPU test bed with: sweeper testbed build" if path.is_relative_to(cache_dir()) else ""


def _keys_at(model: Any, where: YamlPath) -> list[str]:
    """The keys that a section at a path may have, [] where it is no section."""
    for part in where:
        field = getattr(model, "model_fields", {}).get(part) if isinstance(part, str) else None
        if field is not None:
            model = field.annotation
        arguments = getattr(model, "__args__", ())
        if not hasattr(model, "model_fields") and arguments:
            model = arguments[-1]
    return list(getattr(model, "model_fields", {}))
