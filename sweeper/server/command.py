"""The command and the environment that start one SGLang server. No shell is involved anywhere."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.server.setup import EngineSetup, Flags, server_flags
from sweeper.speculation import SpeculationConfig
from sweeper.study_file.variables import expand
from sweeper.testbed import environment as testbed


@dataclass(frozen=True)
class Address:
    """Where a server listens, and the key that only this launch knows. ``nccl_port`` 0 leaves it to SGLang.

    Of a server on several nodes every rank has an address; ``meeting`` is where they find each other: HOST:PORT on
    the node of rank 0, the one thing that does not stay on the loopback.
    """

    port: int
    api_key: str
    host: str = "127.0.0.1"
    nccl_port: int = 0
    rank: int = 0
    meeting: str = ""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def arguments(self) -> list[str]:
        words = ["--host", self.host, "--port", str(self.port), "--api-key", self.api_key]
        if self.meeting:
            return [*words, "--node-rank", str(self.rank), "--dist-init-addr", self.meeting]
        return words + (["--nccl-port", str(self.nccl_port)] if self.nccl_port else [])


def arguments(flags: Flags) -> list[str]:
    """``{"tp-size": 2, "skip-x": True}`` -> ``["--tp-size", "2", "--skip-x"]``; False leaves a flag out."""
    words: list[str] = []
    for name, value in flags.items():
        if value is False:
            continue
        words.append(f"--{name}")
        if value is not True:
            words.extend(str(item) for item in (value if isinstance(value, list) else [value]))
    return words


def launch_command(
    study: StudyConfig, config: SpeculationConfig, setup: EngineSetup, address: Address
) -> list[str]:
    """The whole command line of a server."""
    return [
        study.engine.python or sys.executable,
        *("-m", "sglang.launch_server"),
        *arguments(server_flags(study, config, setup)),
        *address.arguments(),
    ]


def public_command(command: list[str]) -> tuple[str, ...]:
    """The command as it may be recorded: without the API key."""
    words = list(command)
    if "--api-key" in words:
        words[words.index("--api-key") + 1] = "***"
    return tuple(words)


def launch_environment(study: StudyConfig) -> dict[str, str]:
    """The process environment of a server; ``${VAR}`` in ``engine.env`` is expanded here and nowhere else.

    Raises:
        SweeperError: a variable in ``engine.env`` is not set on this machine.
    """
    environment = dict(os.environ)
    if study.engine.device == "cpu":
        environment |= testbed.server_environment()
    for name, value in study.engine.env.items():
        try:
            environment[name] = expand(value)
        except KeyError as error:
            raise SweeperError(
                f"engine.env.{name}: environment variable {error.args[0]} is not set on this node"
            ) from None
    return environment
