"""A shell script that starts the server."""

from __future__ import annotations

import shlex

from reports.deployment.evidence import commented
from reports.deployment.server import MEETING_PORT, PORT, Deployment
from reports.deployment.variables import Reference, Variable

ADAPTIVE_VARIABLE = "ADAPTIVE_CONFIG"


def shell_script(server: Deployment) -> str:
    """POSIX sh; every value is quoted, and what only the machine knows is a variable that must be set."""
    notes = list(server.notes)
    if server.device == "cpu":
        notes.append("On the CPU test bed: env $(sweeper testbed env) sh FILE")
    lines = ["#!/bin/sh", commented(notes).rstrip("\n"), "set -eu"]
    lines += [export for v in server.variables if (export := _export(v))]
    command = ['exec "${PYTHON:-python3}" -m sglang.launch_server']
    if server.adaptive:
        lines += [
            f'{ADAPTIVE_VARIABLE}="${{TMPDIR:-/tmp}}/{server.name}-adaptive.json"',
            f'printf %s {shlex.quote(server.adaptive)} > "${ADAPTIVE_VARIABLE}"',
        ]
    command += _flags(server)
    command += [f'--host "${{HOST:-127.0.0.1}}" --port "${{PORT:-{PORT}}}"']
    if server.nodes > 1:
        lines.append(f"# One server on {server.nodes} nodes: start this on each of them.")
        command += [
            f'--node-rank "${{NODE_RANK:?0 to {server.nodes - 1}, another one on each node}}"',
            f'--dist-init-addr "${{LEADER:?host of node rank 0}}:{MEETING_PORT}"',
        ]
    command.append('"$@"')
    return "\n".join(lines) + "\n" + " \\\n  ".join(command) + "\n"


def _flags(server: Deployment) -> list[str]:
    """One flag and its values per line, quoted."""
    mark = "\0adaptive\0"
    found: list[str] = []
    for word in server.arguments(mark):
        text = f'"${ADAPTIVE_VARIABLE}"' if word == mark else shlex.quote(word)
        if word.startswith("--"):
            found.append(text)
        else:
            found[-1] += f" {text}"
    return found


def _export(variable: Variable) -> str:
    """``export NAME='a'"${B:?}"``; an optional one is inherited as it is."""
    if variable.optional:
        return ""
    value = "".join(
        f'"${{{part.name}:?must be set}}"' if isinstance(part, Reference) else shlex.quote(part)
        for part in variable.parts
    )
    return f"export {variable.name}={value}"
