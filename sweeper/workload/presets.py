"""Well-known prompt sets by name: where the hub has them, and how a row of each becomes a conversation."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeper.testbed.environment import cache_dir
from sweeper.workload import fetch_preset
from sweeper.workload.conversation import Conversation, Message, WorkloadError

TIMEOUT_S = 300.0
"""The sets are a few hundred kilobytes each; the hub's own retries would go on for longer than anybody waits."""

_RANDOM = re.compile(r"random([-_]?(token|input)?[-_]?ids)?", re.IGNORECASE)


@dataclass(frozen=True)
class Preset:
    """A named prompt set: a dataset of the hub (``config`` and ``split``), or a local ``file``."""

    name: str
    dataset: str = ""
    config: str | None = None
    split: str = "test"
    columns: tuple[str, ...] = ()
    turns: Callable[[Mapping[str, Any]], list[str]] = field(default=lambda row: [], compare=False)
    id_column: str | None = None
    file: Path | None = None

    @property
    def origin(self) -> str:
        return f"{self.dataset}{f' ({self.config})' if self.config else ''}, split {self.split}"


def _function(row: Mapping[str, Any]) -> list[str]:
    return [
        f"Write the body of this Python function. Reply with the whole function.\n\n```python\n{row['prompt']}```"
    ]


def _program(row: Mapping[str, Any]) -> list[str]:
    tests = "\n".join(row["test_list"])
    return [f"{row['text']}\n\nThe Python code must pass these tests:\n\n```python\n{tests}\n```"]


PRESETS = (
    Preset(
        "mt-bench",
        "HuggingFaceH4/mt_bench_prompts",
        split="train",
        columns=("prompt",),
        turns=lambda row: list(row["prompt"]),
        id_column="prompt_id",
    ),
    Preset("gsm8k", "openai/gsm8k", "main", columns=("question",), turns=lambda row: [row["question"]]),
    Preset(
        "humaneval",
        "openai/openai_humaneval",
        columns=("prompt",),
        turns=_function,
        id_column="task_id",
    ),
    Preset(
        "math-500",
        "HuggingFaceH4/MATH-500",
        columns=("problem",),
        turns=lambda row: [row["problem"]],
        id_column="unique_id",
    ),
    Preset(
        "mbpp",
        "google-research-datasets/mbpp",
        "full",
        columns=("text", "test_list"),
        turns=_program,
        id_column="task_id",
    ),
)


def preset_names() -> tuple[str, ...]:
    return (*(preset.name for preset in PRESETS), "testbed")


def is_preset_name(text: str) -> bool:
    """Whether ``workload.prompts`` names a preset (or random tokens, which are refused later) and no file."""
    plain = _plain(text)
    return bool(_RANDOM.fullmatch(text)) or any(plain == _plain(name) for name in preset_names())


def find_preset(text: str) -> Preset | None:
    """The preset of this name, written in any usual way (``MT-Bench``, ``mt_bench``); None for a file's path.

    Raises:
        WorkloadError: random tokens are asked for.
    """
    if _RANDOM.fullmatch(text):
        raise WorkloadError(
            f"workload.prompts: {text}: random tokens are refused, since a model that reads noise writes text that no "
            f"draft was trained on, and accept lengths say nothing about real traffic; give a file with prompts like "
            f"those you serve, or a preset: {', '.join(preset_names())}"
        )
    if _plain(text) == "testbed":
        return Preset("testbed", file=cache_dir() / "prompts.jsonl")
    return next((preset for preset in PRESETS if _plain(preset.name) == _plain(text)), None)


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def load_preset(preset: Preset) -> list[Conversation]:
    """Fetch a preset through the ``datasets`` library, from its local cache where the hub is out of reach.

    It runs in a process of its own, so that a hub that does not answer can be given up.

    Raises:
        WorkloadError: ``datasets`` is not installed, the hub is out of reach, or it holds other columns by now.
    """
    asked = {
        "dataset": preset.dataset,
        "config": preset.config,
        "split": preset.split,
        "columns": [*preset.columns, *([preset.id_column] if preset.id_column else [])],
    }
    command = [sys.executable, fetch_preset.__file__, json.dumps(asked)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise _unreachable(preset, f"no answer within {TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise _unreachable(preset, str(error)) from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise _unreachable(preset, last) from None
    if answer.get("missing"):
        raise WorkloadError(
            f"workload.prompts: the preset {preset.name} needs the Python package {answer['missing']!r}; "
            "pip install 'sweeper[presets]', or give a file with prompts"
        )
    if "error" in answer:
        raise _unreachable(preset, answer["error"])
    return conversations(preset, answer["rows"])


def conversations(preset: Preset, rows: list[dict[str, Any]]) -> list[Conversation]:
    """The rows of a hub's dataset as conversations.

    Raises:
        WorkloadError: a row holds something else than expected.
    """
    found = []
    for number, row in enumerate(rows):
        where = f"{preset.name}[{number}]"
        try:
            texts = preset.turns(row)
        except (KeyError, TypeError) as error:
            raise WorkloadError(f"{where}: not as expected in {preset.origin}: {error!r}") from None
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            raise WorkloadError(f"{where}: not as expected in {preset.origin}: no text")
        name = str(row[preset.id_column]) if preset.id_column else str(number)
        turns = tuple((Message("user", text),) for text in texts)
        found.append(Conversation(f"{preset.name}-{name}", turns, False, where))
    return found


def _unreachable(preset: Preset, reason: str) -> WorkloadError:
    cached = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") else ""
    return WorkloadError(
        f"workload.prompts: the preset {preset.name} ({preset.origin}) cannot be had{cached}: {reason}; "
        "load it once on a machine that reaches the hub and copy its cache (HF_HOME; HF_ENDPOINT names a mirror), "
        "or give a file with prompts"
    )
