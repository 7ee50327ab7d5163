"""The rules are documented, and every one is planted in a test."""

from __future__ import annotations

from pathlib import Path

from sweeper.drafts.preflight.rules import RULES

DOCS = Path(__file__).parents[3] / "docs" / "drafts.md"


def documented() -> str:
    """The rows of the table in docs/drafts.md, as the code would write them."""
    return "\n".join(
        f"| `{rule.id}` | {', '.join(level.value for level in rule.levels)} | "
        f"{', '.join(sorted(f.value for f in rule.formats)) or 'all'} | {rule.demands} |"
        for rule in RULES
    )


def test_the_documented_rules_are_those_of_the_code() -> None:
    assert documented() in DOCS.read_text("utf-8"), f"put these rows into docs/drafts.md:\n{documented()}"


def test_every_rule_has_a_name_of_its_own_and_a_planted_fault() -> None:
    names = [rule.id for rule in RULES]
    assert len(set(names)) == len(names)
    planted = (Path(__file__).parent / "test_planted_faults.py").read_text("utf-8")
    for rule in RULES:
        for level in rule.levels:
            assert f'"{level.value} {rule.id}"' in planted, f"{rule.id} as {level.value} is planted nowhere"
