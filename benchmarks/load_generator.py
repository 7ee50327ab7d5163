"""How true the load generator is, and what it costs, against a server that knows when it sent each token.

    python benchmarks/load_generator.py [--seconds 20]

Starts benchmarks/synthetic_server.py on this machine, sends closed loops of 64 and 256 streams at 50 tokens per second
each and an open loop, and compares what the generator noted with what the server did. Exits 1 if a bound is missed;
another busy process on the machine is enough for that, so let it have two cores to itself.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray
from scipy import stats

from sweeper.config import Measurement, Workload
from sweeper.load.generator import LoadGenerator, LoadRun, Order
from sweeper.load.window import steady_window
from sweeper.records import Load
from sweeper.server.command import Address
from sweeper.workload.prompts import Prompt

SERVER = Path(__file__).with_name("synthetic_server.py")
TTFT_S, STEP_S = 0.1, 0.02
TOKENS = 128
RATE_BOUND = 0.01
TIME_BOUND_S = 0.002
OPEN_RATE = 50.0

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sent:
    """What the server says about one request, in seconds of the system's monotonic clock."""

    received: float
    sent: Sequence[float]


@dataclass
class Machine:
    """CPU seconds of the whole machine, to tell a slow client from a busy neighbour."""

    server: psutil.Process
    busy_s: float = 0.0
    server_s: float = 0.0

    def __post_init__(self) -> None:
        self.busy_s, self.server_s = self._now()

    def _now(self) -> tuple[float, float]:
        times, own = psutil.cpu_times(), self.server.cpu_times()
        return sum(times) - times.idle - getattr(times, "iowait", 0.0), own.user + own.system

    def others_s(self, client_s: float) -> float:
        """What neither the client nor the server used since this was made."""
        busy_s, server_s = self._now()
        return (busy_s - self.busy_s) - (server_s - self.server_s) - client_s


@contextmanager
def server(*flags: str) -> Iterator[tuple[int, Machine]]:
    """The synthetic server's port; the server is gone afterwards."""
    pace = ["--ttft-ms", str(TTFT_S * 1000), "--step-ms", str(STEP_S * 1000)]
    command = [sys.executable, str(SERVER), *pace, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), Machine(psutil.Process(process.pid))
        finally:
            process.kill()


def deliver(port: int, tokens: int, order: Order) -> tuple[LoadRun, Mapping[str, Sent]]:
    workload = Workload(prompts="-", max_new_tokens=tokens)
    run = LoadGenerator(Address(port, "key"), workload, Measurement()).run(order)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/truth", timeout=30) as answer:
        truth = {prompt: Sent(**sent) for prompt, sent in json.load(answer).items()}
    return run, truth


def prompts(count: int) -> tuple[Prompt, ...]:
    """Each is its own id, which the server answers with."""
    return tuple(Prompt(f"p{i}", f"p{i}") for i in range(count))


def offset(run: LoadRun, truth: Mapping[str, Sent]) -> float:
    """Seconds between the run's time 0 and the monotonic clock's; the quickest request tells it best."""
    return min(truth[r.prompt].received - r.sent_s for r in run.requests)


def closed_loop(concurrency: int, seconds: float, in_step: bool) -> bool:
    """Prints a line of the table; true if all bounds are kept."""
    enough = int(concurrency * (1 + seconds / (TTFT_S + TOKENS / 2 * STEP_S)))
    order = Order(prompts(enough), Load(concurrency), max_seconds=seconds)
    with server(*(["--in-step"] if in_step else [])) as (port, machine):
        run, truth = deliver(port, TOKENS, order)
        others_s = machine.others_s(run.cpu_s)
    failed = [r.error for r in run.requests if r.error]
    if failed:
        print(f"{len(failed)} requests failed; the first: {failed[0]}")
        return False
    start, end = steady_window(run.requests, run.load)
    shift = offset(run, truth)
    ours = np.concatenate([r.arrival_s for r in run.requests])
    true = np.concatenate([truth[r.prompt].sent for r in run.requests]) - shift
    counts = [int(((times > start) & (times <= end)).sum()) for times in (ours, true)]
    rate_error = counts[0] / counts[1] - 1
    # The ramp's requests all leave at once, and a server in Python needs its time to notice the last of them.
    steady = [r for r in run.requests if start < r.sent_s]
    sent = [truth[r.prompt] for r in steady]
    steps = np.array([len(r.arrival_s) - 1 for r in steady])
    first = np.array([s.sent[0] - s.received for s in sent])
    step = np.array([np.ptp(s.sent) for s in sent]) / steps
    ttft = np.abs(np.array([r.arrival_s[0] - r.sent_s for r in steady]) - first)
    tpot = np.abs(np.array([np.ptp(r.arrival_s) for r in steady]) / steps - step)
    kept = abs(rate_error) <= RATE_BOUND and p99(tpot) <= TIME_BOUND_S
    # In step, requests too arrive all at once at the server, whose own delay would be held against the client.
    kept = kept and (in_step or p99(ttft) <= TIME_BOUND_S)
    print(
        f"| {concurrency} | {'in step' if in_step else 'spread'} | {counts[1] / (end - start):,.0f} "
        f"| {rate_error:+.2%} | {ms(ttft)} | {ms(tpot)} | {ms(np.abs(ours - true))} "
        f"| {run.cpu_s / ours.size * 1000:.3f} | {run.cpu_s / end:.0%} | {others_s / end:.0%} "
        f"| {'kept' if kept else 'MISSED'} |",
        flush=True,
    )
    return kept


def p99(errors: Array) -> float:
    return float(np.quantile(errors, 0.99))


def ms(errors: Array) -> str:
    return f"{np.median(errors) * 1000:.2f} / {p99(errors) * 1000:.2f}"


def open_loop(seconds: float) -> bool:
    """Requests must leave at the scheduled times, and those must be a Poisson process of the rate asked for."""
    order = Order(prompts(int(OPEN_RATE * seconds)), Load(rate=OPEN_RATE))
    with server() as (port, _):
        run, truth = deliver(port, 8, order)
    received = np.array([truth[r.prompt].received for r in run.requests])
    gaps = np.diff(received)
    lag = np.array([truth[r.prompt].received - r.sent_s for r in run.requests]) - offset(run, truth)
    rate_error = 1 / gaps.mean() / OPEN_RATE - 1
    likely = 3 / np.sqrt(gaps.size)
    fit = stats.kstest(gaps, "expon", args=(0, gaps.mean())).pvalue
    kept = abs(rate_error) <= likely and fit > 0.01 and p99(lag) <= TIME_BOUND_S
    print(
        f"\nopen loop, {OPEN_RATE:g} requests/s, {seconds:g} s: mean rate {rate_error:+.1%} (3 sigma: {likely:.1%}), "
        f"exponential gaps p = {fit:.2f}, requests reach the server {ms(lag)} ms after their time "
        f"(median / p99): {'kept' if kept else 'MISSED'}"
    )
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20, help="of every run")
    seconds = parser.parse_args().seconds
    print(
        "Errors are median / p99 in ms; CPU in shares of a core, others' is the rest of the machine's.\n"
        "In step: a batch's tokens leave at the same moment, as from a GPU.\n"
    )
    print(
        "| streams | pace | true tok/s | rate error | TTFT error | TPOT error | chunk error | CPU s / 1,000 tokens "
        "| CPU | others' CPU | bounds |\n|---|---|---|---|---|---|---|---|---|---|---|"
    )
    kept = [closed_loop(c, seconds, in_step) for c in (64, 256) for in_step in (False, True)]
    kept.append(open_loop(seconds))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
