"""Where the test bed lives and how a server is started on it.  Imports neither torch nor SGLang."""

import os
import sys
from pathlib import Path

from sweeper.testbed.recipe import RECIPE_VERSION
from sweeper.user_cache import user_cache

STANDIN = Path(__file__).parent / "standin"
REQUIREMENTS = Path(__file__).parent / "requirements.txt"

_MAX_TOTAL_TOKENS = 8192
_KEEP_MEMORY = str(1 << 30)  # bytes


def cache_dir() -> Path:
    """The directory of the built models; it need not exist yet.

    ``$SWEEPER_TESTBED`` if set, else a directory of the user's cache.  Its name holds the Python version,
    because the models are trained on that version's standard library.
    """
    chosen = os.environ.get("SWEEPER_TESTBED")
    if chosen:
        return Path(chosen)
    python = f"py{sys.version_info.major}.{sys.version_info.minor}"
    return user_cache("testbed") / f"{RECIPE_VERSION}-{python}"


def server_environment() -> dict[str, str]:
    """Variables to add to the environment of an SGLang server on a CPU.

    ``PYTHONPATH`` extends this process's own; the stand-ins come first, so that they win over an
    installed triton or sgl_kernel, which would look for a GPU.
    """
    inherited = os.environ.get("PYTHONPATH")
    return {
        "PYTHONPATH": os.pathsep.join([str(STANDIN), *([inherited] if inherited else [])]),
        # Otherwise SGLang asks for a GPU at import, even with --device cpu.
        "SGLANG_USE_CPU_ENGINE": "1",
        # The products are too small for threads: two cores that wait for each other give 3 tok/s.
        "OMP_NUM_THREADS": "1",
        # There may be no C++ compiler, and compiling would take minutes of the start.
        "TORCH_COMPILE_DISABLE": "1",
        # Everything is on disk; no look-up may delay or fail a start.
        "HF_HUB_OFFLINE": "1",
        # glibc returns blocks over 128 KiB to the kernel at once.  At 16 requests every attention call
        # would take fresh pages again, which costs several times the arithmetic.
        "MALLOC_MMAP_THRESHOLD_": _KEEP_MEMORY,
        "MALLOC_TRIM_THRESHOLD_": _KEEP_MEMORY,
    }


def server_arguments() -> dict[str, str | int | float | bool]:
    """Arguments to add to ``python -m sglang.launch_server``, as flag name without dashes -> value."""
    return {
        "device": "cpu",
        # The pair, not --attention-backend: that falls back to a backend without speculation.
        "prefill-attention-backend": "intel_amx",
        "decode-attention-backend": "intel_amx",
        # Room for 16 requests of a few hundred tokens and the widest drafts; the default takes most of
        # the machine's memory.
        "max-total-tokens": _MAX_TOTAL_TOKENS,
        # What SGLang picks here by itself, so that nothing has to be asked for before a launch.
        "page-size": 1,
        "chunked-prefill-size": 4096,
        "mem-fraction-static": 0.7,
        # Without bfloat16 units float32 is faster, and greedy outputs have fewer near ties.
        "dtype": "float32",
    }
