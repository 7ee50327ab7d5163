"""Preflight: what a draft's own files tell about how it will be served, before anything is launched.

Reads config.json, tokenizer files, the *headers* of safetensors files and the values of one small tensor (``d2t``);
never the weights, never a pickle. The rules are in ``rules/``; docs/drafts.md lists them.
"""

from __future__ import annotations

from sweeper.drafts.preflight.case import Serving
from sweeper.drafts.preflight.findings import DraftReport, Finding, Level, draft_reports_json
from sweeper.drafts.preflight.run_rules import Pair, check_pair, open_target
from sweeper.drafts.preflight.study_drafts import failing, preflight, require_one_left, serving_of

__all__ = [
    "DraftReport",
    "Finding",
    "Level",
    "Pair",
    "Serving",
    "check_pair",
    "draft_reports_json",
    "failing",
    "open_target",
    "preflight",
    "require_one_left",
    "serving_of",
]
