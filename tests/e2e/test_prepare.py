"""SGLang's own account of its arguments, without a server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweeper.records import FailureClass
from sweeper.server.command import arguments
from sweeper.server.failures import classify
from sweeper.server.install import installed_version, resolved_arguments
from sweeper.testbed.environment import server_arguments, server_environment

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def eagle3(draft: str) -> list[str]:
    words = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", draft]
    words += ["--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]
    return [*words, "--speculative-num-draft-tokens", "4"]


REFUSED = {
    "Unknown speculative algorithm": (["--speculative-algorithm", "FOO"], FailureClass.INVALID_CONFIG),
    "'>' not supported": (
        ["--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3"],
        FailureClass.INVALID_CONFIG,
    ),
    "Repo id must be in the form": (eagle3("/not/there"), FailureClass.DRAFT_MISSING),
    "We couldn't connect to": (eagle3("not/there"), FailureClass.DRAFT_MISSING),
}
"""What SGLang says of arguments: in words of their own, and the class of a launch that would end so."""


def test_both_arms_are_resolved_once_and_refusals_are_told_and_have_their_class(
    testbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment = {**os.environ, **server_environment()}
    version = installed_version(None, environment["PYTHONPATH"])
    plain = arguments({"model-path": str(testbed / "target"), **server_arguments()})
    chain = [*plain, *eagle3(str(testbed / "draft_eagle3_100"))]
    refused = [[*plain, *words] for words, _ in REFUSED.values()]
    answers = resolved_arguments(None, version, environment, [plain, chain, *refused], "here")
    for answer, overlap_off in zip(answers, (False, True), strict=False):
        assert answer["decode_attention_backend"] == "intel_amx"
        assert answer["page_size"] == 1
        assert 0 < answer["mem_fraction_static"] < 1
        assert answer["disable_overlap_schedule"] is overlap_off
    assert answers[0]["max_running_requests"] is None
    assert answers[1]["max_running_requests"] == 48
    for answer, (said, (_, kind)) in zip(answers[2:], REFUSED.items(), strict=True):
        assert said in answer["error"]
        assert classify("it ended", answer["error"]).kind is kind
    assert not list((tmp_path / "sweeper").rglob("*.json"))  # an answer with an error is not kept
    assert resolved_arguments(None, version, environment, [plain], "here") == answers[:1]
    assert len(list((tmp_path / "sweeper" / "resolved").iterdir())) == 1
    environment["PATH"] = ""
    assert resolved_arguments(None, version, environment, [plain], "here") == answers[:1]
