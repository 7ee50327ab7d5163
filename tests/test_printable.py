"""What is quoted from others moves no cursor, ends no comment, and is no markup."""

from __future__ import annotations

import io

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.markup import escape
from rich.table import Table

from reports.console import SafeConsole
from reports.deployment.evidence import commented
from sweeper.printable import first_unprintable, one_line, printable


def test_colours_go_and_everything_else_is_shown() -> None:
    text = "\x1b[31mred\x1b[0m 10%\r20%\r\nline\ttab\x1b]0;title\x07\x9b2J\u2028\u202ex"
    assert printable(text) == "red 10%\n20%\nline\ttab\\x1b]0;title\\x07\\x9b2J\\u2028\\u202ex"


@given(st.text())
def test_any_text_becomes_printable_and_stays_so(text: str) -> None:
    shown = printable(text)
    assert first_unprintable(shown, allow="\n\t") is None
    assert printable(shown) == shown
    assert first_unprintable(one_line(text)) is None
    shown.encode()


def test_long_lines_are_cut_in_the_middle() -> None:
    assert one_line("a" * 50 + "b" * 50, 20) == "a" * 10 + " ... " + "b" * 10


@given(st.lists(st.text(max_size=40), max_size=5))
def test_no_note_breaks_out_of_a_yaml_comment(notes: list[str]) -> None:
    assert yaml.safe_load(commented([*notes, "x\nhost: 0.0.0.0", "y\u0085port: 1"]) + "a: 1\n") == {"a": 1}


def test_a_terminal_gets_no_control_sequence_from_a_text() -> None:
    """Not from a line, nor from a cell of a table, nor from a title."""
    hostile = "\x1b]0;owned\x07\x1b[2J[bold red]x[/] \u202e"
    out = io.StringIO()
    console = SafeConsole(file=out, force_terminal=True, color_system=None, width=120)
    table = Table(title=escape(hostile))
    table.add_column("cell")
    table.add_row(escape(hostile))
    console.print(escape(hostile), table)
    console.rule(escape(hostile))
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().count("[bold red]x[/]") == 4
    assert out.getvalue().count("\\x1b]0;owned") == 4


def test_sweepers_own_colours_stay() -> None:
    out = io.StringIO()
    SafeConsole(file=out, force_terminal=True, color_system="standard").print("[red]x[/]")
    assert out.getvalue() == "\x1b[31mx\x1b[0m\n"


@pytest.mark.parametrize("text", ["plain", "ü", "模型", "a b", "🙂", "$(touch x) `y` 'z' \"#\""])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert first_unprintable(text) is None
    assert one_line(text) == text
