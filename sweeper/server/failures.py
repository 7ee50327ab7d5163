"""From a server's log and behaviour to a failure class, and what follows from the class.

The text decides, never the exit code: SGLang kills itself with SIGKILL after any child's failure, so exit code 137
does not mean out of memory. The patterns are the strings that SGLang and torch print; the first symptom whose
pattern occurs wins, so specific causes stand before the general ones that accompany them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from sweeper.printable import one_line, printable
from sweeper.records import Blame, Failure, FailureClass
from sweeper.speculation import SpeculationConfig

TAIL_LINES = 40
MAX_LINE = 1000
"""Characters of a log's line that are kept; some servers print whole requests."""


class Remedy(str, Enum):
    """What a second launch of the same config must change to have a chance."""

    NONE = "no second launch: it would fail again"
    SAME = "launched once more as it is"
    NEW_PORTS = "launched again on other ports"
    LESS_MEMORY = "launched again with a smaller mem-fraction-static"
    MORE_MEMORY = "launched again with a larger mem-fraction-static"
    ELSEWHERE = "launched again on another actor"


@dataclass(frozen=True)
class Advice:
    """What a failure class means: the next step for a person, whether to launch again, and who else is affected."""

    next_step: str
    remedy: Remedy = Remedy.NONE
    blames: Blame = Blame.CONFIG


ADVICE = {
    FailureClass.INVALID_CONFIG: Advice("take the config out of the space"),
    FailureClass.TREE_TOO_LARGE: Advice("lower num_draft_tokens, or raise num_steps or topk"),
    FailureClass.DRAFT_MISSING: Advice(
        "check the draft's path (absolute, the same on every node) or hub id, and that it holds weights",
        blames=Blame.DRAFT,
    ),
    FailureClass.DRAFT_INCOMPATIBLE: Advice(
        "compare the draft's config.json and tensors with what the algorithm expects of this target",
        blames=Blame.DRAFT,
    ),
    FailureClass.CONTEXT_LENGTH: Advice(
        "set context-length in engine.extra_args to what the draft can, or "
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 in engine.env",
        blames=Blame.DRAFT,
    ),
    FailureClass.VOCAB_MISMATCH: Advice("use a draft with the target's tokenizer", blames=Blame.DRAFT),
    FailureClass.UNSUPPORTED: Advice("use another attention backend, algorithm or SGLang release"),
    FailureClass.OOM_STATIC: Advice(
        "raise mem-fraction-static, or use more GPUs per server", Remedy.MORE_MEMORY
    ),
    FailureClass.OOM_RUNTIME: Advice(
        "lower mem-fraction-static, the highest concurrency or the prompt length", Remedy.LESS_MEMORY
    ),
    FailureClass.GRAPH_CAPTURE: Advice(
        "see the cause in the log tail; disable-cuda-graph avoids the capture"
    ),
    FailureClass.PORT: Advice("see what listens on the node", Remedy.NEW_PORTS),
    FailureClass.ARGS: Advice(
        "compare engine.extra_args with python -m sglang.launch_server --help", blames=Blame.ALGORITHM
    ),
    FailureClass.WARMUP: Advice("see the log tail", Remedy.SAME),
    FailureClass.CRASH: Advice("see the log tail; report it to SGLang if the config is valid"),
    FailureClass.HANG: Advice("see the stack dump at the end of the trial's log"),
    FailureClass.LOST: Advice("see ray status and the node's logs", Remedy.ELSEWHERE, Blame.NOBODY),
    FailureClass.GPU_LOST: Advice(
        "see nvidia-smi and the kernel's log (dmesg, Xid) on the node; it needs a reset or a repair",
        Remedy.ELSEWHERE,
        Blame.NOBODY,
    ),
    FailureClass.OUTPUT: Advice(
        "look at the outputs in the log; a target or draft in a number format that this release garbles?"
    ),
    FailureClass.MEASUREMENT: Advice("see the failed request's reason"),
}
"""One entry per class."""

UNEXPLAINED = (FailureClass.CRASH, FailureClass.HANG, FailureClass.MEASUREMENT, FailureClass.WARMUP)
"""Classes that say what happened, and not why."""


def may_pass(failure: Failure) -> bool:
    """Whether the plain server, which the config cannot be blamed for, may well come through another time."""
    return failure.kind in UNEXPLAINED or ADVICE[failure.kind].remedy is Remedy.ELSEWHERE


@dataclass(frozen=True)
class Symptom:
    """A pattern in the log, the class it stands for, and what a person should know.

    ``blames`` is the class's own unless the symptom knows better. A text ``only_at_start`` means this only in the
    log of a server that never served.
    """

    kind: FailureClass
    pattern: re.Pattern[str]
    message: str
    blames: Blame
    only_at_start: bool


def _symptom(
    kind: FailureClass,
    pattern: str,
    message: str,
    blames: Blame | None = None,
    only_at_start: bool = False,
) -> Symptom:
    return Symptom(kind, re.compile(pattern), message, blames or ADVICE[kind].blames, only_at_start)


SERVES = "The server is fired up and ready to roll!"


SYMPTOMS = (
    _symptom(
        FailureClass.GPU_LOST,
        r"GPU is lost|fallen off the bus|Unable to determine the device handle|[Uu]ncorrectable ECC error"
        r"|no CUDA-capable device is detected|No CUDA GPUs are available|device\(s\) is/are busy or unavailable"
        r"|Invalid access of peer GPU memory over nvlink",
        "a GPU is gone or broken",
    ),
    _symptom(
        FailureClass.TREE_TOO_LARGE,
        r"selected index k out of range",
        "the draft tree has fewer candidates than num_draft_tokens - 1",
    ),
    _symptom(
        FailureClass.INVALID_CONFIG,
        r"The expanded size of the tensor \(\d+\) must match the existing size \(\d+\) at non-singleton dimension 1",
        "the draft tree has fewer tokens than its longest path",
    ),
    _symptom(
        FailureClass.CONTEXT_LENGTH,
        r"is greater than the derived context_length",
        "the draft's context is shorter than the target's",
    ),
    _symptom(
        FailureClass.VOCAB_MISMATCH,
        r"draft model to share the same vocabulary",
        "draft and target have different vocabularies",
    ),
    _symptom(
        FailureClass.DRAFT_MISSING,
        r"Repo id must be in the form|We couldn't connect to|is not a valid model identifier"
        r"|is not a local folder|Cannot find any model weights|requires setting --?speculative-draft-model-path",
        "a checkpoint cannot be found or has no weights",
    ),
    _symptom(
        FailureClass.DRAFT_INCOMPATIBLE,
        r"mat1 and mat2 shapes cannot be multiplied|Attempted to load weight|has no attribute 'hot_token_id'"
        r"|has no attribute 'draft_vocab_size'|srcIndex < srcSelectDimSize|EAGLE3 currently only supports 1 layer"
        r"|draft requires --speculative-algorithm",
        "the draft does not fit the target or the algorithm",
    ),
    _symptom(
        FailureClass.UNSUPPORTED,
        r"only supports? topk ?= ?1|topk > 1 .*(only supported|unstable)|Topk > 1 not supported",
        "this SGLang supports no draft trees with this target and attention backend",
        Blame.TREES,
    ),
    _symptom(
        FailureClass.UNSUPPORTED,
        r"are not supported for now|set_eagle3_layers_to_capture",
        "this SGLang does not support the architecture of the draft, or of the target under this algorithm",
        Blame.DRAFT,
    ),
    _symptom(
        FailureClass.UNSUPPORTED,
        r"is not supported in .*attention backend|does not support dp attention|speculative decoding only supports "
        r"|speculative decoding is (currently )?not supported|Pipeline parallelism is not compatible"
        r"|LoRA is only compatible with",
        "this SGLang does not support the algorithm in this set-up",
        Blame.ALGORITHM,
    ),
    _symptom(
        FailureClass.ARGS,
        r"error: (unrecognized arguments|ambiguous option|argument )|invalid choice"
        r"|is installed with version .* which is less than the minimum required",
        "SGLang refuses a flag or an installed package",
    ),
    _symptom(
        FailureClass.INVALID_CONFIG,
        r"Unknown speculative algorithm name",
        "SGLang does not know the algorithm",
        Blame.ALGORITHM,
    ),
    _symptom(
        FailureClass.INVALID_CONFIG,
        r"(?m:^AssertionError$)|'>' not supported between (instances of )?'NoneType' and 'int'"
        r"|multi-layer EAGLE requires|must equal gamma \+ 1",
        "SGLang refuses this speculation config",
        only_at_start=True,
    ),
    _symptom(
        FailureClass.OOM_STATIC,
        r"Not enough memory\. Please try to increase --mem-fraction-static|leave no GPU memory for the KV cache",
        "the weights leave too little of the memory share for the KV cache",
    ),
    _symptom(
        FailureClass.OOM_RUNTIME,
        r"OutOfMemoryError|CUDA out of memory|(Prefill|Decode) out of memory|DefaultCPUAllocator: can't allocate",
        "out of memory",
    ),
    _symptom(FailureClass.GRAPH_CAPTURE, r"Capture cuda graph failed", "capturing the CUDA graphs failed"),
    _symptom(
        FailureClass.PORT,
        r"\[Errno 98\]|Port is already in use|[Aa]ddress already in use",
        "another process holds one of the server's ports",
    ),
    _symptom(
        FailureClass.WARMUP, r"Initialization failed\. warmup error", "the server's warm-up request failed"
    ),
    _symptom(
        FailureClass.HANG, r"[Ww]atchdog timeout|Health check failed", "the server stopped making progress"
    ),
)


def concerns(failure: Failure, failed: SpeculationConfig, other: SpeculationConfig) -> bool:
    """Whether ``other`` would fail as ``failed`` did."""
    same_algorithm = failed.algorithm == other.algorithm
    return {
        Blame.NOBODY: False,
        Blame.CONFIG: failed == other,
        Blame.TREES: same_algorithm and other.topk > 1,
        Blame.DRAFT: same_algorithm and failed.draft == other.draft,
        Blame.ALGORITHM: same_algorithm,
    }[failure.blames]


def tail(log: str, lines: int = TAIL_LINES) -> tuple[str, ...]:
    """The last non-empty lines of a log, each as one that can be printed."""
    last = [line for line in log.splitlines() if line.strip()][-lines:]
    return tuple(one_line(line, MAX_LINE) for line in last)


def classify(what: str, log: str, otherwise: FailureClass = FailureClass.CRASH) -> Failure:
    """The failure that a log shows; ``what`` says in words how it was noticed."""
    for symptom in SYMPTOMS:
        found = symptom.pattern.search(log)
        if found and not (symptom.only_at_start and SERVES in log):
            message = f"{symptom.message} ({printable(what)}; log: {_line(log, found)})"
            return Failure(symptom.kind, message, tail(log), symptom.blames)
    return failure(otherwise, what, log)


def failure(kind: FailureClass, what: str, log: str = "") -> Failure:
    """A failure whose class is known without its log."""
    return Failure(kind, printable(what), tail(log), ADVICE[kind].blames)


def _line(log: str, found: re.Match[str]) -> str:
    start = log.rfind("\n", 0, found.start()) + 1
    end = log.find("\n", found.end())
    return printable(log[start : end if end >= 0 else None]).strip()[:200]


WARNINGS = re.compile(
    r"Max running requests is reset|is adjusted to speculative_num_steps|Mixed chunked prefill is disabled"
    r"|speculative_adaptive disabled|KV cache pool is full|max_running_requests was reduced|overriding"
    r"|KV pool holds|has been removed"
)


def warnings(log: str) -> tuple[str, ...]:
    """Lines in which the server says that it changed something, each once."""
    lines = (one_line(line.strip(), MAX_LINE) for line in log.splitlines() if WARNINGS.search(line))
    stripped = (re.sub(r"^\[[^\]]*\]\s*", "", line) for line in lines)
    return tuple(dict.fromkeys(stripped))
