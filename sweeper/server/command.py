"""The command and the environment that start one SGLang server. No shell is involved anywhere."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.server.install import release
from sweeper.speculation import NO_DRAFT, SpeculationConfig
from sweeper.study_file import expand
from sweeper.testbed import environment as testbed

Flags = dict[str, bool | int | float | str | list[int | float | str]]


@dataclass(frozen=True)
class Address:
    """Where a server listens, and the key that only this launch knows."""

    port: int
    api_key: str
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def server_flags(study: StudyConfig, config: SpeculationConfig, version: str) -> Flags:
    """Flags of a launch without its address: the speculation, and what both arms must share.

    Any speculation otherwise lowers ``max-running-requests`` to 48 and may switch the attention backend, so
    the shared ones are explicit: the batch limit covers the highest tested concurrency, the radix cache is
    off (prompts come back in every trial), and the seed is fixed.
    """
    flags: Flags = {
        "model-path": study.engine.model,
        "tp-size": study.engine.tensor_parallel,
        "max-running-requests": max(study.workload.concurrency),
        "random-seed": study.measurement.seed,
        "disable-radix-cache": True,
        streaming_flag(version): True,
    }
    if study.engine.device == "cpu":
        flags |= testbed.server_arguments()
    flags |= {name.lstrip("-").replace("_", "-"): value for name, value in study.engine.extra_args.items()}
    return flags | speculation_flags(study, config)


def streaming_flag(version: str) -> str:
    """Deltas instead of the whole text so far in every chunk; the flag was renamed in 0.5.10."""
    return "incremental-streaming-output" if release(version) >= (0, 5, 10) else "stream-output"


def speculation_flags(study: StudyConfig, config: SpeculationConfig) -> Flags:
    """The flags that differ between trials; none for the baseline. All three numbers are always given."""
    if not config.speculates:
        return {}
    flags: Flags = {"speculative-algorithm": config.algorithm}
    if config.algorithm == "NGRAM":
        return flags | {
            "speculative-num-draft-tokens": config.num_draft_tokens,
            "speculative-ngram-max-bfs-breadth": config.topk,
        }
    if config.draft != NO_DRAFT:
        flags["speculative-draft-model-path"] = study.space.drafts[config.draft].path
    return flags | {
        "speculative-num-steps": config.num_steps,
        "speculative-eagle-topk": config.topk,
        "speculative-num-draft-tokens": config.num_draft_tokens,
    }


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
    study: StudyConfig, config: SpeculationConfig, version: str, address: Address
) -> list[str]:
    """The whole command line of a server."""
    return [
        study.engine.python or sys.executable,
        *("-m", "sglang.launch_server"),
        *arguments(server_flags(study, config, version)),
        *("--host", address.host, "--port", str(address.port), "--api-key", address.api_key),
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
