"""Why is a draft's accept length what it is? Training, probe, preflight and server beside each other. Pure functions.

Rules, in the order in which a cause is named first; several may hold:

===================  ================================================================================================
ENGINE_BUG           served: position 1 is accepted, position 2 never; outside SGLang (if probed) it is
WIRING               the probe is clearly better with other hidden states, or fine where the server accepts little
LONG_CONTEXT         long inputs accept clearly less than short ones, whose acceptance is as expected
DISTRIBUTION_SHIFT   on the served text the probe, too, is below what the training reported
UNDERTRAINED         served as expected, and that is little
CONFIG_OVERRIDE      the server ran another config than was asked for
MATCH                served as expected
UNEXPLAINED          less than expected, and nothing here tells why: an experiment will
===================  ================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from sweeper.acceptance import conditional_acceptance, expected_accept_length, marginal_acceptance
from sweeper.speculation import SpeculationConfig

NEAR = 0.10
"""Relative difference of accepted drafts per round, A - 1, up to which served and expected match."""

LITTLE = 0.25
"""Accepted drafts per round below which hardly anything is accepted at all."""

WEAK = 2.0
"""Accept length of a chain of 3 or more below which a draft counts as weak."""

NEVER = 0.03
"""Conditional acceptance at the second position that no working engine shows after a fair first one."""

FAIR_FIRST = 0.15
LEAST_CHAINS = 30
"""Chains that must have reached the second position before its acceptance says something."""

FALLS_WITH_LENGTH = 0.7
SAME = 0.02
"""Relative error up to which an accept length is reproduced by a list of acceptances."""


class Verdict(str, Enum):
    ENGINE_BUG = "ENGINE_BUG"
    WIRING = "WIRING"
    LONG_CONTEXT = "LONG_CONTEXT"
    DISTRIBUTION_SHIFT = "DISTRIBUTION_SHIFT"
    UNDERTRAINED = "UNDERTRAINED"
    CONFIG_OVERRIDE = "CONFIG_OVERRIDE"
    MATCH = "MATCH"
    UNEXPLAINED = "UNEXPLAINED"


class Kind(str, Enum):
    """What a list of acceptances by position is."""

    CONDITIONAL = "conditional"
    MARGINAL = "marginal"
    EITHER = "either"


def kind_of(values: Sequence[float], accept_length: float | None = None) -> Kind:
    """Whether acceptances by position are conditional or marginal; lists are published under either name.

    Marginals never rise. Where the accept length that belongs to them is known, only one reading reproduces it. Else
    a list that falls by about its own first value from each position to the next reads as the powers of one conditional
    acceptance.

    >>> kind_of([0.633, 0.404, 0.264], accept_length=2.30).value
    'marginal'
    """
    if any(b > a for a, b in pairwise(values)):
        return Kind.CONDITIONAL
    if accept_length is not None:
        fits = {
            Kind.MARGINAL: abs(1 + sum(values) - accept_length) <= SAME * accept_length,
            Kind.CONDITIONAL: abs(expected_accept_length(values) - accept_length) <= SAME * accept_length,
        }
        found = [kind for kind, fit in fits.items() if fit]
        return found[0] if len(found) == 1 else Kind.EITHER
    ratios = [b / a for a, b in pairwise(values) if a]
    powers = len(values) >= 3 and all(abs(r - values[0]) <= 0.15 * values[0] for r in ratios)
    return Kind.MARGINAL if powers and values[0] < 0.95 else Kind.EITHER


def conditionals(marginals: Sequence[float]) -> list[float]:
    """Conditional acceptances from marginal ones; ends where none is left."""
    rates, before = [], 1.0
    for marginal in marginals:
        if before == 0:
            break
        rates.append(marginal / before)
        before = marginal
    return rates


@dataclass(frozen=True)
class Trained:
    """Acceptances by position that a training reported, as conditional ones; ``claimed`` is what they were called."""

    conditional: tuple[float, ...]
    claimed: Kind = Kind.CONDITIONAL

    @classmethod
    def of(cls, values: Sequence[float], claimed: Kind) -> Trained:
        return cls(tuple(conditionals(values) if claimed == Kind.MARGINAL else values), claimed)

    def expects(self, steps: int) -> float:
        """Accept length of a chain of ``steps``; positions beyond the list go on as its last one."""
        if not self.conditional:
            return 1.0
        longer = [*self.conditional, *[self.conditional[-1]] * max(0, steps - len(self.conditional))]
        return expected_accept_length(longer[:steps])


@dataclass(frozen=True)
class Served:
    """What a server showed of one config. ``by_length`` are accept lengths by input-length bucket, shortest first."""

    requested: SpeculationConfig
    effective: SpeculationConfig
    accept_length: float | None = None
    histogram: tuple[int, ...] = ()
    load: str = ""
    by_length: tuple[tuple[str, float], ...] = ()

    @property
    def conditional(self) -> list[float]:
        return conditional_acceptance(self.histogram)

    @property
    def chains(self) -> int:
        """Verify rounds that reached the second position."""
        return sum(self.histogram[1:])


@dataclass(frozen=True)
class Probed:
    """What the draft does outside SGLang: a chain of ``depth``, and the wiring that is clearly better."""

    depth: int
    accept_length: float
    conditional: tuple[float, ...]
    on_true_text: tuple[float, ...]
    served_wiring: str = ""
    trained_on: str | None = None
    trained_on_accept_length: float | None = None
    remedy: str | None = None


@dataclass(frozen=True)
class Case:
    """All that is known of one draft. ``findings``: preflight's on what does not load, or loads and accepts nothing."""

    draft: str
    served: Served | None = None
    trained: Trained | None = None
    probed: Probed | None = None
    findings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cause:
    """A verdict that holds, why, and what to do next."""

    verdict: Verdict
    evidence: tuple[str, ...]
    next_step: str


@dataclass(frozen=True)
class Diagnosis:
    """``causes`` has the main one first. ``facts`` are the numbers that were compared, as sentences."""

    draft: str
    causes: tuple[Cause, ...]
    facts: tuple[str, ...] = field(default=())

    @property
    def verdict(self) -> Verdict:
        return self.causes[0].verdict

    @property
    def text(self) -> str:
        """The whole reasoning, for a person."""
        lines = [f"{self.draft}: {self.verdict.value}", *(f"  {fact}" for fact in self.facts)]
        for cause in self.causes:
            lines += [f"  {cause.verdict.value}: {sentence}" for sentence in cause.evidence]
            lines.append(f"  Next: {cause.next_step}")
        return "\n".join(lines)


def diagnose(case: Case) -> Diagnosis:
    """Name the causes that a case's numbers show; without a server's numbers, what training and probe alone say."""
    rules = (_engine_bug, _wiring, _preflight, _long_context, _shift, _undertrained, _override)
    causes = [cause for rule in rules if (cause := rule(case)) is not None]
    if not any(cause.verdict != Verdict.CONFIG_OVERRIDE for cause in causes):
        rest = _match(case)
        # An override explains itself; what else is known of the accept length then stands behind it.
        causes = [*causes, rest] if rest.verdict == Verdict.MATCH or causes else [rest]
    order = list(Verdict)
    if not (_compared(case) and _short(case)):
        causes.sort(key=lambda cause: (cause.verdict == Verdict.MATCH, order.index(cause.verdict)))
    else:
        causes.sort(key=lambda cause: (cause.verdict == Verdict.CONFIG_OVERRIDE, order.index(cause.verdict)))
    return Diagnosis(case.draft, tuple(causes), tuple(_facts(case)))


def _steps(case: Case) -> int:
    return case.served.effective.num_steps if case.served else case.probed.depth if case.probed else 1


def _expected(case: Case) -> float | None:
    """What training promises for the served chain (for trees: at least)."""
    return case.trained.expects(_steps(case)) if case.trained else None


def _actual(case: Case) -> float | None:
    """The served accept length, or the probe's where nothing was served."""
    if case.served is not None and case.served.accept_length is not None:
        return case.served.accept_length
    return case.probed.accept_length if case.probed and case.served is None else None


def _compared(case: Case) -> bool:
    return _expected(case) is not None and _actual(case) is not None


def _below(actual: float, expected: float) -> bool:
    """Whether clearly fewer drafts are accepted per round than expected."""
    return actual - 1 < (1 - NEAR) * (expected - 1)


def _short(case: Case) -> bool:
    expected, actual = _expected(case), _actual(case)
    return expected is not None and actual is not None and _below(actual, expected)


def _probe_at(case: Case) -> float | None:
    """The probe's accept length for as many steps as were served, from its conditional acceptances."""
    if case.probed is None:
        return None
    return Trained(case.probed.conditional).expects(_steps(case))


def _engine_bug(case: Case) -> Cause | None:
    served = case.served
    if served is None or len(served.conditional) < 2 or served.chains < LEAST_CHAINS:
        return None
    first, second = served.conditional[:2]
    outside = case.probed.conditional[1] if case.probed and len(case.probed.conditional) > 1 else None
    if first < FAIR_FIRST or second > NEVER or (outside is not None and outside <= 2 * NEVER):
        return None
    return Cause(
        Verdict.ENGINE_BUG,
        (
            f"served, position 1 is accepted in {first:.0%} of the rounds, position 2 in {second:.1%} of those "
            f"({served.chains} chains reached it)",
            "a weak draft decays smoothly; one that stops after the first position is fed wrong from its second step on"
            + (f" (outside SGLang position 2 is accepted in {outside:.0%})" if outside is not None else ""),
        ),
        "Serve the same draft with another attention backend and with graphs disabled, then with an earlier and a "
        "later SGLang release; report it with this histogram."
        + (
            ""
            if case.probed
            else " First run `sweeper probe`: if position 2 fails there, too, it is the draft."
        ),
    )


def _wiring(case: Case) -> Cause | None:
    probed = case.probed
    if probed is not None and probed.trained_on is not None:
        return Cause(
            Verdict.WIRING,
            (
                f"this draft was trained on {probed.trained_on}; SGLang serves {probed.served_wiring}",
                f"outside SGLang a chain of {probed.depth} reaches an accept length of "
                f"{probed.trained_on_accept_length or 0:.2f} with the former, {probed.accept_length:.2f} as served",
            ),
            probed.remedy or "Train again on what SGLang serves.",
        )
    outside, actual = _probe_at(case), case.served.accept_length if case.served else None
    if outside is None or actual is None or actual - 1 >= LITTLE or actual - 1 >= 0.5 * (outside - 1):
        return None
    return Cause(
        Verdict.WIRING,
        (
            f"outside SGLang, with the hidden states that its config asks for, the draft reaches {outside:.2f}; the "
            f"server only {actual:.2f}, so the server feeds it something else",
        ),
        "Compare the algorithm with the draft's architecture (an EAGLE3 draft under EAGLE accepts nothing), and the "
        "SGLang release with the norms and layer ids that the draft's config uses; `sweeper check` lists them.",
    )


def _preflight(case: Case) -> Cause | None:
    actual = _actual(case)
    served_well = case.served is not None and actual is not None and actual - 1 >= LITTLE and not _short(case)
    if not case.findings or served_well:
        return None
    return Cause(
        Verdict.WIRING,
        tuple(f"the checkpoint's own files show: {finding}" for finding in case.findings),
        "Mend the checkpoint's files as `sweeper check` says, and serve it again.",
    )


def _long_context(case: Case) -> Cause | None:
    lengths = case.served.by_length if case.served else ()
    if len(lengths) < 2:
        return None
    (short, before), (long, after) = lengths[0], lengths[-1]
    expected = _expected(case)
    if after - 1 > FALLS_WITH_LENGTH * (before - 1) or before - 1 < LITTLE:
        return None
    if expected is not None and _below(before, expected):
        return None  # short inputs are as bad: the length is not what matters most
    return Cause(
        Verdict.LONG_CONTEXT,
        (f"accept length {before:.2f} at {short} input tokens, {after:.2f} at {long}",),
        "Compare the draft's rope_theta, rope_scaling and max_position_embeddings with the target's, and the lengths "
        "it was trained on with the traffic's; train on longer texts, or speculate on short inputs only.",
    )


def _shift(case: Case) -> Cause | None:
    """On the served text the draft itself is worse than its training said, and decays as drafts do."""
    if case.probed is None or case.trained is None or case.probed.trained_on is not None:
        return None
    steps = min(len(case.trained.conditional), len(case.probed.on_true_text))
    promised = Trained(case.trained.conditional[:steps]).expects(steps)
    here = expected_accept_length(case.probed.on_true_text[:steps])
    if not _below(here, promised):
        return None
    return Cause(
        Verdict.DISTRIBUTION_SHIFT,
        (
            f"training promised {_list(case.trained.conditional[:steps])} by position, on this workload's text the "
            f"draft agrees in {_list(case.probed.on_true_text[:steps])}, outside SGLang as well",
            "no other wiring helps, so it is the text: other prompts, another chat template or thinking mode, other "
            "languages, or answers that the target did not write itself",
        ),
        "Probe it on prompts from its training set: if the promise is kept there, train on answers that this target "
        "generates for this workload's prompts.",
    )


def _undertrained(case: Case) -> Cause | None:
    expected, actual = _expected(case), _actual(case)
    if actual is None or actual >= WEAK or _steps(case) < 3:
        return None
    outside = _probe_at(case)
    if expected is not None:
        if _below(actual, expected):
            return None
        why = f"training promised {expected:.2f}, and {actual:.2f} is what it got"
    elif (
        outside is not None and case.probed and case.probed.trained_on is None and not _below(actual, outside)
    ):
        why = (
            f"outside SGLang it reaches {outside:.2f} as well, and no other wiring does clearly better; without "
            "training accuracies, a draft that was trained on other text looks the same"
        )
    else:
        return None
    return Cause(
        Verdict.UNDERTRAINED,
        (f"an accept length of {actual:.2f} with {_steps(case)} steps is a weak draft's: {why}",),
        "Train longer, or on more of the target's own answers; until then only the shortest chains may pay.",
    )


def _override(case: Case) -> Cause | None:
    served = case.served
    if served is None or served.requested == served.effective:
        return None
    return Cause(
        Verdict.CONFIG_OVERRIDE,
        (
            f"{served.requested.shape} (steps/topk/draft tokens) was asked for, the server ran "
            f"{served.effective.shape}",
        ),
        "Ask for what runs: with topk 1, num_draft_tokens is always num_steps + 1; more draft tokens need more steps "
        "or a larger topk.",
    )


def _match(case: Case) -> Cause:
    expected, actual, outside = _expected(case), _actual(case), _probe_at(case)
    reference = expected if expected is not None else outside
    if actual is None or reference is None:
        missing = "no accept length was measured" if actual is None else "there is nothing to compare it with"
        return Cause(
            Verdict.UNEXPLAINED,
            (missing,),
            "Give the training's accuracies (space.drafts.NAME.training), or run `sweeper probe`, and diagnose again.",
        )
    source = "training promised" if expected is not None else "outside SGLang it reaches"
    if _below(actual, reference):
        return Cause(
            Verdict.UNEXPLAINED,
            (f"{source} {reference:.2f}, {actual:.2f} was reached: {_gap(actual, reference)}",),
            "Run `sweeper probe` on this workload: it tells wrong hidden states from text the draft does not know.",
        )
    return Cause(
        Verdict.MATCH,
        (f"{source} {reference:.2f}, and {actual:.2f} was reached",),
        "It accepts what it should, yet its own files show what costs others nearly everything: mend them as `sweeper "
        "check` says, and see whether it accepts more."
        if case.findings
        else "Nothing is wrong with how it is served; whether it pays is the report's question.",
    )


def _gap(actual: float, expected: float) -> str:
    return f"{(actual - 1) / (expected - 1):.0%} of the drafts that should be accepted"


def _facts(case: Case) -> list[str]:
    facts = [f"Preflight: {finding}." for finding in case.findings]
    if case.trained:
        facts.append(
            f"Training reported {_list(case.trained.conditional)} by position (conditional): accept length "
            f"{case.trained.expects(_steps(case)):.2f} for {_steps(case)} steps."
        )
        if case.trained.claimed == Kind.CONDITIONAL and kind_of(case.trained.conditional) == Kind.MARGINAL:
            facts.append(
                "These numbers fall like powers of their first one: they read as marginal, not conditional ones. If "
                "so, give them as training.marginal_accuracy."
            )
    if case.served and case.served.accept_length is not None:
        at = f" at {case.served.load}" if case.served.load else ""
        facts.append(f"Served as {case.served.effective}{at}: accept length {case.served.accept_length:.2f}.")
        if case.served.histogram:
            facts.append(
                f"By position, served: conditional {_list(case.served.conditional)}; marginal "
                f"{_list(marginal_acceptance(case.served.histogram))}."
            )
    if case.probed:
        facts.append(
            f"Outside SGLang: conditional {_list(case.probed.conditional)}; on true text "
            f"{_list(case.probed.on_true_text)}."
        )
    return facts


def _list(values: Sequence[float]) -> str:
    shown = ", ".join(f"{value:.2f}" for value in values[:6])
    return f"{shown}, ..." if len(values) > 6 else shown
