"""Where a running server may take another draft's weights."""

from typing import Any

import pytest

from sweeper.config import StudyConfig
from sweeper.server.hot_swap import can_swap
from sweeper.server.setup import EngineSetup


@pytest.mark.parametrize(
    ("engine", "setup", "able"),
    [
        ({}, {}, True),
        ({"tensor_parallel": 4}, {}, True),
        ({}, {"version": "0.5.20"}, False),
        ({}, {"nodes": 2}, False),
        ({"extra_args": {"pp-size": 2}}, {}, False),
        ({"extra_args": {"dp-size": 2}}, {}, False),
        ({"tensor_parallel": 2, "extra_args": {"dp-size": 2, "enable-dp-attention": True}}, {}, False),
    ],
)
def test_it_is_done_on_one_node_with_tensor_parallelism_alone(
    study: StudyConfig, engine: dict[str, Any], setup: dict[str, Any], able: bool
) -> None:
    asked = study.model_copy(update={"engine": study.engine.model_copy(update=engine)})
    assert can_swap(asked, EngineSetup(**{"version": "0.5.21", **setup})) is able
