"""Every fault that people have in their drafts, planted on its own: preflight names it, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sweeper.drafts.preflight import DraftReport, Pair, Serving, check_pair, open_target
from sweeper.drafts.preflight.layouts import Layout, dense_layout, dflash_layout, eagle3_layout, eagle_layout
from tests.checkpoints import (
    D2T,
    EAGLE3,
    TARGET,
    TARGET_IDS,
    TOKENIZER,
    Shape,
    write_checkpoint,
    write_eagle3,
    write_target,
)

SHAPES = dict(eagle3_layout(EAGLE3).required)
STANDALONE = {**TARGET, "num_hidden_layers": 2}


def checked(
    draft: Path, target: Path, algorithm: str = "EAGLE3", serving: Serving = Serving()
) -> DraftReport:
    return check_pair(Pair("d", algorithm, str(draft)), open_target(str(target)), serving)


def rules(report: DraftReport) -> set[str]:
    return {f"{finding.level.value} {finding.rule}" for finding in report.findings}


@dataclass(frozen=True)
class Fault:
    """A healthy EAGLE3 head with changes in its config, its tensors (None: left out), the target or the server."""

    finds: str
    config: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, Shape | None] = field(default_factory=dict)
    values: Mapping[str, list[int]] = field(default_factory=lambda: {"d2t": D2T})
    target: Mapping[str, Any] = field(default_factory=dict)
    serving: Serving = field(default_factory=Serving)
    also: tuple[str, ...] = ()

    def write(self, folder: Path) -> tuple[Path, Path]:
        config = {key: value for key, value in {**EAGLE3, **self.config}.items() if value != "left out"}
        shapes = {name: s for name, s in {**SHAPES, **self.shapes}.items() if s is not None}
        draft = write_checkpoint(folder / "draft", config, shapes, self.values)
        return draft, write_target(folder / "target", **self.target)


def aux(*ids: int) -> dict[str, Any]:
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": list(ids)}}


def renamed(old: str, new: str) -> dict[str, Shape | None]:
    return {old: None, new: SHAPES[old]}


T2D = [i in TARGET_IDS for i in range(64)]
OTHER_T2D = [i < 32 for i in range(64)]

FAULTS = {
    "no architecture": Fault("error architecture-missing", {"architectures": "left out"}),
    "vLLM's format": Fault(
        "error speculators-format",
        {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3"},
    ),
    "a class that nobody knows": Fault("error algorithm", {"architectures": ["LlamaEagle3Model"]}),
    "ids of a longer target": Fault("error aux-range", aux(2, 30, 58)),
    "the last layer": Fault("error aux-range", aux(1, 5, 11)),
    "unsorted ids": Fault("silent aux-order", aux(8, 1, 5)),
    "an id twice": Fault("error aux-unique", aux(1, 5, 5)),
    "two ids for a head of three": Fault("error aux-count", {**aux(1, 5), "num_aux_hidden_states": 3}),
    "ids at the top level": Fault(
        "silent aux-place", {"eagle_config": "left out", "eagle_aux_hidden_state_layer_ids": [0, 3, 10]}
    ),
    "ids under a misspelt key": Fault(
        "silent aux-place", {"eagle_config": {"eagle_aux_layer_ids": [0, 3, 10]}}
    ),
    "the embedding as a layer": Fault("warning aux-embedding", aux(-1, 3, 8)),
    "a target too short for the default": Fault(
        "error aux-unique", {"eagle_config": "left out"}, target={"num_hidden_layers": 5}
    ),
    "a target that takes ids as inputs": Fault(
        "warning aux-shift", aux(2, 5, 8), target={"architectures": ["DeepseekV3ForCausalLM"]}
    ),
    "a target that captures nothing": Fault(
        "error target-capture", target={"architectures": ["OPTForCausalLM"]}
    ),
    "aux hidden states switched off": Fault(
        "silent aux-off", {"eagle_config": {**aux(1, 5, 8)["eagle_config"], "use_aux_hidden_state": False}}
    ),
    "a release that records graphs before it reads ids": Fault("silent aux-graphs", serving=Serving("0.5.9")),
    "draft_vocab_size missing": Fault(
        "error draft-vocab-key",
        {"draft_vocab_size": "left out", "vocab_size": 64},
        {"lm_head.weight": (64, 16)},
        values={},
    ),
    "lm_head of another vocabulary": Fault("error tensor-shape", shapes={"lm_head.weight": (40, 16)}),
    "fc of another target": Fault("error tensor-shape", shapes={"fc.weight": (16, 96)}),
    "attention that reads one input": Fault(
        "error tensor-shape", shapes={"layers.0.self_attn.q_proj.weight": (16, 16)}
    ),
    "a tensor missing": Fault("silent tensor-missing", shapes={"layers.0.hidden_norm.weight": None}),
    "a tensor under another name": Fault(
        "silent tensor-missing",
        shapes=renamed("layers.0.mlp.down_proj.weight", "layers.0.ffn.down_proj.weight"),
        also=("warning tensor-unused",),
    ),
    "a tensor that nothing uses": Fault("warning tensor-unused", shapes={"mtp_gate.weight": (16,)}),
    "another hidden size": Fault("error hidden-size", target={"hidden_size": 32}),
    "no embedding of its own": Fault(
        "silent embedding-missing",
        {"target_hidden_size": 32},
        {"fc.weight": (16, 96)},
        target={"hidden_size": 32},
        also=("silent tensor-missing",),
    ),
    "two layers on an old release": Fault(
        "error layers", {"num_hidden_layers": 2}, serving=Serving("0.5.11"), also=("silent tensor-missing",)
    ),
    "one hidden state": Fault(
        "silent fc-skipped", {**aux(5), "num_aux_hidden_states": 1}, {"fc.weight": (16, 16)}
    ),
    "no d2t": Fault("silent d2t-missing", values={}),
    "absolute d2t": Fault("silent d2t-absolute", values={"d2t": TARGET_IDS}, also=("error d2t-range",)),
    "absolute d2t of a small vocabulary": Fault(
        "silent d2t-absolute", values={"d2t": [*range(10), *range(11, 33)]}
    ),
    "d2t outside the vocabulary": Fault("error d2t-range", values={"d2t": [*D2T[:-1], 40]}),
    "d2t as floats": Fault("error d2t-type", shapes={"d2t": (32,)}, values={}),
    "d2t too short": Fault("error d2t-length", values={"d2t": D2T[:-2]}),
    "two draft ids for one token": Fault(
        "silent d2t-order", values={"d2t": [*D2T[:5], D2T[5] - 1, *D2T[6:]]}
    ),
    "d2t out of order": Fault("warning d2t-order", values={"d2t": [1, -1, *D2T[2:]]}),
    "d2t never filled": Fault("silent d2t-zeros", values={"d2t": [0] * 32}),
    "d2t and t2d of two maps": Fault("silent d2t-t2d", values={"d2t": D2T, "t2d": OTHER_T2D}),
    "a tied head": Fault("silent tied-head", {"tie_word_embeddings": True}, also=("warning tensor-unused",)),
    "another vocabulary": Fault("silent vocabulary", target={"vocab_size": 96}),
    "other special tokens": Fault("warning special-tokens", {"eos_token_id": 7}),
    "another rope theta": Fault("warning rope-theta", {"rope_theta": 10000.0}),
    "rope theta left out": Fault("warning rope-theta", {"rope_theta": "left out"}),
    "rope scaling dropped": Fault(
        "warning rope-scaling",
        target={
            "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}
        },
    ),
    "too few positions": Fault("error context", {"max_position_embeddings": 128}),
    "too few positions, allowed": Fault(
        "warning context", {"max_position_embeddings": 128}, serving=Serving(longer_context=True)
    ),
    "float16 beside bfloat16": Fault("error dtype", {"torch_dtype": "float16"}),
    "no type, which is float16": Fault("error dtype", {"torch_dtype": "left out"}),
    "quantization inherited": Fault("warning quantization", serving=Serving(quantization="fp8")),
    "a norm that the release does not know": Fault(
        "silent norm-release",
        {"eagle_config": {**aux(1, 5, 8)["eagle_config"], "norm_before_fc": True}},
        {"input_norm.weight": (48,)},
        serving=Serving("0.5.15"),
    ),
    "a norm that is not switched on": Fault(
        "silent norm-flag",
        shapes={f"fc_norm.{i}.weight": (16,) for i in range(3)},
        also=("warning tensor-unused",),
    ),
    "a quantized draft": Fault("warning draft-quantized", {"quantization_config": {"quant_method": "fp8"}}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    draft, target = fault.write(tmp_path)
    report = checked(draft, target, serving=fault.serving)
    assert rules(report) == {fault.finds, *fault.also}
    for finding in report.findings:
        assert finding.what
        assert finding.where
        assert finding.do


HEALTHY: dict[str, Fault] = {
    "a reduced vocabulary": Fault(""),
    "with the map both ways": Fault("", values={"d2t": D2T, "t2d": T2D}),
    "under model. and midlayer": Fault(
        "",
        shapes={
            **dict.fromkeys(SHAPES, None),
            **{
                f"model.{n}".replace("layers.0", "midlayer"): s
                for n, s in SHAPES.items()
                if n != "lm_head.weight"
            },
            "lm_head.weight": SHAPES["lm_head.weight"],
        },
    ),
    "SGLang's default layers": Fault("", {"eagle_config": "left out"}),
    "ids at the top level that are the default": Fault(
        "", {"eagle_config": "left out", "eagle_aux_hidden_state_layer_ids": [1, 5, 8]}
    ),
    "the target's head": Fault("", {"draft_vocab_size": None}, {"lm_head.weight": None}, values={}),
    "its own embedding": Fault(
        "",
        {"target_hidden_size": 32},
        {"fc.weight": (16, 96), "embed_tokens.weight": (64, 16)},
        target={"hidden_size": 32},
    ),
    "a padded target": Fault("", target={"vocab_size": 68}),
    "more ends of sequence in the target": Fault("", target={"eos_token_id": [1, 5]}),
    "rope as transformers 5 writes it": Fault(
        "",
        {"rope_theta": "left out", "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    ),
    "positions as served": Fault("", {"max_position_embeddings": 128}, serving=Serving(context_length=128)),
    "one type for both": Fault("", {"torch_dtype": "float16"}, serving=Serving(dtype="bfloat16")),
    "unquantized draft of a quantized target": Fault(
        "", serving=Serving(quantization="fp8", draft_quantization="unquant")
    ),
    "a DeepSeek target whose list begins with 1": Fault(
        "", target={"architectures": ["DeepseekV3ForCausalLM"]}
    ),
    "a multimodal target": Fault(
        "",
        target={
            "architectures": ["KimiK25ForConditionalGeneration"],
            "text_config": {**TARGET, "model_type": "x"},
        },
    ),
    "a norm that is there and known": Fault(
        "",
        {"eagle_config": {**aux(1, 5, 8)["eagle_config"], "norm_before_fc": True}},
        {"input_norm.weight": (48,)},
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_draft_has_no_findings(name: str, tmp_path: Path) -> None:
    fault = HEALTHY[name]
    draft, target = fault.write(tmp_path)
    assert checked(draft, target, serving=fault.serving).findings == ()


def test_an_eagle3_head_under_eagle_is_silent_and_named_alone(tmp_path: Path) -> None:
    """No warning, and an accept length of 1.0 (sglang#21272), or 1.5 instead of 3.0 on the test bed."""
    draft, target = FAULTS["unsorted ids"].write(tmp_path)
    for algorithm in ("EAGLE", "NEXTN"):
        report = checked(draft, target, algorithm)
        assert rules(report) == {"silent algorithm"}
        assert "skips its fc" in report.findings[0].what
        assert report.findings[0].do == "give it to EAGLE3 instead"


def write_standalone(folder: Path, **changes: Any) -> Path:
    config = {**STANDALONE, **changes}
    return write_checkpoint(folder / "draft", config, dense_layout(config, "LlamaForCausalLM").required)


def write_tokenizer(directory: Path, **model: Any) -> None:
    (directory / "tokenizer.json").write_text(
        json.dumps({**TOKENIZER, "model": {**TOKENIZER["model"], **model}})
    )


def test_a_whole_model_drafts_standalone_only(tmp_path: Path) -> None:
    draft, target = write_standalone(tmp_path), write_target(tmp_path / "target")
    assert checked(draft, target, "STANDALONE").findings == ()
    assert rules(checked(draft, target, "EAGLE3")) == {"error algorithm"}
    assert rules(checked(draft, target, "EAGLE")) == {"silent algorithm"}
    assert rules(checked(write_eagle3(tmp_path / "head"), target, "STANDALONE")) == {"error algorithm"}


def test_standalone_wants_one_vocabulary_since_0_5_15(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target")
    padded = write_standalone(tmp_path / "padded", vocab_size=66)
    assert rules(checked(padded, target, "STANDALONE")) == {"error vocabulary"}
    assert checked(padded, target, "STANDALONE", Serving("0.5.14")).findings == ()
    other = write_standalone(tmp_path / "other", vocab_size=128)
    assert rules(checked(other, target, "STANDALONE", Serving("0.5.14"))) == {"silent vocabulary"}


def test_another_tokenizer_is_told_from_another_file_of_the_same(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target")
    draft = write_standalone(tmp_path)
    write_tokenizer(draft, merges=["a b"])
    assert checked(draft, target, "STANDALONE").findings == ()
    write_tokenizer(draft, vocab={f"t{i}": (i + 1) % 60 for i in range(60)})
    assert rules(checked(draft, target, "STANDALONE")) == {"error tokenizer"}
    assert rules(checked(draft, target, "STANDALONE", Serving("0.5.14"))) == {"silent tokenizer"}
    head = write_eagle3(tmp_path / "head")
    write_tokenizer(head, vocab={f"u{i}": i for i in range(60)})
    report = checked(head, target)
    assert rules(report) == {"silent tokenizer"}
    assert "60 tokens are not the target's" in report.findings[0].what


def test_rope_of_a_standalone_draft_is_its_own(tmp_path: Path) -> None:
    draft = write_standalone(tmp_path, rope_theta=10000.0, torch_dtype="float16", hidden_size=16)
    assert checked(draft, write_target(tmp_path / "target"), "STANDALONE").findings == ()


def with_shapes(folder: Path, config: Mapping[str, Any], layout: Layout, *left_out: str) -> Path:
    shapes = {name: s for name, s in layout.required.items() if name not in left_out}
    return write_checkpoint(folder, config, shapes)


def test_an_eagle_head_has_names_without_prefix(tmp_path: Path) -> None:
    config = {**TARGET, "architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1}
    layout, target = eagle_layout(config), write_target(tmp_path / "target")
    draft = with_shapes(tmp_path / "good", config, layout)
    assert checked(draft, target, "EAGLE").findings == ()
    assert rules(checked(draft, target, "EAGLE3")) == {"error algorithm"}
    prefixed = write_checkpoint(
        tmp_path / "bad", config, {f"model.{n}": s for n, s in layout.required.items()}
    )
    report = checked(prefixed, target, "EAGLE")
    assert rules(report) == {"silent tensor-missing", "warning tensor-unused"}
    assert "model.fc.weight is there, but under a name that SGLang drops" in report.findings[0].what


def test_a_dflash_draft_fits_its_target(tmp_path: Path) -> None:
    config = {
        **TARGET,
        "architectures": ["DFlashDraftModel"],
        "num_hidden_layers": 3,
        "dflash_config": {"target_layer_ids": [1, 5, 9], "block_size": 8, "mask_token_id": 60},
    }
    target = write_target(tmp_path / "target")
    assert (
        checked(with_shapes(tmp_path / "a", config, dflash_layout(config)), target, "DFLASH").findings == ()
    )
    wrong = {"target_layer_ids": [1, 5, 12], "num_target_layers": 13, "mask_token_id": 64}
    bad = {**config, "dflash_config": wrong}
    found = rules(checked(with_shapes(tmp_path / "b", bad, dflash_layout(bad)), target, "DFLASH"))
    assert found == {
        "error dflash-layers",
        "error dflash-mask",
        "warning dflash-block",
        "warning dflash-target",
    }


@pytest.mark.parametrize("head", ["model.layers.3.eh_proj.weight", "mtp.fc.weight"])
def test_mtp_heads_are_inside_the_target(head: str, tmp_path: Path) -> None:
    config = {**TARGET, "architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 3}
    body = {"model.layers.2.mlp.gate.weight": (4, 4)}
    whole = write_checkpoint(
        tmp_path / "whole", {**config, "num_nextn_predict_layers": 1}, {**body, head: (4, 4)}
    )
    assert checked(whole, whole, "NEXTN").findings == ()
    stripped = write_checkpoint(tmp_path / "stripped", {**config, "num_nextn_predict_layers": 0}, body)
    assert rules(checked(stripped, stripped, "NEXTN")) == {"silent mtp-missing", "error mtp-count"}


Damage = Callable[[Path], object]

DAMAGES: dict[str, tuple[Damage, str]] = {
    "no weights": (lambda d: (d / "model.safetensors").unlink(), "error weights-missing"),
    "pickled weights": (
        lambda d: (d / "model.safetensors").rename(d / "pytorch_model.bin"),
        "warning weights-pickled",
    ),
    "a Git LFS pointer": (
        lambda d: (d / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n"),
        "error weights-unreadable",
    ),
    "a copy cut off": (
        lambda d: (d / "model.safetensors").write_bytes((d / "model.safetensors").read_bytes()[:-9]),
        "error weights-unreadable",
    ),
    "something else": (
        lambda d: (d / "model.safetensors").write_bytes(b"\xff" * 64),
        "error weights-unreadable",
    ),
    "half a config": (lambda d: (d / "config.json").write_text('{"hidden'), "error config-unreadable"),
    "a list as config": (lambda d: (d / "config.json").write_text("[]"), "error config-unreadable"),
    "no config": (lambda d: (d / "config.json").unlink(), "error config-unreadable"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files_are_named(name: str, tmp_path: Path) -> None:
    damage, finds = DAMAGES[name]
    draft, target = FAULTS["unsorted ids"].write(tmp_path)
    (draft / "config.json").write_text(json.dumps(EAGLE3))
    damage(draft)
    assert rules(checked(draft, target)) == {finds}


NONSENSE = (None, "x", -1, 10**9, [], {}, ["a"], {"a": []}, True)


@pytest.mark.parametrize("key", [*EAGLE3, "rope_scaling", "quantization_config", "num_aux_hidden_states"])
def test_nonsense_in_a_config_is_no_crash(key: str, tmp_path: Path) -> None:
    draft, target = write_eagle3(tmp_path / "draft"), write_target(tmp_path / "target")
    for directory, config in ((draft, EAGLE3), (target, TARGET)):
        for value in NONSENSE:
            (directory / "config.json").write_text(json.dumps({**config, key: value}))
            checked(draft, target)
        (directory / "config.json").write_text(json.dumps(config))


def test_what_is_not_here_is_a_warning(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target")
    assert rules(checked(tmp_path / "nowhere", target)) == {"warning not-checked"}
    report = checked(write_eagle3(tmp_path / "draft"), tmp_path / "nowhere")
    assert rules(report) == {"warning not-checked"}
    assert "not compared with the target" in report.findings[0].what


HEALTHY_ON_THE_TEST_BED = {
    "draft_eagle3_010": "EAGLE3",
    "draft_eagle3_035": "EAGLE3",
    "draft_eagle3_100": "EAGLE3",
    "draft_standalone": "STANDALONE",
}


@pytest.mark.parametrize("name", HEALTHY_ON_THE_TEST_BED)
def test_the_test_beds_drafts_are_healthy(name: str, testbed: Path) -> None:
    report = checked(
        testbed / name, testbed / "target", HEALTHY_ON_THE_TEST_BED[name], Serving(dtype="float32")
    )
    assert report.findings == ()
    assert report.reads.startswith("outputs of layers 1, 5, 8 ") == ("eagle3" in name)
