"""Control requests to one SGLang server, and what its answers mean. Load goes through ``sweeper.load``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import requests

from sweeper.server.command import Address
from sweeper.speculation import NO_SPECULATION, SpeculationConfig


class ServerUnreachableError(Exception):
    """The server did not answer, or not with what was asked for."""


@dataclass(frozen=True)
class ServerInfo:
    """What a running server says of itself. The numbers are those it runs with, not those it was asked for."""

    version: str
    algorithm: str | None
    num_steps: int | None
    topk: int | None
    num_draft_tokens: int | None

    def effective(self, asked: SpeculationConfig) -> SpeculationConfig:
        """The config that runs, named with the asked algorithm where the server uses an alias of it."""
        if not self.algorithm:
            return NO_SPECULATION
        alias = {"NEXTN": "EAGLE"}.get(asked.algorithm, asked.algorithm)
        name = asked.algorithm if self.algorithm == alias else self.algorithm
        return SpeculationConfig(
            name, asked.draft, self.num_steps or 0, self.topk or 0, self.num_draft_tokens or 0
        )


class ServerClient:
    """Blocking requests, one at a time, with the launch's API key."""

    def __init__(self, address: Address, timeout_s: float = 30.0) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy between us and our own server
        self._session.headers["Authorization"] = f"Bearer {address.api_key}"

    def _call(
        self, method: str, endpoint: str, timeout_s: float | None = None, **kwargs: Any
    ) -> requests.Response:
        try:
            return self._session.request(
                method, f"{self.address.url}/{endpoint}", timeout=timeout_s or self.timeout_s, **kwargs
            )
        except requests.RequestException as error:
            raise ServerUnreachableError(f"{endpoint}: {error}") from None

    def _server_info(self, timeout_s: float | None = None) -> Mapping[str, Any]:
        response = self._call("GET", "server_info", timeout_s)
        if response.status_code == 404:  # before 0.5.6
            response = self._call("GET", "get_server_info", timeout_s)
        if response.status_code != 200:
            raise ServerUnreachableError(f"server_info: HTTP {response.status_code}: {response.text[:200]}")
        info = response.json()
        if not isinstance(info, dict):
            raise ServerUnreachableError(f"server_info: no object but {type(info).__name__}")
        return info

    def is_ready(self) -> bool:
        """Whether *our* server serves: it echoes the launch's key, and its warm-up request is answered.

        A port held by another SGLang answers too; only ours knows the key.
        """
        info = self._server_info(timeout_s=5)
        if info.get("api_key") != self.address.api_key:
            return False
        answer = self._call("GET", "ready", timeout_s=25)
        if answer.status_code == 404:  # before 0.5.21; /health generates a token, which takes a second
            answer = self._call("GET", "health", timeout_s=25)
        return answer.status_code == 200

    def info(self) -> ServerInfo:
        """Read back what the server runs; the scheduler's own view where the version has one."""
        top = self._server_info()
        states = top.get("internal_states") or [{}]
        truth = {**top, **states[0]}
        return ServerInfo(
            version=str(top.get("version", "")),
            algorithm=truth.get("speculative_algorithm"),
            num_steps=truth.get("speculative_num_steps"),
            topk=truth.get("speculative_eagle_topk"),
            num_draft_tokens=truth.get("speculative_num_draft_tokens"),
        )

    def flush_cache(self) -> None:
        """Empty the caches and reset the counters; the server must be idle."""
        for _ in range(20):
            response = self._call("POST", "flush_cache")
            if response.status_code == 200:
                return
        raise ServerUnreachableError(f"flush_cache: HTTP {response.status_code}: {response.text[:200]}")

    def top_two_gap(self, prompt: str, tokens: Sequence[int], timeout_s: float) -> float | None:
        """Log-probability distance in nats between the two best tokens after ``prompt`` and ``tokens``.

        The server decodes greedily from the prompt; None where it does not come by ``tokens`` again, or has
        no log-probabilities.
        """
        response = self._call(
            "POST",
            "generate",
            timeout_s,
            json={
                "text": prompt,
                "sampling_params": {"temperature": 0, "max_new_tokens": len(tokens) + 1, "ignore_eos": True},
                "return_logprob": True,
                "top_logprobs_num": 2,
            },
        )
        if response.status_code != 200:
            return None
        answer = response.json()
        best = answer["meta_info"].get("output_top_logprobs") or []
        if answer["output_ids"][: len(tokens)] != list(tokens) or len(best) <= len(tokens):
            return None
        two = best[len(tokens)]
        return float(two[0][0] - two[1][0]) if len(two) == 2 else None
