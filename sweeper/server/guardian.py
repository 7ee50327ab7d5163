"""Starts a server and lets nothing outlive its owner, however the owner goes.

Run as ``python guardian.py COMMAND...`` in a session of its own, with a pipe from the owner as standard
input, to which the owner never writes. Two small processes share the work:

=========  ==========================================  ===============================================
process    lives until                                 then
=========  ==========================================  ===============================================
runner     the server exits                            exits with the server's code
watcher    end of file on the pipe (the owner is       kills the whole process group, itself included
           gone, even by SIGKILL), or the runner ends
=========  ==========================================  ===============================================

One would not do: Ray kills an ending worker's direct children, and would kill a lone guardian before it
could act. The watcher is the owner's grandchild and so survives the runner.

Standard library only.
"""

import os
import select
import signal
import subprocess
import sys

POLL_S = 0.2


def watch(runner: int) -> None:
    """Wait for the end of the owner or of the runner; never returns."""
    while True:
        readable, _, _ = select.select([0], [], [], POLL_S)
        if os.getppid() != runner or (readable and not os.read(0, 1)):
            os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Run the server to its end and return its exit code, 128 + n where signal n ended it."""
    runner = os.getpid()
    if os.fork() == 0:
        for sent_to_the_group in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sent_to_the_group, signal.SIG_IGN)
        watch(runner)
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    for sent_to_the_group in (signal.SIGTERM, signal.SIGINT):  # after the server, which must not inherit this
        signal.signal(sent_to_the_group, signal.SIG_IGN)
    code = server.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
