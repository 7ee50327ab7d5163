"""Starts SGLang's processes as copies of its launcher; Python runs this file before anything else.

SGLang *spawns* its scheduler and detokenizer, since a CUDA context cannot be copied. Here there is none, and each of
them would import torch, transformers and SGLang again: some 18 s of a core, most of a server's start on two.

The launcher imports with the garbage collector off, which would spend a fifth of that time on objects that all stay.
"""

import gc
import importlib.util
import multiprocessing
import sys

_set_start_method = multiprocessing.set_start_method


def _fork_instead_of_spawn(method: str | None, force: bool = False) -> None:
    _set_start_method("fork" if method == "spawn" else method, force)
    gc.freeze()
    gc.enable()


if sys.orig_argv[1:3] == ["-m", "sglang.launch_server"]:
    gc.disable()
multiprocessing.set_start_method = _fork_instead_of_spawn

if sys.orig_argv[1:2] == ["-m"] and importlib.util.find_spec("setproctitle"):
    import setproctitle

    # It finds the place of a title only as long as nothing was added to the environment, and SGLang adds much to it.
    # From here on the launcher's command line reads as one string.
    setproctitle.getproctitle()
