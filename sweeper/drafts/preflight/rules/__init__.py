"""The rules of preflight, one file per concern; ``RULES`` is the list that docs/drafts.md shows."""

from __future__ import annotations

from sweeper.drafts.preflight.rules.algorithm import KIND_RULES
from sweeper.drafts.preflight.rules.aux_layers import AUX_RULES
from sweeper.drafts.preflight.rules.dflash import DFLASH_RULES
from sweeper.drafts.preflight.rules.mtp import MTP_RULES
from sweeper.drafts.preflight.rules.norms import NORM_RULES
from sweeper.drafts.preflight.rules.positions import POSITION_RULES
from sweeper.drafts.preflight.rules.precision import PRECISION_RULES
from sweeper.drafts.preflight.rules.tensors import TENSOR_RULES
from sweeper.drafts.preflight.rules.vocabulary import VOCABULARY_RULES
from sweeper.drafts.preflight.rules.vocabulary_map import MAP_RULES
from sweeper.drafts.preflight.rules.width import WIDTH_RULES

RULES = (
    *KIND_RULES,
    *TENSOR_RULES,
    *WIDTH_RULES,
    *AUX_RULES,
    *NORM_RULES,
    *MAP_RULES,
    *VOCABULARY_RULES,
    *POSITION_RULES,
    *PRECISION_RULES,
    *MTP_RULES,
    *DFLASH_RULES,
)
