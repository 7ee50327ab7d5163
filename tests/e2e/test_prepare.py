"""SGLang's own account of its arguments, without a server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweeper.server.command import arguments
from sweeper.server.install import installed_version, resolved_arguments
from sweeper.testbed.environment import server_arguments, server_environment

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_both_arms_are_resolved_once_and_a_refusal_is_told(
    testbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment = {**os.environ, **server_environment()}
    version = installed_version(None, environment["PYTHONPATH"])
    plain = arguments({"model-path": str(testbed / "target"), **server_arguments()})
    chain = [*plain, "--speculative-algorithm", "EAGLE3"]
    chain += ["--speculative-draft-model-path", str(testbed / "draft_eagle3_100")]
    chain += ["--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]
    chain += ["--speculative-num-draft-tokens", "4"]
    refused = [*plain, "--speculative-algorithm", "FOO"]
    answers = resolved_arguments(None, version, environment, [plain, chain, refused], "here")
    for answer, overlap_off in zip(answers, (False, True), strict=False):
        assert answer["decode_attention_backend"] == "intel_amx"
        assert answer["page_size"] == 1
        assert 0 < answer["mem_fraction_static"] < 1
        assert answer["disable_overlap_schedule"] is overlap_off
    assert answers[0]["max_running_requests"] is None
    assert answers[1]["max_running_requests"] == 48
    assert "Unknown speculative algorithm" in answers[2]["error"]
    assert not list((tmp_path / "sweeper").rglob("*.json"))  # an answer with an error is not kept
    assert resolved_arguments(None, version, environment, [plain], "here") == answers[:1]
    assert len(list((tmp_path / "sweeper" / "resolved").iterdir())) == 1
    environment["PATH"] = ""
    assert resolved_arguments(None, version, environment, [plain], "here") == answers[:1]
