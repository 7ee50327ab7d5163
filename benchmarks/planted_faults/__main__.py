"""Does the tool name what is wrong with a draft? Every fault on its own, healthy drafts beside, on the real server.

    python -m benchmarks.planted_faults [--out planted] [--only NAME,NAME]

On the CPU test bed: makes the drafts, runs a study over them with a chain of 4 steps each, then `sweeper diagnose
--probe`, and prints per draft what preflight found, what was served, and the verdict. Drafts in which preflight finds
errors are not launched. Continues where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.planted_faults.drafts import Planted, planted_drafts
from sweeper.testbed.environment import cache_dir

STEPS = 4


def study_of(drafts: Mapping[str, Planted], testbed: Path, out: Path) -> dict[str, Any]:
    return {
        "study": "planted",
        "engine": {"model": str(testbed / "target"), "device": "cpu", "start_timeout_s": 300},
        "space": {
            "drafts": {
                name: {"path": str(draft.path), "training": {"conditional_accuracy": draft.agreement}}
                for name, draft in drafts.items()
            },
            "grids": [
                {"algorithm": draft.algorithm, "drafts": name, "num_steps": STEPS}
                for name, draft in drafts.items()
            ],
        },
        "workload": {
            "prompts": "testbed",
            "chat_template": False,
            "concurrency": [4],
            "max_new_tokens": 64,
            "ignore_eos": True,
        },
        "measurement": {"min_requests": 16, "rounds": 2, "max_requests": 16},
        "search": {"sampler": "grid", "prune": False, "hot_swap": "off"},
        "confirmation": {"repeats": 0},
        "baseline": {"laps": 1, "tolerance": 0.5, "cache_dir": str(out / "baselines")},
        "resources": {"cpus_per_server": 2},
        "runs_dir": str(out / "runs"),
    }


def asked(*words: str) -> Any:
    """What a command of sweeper prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "sweeper", *words, "--json"], stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("planted"))
    parser.add_argument("--only", default="", help="names, to try a few")
    given = parser.parse_args()
    out, testbed = given.out.resolve(), cache_dir()
    drafts = planted_drafts(testbed, out / "drafts")
    drafts = {
        name: draft for name, draft in drafts.items() if not given.only or name in given.only.split(",")
    }
    file = out / "planted.yaml"
    file.write_text(yaml.safe_dump(study_of(drafts, testbed, out), sort_keys=False))
    preflight = {found["draft"]: found for found in asked("check", str(file))["preflight"]}
    run = [sys.executable, "-m", "sweeper", "run", str(file)]
    subprocess.run(run, check=True)
    diagnoses = {d["draft"]: d for d in asked("diagnose", str(out / "runs" / "planted"), "--probe")}
    trials = {t["config"]["draft"]: t for t in asked("report", str(out / "runs" / "planted"))["trials"]}
    print("| draft | preflight | served | verdict |\n|---|---|---|---|")
    for name in drafts:
        found = preflight.get(name, {"findings": []})["findings"]
        said = ", ".join(dict.fromkeys(f"{f['level']} `{f['rule']}`" for f in found)) or "-"
        diagnosis, loads = diagnoses[name], trials[name]["loads"] if name in trials else []
        served = f"{loads[0]['accept_length']['value']:.2f}" if loads else "not served"
        print(f"| {name} | {said} | {served} | {', '.join(c['verdict'] for c in diagnosis['causes'])} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
