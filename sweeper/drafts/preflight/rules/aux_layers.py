"""Does an EAGLE3 draft get the hidden states it was trained on, as far as its files tell?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sweeper.drafts.preflight.case import AUX_IDS, Case, Problem, Rule
from sweeper.drafts.preflight.config_json import eagle_config, integers, layer_count
from sweeper.drafts.preflight.findings import Level
from sweeper.drafts.preflight.formats import EAGLE3_KINDS, Format
from sweeper.drafts.preflight.layouts import aux_count, dflash_layer_ids
from sweeper.drafts.preflight.rules.tensors import tensor
from sweeper.drafts.preflight.wiring import can_capture

_WHERE = f"config.json: eagle_config.{AUX_IDS}"
_CAPTURED = re.compile("aux|target|captur|eagle")
_DEFAULT = "config.json: eagle_config (no layer ids, so SGLang's default)"


def _where(case: Case) -> str:
    return _WHERE if case.ids is not None else _DEFAULT


def target_captures(case: Case) -> Iterator[Problem]:
    if case.target is None or not case.target.architecture or can_capture(case.target.architecture):
        return
    yield Problem(
        "target's config.json: architectures",
        f"{case.target.architecture} cannot hand over hidden states of its layers in SGLang {case.serving.version}",
        "use another algorithm (NGRAM, STANDALONE) with this target, or a release that can",
    )


def elsewhere(case: Case) -> Iterator[Problem]:
    """Layer ids under a key that SGLang does not read, so that it takes its default."""
    config = case.draft.text
    if case.ids is not None or case.wiring is None:
        return
    given = eagle_config(config).get(AUX_IDS)
    if given is not None:
        yield Problem(_WHERE, f"{given!r} is no list of integers", "write it as [1, 15, 28]")
    found = _ids_elsewhere(config)
    if found and tuple(i + 1 for i in found[1]) != case.wiring.marks:
        key, ids = found
        yield Problem(
            f"config.json: {key}",
            f"{list(ids)} is not read there; the draft gets the {case.wiring}",
            f"move the list to eagle_config.{AUX_IDS}",
        )


def _ids_elsewhere(config: Any) -> tuple[str, tuple[int, ...]] | None:
    """The first key that looks like layer ids, in ``eagle_config`` under another name or at the top."""
    places = {f"eagle_config.{k}": v for k, v in eagle_config(config).items()} | dict(config)
    for key, value in places.items():
        name = key.rsplit(".", 1)[-1]
        ids = integers(value)
        if ids and "layer" in name and _CAPTURED.search(name) and key != f"eagle_config.{AUX_IDS}":
            return key, ids
    return None


def in_range(case: Case) -> Iterator[Problem]:
    found = case.wiring
    if found is not None and found.unreached:
        last = found.places[-1] - found.as_outputs
        yield Problem(
            _where(case),
            f"{list(found.unreached)} are never captured: ids of a target of {found.layers} layers go from 0 to {last} "
            f"here; the draft gets {len(found.inputs)} hidden states instead of {aux_count(case.draft.text)}",
            "correct the ids to those of training; an id of another target does not carry over",
        )


def distinct(case: Case) -> Iterator[Problem]:
    found = case.wiring
    if found is not None and found.repeats:
        yield Problem(
            _where(case),
            f"{list(found.ids or found.marks)} names a layer twice, which is captured once: the draft gets "
            f"{len(found.inputs)} hidden states instead of {aux_count(case.draft.text)}",
            "give every layer once"
            if found.ids is not None
            else f"a target of {found.layers} layers is too short for the default: give the ids of training",
        )


def count(case: Case) -> Iterator[Problem]:
    """As many captured as the draft was made for; what repeats or is out of range has a rule of its own."""
    found = case.wiring
    if found is None or found.repeats or found.unreached:
        return
    made_for = aux_count(case.draft.text)
    if len(found.inputs) != made_for:
        yield Problem(
            "config.json: num_aux_hidden_states",
            f"the draft is made for {made_for} hidden states, the target captures {len(found.inputs)}: {found}",
            f"let num_aux_hidden_states be the length of {AUX_IDS}",
        )
    if made_for != 3 and not case.serving.since("0.5.12"):
        yield Problem(
            "config.json: num_aux_hidden_states",
            f"is {made_for}; SGLang {case.serving.version} always takes 3",
            "use SGLang 0.5.12 or newer",
        )


def ascending(case: Case) -> Iterator[Problem]:
    found = case.wiring
    if found is None or found.ascending:
        return
    yield Problem(
        _where(case),
        f"{list(found.ids or found.marks)} does not ascend, but SGLang hands the hidden states over from the first "
        f"layer to the last: fc multiplies each with the columns of another. The draft gets the {found}",
        "if training concatenated them in the order of the list, permute the column blocks of fc.weight to ascending "
        "layers and sort the list; if it sorted them itself, sort the list",
    )


def shifted(case: Case) -> Iterator[Problem]:
    """The few targets for which ids mean something else than for all others."""
    found = case.wiring
    if found is None or found.ids is None or found.as_outputs or case.target is None:
        return
    yield Problem(
        _WHERE,
        f"for {case.target.architecture}, SGLang captures the {found}: one layer earlier than for other targets",
        "compare with training: if it took the outputs of the listed layers, raise every id by one",
    )


def embedding(case: Case) -> Iterator[Problem]:
    found = case.wiring
    if found is not None and found.ids is not None and 0 in found.inputs:
        yield Problem(
            _WHERE,
            f"{list(found.ids)} makes SGLang capture the embedding as a hidden state",
            "right if the draft was trained on it; run sweeper probe to compare both wirings",
        )


def switched_off(case: Case) -> Iterator[Problem]:
    uses = eagle_config(case.draft.text).get("use_aux_hidden_state", True)
    if not uses and case.serving.since("0.5.9") and tensor(case, "fc.weight") is not None:
        yield Problem(
            "config.json: eagle_config.use_aux_hidden_state",
            "is false, so the draft gets the target's last hidden state alone, and its fc is skipped",
            "set it to true, or remove it, if the draft was trained on several layers",
        )


def graphs_before_ids(case: Case) -> Iterator[Problem]:
    """Releases that captured CUDA graphs before they knew the draft's ids."""
    found = case.wiring
    if found is None or found.ids is None or case.serving.since("0.5.11") or not case.serving.graphs:
        return
    yield Problem(
        _WHERE,
        f"SGLang {case.serving.version} records CUDA graphs with the default layers, before it reads {list(found.ids)}",
        "use SGLang 0.5.11 or newer, or disable-cuda-graph",
    )


def dflash_ids(case: Case) -> Iterator[Problem]:
    ids, layers = dflash_layer_ids(case.draft.text), layer_count(case.target.text) if case.target else 0
    outside = [i for i in ids or () if layers and not 0 <= i < layers]
    if outside:
        yield Problem(
            "config.json: dflash_config.target_layer_ids",
            f"{outside} are no layers of a target with {layers}",
            "take a draft that was trained for this target",
        )


AUX_RULES = (
    Rule(
        "target-capture",
        (Level.ERROR,),
        "SGLang can capture hidden states of the target's layers",
        target_captures,
        EAGLE3_KINDS,
    ),
    Rule(
        "aux-place",
        (Level.SILENT,),
        "layer ids stand in eagle_config.eagle_aux_hidden_state_layer_ids; anywhere else they are not read",
        elsewhere,
        EAGLE3_KINDS,
    ),
    Rule(
        "aux-range",
        (Level.ERROR,),
        "every id is one of the target's layers, but not the last",
        in_range,
        EAGLE3_KINDS,
    ),
    Rule("aux-unique", (Level.ERROR,), "no layer is named twice", distinct, EAGLE3_KINDS),
    Rule(
        "aux-count",
        (Level.ERROR,),
        "as many layers are captured as the draft was made for",
        count,
        EAGLE3_KINDS,
    ),
    Rule("aux-order", (Level.SILENT,), "the ids ascend", ascending, EAGLE3_KINDS),
    Rule(
        "aux-shift",
        (Level.WARNING,),
        "ids mean outputs of layers, as for most targets",
        shifted,
        EAGLE3_KINDS,
    ),
    Rule(
        "aux-embedding",
        (Level.WARNING,),
        "the embedding is not among the hidden states",
        embedding,
        EAGLE3_KINDS,
    ),
    Rule("aux-off", (Level.SILENT,), "use_aux_hidden_state is not false", switched_off, EAGLE3_KINDS),
    Rule(
        "aux-graphs",
        (Level.SILENT,),
        "the release reads the ids before it records CUDA graphs (0.5.11)",
        graphs_before_ids,
        EAGLE3_KINDS,
    ),
    Rule(
        "dflash-layers",
        (Level.ERROR,),
        "the ids of a DFLASH draft are layers of the target",
        dflash_ids,
        frozenset({Format.DFLASH}),
    ),
)
