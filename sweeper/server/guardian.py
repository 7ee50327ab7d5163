"""Starts a server and outlives nobody: when the owner goes, however it goes, the server's group is killed.

Run as ``python guardian.py COMMAND...`` in a session of its own, with a pipe from the owner as standard
input. The owner never writes to it; end of file means that the owner is gone (even by ``kill -9``). The
guardian is the group's leader, so killing the group ends it too. It exits as the server exits.

Standard library only: it costs one small interpreter per server.
"""

import os
import select
import signal
import subprocess
import sys

POLL_S = 0.5


def main() -> int:
    """Wait for the server or for the owner's end, whichever comes first."""
    os.set_inheritable(0, False)
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    for forwarded in (signal.SIGTERM, signal.SIGINT):
        signal.signal(forwarded, signal.SIG_IGN)  # sent to the group: the server decides
    while server.poll() is None:
        readable, _, _ = select.select([0], [], [], POLL_S)
        if readable and not os.read(0, 1):
            os.killpg(0, signal.SIGKILL)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


if __name__ == "__main__":
    sys.exit(main())
