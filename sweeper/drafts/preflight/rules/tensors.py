"""Are all tensors there, under the names and in the shapes that SGLang expects?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from sweeper.drafts.preflight.case import Case, Problem, Rule
from sweeper.drafts.preflight.findings import Level
from sweeper.drafts.preflight.layouts import HARMLESS
from sweeper.drafts.preflight.safetensors_header import TensorInfo

MOST_NAMED = 4
MOST_SHAPES = 3
_TELLING = ("fc.weight", "lm_head.weight", "q_proj.weight")


def no_weights(case: Case) -> Iterator[Problem]:
    if not case.draft.weight_files and not case.draft.has_pickled_weights:
        yield Problem(
            "*.safetensors",
            "there are no weights",
            "copy or download the checkpoint again; check that the export wrote model.safetensors",
        )


def pickled(case: Case) -> Iterator[Problem]:
    if not case.draft.weight_files and case.draft.has_pickled_weights:
        yield Problem(
            "*.bin",
            "the weights are pickled, which can run code when it is read: names, shapes and the vocabulary map are "
            "not checked",
            "save them with safetensors",
        )


def quantized(case: Case) -> Iterator[Problem]:
    if case.quantized and case.layout is not None:
        yield Problem(
            "config.json: quantization_config",
            "the draft itself is quantized, so its tensors were not compared with what SGLang expects",
            "compare its accept length with that of the unquantized draft",
        )


def missing(case: Case) -> Iterator[Problem]:
    """Parameters that nothing fills; with the tensor that was probably meant."""
    if case.layout is None or not case.draft.tensors or case.quantized:
        return
    filled = _filled(case)
    absent = [name for name in case.layout.required if name not in filled]
    if not absent:
        return
    unused = _unused(case)
    hints = [
        f"{near[0]} is there, but under a name that SGLang drops"
        for name in absent
        if (near := get_close_matches(name, unused, 1, 0.75))
    ]
    yield Problem(
        f"weights: {_some(absent)}",
        f"{len(absent)} of {len(case.layout.required)} tensors are missing, and stay random numbers without a word"
        + (f"; {_some(hints)}" if hints else ""),
        "rename the tensors to what SGLang expects, or export the checkpoint again",
    )


def unused(case: Case) -> Iterator[Problem]:
    if case.layout is None or not case.draft.tensors or case.quantized:
        return
    names = _unused(case)
    if names:
        yield Problem(
            f"weights: {_some(names)}",
            f"{len(names)} tensors have names that SGLang drops without a word",
            "if the draft was trained with them, it needs a config or a release that uses them",
        )


def shapes(case: Case) -> Iterator[Problem]:
    """Tensors that do not fit the parameter they are loaded into; SGLang asserts that they do."""
    if case.layout is None or case.quantized:
        return
    wrong = [
        (name, have, want)
        for name, parameter in _filled_by(case).items()
        if (want := case.layout.shape(parameter)) != (have := case.draft.tensors[name].shape)
        and want is not None
        and 0 not in want
    ]
    wrong.sort(key=lambda entry: not entry[0].endswith(_TELLING))
    for name, have, want in wrong[:MOST_SHAPES]:
        yield Problem(
            f"weights: {name}",
            f"has shape {list(have)}, config.json means {list(want)}{_meaning(name, case.draft.text)}",
            "correct config.json, or take the weights that belong to it",
        )
    if len(wrong) > MOST_SHAPES:
        more = len(wrong) - MOST_SHAPES
        yield Problem(
            "weights", f"{more} further tensors have other shapes than config.json means", "as above"
        )


def _meaning(name: str, config: Mapping[str, object]) -> str:
    if name.endswith("fc.weight"):
        return " (hidden size x captured layers times the target's hidden size)"
    if name.endswith("lm_head.weight"):
        return f" (draft_vocab_size {config.get('draft_vocab_size')} x hidden size)"
    if ".self_attn.q_proj" in name:
        return " (heads times head_dim x width of the attention's input; 2 x hidden size in an EAGLE3 head)"
    return ""


def _filled_by(case: Case) -> dict[str, str]:
    """The parameter that each tensor fills, by the tensor's name."""
    layout = case.layout
    if layout is None:
        return {}
    return {name: p for name in case.draft.tensors if (p := layout.resolve(name)) is not None}


def _filled(case: Case) -> frozenset[str]:
    return frozenset(_filled_by(case).values())


def _unused(case: Case) -> list[str]:
    taken = _filled_by(case)
    return [name for name in case.draft.tensors if name not in taken and not HARMLESS.search(name)]


def _some(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def tensor(case: Case, ending: str) -> TensorInfo | None:
    """The tensor of that name, with whatever prefix."""
    found = (t for name, t in case.draft.tensors.items() if name == ending or name.endswith(f".{ending}"))
    return next(found, None)


TENSOR_RULES = (
    Rule("weights-missing", (Level.ERROR,), "there are weights", no_weights),
    Rule("weights-pickled", (Level.WARNING,), "the weights are safetensors", pickled),
    Rule("draft-quantized", (Level.WARNING,), "the draft's own files are not quantized", quantized),
    Rule(
        "tensor-missing",
        (Level.SILENT,),
        "every parameter of the draft has a tensor under a name that SGLang knows; one without stays random",
        missing,
    ),
    Rule("tensor-unused", (Level.WARNING,), "SGLang knows the names of all tensors", unused),
    Rule("tensor-shape", (Level.ERROR,), "the tensors have the shapes that config.json means", shapes),
)
