"""A process that only looks at checkpoints does not wait for a hub that nobody can reach."""

from __future__ import annotations

import pytest
import requests

from sweeper.server import hub
from sweeper.server.hub import asking_environment
from sweeper.study_file.reading import load_study_file
from tests.conftest import WriteStudy
from tests.ray_cluster import free_port

ON_HUB = {"model": "somebody/some-model", "device": "cuda"}  # on a CPU the test bed asks no hub


@pytest.fixture(autouse=True)
def a_hub_that_was_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    hub.answers.cache_clear()
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


def test_a_hub_that_does_not_answer_is_not_asked_again(
    write_study: WriteStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    study = load_study_file(write_study(engine=ON_HUB))
    assert asking_environment(study)["HF_HUB_OFFLINE"] == "1"


def test_a_hub_that_answers_anything_is_asked(
    write_study: WriteStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(requests, "head", lambda url, timeout: asked.append(url))
    study = load_study_file(write_study(engine=ON_HUB))
    assert "HF_HUB_OFFLINE" not in asking_environment(study)
    assert asked == [hub.HUB]


def test_what_lies_here_needs_no_hub(write_study: WriteStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "head", lambda url, timeout: pytest.fail("asked"))
    assert "HF_HUB_OFFLINE" not in asking_environment(load_study_file(write_study(engine={"device": "cuda"})))
