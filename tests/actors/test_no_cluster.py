"""What is said where a driver finds no Ray cluster."""

import pytest

from actors import cluster
from sweeper.config import StudyConfig
from sweeper.errors import SweeperError


def unreachable(*_: object, **__: object) -> None:
    raise ConnectionError("nobody there")


@pytest.mark.parametrize("mode", [None, "token"])
def test_a_cluster_may_only_want_a_token(
    study: StudyConfig, monkeypatch: pytest.MonkeyPatch, mode: str | None
) -> None:
    """Its head asks for one as soon as it finds one; who has given it already needs no such hint."""
    monkeypatch.setattr(cluster.ray, "init", unreachable)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if mode:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    said = "no Ray cluster answers there"
    with pytest.raises(SweeperError, match=said) as refused, cluster.cluster("10.0.0.1", study):
        pass
    assert ("export RAY_AUTH_MODE=token" in str(refused.value)) is (mode is None)
