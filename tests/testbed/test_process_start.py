"""On the test bed SGLang's processes are copies of its launcher, and still take their names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sweeper.testbed.environment import server_environment

LAUNCHER = """
import multiprocessing, os

for i in range(20):
    os.environ[f"SGLANG_SET_{i}"] = "x" * 50
multiprocessing.set_start_method("spawn", force=True)
imported = os.getpid()


def scheduler(parent):
    import setproctitle

    setproctitle.setproctitle("sglang::scheduler")
    with open("/proc/self/cmdline") as title:
        print(title.read().strip("\\0"), imported == parent)


if __name__ == "__main__":
    process = multiprocessing.Process(target=scheduler, args=(os.getpid(),))
    process.start()
    process.join()
"""


def test_what_sglang_spawns_is_forked_and_takes_its_title(tmp_path: Path) -> None:
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    done = subprocess.run(
        [sys.executable, "-m", "launcher"],
        cwd=tmp_path,
        env={**os.environ, **server_environment()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["sglang::scheduler", "True"]
