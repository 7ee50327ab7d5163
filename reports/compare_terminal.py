"""A comparison of two runs in a terminal: conditions, regressions, improvements, and what stayed."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reports.changes import Change
from reports.compare import Comparison
from reports.tables import short
from sweeper.records import Interval


def print_comparison(found: Comparison, console: Console, everything: bool = False) -> None:
    """``everything``: also what did not change beyond noise."""

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    console.rule(escape(f"{found.before.study} -> {found.after.study}"), align="left")
    for difference in found.differences or ["measured under the same conditions"]:
        say(f"  {escape(difference)}")
    say(
        f"  launches of the same server differ by {found.launch_noise:.1%} (1 sd), counted in every interval"
        if found.launch_noise
        else "  [yellow]no baseline was measured again: how much launches differ is not known[/]"
    )
    for config, why in found.broken.items():
        say(f"[red]BROKEN[/] {escape(config)}: {escape(why)}")
    for config, why in found.newly_lossy.items():
        say(f"[red]LOSSY now[/] {escape(config)}: {escape(why)}")
    groups = (
        ("Worse beyond noise", [c for c in found.changes if c.worse], "red"),
        ("Better beyond noise", [c for c in found.changes if _better(c)], "green"),
        ("Changed with the hardware", [c for c in found.changes if c.beyond_noise and not c.counts], ""),
        ("Not changed beyond noise", [c for c in found.changes if not c.beyond_noise], ""),
    )
    for title, changes, style in groups:
        if changes and (title != "Not changed beyond noise" or everything):
            say(f"\n[bold]{title}[/]")
            console.print(_table(changes, style))
    same = len(groups[-1][1])
    if same and not everything:
        say(f"\n{same} of {len(found.changes)} numbers did not change beyond noise (--all lists them)")
    for label, configs in (("Only before", found.only_before), ("Only after", found.only_after)):
        if configs:
            say(f"{label}: {escape(', '.join(configs))}")
    say(f"\nWinner: {escape(found.winner_before)} -> {escape(found.winner_after)}")


def _better(change: Change) -> bool:
    return change.beyond_noise and change.counts and change.ratio.value > 1


def _table(changes: list[Change], style: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("config", "load", "measure"):
        table.add_column(heading)
    for heading in ("before", "after", "change [95 %]"):
        table.add_column(heading, justify="right", no_wrap=True)
    for change in changes:
        size = Text(_percent(change.ratio), style=style)
        named = (Text(change.config), change.load, change.measure)
        table.add_row(*named, Text(short(change.before)), Text(short(change.after)), size)
    return table


def _percent(ratio: Interval) -> str:
    value, low, high = (100 * (end - 1) for end in (ratio.value, ratio.low, ratio.high))
    return f"{value:+.1f} % [{low:+.1f}, {high:+.1f}]"
