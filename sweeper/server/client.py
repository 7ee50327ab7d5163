"""Control requests to one SGLang server, and what its answers mean. Load goes through ``sweeper.load``."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import requests

from sweeper.server.command import Address
from sweeper.speculation import NO_SPECULATION, SpeculationConfig


class ServerUnreachableError(Exception):
    """The server did not answer, or not with what was asked for."""


READ_BACK = (
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "speculative_draft_attention_backend",
    "speculative_adaptive",
    "page_size",
    "mem_fraction_static",
    "max_running_requests",
    "effective_max_running_requests_per_dp",
    "dp_size",
    "max_total_num_tokens",
    "chunked_prefill_size",
    "cuda_graph_max_bs",
    "cuda_graph_max_bs_decode",
    "disable_cuda_graph",
    "disable_overlap_schedule",
    "disable_radix_cache",
    "random_seed",
    "dtype",
    "kv_cache_dtype",
    "quantization",
    "speculative_accept_threshold_single",
    "speculative_accept_threshold_acc",
)
"""What is kept of a server's own account: whatever changes its speed or its outputs."""


class GenerationError(Exception):
    """The server answered a request, but not with a completion."""


@dataclass(frozen=True)
class ServerInfo:
    """What a running server says of itself. The numbers are those it runs with, not those it was asked for.

    ``engine`` holds the values of READ_BACK that this release reports.
    """

    version: str
    algorithm: str | None
    num_steps: int | None
    topk: int | None
    num_draft_tokens: int | None
    engine: Mapping[str, Any] = field(default_factory=dict)

    def effective(self, asked: SpeculationConfig) -> SpeculationConfig:
        """The config that runs, named with the asked algorithm where the server uses an alias of it."""
        if not self.algorithm:
            return NO_SPECULATION
        alias = {"NEXTN": "EAGLE"}.get(asked.algorithm, asked.algorithm)
        name = asked.algorithm if self.algorithm == alias else self.algorithm
        if asked.option("adaptive") and self.engine.get("speculative_adaptive"):
            return replace(asked, algorithm=name)  # the server tells the chain of the moment
        return replace(
            asked,
            options=tuple(pair for pair in asked.options if pair[0] != "adaptive"),
            algorithm=name,
            num_steps=self.num_steps or 0,
            topk=self.topk or 0,
            num_draft_tokens=self.num_draft_tokens or 0,
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
        try:
            info = response.json()
        except ValueError:
            raise ServerUnreachableError(f"server_info: no JSON but {response.text[:80]!r}") from None
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
        graphs = truth.get("cuda_graph_config")  # 0.5.14 and later: an object per phase
        if isinstance(graphs, dict) and isinstance(graphs.get("decode"), dict):
            truth["cuda_graph_max_bs_decode"] = graphs["decode"].get("max_bs")
        return ServerInfo(
            version=str(top.get("version", "")),
            algorithm=truth.get("speculative_algorithm"),
            num_steps=truth.get("speculative_num_steps"),
            topk=truth.get("speculative_eagle_topk"),
            num_draft_tokens=truth.get("speculative_num_draft_tokens"),
            engine={name: truth[name] for name in READ_BACK if truth.get(name) is not None},
        )

    def abort_all(self) -> None:
        """Ask the server to drop all its requests; one that does not answer is about to be killed anyway."""
        with contextlib.suppress(ServerUnreachableError):
            self._call("POST", "abort_request", timeout_s=2, json={"rid": "", "abort_all": True})

    def flush_cache(self) -> None:
        """Empty the caches and reset the counters; the server must be idle."""
        for _ in range(20):
            response = self._call("POST", "flush_cache")
            if response.status_code == 200:
                return
        raise ServerUnreachableError(f"flush_cache: HTTP {response.status_code}: {response.text[:200]}")

    def draft_checksum(self) -> str:
        """Of the draft's weights, over all ranks; empty where the server does not tell (it does since 0.5.21)."""
        try:
            response = self._call("POST", "weights_checker", json={"action": "checksum", "selector": "draft"})
            return str(response.json().get("per_engine_checksum") or "")
        except (ServerUnreachableError, ValueError):
            return ""

    def top_two_gap(self, prompt: str, tokens: Sequence[int], timeout_s: float) -> float | None:
        """Log-probability distance in nats between the two best tokens after ``prompt`` and ``tokens``.

        The server decodes greedily from the prompt; None where it does not come by ``tokens`` again, or has
        no log-probabilities.
        """
        try:
            answer = self.generate(
                prompt, len(tokens) + 1, timeout_s, return_logprob=True, top_logprobs_num=2
            )
        except GenerationError:
            return None
        best = answer["meta_info"].get("output_top_logprobs") or []
        if answer["output_ids"][: len(tokens)] != list(tokens) or len(best) <= len(tokens):
            return None
        two = best[len(tokens)]
        return float(two[0][0] - two[1][0]) if len(two) == 2 else None

    def generate(self, prompt: str, max_new_tokens: int, timeout_s: float, **fields: Any) -> dict[str, Any]:
        """One greedy request without streaming: the reply with ``output_ids`` and ``meta_info``.

        Raises:
            GenerationError: the server refused, aborted or garbled it.
            ServerUnreachableError: it did not answer.
        """
        sampling = {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True}
        response = self._call(
            "POST", "generate", timeout_s, json={"text": prompt, "sampling_params": sampling, **fields}
        )
        try:
            answer = response.json()
        except ValueError:
            answer = {}
        if response.status_code != 200 or "meta_info" not in answer or "error" in answer:
            raise GenerationError(f"HTTP {response.status_code}: {response.text[:300]}")
        reason = answer["meta_info"].get("finish_reason")
        if isinstance(reason, dict) and reason.get("type") == "abort":
            raise GenerationError(f"aborted: {reason.get('message')}")
        return dict(answer)
