"""What does the driver cost per trial, and does that stay so?

    python -m benchmarks.scale                                   # the replay: 1, 8, 64 and 500 simulated servers
    python -m benchmarks.scale --servers 64 --trials 10000       # one of them
    python -m benchmarks.scale actors --servers 1 8 64 --trials 192   # real Ray actors that only pretend to measure

The replay drives the real trial loop with real storage, run directory and sampler against servers whose trials take
three minutes of a simulated clock; that clock also runs while the driver computes, so that a slow driver leaves servers
idle. Each row runs in a process of its own.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.scale.replay import Replay, Stretch, replay

MEBI = 2**20


HEAD = (
    "| servers | trials | sampler | CPU ms per trial, first tenth | last tenth | wall ms per trial | idle share "
    "| MiB at first | at last | KiB per trial: storage | run directory |\n" + "|---" * 11 + "|"
)
FILES = ("requests", "logs", "results")


def row(found: Replay) -> str:
    tenth = max(1, len(found.stretches) // 10)
    cells = [
        f"{found.servers}",
        f"{found.trials:,}",
        found.sampler,
        f"{found.cpu_ms(0, tenth):.0f}",
        f"{found.cpu_ms(-1 - tenth, -1):.0f}",
        f"{(found.stretches[-1].wall_s - found.stretches[0].wall_s) / found.trials * 1000:.0f}",
        *_shares(found),
    ]
    return f"| {' | '.join(cells)} |"


def _shares(found: Replay) -> list[str]:
    """Idle share, memory, and disk."""
    kib = {name: size / 1024 / found.trials for name, size in found.disk.items()}
    return [
        f"{found.idle_share:.2%}",
        f"{found.stretches[0].memory / MEBI:.0f}",
        f"{found.stretches[-1].memory / MEBI:.0f}",
        f"{kib.get('study.db', 0):.0f}",
        f"{sum(kib.get(part, 0) for part in FILES):.0f}",
    ]


def in_a_process(kind: str, servers: int, trials: int, how: str) -> Replay:
    command = [sys.executable, "-m", "benchmarks.scale", "--one", f"{kind},{servers},{trials},{how}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return Replay(**{**found, "stretches": tuple(Stretch(**s) for s in found["stretches"])})


def one(kind: str, servers: int, trials: int, how: str) -> Replay:
    with tempfile.TemporaryDirectory() as root:
        if kind == "replay":
            return replay(Path(root), servers, trials, how)
        from benchmarks.scale.actors import measure

        return measure(Path(root), servers, trials, float(how))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["replay", "actors"], nargs="?", default="replay")
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 8, 64, 500])
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--samplers", nargs="+", default=["random"], help="of the replay")
    parser.add_argument("--trial-s", type=float, default=60.0, help="seconds that actors pretend to measure")
    parser.add_argument("--profile", action="store_true", help="where the replay's time goes")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        kind, servers, trials, how = asked.one.split(",")
        print(json.dumps(asdict(one(kind, int(servers), int(trials), how))))
        return 0
    if asked.profile:
        with cProfile.Profile() as profile:
            print(HEAD, row(one("replay", asked.servers[0], asked.trials, asked.samplers[0])), sep="\n")
        pstats.Stats(profile).sort_stats("cumulative").print_stats(45)
        return 0
    print(HEAD, flush=True)
    for how in asked.samplers if asked.kind == "replay" else [str(asked.trial_s)]:
        for servers in asked.servers:
            print(row(in_a_process(asked.kind, servers, asked.trials, how)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
