"""GPU memory that a server may leave behind when it is gone.

Processes and ports are looked at by ``sweeper.server.process``, files by the server's guardian.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable, Mapping
from typing import Any

GPU_TOLERANCE_BYTES = 512 * 2**20
"""Memory by which a GPU may differ before and after a server: driver contexts of others come and go."""


def gpu_memory_used(devices: Iterable[str]) -> dict[str, int]:
    """Used bytes by GPU, named by index or UUID as in ``CUDA_VISIBLE_DEVICES``; from NVML.

    Empty where there is no GPU, no driver, or no ``nvidia-ml-py``.
    """
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # NVML's errors are its own, and there may be no module to name them
        return {}
    try:
        used = {}
        for device in devices:
            handle = (
                nvml.nvmlDeviceGetHandleByIndex(int(device))
                if device.isdigit()
                else nvml.nvmlDeviceGetHandleByUUID(device)
            )
            used[device] = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
        return used
    except nvml.NVMLError:
        return {}
    finally:
        nvml.nvmlShutdown()


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
    """The GPUs a process with this environment may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    named = [item.strip() for item in environment.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return [item for item in named if item.isdigit() or item.startswith(("GPU-", "MIG-"))]


def wait_for_gpu_memory(before: Mapping[str, int], timeout_s: float) -> dict[str, int]:
    """Wait until every GPU uses no more than before; returns the bytes still held by GPU, {} when all is back."""
    deadline = time.monotonic() + timeout_s
    while True:
        now = gpu_memory_used(before)
        held = {gpu: used - before[gpu] for gpu, used in now.items()}
        held = {gpu: size for gpu, size in held.items() if size > GPU_TOLERANCE_BYTES}
        if not held or time.monotonic() > deadline:
            return held
        time.sleep(0.5)
