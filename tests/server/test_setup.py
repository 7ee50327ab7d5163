"""What both arms share: pinned by the study, by the release, and by what SGLang resolves on the hardware."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweeper.server.setup import (
    EngineSetup,
    architecture,
    context_of,
    resolved_pins,
    server_flags,
    shared_pins,
    wants_resolving,
    widest,
    with_pins,
)
from sweeper.space import enumerate_space
from sweeper.speculation import NO_SPECULATION
from sweeper.study_file.reading import load_study_file
from tests.conftest import WriteStudy

TREES = {"algorithm": "EAGLE3", "num_steps": 3, "topk": [1, 4], "num_draft_tokens": 8}
PLAIN = {
    "attention_backend": "fa3",
    "page_size": 1,
    "mem_fraction_static": 0.88,
    "chunked_prefill_size": 8192,
}
TREE = {**PLAIN, "attention_backend": "flashinfer", "mem_fraction_static": 0.84}


def gpu_study(write_study: WriteStudy, **engine: Any) -> Any:
    return load_study_file(write_study(engine={"device": "cuda", **engine}, space={"grids": [TREES]}))


def values(pins: Any) -> dict[str, Any]:
    return {pin.flag: pin.value for pin in pins}


def test_graphs_batch_limit_seed_and_cache_are_pinned(write_study: WriteStudy) -> None:
    pins = values(shared_pins(gpu_study(write_study), "0.5.23"))
    assert pins["max-running-requests"] == pins["cuda-graph-max-bs-decode"] == 4
    assert {"random-seed", "disable-radix-cache", "incremental-streaming-output"} <= pins.keys()
    assert "disable-overlap-schedule" not in pins


@pytest.mark.parametrize("version", ["0.5.11", "0.5.12"])
def test_two_engines_are_made_one(write_study: WriteStudy, version: str) -> None:
    assert values(shared_pins(gpu_study(write_study), version))["disable-overlap-schedule"] is True


def test_what_the_study_sets_itself_is_not_pinned(write_study: WriteStudy) -> None:
    study = gpu_study(write_study, extra_args={"disable_cuda_graph": True, "attention-backend": "triton"})
    pins = shared_pins(study, "0.5.23")
    assert "cuda-graph-max-bs-decode" not in values(pins)
    found, unpinned = resolved_pins(study, pins, PLAIN, TREE)
    assert "attention-backend" not in values(found)
    assert unpinned == ()
    flags = server_flags(study, NO_SPECULATION, with_pins(EngineSetup(pins=pins), found, unpinned))
    assert flags["attention-backend"] == "triton"


def test_the_backend_is_the_widest_trees_and_the_memory_share_the_smaller(write_study: WriteStudy) -> None:
    study = gpu_study(write_study)
    assert wants_resolving(study, shared_pins(study, "0.5.23"))
    assert widest(enumerate_space(study.space).candidates).topk == 4
    found, unpinned = resolved_pins(study, (), PLAIN, TREE)
    assert values(found) == {
        "attention-backend": "flashinfer",
        "page-size": 1,
        "mem-fraction-static": 0.84,
        "chunked-prefill-size": 8192,
    }
    assert "without speculation: fa3" in found[0].why
    assert unpinned == ()


def test_on_the_cpu_test_bed_nothing_is_left_to_resolve(write_study: WriteStudy) -> None:
    study = load_study_file(write_study())
    assert not wants_resolving(study, shared_pins(study, "0.5.23"))


def test_what_cannot_be_resolved_is_told(write_study: WriteStudy) -> None:
    study = gpu_study(write_study)
    found, unpinned = resolved_pins(study, (), PLAIN, {"error": "ValueError: no config.json"})
    assert found == ()
    assert "no config.json" in unpinned[0]
    _, unpinned = resolved_pins(study, (), {**PLAIN, "attention_backend": None}, {"attention_backend": None})
    assert "attention backend" in unpinned[0]


def test_the_context_of_the_rules_follows_the_flags_and_the_checkpoints(
    write_study: WriteStudy, tmp_path: Path
) -> None:
    study = gpu_study(
        write_study,
        extra_args={
            "prefill-attention-backend": "fa3",
            "decode_attention_backend": "fa3",
            "page-size": 16,
            "enable-dp-attention": True,
        },
        env={"SGLANG_ENABLE_SPEC_V2": "1"},
    )
    named = {
        "target": "LlamaForCausalLM",
        "draft_a": "LlamaForCausalLMEagle3",
        "draft_b": "Qwen2ForCausalLMEagle",
    }
    for name, found in named.items():
        (tmp_path / name / "config.json").write_text(json.dumps({"architectures": [found]}))
    context = context_of(study, EngineSetup("0.5.9"))
    assert (context.version, context.attention_backend, context.page_size) == ("0.5.9", "fa3", 16)
    assert context.dp_attention
    assert context.spec_v2
    assert context.target_architecture == "LlamaForCausalLM"
    assert context.draft_architectures == {"a": "LlamaForCausalLMEagle3", "b": "Qwen2ForCausalLMEagle"}


@pytest.mark.parametrize("content", ["", "[]", '{"architectures": null}', "{}"])
def test_an_unreadable_architecture_is_unknown(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    assert architecture(str(tmp_path)) is None
    assert architecture("someone/not-there") is None
