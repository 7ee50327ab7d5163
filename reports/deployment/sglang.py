"""The YAML that ``python -m sglang.launch_server --config FILE`` takes."""

from __future__ import annotations

from reports.deployment.evidence import commented
from reports.deployment.server import MEETING_PORT, Deployment
from reports.deployment.variables import Reference, Variable
from reports.deployment.yaml_text import yaml_text
from sweeper.releases import release
from sweeper.server.setup import Flags


def sglang_yaml(server: Deployment, adaptive_at: str = "adaptive.json") -> str:
    """The flags under comments with the evidence for them."""
    notes = list(server.notes)
    if server.variables:
        named = ", ".join(f"{v.name}={_shown(v)}" for v in server.variables if not v.optional)
        if named:
            notes.append(f"The server was measured with this environment: {named}")
    if server.nodes > 1:
        notes.append(f"One server on {server.nodes} nodes: start it on each, with --node-rank 0 to")
        notes.append(
            f"{server.nodes - 1} and --dist-init-addr HOST:{MEETING_PORT} of rank 0's node on the command line."
        )
    if server.adaptive:
        notes.append(f"{adaptive_at} holds which chain runs at which batch size.")
    if server.device == "cpu":
        notes.append("On the CPU test bed start it under: env $(sweeper testbed env)")
    flags = readable(server.flags_with(adaptive_at), server.version)
    return commented(notes) + yaml_text(flags)


def readable(flags: Flags, version: str) -> Flags:
    """The flags under names that a config file may hold: SGLang refuses those there which it has deprecated."""
    found = dict(flags)
    if found.get("disable-cuda-graph") is True and release(version) >= (0, 5, 14):
        del found["disable-cuda-graph"]
        found |= {"disable-decode-cuda-graph": True, "disable-prefill-cuda-graph": True}
    if found.get("enable-dp-attention") is True and release(version) >= (0, 5, 23):
        del found["enable-dp-attention"]
        name = next((n for n in ("dp-size", "data-parallel-size") if n in found), None)
        if name:
            found["attn-dp-size"] = found.pop(name)
    return found


def _shown(variable: Variable) -> str:
    return "".join(f"${{{part.name}}}" if isinstance(part, Reference) else part for part in variable.parts)
