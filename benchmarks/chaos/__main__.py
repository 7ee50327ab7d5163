"""Drives a study of 30 configs through random ``kill -9`` of its servers, actors, nodes and driver.

    python -m benchmarks.chaos --seeds 1 2 3 4 5

Real Ray with two raylets beside the head, the real ``sweeper run``, and the stand-in for SGLang, which starts in half a
second. Every few seconds one process is killed (on a busy machine less often, by as much as it is slower); a driver
that ended is started again with the same command. At the end all configs must be measured or failed for a reason that
was caused, none twice, with nothing lost and nothing left over. Exits 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from benchmarks.chaos.evidence import VICTIMS, Outcome
from benchmarks.chaos.world import REPOSITORY

LIMIT_S = 600.0


def run(seed: int, limit_s: float = LIMIT_S, keep: Path | None = None) -> Outcome:
    """One seed in a process of its own, which adopts all orphans of the study. ``keep``: where its files go."""
    root = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))  # sockets need a short path
    try:
        command = [sys.executable, "-m", "benchmarks.chaos", "--one", str(seed), "--root", str(root)]
        done = subprocess.run(
            [*command, "--limit", str(limit_s)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
        )
        row = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
        if not row:
            return Outcome(seed, 0.0, 0, {}, {}, 0, (f"no outcome, exit code {done.returncode}",))
        return Outcome(**{**row, "problems": tuple(row["problems"])})
    finally:
        if keep:
            shutil.copytree(
                root, keep / f"seed-{seed}", ignore=shutil.ignore_patterns("r"), dirs_exist_ok=True
            )
        shutil.rmtree(root, ignore_errors=True)


def _one(seed: int, root: Path, limit_s: float) -> Outcome:
    from benchmarks.chaos.gathering import evidence, without_the_cluster
    from benchmarks.chaos.strikes import Striker
    from benchmarks.chaos.verdict import final, problems
    from benchmarks.chaos.world import world, write_study

    began = time.monotonic()
    study = write_study(root)
    late: tuple[str, ...] = ()
    with world(root) as here:
        striker = Striker(here, study, seed)
        try:
            striker.until_done(limit_s)
        except TimeoutError as error:
            late = (str(error),)
        wall_s = time.monotonic() - began
        seen = evidence(here, striker, study)
    seen = without_the_cluster(seen, here, striker.ports)
    ended = Counter(trial.failure or trial.state for trial in final(seen))
    strikes = Counter(strike.victim for strike in seen.strikes)
    requeued = sum(trial.requeued for trial in seen.trials)
    return Outcome(
        seed, wall_s, len(striker.outputs), dict(strikes), dict(ended), requeued, (*late, *problems(seen))
    )


def table(outcomes: list[Outcome]) -> str:
    """Markdown."""
    head = ["seed", "wall s", "drivers", *(f"{victim}s killed" for victim in VICTIMS), "complete", "failed"]
    rows = [[*head, "cut off, put back", "wrong"]]
    for o in outcomes:
        failed = ", ".join(f"{n} {kind}" for kind, n in sorted(o.ended.items()) if kind != "COMPLETE")
        kills = [str(o.strikes.get(victim, 0)) for victim in VICTIMS]
        row = [
            str(o.seed),
            f"{o.wall_s:.0f}",
            str(o.drivers),
            *kills,
            str(o.ended.get("COMPLETE", 0)),
            failed,
        ]
        rows.append([*row, str(o.requeued), str(len(o.problems))])
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds that a study may take")
    parser.add_argument("--keep", type=Path, help="a directory for the runs and the output of their drivers")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one is not None:
        print(json.dumps(asdict(_one(asked.one, asked.root, asked.limit))))
        return 0
    outcomes = []
    for seed in asked.seeds:
        outcomes.append(run(seed, asked.limit, asked.keep))
        print(
            f"seed {seed}: {outcomes[-1].wall_s:.0f} s, {len(outcomes[-1].problems)} problem(s)",
            file=sys.stderr,
        )
        for problem in outcomes[-1].problems:
            print(f"  {problem}", file=sys.stderr)
    print(table(outcomes))
    return 1 if any(outcome.problems for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
