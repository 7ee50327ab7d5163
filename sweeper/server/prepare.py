"""Looks at the SGLang of this machine and settles what all launches of a study share."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.node.hardware import visible_hardware
from sweeper.server.checkpoint import checkpoint_identity
from sweeper.server.command import arguments, launch_environment
from sweeper.server.hub import asking_environment
from sweeper.server.install import installed_flags, installed_version, resolved_arguments
from sweeper.server.setup import (
    EngineSetup,
    check_flags,
    context_of,
    plain_flags,
    resolved_pins,
    server_flags,
    shared_pins,
    wants_resolving,
    widest,
    with_pins,
)
from sweeper.space import enumerate_space


def look_up(study: StudyConfig) -> EngineSetup:
    """The installation's version and flags, and the pins that follow from the study file.

    Raises:
        SweeperError: there is no SGLang, or ``engine.extra_args`` holds a flag that it does not have.
    """
    environment = launch_environment(study)
    version = installed_version(study.engine.python, environment.get("PYTHONPATH"))
    flags = installed_flags(study.engine.python, version, environment)
    check_flags(study, flags)
    return EngineSetup(version, flags, shared_pins(study, version))


def prepare_engine(study: StudyConfig, nodes: int = 1) -> EngineSetup:
    """``look_up``, and pins for what SGLang would choose by the hardware. Call it where the servers will run.

    ``nodes``: how many a server spans.

    Raises:
        SweeperError: as ``look_up``.
    """
    setup = replace(look_up(study), nodes=nodes)
    candidates = enumerate_space(study.space, context_of(study, setup)).candidates
    if not candidates or not wants_resolving(study, setup.pins):
        return setup
    commands = [
        arguments(plain_flags(study, setup)),
        arguments(server_flags(study, widest(candidates), setup)),
    ]
    try:
        plain, speculative = resolved_arguments(
            study.engine.python, setup.version, asking_environment(study), commands, _machine(study)
        )
    except SweeperError as error:
        return with_pins(setup, (), (f"attention backend, page size and memory share: {error}",))
    pins, unpinned = resolved_pins(study, setup.pins, plain, speculative)
    return with_pins(setup, pins, unpinned)


def _machine(study: StudyConfig) -> str:
    """What a resolution depends on besides the arguments: processors, checkpoints, environment."""
    hardware = visible_hardware(study.engine.device)
    checkpoints = [study.engine.model, *(draft.path for draft in study.space.drafts.values())]
    identity = [
        [hardware.key, hardware.driver, hardware.memory_gib],
        [checkpoint_identity(checkpoint) for checkpoint in checkpoints],
        study.engine.env,
    ]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()
