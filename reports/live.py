"""What a person sees while a sweep runs: a live view on a terminal, plain lines in a job's log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sweeper.records import Baseline, BaselineCheck, ConfirmationRound, Interval, LoadPoint, TrialRecord
from sweeper.server.failures import ADVICE
from sweeper.speculation import SpeculationConfig
from sweeper.storage.stored_trial import Speedups
from sweeper.study.surroundings import Tally

PLAIN_EVERY_S = 15.0


class LiveView:
    """Follows a sweep; a context manager. Events scroll by, the state of affairs stays at the bottom."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        )
        self._said_at = 0.0
        self._said = ""

    def __enter__(self) -> LiveView:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)

    def baseline(self, baseline: Baseline, how: str) -> None:
        self._say(
            f"[bold]Baseline {how}[/] (no speculation; measured {baseline.measured_at}, key {baseline.key})"
        )
        for point in baseline.record.load_points:
            self._say(f"  {point.load.in_words()}: {_rate(point.output_tok_s)} tok/s{_remarks(point)}")
        off = baseline.repeatability.closed[0]
        if off:
            self._say(
                f"  visits to a load differ by {off:.1%} beyond what each shows: counted in every interval"
            )

    def checked(self, check: BaselineCheck, consequence: str) -> None:
        """The baseline is not what it was."""
        what = f"the server without speculation, {check.when}, on {check.server}: {check}"
        self._say(f"[yellow]{escape(what)}[/]; {escape(consequence)}")

    def confirmed(self, done: ConfirmationRound, of: int) -> None:
        """A round of confirmation is over."""
        for trial, record in done.trials.items():
            speeds = "  ".join(f"{load} {values[0]:.2f}x" for load, values in done.speedups[trial].items())
            said = escape(speeds or done.failures.get(trial, "nothing measured"))
            self._say(
                f"confirmation {done.number} of {of}: trial {trial} {escape(str(record.effective))}  {said}"
            )

    def skipped(self, configs: Mapping[SpeculationConfig, str]) -> None:
        """Candidates that will not be launched, grouped by the reason."""
        reasons = Counter(configs.values())
        for why, count in reasons.items():
            self._say(f"[yellow]{count} config(s) skipped[/]: {escape(why)}")

    def finished(self, number: int, record: TrialRecord, speedups: Speedups) -> None:
        if record.failure:
            kind, message = record.failure.kind.value, escape(record.failure.message)
            self._say(f"[red]trial {number} {kind}[/] {escape(str(record.effective))}: {message}")
            self._say(f"  next: {escape(ADVICE[record.failure.kind].next_step)}")
            return
        if not record.load_points:
            self._say(f"trial {number} {record.state.value.lower()} {escape(str(record.effective))}")
            return
        loads = "  ".join(
            f"{p.load} {p.output_tok_s.value:.0f} tok/s {speedups[p.load].value:.2f}x "
            f"A {p.accept_length.value:.2f}{_remarks(p)}"
            for p in record.load_points
        )
        self._say(
            f"trial {number} {'pruned' if record.pruned else 'done'} in {record.start_s + record.measure_s:.0f} s  "
            f"{escape(str(record.effective))}  {loads}"
        )
        if record.pruned:
            self._say(f"  {escape(record.pruned)}")

    def tick(self, tally: Tally, phases: Mapping[str, str]) -> None:
        """Called about once a second."""
        if self._live:
            self._live.update(
                Group(_bar(tally), *(Text(f"  {tag}: {phase}") for tag, phase in phases.items()))
            )
            return
        line = f"{summary(tally)}" + "".join(f"; {tag} {phase}" for tag, phase in phases.items())
        if time.monotonic() - self._said_at > PLAIN_EVERY_S and line != self._said:
            self._said_at, self._said = time.monotonic(), line
            self._say(escape(line))


def _rate(rate: Interval) -> str:
    return f"{rate.value:.1f} \\[{rate.low:.1f}, {rate.high:.1f}]"


def _remarks(point: LoadPoint) -> str:
    """What a reader must know of a load point, in brackets."""
    remarks = [*(["UNSTABLE"] if point.unstable else []), *(note.split(":")[0] for note in point.notes)]
    return f" ({', '.join(remarks)})" if remarks else ""


def _bar(tally: Tally) -> Table:
    row = Table.grid(padding=(0, 1))
    done = tally.complete + tally.pruned + tally.failed
    row.add_row(ProgressBar(total=max(tally.planned, 1), completed=done, width=30), Text(summary(tally)))
    return row


def summary(tally: Tally) -> str:
    """``3/9 trials (1 failed, 1 running), best EAGLE3 full 3/1/4 1.52x, ETA 0:04:10``"""
    done = tally.complete + tally.pruned + tally.failed
    counts = f"{tally.pruned} pruned, " if tally.pruned else ""
    parts = [f"{done}/{tally.planned} trials ({counts}{tally.failed} failed, {tally.running} running)"]
    if tally.stage:
        parts.append(tally.stage)
    if tally.best:
        parts.append(f"best {tally.best[0]} {tally.best[1]:.2f}x")
    if tally.eta_s is not None:
        parts.append(f"ETA {timedelta(seconds=round(tally.eta_s))}")
    return ", ".join(parts)
