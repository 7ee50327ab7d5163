"""Each cause is named from the numbers that show it, published cases included."""

from __future__ import annotations

import pytest

from sweeper.acceptance import expected_accept_length
from sweeper.drafts.diagnosis import (
    Case,
    Diagnosis,
    Kind,
    Probed,
    Served,
    Trained,
    Verdict,
    conditionals,
    diagnose,
    kind_of,
)
from sweeper.speculation import SpeculationConfig

HEALTHY = Probed(5, 2.9, (0.72, 0.70, 0.69, 0.68, 0.67), (0.72, 0.66, 0.62, 0.60, 0.58), "[3, 31, 59]")
TRAINED = Trained((0.747, 0.67, 0.65))


def config(steps: int, n: int | None = None, topk: int = 1) -> SpeculationConfig:
    return SpeculationConfig("EAGLE3", "d", steps, topk, n or steps + 1)


def served(
    accept_length: float | None, steps: int = 5, histogram: tuple[int, ...] = (), **more: object
) -> Served:
    return Served(config(steps), config(steps), accept_length, histogram, **more)  # type: ignore[arg-type]


def of(**facts: object) -> Diagnosis:
    return diagnose(Case("d", **facts))  # type: ignore[arg-type]


# Published numbers: name, acceptance by position, accept length; all marginal, whatever their source calls them.
PUBLISHED = [
    ("Qwen3-30B-A3B EAGLE3", "0.586 0.299 0.149 0.079 0.042", 2.156),
    ("gpt-oss EAGLE3", "0.622 0.356 0.203 0.119 0.060", 2.359),
    ("Qwen3.8-27B DSpark", "0.576 0.378 0.266 0.200 0.150 0.111 0.081", 2.76),
    ("Qwen3.8-27B DSpark v2", "0.788 0.636 0.527 0.429 0.354", 3.73),
    ("llama.cpp EAGLE3", "0.805 0.632 0.483", 2.92),
    ("Kimi-K2.6 official, called conditional by its source", "0.633 0.404 0.264", 2.30),
    ("Kimi-K2.6 fine-tuned, called conditional by its source", "0.648 0.419 0.278", 2.345),
    ("broken DFlash", "0.340 0.000 0.000 0.000 0.000", 1.34),
]


@pytest.mark.parametrize(("name", "positions", "accept_length"), PUBLISHED)
def test_published_positions_are_recognised_as_marginal(
    name: str, positions: str, accept_length: float
) -> None:
    values = [float(v) for v in positions.split()]
    assert 1 + sum(values) == pytest.approx(accept_length, abs=0.01)
    if name == "broken DFlash":
        assert kind_of(values, accept_length) == Kind.EITHER  # with one position left, both readings agree
    else:
        assert kind_of(values, accept_length) == Kind.MARGINAL
    assert expected_accept_length(conditionals(values)) == pytest.approx(accept_length, abs=0.01)


def test_kinds_without_an_accept_length() -> None:
    assert kind_of([0.633, 0.404, 0.264]) == Kind.MARGINAL  # each is about 0.64 of the one before
    assert kind_of([0.7, 0.72, 0.71]) == Kind.CONDITIONAL  # marginals never rise
    assert kind_of([0.747, 0.67]) == Kind.EITHER
    assert kind_of([0.74, 0.70, 0.68, 0.66]) == Kind.EITHER


def test_a_list_that_reads_as_marginal_is_called_out() -> None:
    found = of(trained=Trained((0.633, 0.404, 0.264)), served=served(2.30, steps=3))
    assert "read as marginal" in found.text
    assert "read as marginal" not in of(trained=Trained.of((0.633, 0.404, 0.264), Kind.MARGINAL)).text


def test_expected_accept_lengths_of_the_original_case() -> None:
    trained = Trained((0.747, 0.67))
    assert trained.expects(1) == pytest.approx(1.747)
    assert trained.expects(2) == pytest.approx(1 + 0.747 + 0.747 * 0.67)
    # Beyond the list its last accuracy goes on: 1 + 0.747 · (1 + 0.67 + 0.67² + ...)
    assert trained.expects(15) == pytest.approx(1 + 0.747 * (1 - 0.67**15) / (1 - 0.67))


def test_the_silent_override_of_the_original_case() -> None:
    case = of(served=Served(config(1, n=16), config(1)), trained=Trained((0.747, 0.67)))
    assert case.verdict == Verdict.CONFIG_OVERRIDE
    assert "1/1/16 (steps/topk/draft tokens) was asked for, the server ran 1/1/2" in case.text


def test_the_deep_chain_of_the_original_case_is_explained_only_by_the_probe() -> None:
    deep = Served(config(15), config(15), 1.9)
    trained = Trained((0.747, 0.67))
    before = of(served=deep, trained=trained)
    assert before.verdict == Verdict.UNEXPLAINED
    assert "sweeper probe" in before.causes[0].next_step
    probed = Probed(
        5,
        1.9,
        (0.5, 0.4, 0.4),
        (0.5, 0.3),
        "[3, 31, 59]",
        "[embed, 3, 31]",
        3.1,
        "Set the ids to [0, 3, 31].",
    )
    after = of(served=deep, trained=trained, probed=probed)
    assert after.verdict == Verdict.WIRING
    assert "this draft was trained on [embed, 3, 31]; SGLang serves [3, 31, 59]" in after.text
    assert after.causes[0].next_step == "Set the ids to [0, 3, 31]."


def test_nothing_after_a_fair_first_position_is_the_engines_fault() -> None:
    broken = served(1.34, histogram=(660, 340, 0, 0, 0, 0))
    assert of(served=broken).verdict == Verdict.ENGINE_BUG
    assert of(served=broken, probed=HEALTHY).verdict == Verdict.ENGINE_BUG
    also_outside = Probed(5, 1.34, (0.34, 0.01), (0.34, 0.05))
    assert of(served=broken, probed=also_outside).verdict != Verdict.ENGINE_BUG
    assert of(served=served(1.34, histogram=(20, 10, 0, 0, 0, 0))).verdict != Verdict.ENGINE_BUG  # too few


def test_a_draft_that_is_fine_outside_and_dead_in_the_server_is_wired_otherwise() -> None:
    found = of(served=served(1.02, histogram=(980, 20, 0)), probed=HEALTHY)
    assert found.verdict == Verdict.WIRING
    assert "the server feeds it something else" in found.text


def test_silent_findings_of_the_checkpoint_explain_an_accept_length_near_one() -> None:
    found = of(served=served(1.0), findings=("d2t holds target ids, not differences",))
    assert found.verdict == Verdict.WIRING
    assert "d2t holds target ids" in found.text
    assert of(served=served(2.9), trained=TRAINED, findings=("a warning",)).verdict == Verdict.MATCH


def test_worse_on_this_text_outside_sglang_as_well_is_a_shift_of_the_text() -> None:
    elsewhere = Probed(5, 1.8, (0.45, 0.42, 0.40), (0.45, 0.38, 0.33))
    found = of(served=served(1.8, histogram=(55, 26, 11, 8)), trained=TRAINED, probed=elsewhere)
    assert found.verdict == Verdict.DISTRIBUTION_SHIFT
    assert "training set" in found.causes[0].next_step


def test_little_that_was_promised_little_is_undertrained() -> None:
    found = of(served=served(1.45, steps=3), trained=Trained((0.36, 0.2, 0.1)))
    assert found.verdict == Verdict.UNDERTRAINED
    weak = Probed(5, 1.5, (0.36, 0.25, 0.2), (0.36, 0.2, 0.1))
    assert of(served=served(1.5, steps=3), probed=weak).verdict == Verdict.UNDERTRAINED


def test_accept_lengths_that_fall_with_the_input_are_told_by_bucket() -> None:
    falling = served(2.4, by_length=(("1-512", 3.1), ("513-4096", 2.6), ("4097-32768", 1.57)))
    found = of(served=falling, trained=TRAINED)
    assert found.verdict == Verdict.LONG_CONTEXT
    assert "3.10 at 1-512 input tokens, 1.57 at 4097-32768" in found.text
    even = served(2.9, by_length=(("1-512", 3.0), ("513-4096", 2.8)))
    assert of(served=even, trained=TRAINED).verdict == Verdict.MATCH


def test_a_match_says_what_was_promised_and_reached() -> None:
    found = of(served=served(2.85), trained=TRAINED, probed=HEALTHY)
    assert found.verdict == Verdict.MATCH
    assert [cause.verdict for cause in found.causes] == [Verdict.MATCH]
    assert "training promised" in found.text


def test_without_anything_to_compare_it_says_what_to_give() -> None:
    assert "training" in of(served=served(2.0, steps=1)).causes[0].next_step
    assert of(trained=TRAINED).verdict == Verdict.UNEXPLAINED
