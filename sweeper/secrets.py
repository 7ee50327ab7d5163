"""Secrets: which values are, where a study file may name them, and how they are kept out of every text.

Secrets come as environment variables: of the actor's node, and those that ``engine.env`` sets. Server processes get
them; logs, records, reports and exports must not. So every text that leaves an actor goes through a ``Redactor``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

from sweeper.study_file.variables import VARIABLE

MASK = "***"
LEAST = 6
"""Shorter values are not replaced: they would occur by chance everywhere."""
LEAST_LINE = 16
"""The same for one line of a secret of several lines (a private key)."""

_NAME = re.compile(
    r"(?:^|_)[A-Z0-9]*(?:SECRETS?|PASSWORDS?|PASSWD|PASSPHRASES?|CREDENTIALS?|API_?KEYS?)(?:_|$)"
    r"|(?:^|_)(?:ACCESS|PRIVATE|AUTH|SESSION|REFRESH|DEPLOY|HUB)_(?:KEY|TOKEN)S?(?:_|$)"
    r"|^(?:TOKEN|KEY)_|(?:TOKEN|(?:^|_)(?:KEYS?|PASS|PWD|PAT|AUTH))\d*$"
)
"""Words that stand for a secret wherever they are, or only in front or at the end; TOKEN in between does not:
``SGLANG_SIMULATE_ACC_TOKEN_MODE``, ``TOKENIZERS_PARALLELISM``."""

_NO_SECRET = re.compile(r"^(?:OLD)?PWD$|^GOOGLE_APPLICATION_CREDENTIALS$|_(?:FILE|PATH|DIR)$")
"""Directories and the names of files."""

_PLAIN = re.compile(r"[+-]?[\d.]*|true|false|yes|no|on|off|none|null", re.IGNORECASE)
"""Values that are switches or numbers, whatever their name."""

_IN_URL = re.compile(r"(://[^\s/@:'\"]*:)([^\s/@'\"]+)(?=@)")
_IN_QUERY = re.compile(r"[?&]([\w.-]+)=([^&\s]+)")
_SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[oprsu]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}"
    r"|\bsk-(?:proj-)?[A-Za-z0-9]{32,}|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{16,}"
)
"""Tokens that their issuers give a shape: of the Hugging Face hub, AWS, GitHub and OpenAI; and bearer tokens."""

Data = TypeVar("Data")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret: HF_TOKEN, AWS_SECRET_ACCESS_KEY, PGPASSWORD, ...

    >>> [is_secret_name(name) for name in ("HF_TOKEN", "db_password", "TOKENIZERS_PARALLELISM")]
    [True, True, False]
    """
    plain = re.sub(r"[^A-Z0-9]+", "_", name.upper())
    return bool(_NAME.search(plain)) and not _NO_SECRET.search(plain)


def literal_secret(text: str, name: str = "") -> str | None:
    """What of a study file's value is a secret in clear, in words; None where nothing is.

    ``name`` is that of the variable it is given to. A default (``${NAME:-default}``) is in clear, too.
    """
    rest = VARIABLE.sub(lambda found: found[2] or "", text)
    named = any(is_secret_name(found[1]) and found[2] for found in VARIABLE.finditer(text))
    if name and is_secret_name(name):
        named = named or (rest == text or any(found[2] for found in VARIABLE.finditer(text)))
    if named and not _PLAIN.fullmatch(rest):
        return f"the value of {name}" if name else "the default of a secret variable"
    if _IN_URL.search(rest):
        return "the password in the URL"
    if "://" in rest and (given := next((n for n, _ in _IN_QUERY.findall(rest) if is_secret_name(n)), None)):
        return f"{given} in the URL"
    return "what looks like an access token" if _SHAPES.search(rest) else None


def secret_references(text: str) -> list[str]:
    """Names of the secret variables that a value refers to."""
    return [name for name, _ in VARIABLE.findall(text) if is_secret_name(name)]


def secrets_of(environment: Mapping[str, str]) -> Iterator[str]:
    """The secret values of an environment: those with a telling name, and passwords in URLs."""
    for name, value in environment.items():
        if is_secret_name(name):
            yield value
        for found in _IN_URL.finditer(value):
            yield found[2]


class Redactor:
    """Replaces secrets in texts by ``***``: known values in the forms in which logs write them, and known shapes."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for form in _forms(value)}
        ordered = sorted(forms, key=len, reverse=True)  # a secret may hold another one
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __call__(self, text: str) -> str:
        if self._known:
            text = self._known.sub(MASK, text)
        return _SHAPES.sub(MASK, _IN_URL.sub(rf"\1{MASK}", text))

    def data(self, value: Data) -> Data:
        """Dataclasses, mappings and tuples with every text in them redacted; the keys stay as they are."""
        redacted: Data = _mapped(value, self)
        return redacted


def _forms(value: str) -> Iterator[str]:
    """A secret as it is, in a URL, in JSON and as Python shows it; of several lines each one, too."""
    for part in (value, *(line for line in value.splitlines() if len(line.strip()) >= LEAST_LINE)):
        if len(part.strip()) < LEAST:
            continue
        yield part.strip()
        yield from (quote(part, safe=""), quote(part), quote_plus(part))
        yield from (json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], repr(part)[1:-1])


def _mapped(value: Any, change: Redactor) -> Any:
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return change(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _mapped(getattr(value, f.name), change) for f in fields(value)})
    if isinstance(value, Mapping):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_mapped(item, change) for item in value)
    return value
