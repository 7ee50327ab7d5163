"""Whether a speculating server still gives the target's own output. Pure, except for asking the server about near ties.

Verification makes speculation lossless up to rounding: at temperature 0 the token ids are the plain server's, except
where two tokens are (almost) equally likely and the batch's shape decides. So a difference counts by how sure the
server was of its token there, and by how often the plain server differs from itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import bdtrc

from sweeper.records import Divergence, OutputComparison, TrialRecord
from sweeper.server.client import ServerClient, ServerUnreachableError

Outputs = Mapping[str, tuple[int, ...]]

MAX_ASKED = 50
"""Divergences whose gap is asked for; each costs one request."""

NEAR_TIE_FLOAT32 = 1e-3
NEAR_TIE_BFLOAT16 = 0.25
"""Nats. bfloat16 logits between 16 and 32 come in steps of 0.125, so two steps may be rounding."""

CHANCE = 0.01
"""Below this probability a number of differences is not the noise of the plain server."""

SHORT_OUTPUT = 8
THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")


class BadOutputError(Exception):
    """The server answers, but with nothing that is worth timing."""


def require_sane(outputs: Outputs) -> None:
    """Raises BadOutputError where most outputs are empty or one token over and over, as broken kernels give."""
    if not outputs:
        return
    empty = [tokens for tokens in outputs.values() if not tokens]
    if 2 * len(empty) > len(outputs):
        raise BadOutputError(f"{len(empty)} of {len(outputs)} outputs are empty")
    stuck = [
        tokens for tokens in outputs.values() if len(tokens) >= SHORT_OUTPUT and len(set(tokens[1:])) == 1
    ]
    if 2 * len(stuck) > len(outputs):
        raise BadOutputError(
            f"{len(stuck)} of {len(outputs)} outputs repeat one token, the first of them id {stuck[0][1]}"
        )


@dataclass(frozen=True)
class Judge:
    """Who is asked how near a tie was: the server, the texts by prompt, and what counts as near in nats."""

    client: ServerClient
    texts: Mapping[str, str]
    near_tie: float
    timeout_s: float


def compare_outputs(ours: Outputs, reference: Outputs, judge: Judge) -> OutputComparison:
    """Greedy token ids against the baseline's; where one leaves it, the server says how sure it was of its token.

    Further turns of a conversation are left out: their prompts hold the server's own earlier replies.
    """
    shared = sorted(prompt for prompt in ours.keys() & reference.keys() if prompt in judge.texts)
    divergences: list[Divergence] = []
    answers = True
    for prompt in shared:
        position = first_difference(ours[prompt], reference[prompt])
        if position is None:
            continue
        gap = None
        if answers and len(divergences) < MAX_ASKED:
            try:
                tokens = reference[prompt][:position]
                gap = judge.client.top_two_gap(judge.texts[prompt], tokens, judge.timeout_s)
            except ServerUnreachableError:
                answers = False
        divergences.append(Divergence(prompt, position, gap))
    return OutputComparison(len(shared), len(shared) - len(divergences), tuple(divergences), judge.near_tie)


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Index of the first token that differs, or at which one output ends early; None if equal."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return i
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


def lossy(record: TrialRecord, noise_floor: OutputComparison | None) -> tuple[str, ...]:
    """Why a config may change the target's output; empty where nothing says so.

    ``noise_floor`` compares the baseline with itself, measured another time; None: never done, no difference expected.
    """
    reasons = []
    for name in THRESHOLDS:
        value = record.engine.get(name)
        if isinstance(value, (int, float)) and value < 1:
            reasons.append(f"{name} is {value:g}: drafts are accepted that the target would not have sampled")
    if record.simulated:
        reasons.append(f"the acceptance is simulated: {record.simulated}")
    if record.comparison:
        reasons += differences(record.comparison, noise_floor)
    return tuple(reasons)


def differences(found: OutputComparison, floor: OutputComparison | None) -> list[str]:
    """What the outputs themselves say against a config."""
    sure, unknown = found.different, found.unexplained
    noisy = floor is not None and floor.different > 0
    if sure and not (noisy and floor and not _beyond(sure, found.compared, floor.different, floor.compared)):
        return [
            f"{sure} of {found.compared} outputs leave the baseline's where the server was sure of its token"
        ]
    # Without certainties the number of differences has to speak.
    seen, of = (len(floor.divergences), floor.compared) if floor else (0, found.compared)
    if unknown and _beyond(sure + unknown, found.compared, seen, of):
        return [
            f"{sure + unknown} of {found.compared} outputs leave the baseline's, more than the plain server differs "
            "from itself; how sure the server was is not known"
        ]
    return []


def _beyond(count: int, compared: int, seen: int, of: int) -> bool:
    """Whether ``count`` of ``compared`` is more than ``seen`` differences ``of`` the plain server's outputs explain."""
    share = (seen + 1) / (of + 2)  # one more than seen: the rule of succession
    return float(bdtrc(count - 1, compared, share)) < CHANCE
