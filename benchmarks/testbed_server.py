"""A real SGLang server on the CPU test bed, as a sweep launches it, and prompts for it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sweeper.config import StudyConfig
from sweeper.server.command import launch_command, launch_environment
from sweeper.server.prepare import look_up
from sweeper.server.process import ServerProcess, fresh_address
from sweeper.speculation import NO_SPECULATION, SpeculationConfig
from sweeper.testbed.environment import cache_dir
from sweeper.workload.prompts import Prompt, read_conversations

CHAIN = SpeculationConfig("EAGLE3", "full", 3, 1, 4)
CONFIGS = {"plain": NO_SPECULATION, "chain": CHAIN}


@dataclass(frozen=True)
class Testbed:
    """A study over the test bed's models; ``tokens`` are generated per request, whatever they are.

    SGLang logs, and counts the accepted drafts that ``/server_info`` tells, every ``log_every`` decode steps.
    """

    tokens: int = 64
    log_every: int = 40
    concurrency: tuple[int, ...] = (1, 4, 16)

    @property
    def study(self) -> StudyConfig:
        models = cache_dir()
        return StudyConfig.model_validate(
            {
                "study": "benchmark",
                "engine": {
                    "model": str(models / "target"),
                    "device": "cpu",
                    "extra_args": {"decode-log-interval": self.log_every},
                },
                "space": {
                    "drafts": {"full": {"path": str(models / "draft_eagle3_100")}},
                    "grids": [{"algorithm": "EAGLE3", "num_steps": 3}],
                },
                "workload": {
                    "prompts": "testbed",
                    "chat_template": False,
                    "concurrency": list(self.concurrency),
                    "max_new_tokens": self.tokens,
                    "ignore_eos": True,
                },
            }
        )

    def prompts(self) -> list[Prompt]:
        return [Prompt(item.id, item.turns[0][0].content) for item in read_conversations(self.study)]

    @contextmanager
    def serving(self, config: SpeculationConfig) -> Iterator[ServerProcess]:
        """A server that is ready; it ends with the context."""
        study = self.study
        with tempfile.TemporaryDirectory() as scratch, fresh_address() as address:
            command = launch_command(study, config, look_up(study), address)
            log = Path(scratch) / "server.log"
            with ServerProcess(command, launch_environment(study), address, log) as server:
                server.wait_until_ready(300)
                yield server
