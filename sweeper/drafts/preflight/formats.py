"""What kind of draft a checkpoint is, by its config.json, and which algorithms take it.

Source: the model classes of SGLang 0.5.23, and where its workers look for what only one of them has.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from sweeper.drafts.preflight.checkpoint import Checkpoint
from sweeper.rules.context import Context
from sweeper.rules.targets import bundles_mtp


class Format(str, Enum):
    """The kinds of draft. The value is what a person reads."""

    EAGLE3 = "EAGLE3 head"
    EAGLE3_MLA = "EAGLE3 head with MLA"
    EAGLE = "EAGLE head"
    MTP = "MTP heads"
    GEMMA4 = "Gemma 4 assistant"
    DFLASH = "DFLASH draft"
    DSPARK = "DSPARK draft"
    SPECULATORS = "vLLM speculators checkpoint"
    MODEL = "whole language model"
    OTHER = "other"


EAGLE3_KINDS = frozenset({Format.EAGLE3, Format.EAGLE3_MLA})

_ARCHITECTURES = {
    "LlamaForCausalLMEagle3": Format.EAGLE3,
    "Eagle3DeepseekV2ForCausalLM": Format.EAGLE3_MLA,
    "LlamaForCausalLMEagle": Format.EAGLE,
    "Qwen2ForCausalLMEagle": Format.EAGLE,
    "MistralForCausalLMEagle": Format.EAGLE,
    "MistralLarge3ForCausalLMEagle": Format.EAGLE,
    "Gemma4AssistantForCausalLM": Format.GEMMA4,
    "Gemma4UnifiedAssistantForCausalLM": Format.GEMMA4,
    "DFlashDraftModel": Format.DFLASH,
    "DFlash2DraftModel": Format.DFLASH,
    "DFlash2BeamDraftModel": Format.DFLASH,
    "MiniMaxDFlash2DraftModel": Format.DFLASH,
    "DFlashLagunaForCausalLM": Format.DFLASH,
    "MuseGlimmerAssistantModel": Format.DFLASH,
    "Qwen3DSparkModel": Format.DSPARK,
    "LingDSparkModel": Format.DSPARK,
    "DSparkDraftModel": Format.DSPARK,
    "DSparkMiniMaxDraftModel": Format.DSPARK,
    "Lfm2DSparkDraftModel": Format.DSPARK,
    "LiLiCorrDraftModel": Format.DFLASH,
    "DeepseekV4ForCausalLMDSpark": Format.DSPARK,
}
_MTP_ENDINGS = ("NextN", "MTP")
_MODEL_ENDINGS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")

TAKEN_BY: Mapping[str, frozenset[Format]] = {
    "EAGLE3": EAGLE3_KINDS,
    "EAGLE": frozenset({Format.EAGLE, Format.MTP, Format.GEMMA4}),
    "NEXTN": frozenset({Format.EAGLE, Format.MTP, Format.GEMMA4}),
    "FROZEN_KV_MTP": frozenset({Format.GEMMA4}),
    "STANDALONE": frozenset({Format.MODEL}),
    "DFLASH": frozenset({Format.DFLASH}),
    "DSPARK": frozenset({Format.DSPARK}),
}
"""By algorithm. One that is not listed (UNO's LoRA) is not judged."""

LOADS_SILENTLY = frozenset(
    {("EAGLE", f) for f in (*EAGLE3_KINDS, Format.MODEL)}
    | {("NEXTN", f) for f in (*EAGLE3_KINDS, Format.MODEL)}
)
"""Wrong pairs that serve all the same: the head's ``fc`` is skipped, and the target's head put in its place."""


def format_of(checkpoint: Checkpoint, algorithm: str, version: str) -> Format:
    """The kind of draft that a checkpoint is under an algorithm.

    A model that bundles heads counts as those under EAGLE, NEXTN and DSPARK, where SGLang loads nothing else of it.
    """
    config, name = checkpoint.config, checkpoint.architecture
    if name not in _ARCHITECTURES and ("speculators_model_type" in config or "speculators_config" in config):
        return Format.SPECULATORS
    if name in _ARCHITECTURES:
        return _ARCHITECTURES[name]
    if name.endswith(_MTP_ENDINGS):
        return Format.MTP
    if algorithm in ("EAGLE", "NEXTN") and bundles_mtp(name, Context(version=version)):
        return Format.MTP
    if algorithm == "DSPARK" and name.endswith(_MODEL_ENDINGS):
        return Format.DSPARK
    return Format.MODEL if name.endswith(_MODEL_ENDINGS) else Format.OTHER
