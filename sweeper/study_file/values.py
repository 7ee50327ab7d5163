"""What any value of a study file may be: plain, printable, and no secret in clear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sweeper.errors import StudyFileError
from sweeper.printable import first_unprintable, shown
from sweeper.secrets import is_secret_name, literal_secret, secret_references
from sweeper.study_file.variables import VARIABLE, expand
from sweeper.study_file.yaml_file import YamlPath

KEPT: tuple[YamlPath, ...] = (("engine", "env"), ("storage",))
"""Values under these paths keep their ``${VAR}``: they may be secrets, are expanded at use and never written down."""

OF_SEVERAL_LINES: tuple[YamlPath, ...] = (("workload", "chat_template_kwargs"),)
"""Texts for the model; everything else is a name, a path, a flag or a variable, which have one line."""

MAX_REFERENCES = 100
"""Of one value to environment variables, each of which may have 128 KiB."""


@dataclass(frozen=True)
class Values:
    """Checks a study file's data, value by value; ``error`` makes an error at a path.

    ``expands``: ``${VAR}`` is replaced, and secrets in clear are refused. Both are left out for the study file of a
    run: it was expanded when it was written, and one that comes from elsewhere must not read this environment.
    """

    error: Callable[[str, YamlPath], StudyFileError]
    expands: bool

    def checked(self, value: Any, where: YamlPath = ()) -> Any:
        """The data to validate.

        Raises:
            StudyFileError: a value that no study can have, or an unset variable.
        """
        if isinstance(value, dict):
            for key in value:
                self._require_printable(key, where)
            return {key: self.checked(item, (*where, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.checked(item, (*where, i)) for i, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        text = self._expanded(value, where) if self.expands else value
        self._require_printable(text, where)
        return text

    def _expanded(self, text: str, where: YamlPath) -> str:
        kept = _under(where, KEPT)
        self._refuse_secrets(text, where, kept)
        if kept:
            return text
        if len(VARIABLE.findall(text)) > MAX_REFERENCES:
            raise self.error(f"more than {MAX_REFERENCES} environment variables in one value", where)
        try:
            return expand(text)
        except KeyError as error:
            raise self.error(f"environment variable {error.args[0]} is not set", where) from None

    def _refuse_secrets(self, text: str, where: YamlPath, kept: bool) -> None:
        variable = str(where[2]) if where[:2] == ("engine", "env") and len(where) > 2 else ""
        if found := literal_secret(text, variable):
            name = variable if is_secret_name(variable) else "NAME"
            advice = (
                f"write ${{{name}}} and set that variable in the environment"
                if kept
                else ("secrets may only be given in engine.env and storage, as ${NAME}")
            )
            raise self.error(
                f"{found} stands here in clear and would be copied with every run; {advice}", where
            )
        if not kept and (names := secret_references(text)):
            raise self.error(
                f"{names[0]} looks like a secret, and its value would be written into the run's files; secrets may "
                "only be named in engine.env and storage",
                where,
            )

    def _require_printable(self, text: str, where: YamlPath) -> None:
        allow = "\n\t" if _under(where, OF_SEVERAL_LINES) else ""
        if found := first_unprintable(text, allow):
            raise self.error(f"{shown(found)} is no character of a name, path, flag or variable", where)


def _under(where: YamlPath, paths: tuple[YamlPath, ...]) -> bool:
    return any(where[: len(path)] == path for path in paths)
