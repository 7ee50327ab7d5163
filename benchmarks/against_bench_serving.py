"""Does sweeper measure what SGLang's own ``bench_serving`` measures?

    python -m benchmarks.against_bench_serving [--repeats 16] [--concurrency 1 4 16]

One server of the CPU test bed (EAGLE3 3/1/4); both clients send it the same prompts in the same order, with the same
output length and concurrency, in turns, starting with the other one every time. Compared are output tokens per second
over the whole time (what bench_serving reports) and the accept length, which bench_serving asks the server for. Exits
1 where the rates differ by more than 3 % or the accept lengths by more than 1 %, and the interval of the difference
does not explain it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.testbed_server import CHAIN, Testbed
from sweeper.load.generator import LoadGenerator, Order
from sweeper.load.statistics import Expectation, LoadData, load_point
from sweeper.records import Load, RequestRecord
from sweeper.server.command import launch_environment
from sweeper.server.process import ServerProcess
from sweeper.workload.prompts import Prompt

SEED = 1
REQUESTS = {1: 4, 4: 16, 16: 48}
TESTBED = Testbed(log_every=1)  # else the server's accept length would miss up to 39 steps
RATE_BOUND, ACCEPT_BOUND = 0.03, 0.01
COMPLAINTS = "stderr.txt"

WORKER = """
import sys, types
sys.modules["datasets"] = types.ModuleType("datasets")  # for its MMMU dataset only, and not part of the test bed
sys.modules["datasets"].load_dataset = None
import sglang.benchmark.serving as serving
for line in sys.stdin:
    sys.argv = ["bench_serving", *line.split()]
    serving.cli_main()
    print("\\nDONE", flush=True)
"""


@dataclass(frozen=True)
class Found:
    """What one client says of one run: output tokens per second, and the accept length."""

    rate: float
    accept_length: float


@contextmanager
def bench_serving(server: ServerProcess, complaints: Path) -> Iterator[subprocess.Popen[str]]:
    """SGLang's client, imported once; a line of arguments is one run. ``complaints`` gets what it says on stderr."""
    key = server.address.api_key
    environment = {**launch_environment(TESTBED.study), "OPENAI_API_KEY": key, "API_KEY": key}
    with complaints.open("w") as errors:
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def theirs(worker: subprocess.Popen[str], server: ServerProcess, dataset: Path, load: Load) -> Found:
    output = dataset.with_suffix(".out")
    arguments = {
        "--backend": "sglang",
        "--host": server.address.host,
        "--port": server.address.port,
        "--model": TESTBED.study.engine.model,
        "--dataset-name": "custom",
        "--dataset-path": dataset,
        "--num-prompts": REQUESTS[load.concurrency],
        "--sharegpt-output-len": TESTBED.tokens,
        "--max-concurrency": load.concurrency,
        "--warmup-requests": 1,
        "--seed": SEED,
        "--output-file": output,
    }
    assert worker.stdin is not None
    assert worker.stdout is not None
    words = " ".join(f"{k} {v}" for k, v in arguments.items()) + " --flush-cache --disable-tqdm\n"
    with contextlib.suppress(BrokenPipeError):  # it says why on its way out
        worker.stdin.write(words)
        worker.stdin.flush()
    if not any(line.strip() == "DONE" for line in worker.stdout):
        complaints = dataset.with_name(COMPLAINTS).read_text().splitlines()
        raise RuntimeError("bench_serving ended:\n" + "\n".join(complaints[-20:]))
    result = json.loads(output.read_text().splitlines()[-1])
    assert result["completed"] == REQUESTS[load.concurrency]
    return Found(result["output_throughput"], result["accept_length"])


def ours(server: ServerProcess, prompts: Sequence[Prompt], load: Load) -> Found:
    study = TESTBED.study
    generator = LoadGenerator(server.address, study.workload, study.measurement)
    generator.run(Order(prompts[:1], Load(1)))
    server.client.flush_cache()
    run = generator.run(Order(prompts, load))
    point = load_point(LoadData(load, run.requests), Expectation(speculates=True, most_per_step=4))
    return Found(point.plain_tok_s, counted(run.requests))


def counted(requests: Sequence[RequestRecord]) -> float:
    """The accept length as the server counts it, with what its last rounds accepted beyond the output's limit.

    A load point's own is (N-1)/V, of tokens that somebody got.
    """
    return 1 + sum(r.accepted_drafts or 0 for r in requests) / sum(r.verify_rounds or 0 for r in requests)


def shuffled(prompts: Sequence[Prompt]) -> list[Prompt]:
    """In the order that bench_serving brings them into."""
    order = list(prompts)
    random.seed(SEED)
    random.shuffle(order)
    return order


def relative(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Mean of the relative differences, and the half-width of its 95 % interval."""
    logs = np.log([a / b for a, b in pairs])
    half = float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs)))
    return float(logs.mean()), half


def compare(server: ServerProcess, load: Load, repeats: int) -> bool:
    prompts = TESTBED.prompts()[: REQUESTS[load.concurrency]]
    with (
        tempfile.TemporaryDirectory() as scratch,
        bench_serving(server, Path(scratch) / COMPLAINTS) as worker,
    ):
        dataset = Path(scratch) / "prompts.jsonl"
        rows = [{"conversations": [{"content": p.text}, {"content": "-"}]} for p in prompts]
        dataset.write_text("\n".join(map(json.dumps, rows)))
        pairs = []
        for repeat in range(-1, repeats):
            turns = [
                lambda: ours(server, shuffled(prompts), load),
                lambda: theirs(worker, server, dataset, load),
            ]
            found = [turn() for turn in (turns if repeat % 2 else reversed(turns))]
            if repeat >= 0:  # the first pair warms up
                pairs.append(found if repeat % 2 else found[::-1])
    rate, rate_half = relative([(a.rate, b.rate) for a, b in pairs])
    accept, accept_half = relative([(a.accept_length, b.accept_length) for a, b in pairs])
    means = [
        np.mean([getattr(f, name) for f in column])
        for name in ("rate", "accept_length")
        for column in zip(*pairs, strict=True)
    ]
    kept = abs(rate) - rate_half <= RATE_BOUND and abs(accept) - accept_half <= ACCEPT_BOUND
    strict = abs(rate) <= RATE_BOUND and abs(accept) <= ACCEPT_BOUND
    verdict = "within" if strict else "uncertain" if kept else "MISSED"
    print(
        f"| {load.concurrency} | {means[0]:.1f} | {means[1]:.1f} | {rate:+.2%} ± {rate_half:.2%} | {means[2]:.3f} "
        f"| {means[3]:.3f} | {accept:+.2%} ± {accept_half:.2%} | {verdict} |",
        flush=True,
    )
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--concurrency", type=int, nargs="+", choices=list(REQUESTS), default=list(REQUESTS))
    asked = parser.parse_args()
    print(
        "| concurrency | ours, tok/s | bench_serving, tok/s | difference | our accept length | bench_serving's "
        "| difference | bounds |\n|---|---|---|---|---|---|---|---|"
    )
    with TESTBED.serving(CHAIN) as server:
        kept = [compare(server, Load(c), asked.repeats) for c in asked.concurrency]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
