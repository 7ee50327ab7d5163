"""Are the target's own MTP heads in its files?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sweeper.drafts.preflight.case import Case, Problem, Rule
from sweeper.drafts.preflight.config_json import layer_count, number
from sweeper.drafts.preflight.findings import Level
from sweeper.drafts.preflight.formats import Format

_COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers")
_NAMED = re.compile(r"(^|\.)(mtp\w*|nextn\w*|eh_proj|mtp_layers)\.")


def heads_there(case: Case) -> Iterator[Problem]:
    """Copies and quantizations of a model often leave its MTP layer out; SGLang then drafts with random weights."""
    names = case.draft.tensor_names
    if not names:
        return
    layers = layer_count(case.draft.text)
    beyond = re.compile(rf"(^|\.)layers\.{layers}\.")
    if not any(_NAMED.search(name) or (layers and beyond.search(name)) for name in names):
        yield Problem(
            f"weights: layers.{layers}.*, mtp.*",
            "there are no MTP heads among the weights; whoever exported or quantized the model left them out",
            "take the original checkpoint, or give the MTP heads as a draft of their own",
        )


def heads_counted(case: Case) -> Iterator[Problem]:
    counted = [key for key in _COUNTS if key in case.draft.text]
    if counted and not any(number(case.draft.text, key) for key in counted):
        yield Problem(
            f"config.json: {counted[0]}", "is 0: the model says it has no MTP heads", "use another algorithm"
        )


_MTP = frozenset({Format.MTP})

MTP_RULES = (
    Rule("mtp-count", (Level.ERROR,), "config.json counts at least one MTP head", heads_counted, _MTP),
    Rule("mtp-missing", (Level.SILENT,), "the MTP heads are among the weights", heads_there, _MTP),
)
