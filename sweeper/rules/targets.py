"""What targets of some architectures can do, by release."""

from __future__ import annotations

from sweeper.rules.context import Context
from sweeper.speculation import SpeculationConfig

_BUNDLED_MTP = {
    "0.5.2": "DeepseekV3 Glm4Moe LongcatFlash MiMo Ernie4_5_Moe Qwen3Next",
    "0.5.4": "DeepseekV32 BailingMoe BailingMoeV2",
    "0.5.9": (
        "Glm4MoeLite GlmMoeDsa BailingMoeV2_5 MistralLarge3 Pixtral ExaoneMoE GlmOcr MiMoV2Flash NemotronH "
        "Qwen3_5 Qwen3_5Moe Step3p5"
    ),
    "0.5.11": "HYV3 MiMoV2",
    "0.5.12": "DeepseekV4 InternS2Preview",
    "0.5.13": "Qwen3Moe NemotronHPuzzle Step3p7",
    "0.5.18": "Inkling InternS2Mobius",
    "0.5.21": "HYV4 Qwen4Exp BailingMoeV3 GigaChat35 Glm5Next NemotronH_Omni",
}
"""Targets that can draft with MTP heads of their own, by the first release (read) that knows them; architectures
without their suffix (ForCausalLM, ForConditionalGeneration)."""


def bundles_mtp(architecture: str, context: Context) -> bool:
    """Whether SGLang finds MTP heads inside a target of this architecture."""
    name = architecture.split("For")[0]
    return any(context.within(since, "") and name in names.split() for since, names in _BUNDLED_MTP.items())


MLA = (
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "Glm4MoeLiteForCausalLM",
    "KimiK25ForConditionalGeneration",
    "KimiVLForConditionalGeneration",
    "LongcatFlashForCausalLM",
)
"""Targets with latent attention."""

_MULTI_LAYER = {
    "MiMoV2FlashForCausalLM": "0.5.9",
    "MiMoV2ForCausalLM": "0.5.9",
    "Step3p5ForCausalLM": "0.5.9",
    "GigaChat35ForCausalLM": "0.5.21",
}
"""Targets whose EAGLE drafts have several layers, and since when SGLang runs them so."""


def multi_layer(c: SpeculationConfig, x: Context) -> bool:
    since = _MULTI_LAYER.get(x.target_architecture or "")
    return since is not None and x.within(since, "") and c.algorithm in ("EAGLE", "NEXTN")
