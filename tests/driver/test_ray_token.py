"""Ray's client is told to show a token where there is one, and left alone where a person has said otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweeper.driver.ray_token import MODE, show_token


@pytest.mark.parametrize(
    ("where", "said", "shown"),
    [
        ("nowhere", None, None),
        ("file", None, "token"),
        ("variable", None, "token"),
        ("path", None, "token"),
        ("file", "disabled", "disabled"),
    ],
)
def test_a_token_is_shown_where_there_is_one(
    where: str, said: str | None, shown: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (MODE, "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    if said:
        monkeypatch.setenv(MODE, said)
    if where == "file":
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("0" * 64)
    if where == "variable":
        monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    if where == "path":
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    show_token()
    assert os.environ.get(MODE) == shown
