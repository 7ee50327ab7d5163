"""From a dead server's log to a failure class: the text decides, never the exit code.

SGLang kills itself with SIGKILL after any child's failure, so exit code 137 does not mean out of memory.
The patterns are the strings that SGLang and torch print; the first class whose pattern occurs wins, so
specific causes stand before the general ones that accompany them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sweeper.records import Failure, FailureClass

TAIL_LINES = 40


@dataclass(frozen=True)
class Symptom:
    """A pattern in the log, the class it stands for, and what a person should know."""

    kind: FailureClass
    pattern: re.Pattern[str]
    message: str


def _symptom(kind: FailureClass, pattern: str, message: str) -> Symptom:
    return Symptom(kind, re.compile(pattern), message)


SYMPTOMS = (
    _symptom(
        FailureClass.TREE_TOO_LARGE,
        r"selected index k out of range",
        "the draft tree has fewer candidates than num_draft_tokens - 1",
    ),
    _symptom(
        FailureClass.CONTEXT_LENGTH,
        r"is greater than the derived context_length",
        "the draft's context is shorter than the target's; set context-length in engine.extra_args "
        "to what the draft can",
    ),
    _symptom(
        FailureClass.VOCAB_MISMATCH,
        r"draft model to share the same vocabulary",
        "draft and target have different vocabularies",
    ),
    _symptom(
        FailureClass.DRAFT_MISSING,
        r"Repo id must be in the form|We couldn't connect to|is not a valid model identifier"
        r"|Cannot find any model weights|requires setting --?speculative-draft-model-path",
        "the draft checkpoint cannot be found or has no weights",
    ),
    _symptom(
        FailureClass.DRAFT_INCOMPATIBLE,
        r"mat1 and mat2 shapes cannot be multiplied|Attempted to load weight|has no attribute 'hot_token_id'"
        r"|has no attribute 'draft_vocab_size'|srcIndex < srcSelectDimSize|EAGLE3 currently only supports 1 layer",
        "the draft does not fit the target or the algorithm",
    ),
    _symptom(
        FailureClass.UNSUPPORTED,
        r"are not supported for now|set_eagle3_layers_to_capture|is not supported in .*attention backend"
        r"|only supports topk ?= ?1",
        "this SGLang does not support the combination of target, draft, algorithm and attention backend",
    ),
    _symptom(
        FailureClass.ARGS,
        r"error: (unrecognized arguments|ambiguous option|argument )|invalid choice",
        "SGLang refuses a flag; see the log tail",
    ),
    _symptom(
        FailureClass.INVALID_CONFIG,
        r"Unknown speculative algorithm name|speculative_eagle_topk > 1 with page_size > 1|(?m:^AssertionError)",
        "SGLang refuses this speculation config",
    ),
    _symptom(
        FailureClass.OOM_STATIC,
        r"Not enough memory\. Please try to increase --mem-fraction-static|leave no GPU memory for the KV cache",
        "weights leave too little memory for the KV cache; raise mem-fraction-static or use fewer draft weights",
    ),
    _symptom(
        FailureClass.OOM_RUNTIME,
        r"OutOfMemoryError|CUDA out of memory|(Prefill|Decode) out of memory",
        "out of GPU memory; lower mem-fraction-static or the concurrency",
    ),
    _symptom(FailureClass.GRAPH_CAPTURE, r"Capture cuda graph failed", "capturing the CUDA graphs failed"),
    _symptom(
        FailureClass.PORT,
        r"\[Errno 98\]|Port is already in use|address already in use",
        "another process holds the server's port",
    ),
    _symptom(
        FailureClass.WARMUP, r"Initialization failed\. warmup error", "the server's warm-up request failed"
    ),
    _symptom(
        FailureClass.HANG, r"[Ww]atchdog timeout|Health check failed", "the server stopped making progress"
    ),
)


def tail(log: str, lines: int = TAIL_LINES) -> tuple[str, ...]:
    """The last non-empty lines of a log."""
    return tuple([line for line in log.splitlines() if line.strip()][-lines:])


def classify(what: str, log: str, otherwise: FailureClass = FailureClass.CRASH) -> Failure:
    """The failure that a log shows; ``what`` says in words how it was noticed."""
    for symptom in SYMPTOMS:
        found = symptom.pattern.search(log)
        if found:
            return Failure(symptom.kind, f"{symptom.message} ({what}; log: {_line(log, found)})", tail(log))
    return Failure(otherwise, what, tail(log))


def _line(log: str, found: re.Match[str]) -> str:
    start = log.rfind("\n", 0, found.start()) + 1
    end = log.find("\n", found.end())
    return log[start : end if end >= 0 else None].strip()[:200]


WARNINGS = re.compile(
    r"Max running requests is reset|is adjusted to speculative_num_steps|Mixed chunked prefill is disabled"
    r"|speculative_adaptive disabled|KV cache pool is full|max_running_requests was reduced|overriding"
    r"|KV pool holds|has been removed"
)


def warnings(log: str) -> tuple[str, ...]:
    """Lines in which the server says that it changed something, each once."""
    lines = (line.strip() for line in log.splitlines() if WARNINGS.search(line))
    stripped = (re.sub(r"^\[[^\]]*\]\s*", "", line) for line in lines)
    return tuple(dict.fromkeys(stripped))
