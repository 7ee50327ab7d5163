"""Which hidden states of the target an EAGLE-3 draft reads, as served and as it may have been trained. Pure.

A *tap* is a place where the target's hidden state is read: "layer i" is what enters layer i, residual included, so the
output of layer i-1. Layer 0 is the embedding's output, and "last" (i = number of layers) what leaves the last one. A
draft reads several taps side by side; their order is that of the columns of its ``fc.weight``.

What SGLang captures for a list of ids is ``sweeper.drafts.preflight.wiring``'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from sweeper.drafts.preflight.wiring import wiring

LAYER_IDS = "eagle_config.eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True, order=True)
class Tap:
    """What enters layer ``index``; ``normed``: after that layer's input norm (after "last": the final norm)."""

    index: int
    normed: bool = False

    def name(self, layers: int) -> str:
        """``embed``, ``3``, ``last`` or, after the norm, ``norm(3)``."""
        plain = {0: "embed", layers: "last"}.get(self.index, str(self.index))
        return f"norm({plain})" if self.normed else plain


@dataclass(frozen=True)
class Wiring:
    """The taps a draft reads. ``feedback_normed``: its own later steps read its output after its norm, not before."""

    taps: tuple[Tap, ...]
    feedback_normed: bool = False

    def name(self, layers: int, relative_to: Wiring | None = None) -> str:
        """``[embed, 3, 31]``, and what else differs from the served wiring."""
        text = f"[{', '.join(tap.name(layers) for tap in self.taps)}]"
        if relative_to is not None and self.feedback_normed != relative_to.feedback_normed:
            text += (
                f" with the fed-back state {'after' if self.feedback_normed else 'before'} the draft's norm"
            )
        return text


def listed_ids(draft: Mapping[str, Any]) -> list[int] | None:
    """The layer ids in a draft's config.json where SGLang looks for them, None where there are none."""
    section = draft.get("eagle_config")
    ids = section.get("eagle_aux_hidden_state_layer_ids") if isinstance(section, Mapping) else None
    return [int(i) for i in ids] if ids else None


def served_wiring(draft: Mapping[str, Any], layers: int, target_architecture: str) -> Wiring:
    """What SGLang reads for a draft's config.json from a target of ``layers`` layers."""
    captured = wiring(target_architecture, listed_ids(draft), layers).inputs
    return Wiring(tuple(map(Tap, captured)), bool(draft.get("norm_output")))


def alternatives(served: Wiring, layers: int) -> list[Wiring]:
    """Wirings that drafts are trained with by mistake, none of them the served one, each once."""
    taps, feedback = served.taps, served.feedback_normed
    embed, last = Tap(0), Tap(layers)
    found = [
        (embed, *taps[:-1]),  # one layer too early: the embedding counted as the first hidden state
        *((*taps[:i], embed, *taps[i + 1 :]) for i in range(len(taps))),
        *(_shifted(taps, by, layers) for by in (-1, 1)),
        *permutations(taps),
        tuple(map(Tap, range(len(taps)))),  # the first layers of all
        tuple(map(Tap, (2, layers // 2, layers - 3)))[
            : len(taps)
        ],  # the default, where the config lists others
        (*taps[:-1], last),
        (*taps[:-1], Tap(layers, normed=True)),
        tuple(Tap(tap.index, normed=True) for tap in taps),
    ]
    wirings = [Wiring(each, feedback) for each in found if each and len(each) == len(taps)]
    wirings.append(Wiring(taps, not feedback))
    return [wiring for wiring in dict.fromkeys(wirings) if wiring != served]


def _shifted(taps: Sequence[Tap], by: int, layers: int) -> tuple[Tap, ...]:
    """All taps moved; nothing where one would leave the target."""
    moved = tuple(Tap(tap.index + by) for tap in taps)
    return moved if all(0 <= tap.index <= layers for tap in moved) else ()


def remedy(trained_on: Wiring, served: Wiring, layers: int, target_architecture: str) -> str:
    """How to have SGLang serve what the draft was trained on: the change of its config.json, or that there is none."""
    if any(tap.normed for tap in trained_on.taps):
        return "No config change gives it this: SGLang hands out hidden states before the norms. Train again on those."
    if list(trained_on.taps) != sorted(set(trained_on.taps)):
        return (
            "No config change gives it this: SGLang always concatenates in the order of the layers. Put the blocks of "
            f"columns of fc.weight into the order {_order(trained_on)} instead, or train again."
        )
    changes = []
    if trained_on.feedback_normed != served.feedback_normed:
        changes.append(
            f'"norm_output": {"true" if trained_on.feedback_normed else "false"} (SGLang 0.5.12 or newer)'
        )
    if trained_on.taps != served.taps:
        ids = ids_for(trained_on, layers, target_architecture)
        if ids is None:
            last = any(tap.index >= layers for tap in trained_on.taps)
            why = ": SGLang does not hand out the last layer's output of this target" if last else ""
            return f"No list of layer ids gives it this{why}. Train again on what SGLang serves."
        changes.append(f"{LAYER_IDS}: {ids}")
    return f"In the draft's config.json set {' and '.join(changes)}."


def ids_for(wanted: Wiring, layers: int, target_architecture: str) -> list[int] | None:
    """The list for config.json that makes SGLang read ``wanted``, None where no list does."""
    indices = [tap.index for tap in wanted.taps]
    for ids in (indices, [i - 1 for i in indices]):
        if wiring(target_architecture, ids, layers).inputs == tuple(indices):
            return ids
    return None


def _order(wiring: Wiring) -> list[int]:
    """Positions, counted from 1, of the present blocks of columns in the order of the layers."""
    return [1 + i for i in sorted(range(len(wiring.taps)), key=lambda i: wiring.taps[i])]
