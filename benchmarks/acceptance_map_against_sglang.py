"""Does the offline acceptance map predict what real SGLang accepts?

    python -m benchmarks.acceptance_map_against_sglang [--prompts 48] [--configs chains,trees] [--drafts 010,035,100]

On the CPU test bed: the map is made from the test bed's target and its three EAGLE-3 checkpoints; then one server per
shape, the checkpoints swapped in it, answers the same prompts greedily, and its accept length stands beside the map's.
Chains shall be within 1 %, trees within 2 %. Where an output leaves the map's text (a near tie of two tokens), both are
counted over the prompts whose outputs are equal, and the number of others is printed. Results are kept in --out and
not measured again, so the benchmark may be run in slices (--max-minutes).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from sweeper.config import StudyConfig
from sweeper.drafts.acceptance_map import AcceptanceMap, walked_rounds
from sweeper.drafts.draft_tree import TreeSize
from sweeper.drafts.map_pass import MapWork, make_map
from sweeper.drafts.target import Target
from sweeper.drafts.texts import Continuation, continued, prompts_fingerprint, prompts_of
from sweeper.server.command import launch_command, launch_environment
from sweeper.server.hot_swap import swap_draft
from sweeper.server.prepare import look_up
from sweeper.server.process import ServerProcess, fresh_address
from sweeper.speculation import SpeculationConfig
from sweeper.testbed.environment import cache_dir
from sweeper.workload.conversation import Prompt

TOKENS = 96
CHAINS = [(steps, 1, steps + 1) for steps in range(1, 11)]
TREES = [
    (2, 2, 4), (3, 2, 6), (3, 2, 11), (4, 2, 8), (5, 2, 12), (7, 2, 16),
    (2, 4, 8), (3, 4, 8), (4, 4, 12), (5, 4, 16), (5, 4, 32), (7, 4, 24),
]  # fmt: skip
SIZES = [TreeSize(10, 1), TreeSize(7, 2), TreeSize(7, 4)]
BOUNDS = {1: 0.01, 2: 0.02, 4: 0.02}


@dataclass(frozen=True)
class Answer:
    """What a server did with one prompt."""

    output: list[int]
    verify_rounds: int
    histogram: list[int]


def study_of(drafts: list[str]) -> StudyConfig:
    models = cache_dir()
    return StudyConfig.model_validate(
        {
            "study": "map",
            "engine": {"model": str(models / "target"), "device": "cpu"},
            "space": {
                "drafts": {d: {"path": str(models / f"draft_eagle3_{d}")} for d in drafts},
                "grids": [{"algorithm": "EAGLE3", "num_steps": 1}],
            },
            "workload": {
                "prompts": str(models / "prompts.jsonl"),
                "chat_template": False,
                "max_new_tokens": TOKENS,
            },
        }
    )


def map_of(study: StudyConfig, prompts: list[Prompt], path: Path) -> tuple[AcceptanceMap, list[Continuation]]:
    """The map and its texts; made once, then read from ``path``."""
    texts_path = path.with_suffix(".texts.json")
    if path.exists():
        stored = json.loads(texts_path.read_text())
        texts = [Continuation(t["prompt"], tuple(t["ids"]), t["start"]) for t in stored]
        return AcceptanceMap.load(path), texts
    target = Target.load(study.engine.model)
    texts = continued(target, prompts, TOKENS)
    drafts = {name: Path(draft.path) for name, draft in study.space.drafts.items()}
    work = MapWork(
        Path(study.engine.model),
        drafts,
        SIZES,
        study.workload.prompts,
        prompts_fingerprint(prompts, TOKENS),
        TOKENS,
    )
    found = make_map(target, work, texts)
    found.save(path)
    texts_path.write_text(
        json.dumps([{"prompt": t.prompt, "ids": list(t.ids), "start": t.start} for t in texts])
    )
    return found, texts


def answered(
    study: StudyConfig, shape: tuple[int, int, int], drafts: list[str], prompts: list[Prompt], log: Path
) -> Iterator[tuple[SpeculationConfig, list[Answer]]]:
    """Greedy outputs of one server under each draft, a few requests at a time; it is launched with the first one."""
    configs = [SpeculationConfig("EAGLE3", draft, *shape) for draft in drafts]
    sampling = {"temperature": 0.0, "max_new_tokens": TOKENS}
    with fresh_address() as address:
        command = launch_command(study, configs[0], look_up(study), address)
        with ServerProcess(command, launch_environment(study), address, log) as server:
            server.wait_until_ready(600)

            def ask(prompt: Prompt) -> Answer:
                reply = server.client.generate(prompt.text, TOKENS, 600, sampling_params=sampling)
                meta = reply["meta_info"]
                return Answer(
                    reply["output_ids"], meta["spec_verify_ct"], meta["spec_correct_drafts_histogram"]
                )

            for config in configs:
                if config != configs[0]:
                    swap_draft(server, study, config.draft)
                with ThreadPoolExecutor(8) as pool:
                    yield config, list(pool.map(ask, prompts))


def compared(
    found: AcceptanceMap, texts: list[Continuation], config: SpeculationConfig, got: list[Answer]
) -> dict[str, Any]:
    """Both accept lengths over the prompts whose outputs are equal."""
    equal = np.array(
        [list(text.ids[text.start :]) == answer.output for text, answer in zip(texts, got, strict=True)]
    )
    advances = found.advances(config.draft, config.num_steps, config.topk, config.num_draft_tokens)
    rounds = walked_rounds(advances, found.lengths).sum(axis=1)
    tokens = found.lengths[equal].sum()
    served = tokens / sum(answer.verify_rounds for answer, same in zip(got, equal, strict=True) if same)
    predicted = tokens / rounds[equal].sum()
    everything = found.accept_length(config.draft, config.num_steps, config.topk, config.num_draft_tokens)
    all_served = sum(len(a.output) - 1 for a in got) / sum(a.verify_rounds for a in got)
    return {
        "config": str(config),
        "served": float(served),
        "predicted": float(predicted),
        "error": float(predicted / served - 1),
        "unequal": int((~equal).sum()),
        "all_served": float(all_served),
        "all_predicted": everything[0],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--configs", default="chains,trees")
    parser.add_argument("--drafts", default="100,035,010")
    parser.add_argument("--max-minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("map_benchmark"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    drafts = given.drafts.split(",")
    study = study_of(["010", "035", "100"])
    prompts = prompts_of(study, given.prompts)
    found, texts = map_of(study, prompts, given.out / f"map-{given.prompts}.parquet")
    kinds = {"chains": CHAINS, "trees": TREES}
    shapes = [shape for kind in given.configs.split(",") for shape in kinds[kind]]
    end = time.monotonic() + 60 * given.max_minutes
    rows: list[dict[str, Any]] = []
    torch.set_num_threads(1)
    for shape in shapes:
        name = "-".join(map(str, shape))
        paths = {draft: given.out / f"{draft}-{name}-{given.prompts}.json" for draft in drafts}
        missing = [draft for draft, path in paths.items() if not path.exists()]
        if missing and time.monotonic() > end:
            print("out of time; run again to go on")
            return 0
        for config, got in (
            answered(study, shape, missing, prompts, given.out / "server.log") if missing else ()
        ):
            paths[config.draft].write_text(json.dumps(compared(found, texts, config, got)))
        for path in paths.values():
            row = json.loads(path.read_text())
            rows.append(row)
            print(
                f"{row['config']:22} served {row['served']:.4f} predicted {row['predicted']:.4f} "
                f"({100 * row['error']:+.2f} %), {row['unequal']} outputs differ; all: served {row['all_served']:.4f} "
                f"predicted {row['all_predicted']:.4f}",
                flush=True,
            )
    served, predicted = ([row[key] for row in rows] for key in ("served", "predicted"))
    print(
        f"{len(rows)} configs, Spearman's rank correlation {float(spearmanr(served, predicted).statistic):.4f}"
    )
    bounds = [BOUNDS[int(row["config"].split()[-1].split("/")[1])] for row in rows]
    return int(any(abs(row["error"]) > bound for row, bound in zip(rows, bounds, strict=True)))


if __name__ == "__main__":
    sys.exit(main())
