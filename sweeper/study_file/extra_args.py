"""Which server flags ``engine.extra_args`` may hold, and which values: a flag must stay one flag with its values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sweeper.rules.algorithms import ALGORITHMS

OWNED_FLAGS = frozenset(
    {
        "api-key",
        "config",
        "disable-radix-cache",
        "dist-init-addr",
        "host",
        "max-running-requests",
        "model",
        "model-path",
        "nccl-init-addr",
        "nccl-port",
        "nnodes",
        "node-rank",
        "port",
        "random-seed",
        "tensor-parallel-size",
        "tp",
        "tp-size",
        "speculative-adaptive",
        "speculative-algorithm",
        "speculative-draft-model",
        *(algorithm.draft_flag for algorithm in ALGORITHMS.values()),
        *(p.flag for algorithm in ALGORITHMS.values() for p in algorithm.parameters),
    }
)
"""Flags that the sweep sets itself: equally on both arms, or as the config says. A study file must not set them."""

_DOOR = "it opens another port, which the launch's API key and loopback address do not protect"
_KEY = "keys and certificates are made for each launch; a value here would be written into the run's files"
REFUSED_FLAGS: Mapping[str, str] = {
    **dict.fromkeys(("admin-api-key", "ssl-keyfile-password"), _KEY),
    **dict.fromkeys(
        ("enable-ssl-refresh", "ssl-ca-certs", "ssl-certfile", "ssl-keyfile"),
        "the server speaks plain HTTP on its node's loopback",
    ),
    **dict.fromkeys(
        (
            "decoupled-spec-bind-endpoint",
            "engine-info-bootstrap-port",
            "gated-launch-port",
            "grpc-http-sidecar-port",
            "grpc-mode",
            "grpc-port",
            "kv-events-config",
            "load-publish-endpoint",
            "sidecar",
            "sidecar-args",
            "smg-grpc-mode",
            "smg-http-sidecar-port",
        ),
        _DOOR,
    ),
    **dict.fromkeys(
        (
            "disaggregation-bootstrap-port",
            "disaggregation-mode",
            "encoder-only",
            "encoder-register-urls",
            "encoder-urls",
            "language-model-only",
            "language-only",
        ),
        "a trial is one whole server, measured by itself",
    ),
    "delete-ckpt-after-loading": "every trial loads the checkpoint again",
    "enable-custom-logit-processor": "it runs code that comes with requests",
    "fastapi-root-path": "the server is asked under its own address",
    "tool-server": "it lets the server call other ones",
    "use-ray": "the server's processes would outlive its actor",
}
"""Flags that would undo what keeps a server to its trial and its node, with the reason."""

_NAME = re.compile(r"-{0,2}[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_NUMBER = re.compile(r"-\d+(\.\d+)?([eE][+-]?\d+)?")


def unusable_flag(given: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first flag that a study file cannot set, or whose value argparse would take for another, and the reason."""
    seen: dict[str, str] = {}
    for flag, value in given.items():
        if not _NAME.fullmatch(flag):
            return flag, f"{flag!r} is no name of a flag; write name: value, without dashes and '='"
        name = flag.lstrip("-").replace("_", "-")
        if name in OWNED_FLAGS:
            return flag, "this flag is set by the sweep itself; remove it"
        if name in REFUSED_FLAGS:
            return flag, f"this flag is not allowed: {REFUSED_FLAGS[name]}; remove it"
        if name in seen:
            return flag, f"the same flag as {seen[name]}; remove one"
        seen[name] = flag
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str) and item.startswith("-") and not _NUMBER.fullmatch(item):
                return flag, f"the value {item!r} would be read as a flag of its own"
    return None
