"""The EAGLE-3 head: its checkpoint layout, and chained steps against one step at a time."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from sweeper.drafts.eagle3 import Eagle3Config, Eagle3Error, Eagle3Head

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"], "vocab_size": 40, "draft_vocab_size": 20, "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 6, "rms_norm_eps": 1e-5, "rope_theta": 500.0, "max_position_embeddings": 64,
}  # fmt: skip
SIZE = 16


def new_head(**changes: Any) -> Eagle3Head:
    torch.manual_seed(0)
    return Eagle3Head(Eagle3Config.from_dict({**CONFIG, **changes})).requires_grad_(False)


def test_a_checkpoint_survives_saving_and_loading(tmp_path: Path) -> None:
    head = new_head()
    head.d2t = torch.arange(20)
    head.save(tmp_path)
    again = Eagle3Head.load(tmp_path)
    assert again.config == head.config
    features, embeddings = torch.randn(1, 5, 3 * SIZE), torch.randn(1, 6, SIZE)
    pairs = zip(head.unroll(features, embeddings, 2), again.unroll(features, embeddings, 2), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert again.target_ids(torch.tensor([0, 3])).tolist() == [0, 6]


def test_the_files_have_the_names_and_shapes_the_server_reads(tmp_path: Path) -> None:
    new_head().save(tmp_path)
    shapes = {name: list(tensor.shape) for name, tensor in load_file(tmp_path / "model.safetensors").items()}
    layer = "midlayer."
    assert shapes == {
        "fc.weight": [16, 48], "norm.weight": [16], "lm_head.weight": [20, 16],
        layer + "hidden_norm.weight": [16], layer + "input_layernorm.weight": [16],
        layer + "post_attention_layernorm.weight": [16], layer + "self_attn.q_proj.weight": [24, 32],
        layer + "self_attn.k_proj.weight": [12, 32], layer + "self_attn.v_proj.weight": [12, 32],
        layer + "self_attn.o_proj.weight": [16, 24], layer + "mlp.gate_proj.weight": [24, 16],
        layer + "mlp.up_proj.weight": [24, 16], layer + "mlp.down_proj.weight": [16, 24],
    }  # fmt: skip
    assert json.loads((tmp_path / "config.json").read_text())["draft_vocab_size"] == 20


def test_other_names_of_the_same_checkpoint_are_read(tmp_path: Path) -> None:
    new_head().save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    renamed = {"model." + name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
    save_file({**renamed, "t2d": torch.ones(40, dtype=torch.bool)}, tmp_path / "model.safetensors")
    assert Eagle3Head.load(tmp_path).state_dict().keys() == tensors.keys()


@pytest.mark.parametrize(
    "break_it",
    [
        lambda tensors: tensors.pop("midlayer.hidden_norm.weight"),
        lambda tensors: tensors.update({"fc_norm.weight": torch.ones(48)}),
        lambda tensors: tensors.update({"fc.weight": torch.ones(16, 32)}),
    ],
    ids=["missing", "unknown", "wrong shape"],
)
def test_an_incomplete_checkpoint_is_refused(tmp_path: Path, break_it: Any) -> None:
    new_head().save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    break_it(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(Eagle3Error, match="weight"):
        Eagle3Head.load(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 2},
        {"rope_scaling": {"rope_type": "llama3"}},
        {"rope_scaling": {"type": "yarn", "factor": 4.0}},
    ],
)
def test_a_config_it_cannot_follow_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Eagle3Error):
        Eagle3Config.from_dict({**CONFIG, **changes})


def test_norms_of_newer_checkpoints_are_applied_and_named_as_the_server_reads_them(tmp_path: Path) -> None:
    eagle = {"norm_before_fc": True}
    head = new_head(fc_norm=True, norm_output=True, eagle_config=eagle)
    head.save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors["input_norm.weight"].shape == (48,)
    assert tensors["fc_norm.2.weight"].shape == (16,)
    old = {"fc_norm.0": "aux_norm_low", "fc_norm.1": "aux_norm_mid", "fc_norm.2": "aux_norm_high"}
    for new_name, old_name in old.items():
        tensors[f"{old_name}.weight"] = tensors.pop(f"{new_name}.weight")
    save_file(tensors, tmp_path / "model.safetensors")
    again, plain = Eagle3Head.load(tmp_path), new_head()
    features, embeddings = 9 * torch.randn(1, 5, 3 * SIZE), torch.randn(1, 6, SIZE)
    torch.testing.assert_close(
        again.unroll(features, embeddings, 2)[0], again.unroll(features / 9, embeddings, 2)[0]
    )
    plain.load_state_dict(again.state_dict(), strict=False)
    assert not torch.allclose(
        plain.unroll(features, embeddings, 2)[0], again.unroll(features, embeddings, 2)[0]
    )


def test_the_number_of_features_comes_from_the_layer_ids() -> None:
    ids = {"eagle_aux_hidden_state_layer_ids": [1, 5, 9, 13]}
    assert new_head(eagle_config=ids).fc.in_features == 4 * SIZE


def test_a_later_step_depends_on_its_own_chain_and_on_no_later_position() -> None:
    head = new_head()
    features, embeddings = torch.randn(1, 6, 3 * SIZE), torch.randn(1, 8, SIZE)
    full = head.unroll(features, embeddings, 3)
    short = head.unroll(features[:, :4], embeddings[:, :6], 3)
    for long_logits, short_logits in zip(full, short, strict=True):
        torch.testing.assert_close(long_logits[:, :4], short_logits)
    changed = embeddings.clone()
    changed[:, 5] += 1.0  # read by step 2 at index 3, by step 0 only at index 5
    other = head.unroll(features, changed, 3)
    torch.testing.assert_close(other[0][:, :5], full[0][:, :5])
    assert not torch.allclose(other[2][:, 3], full[2][:, 3])


def test_gradients_reach_every_weight() -> None:
    head = new_head().requires_grad_(True)
    losses = [
        logits.square().sum() for logits in head.unroll(torch.randn(2, 4, 48), torch.randn(2, 5, 16), 2)
    ]
    torch.stack(losses).sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in head.parameters())
