"""What the processors are that one server runs on."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from pathlib import Path

from sweeper.records import Hardware


def visible_hardware(device: str) -> Hardware:
    """The GPUs that this process may use (``CUDA_VISIBLE_DEVICES``), or the CPU.

    Raises:
        OSError: ``device`` is cuda and nvidia-smi cannot be run or lists no visible GPU.
    """
    return _gpus() if device == "cuda" else _cpu()


def _gpus() -> Hardware:
    query = "--query-gpu=index,uuid,name,memory.total,driver_version"
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        raise OSError(f"nvidia-smi failed: {error}") from None
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        wanted = [item.strip() for item in visible.split(",") if item.strip()]
        if any(item.startswith("MIG-") for item in wanted):
            _, _, name, _, driver = rows[0]
            return Hardware(f"{name} MIG", len(wanted), 0.0, driver, socket.gethostname())
        rows = [
            row
            for row in rows
            if row[0] in wanted or any(row[1].startswith(w) for w in wanted if w[:4] == "GPU-")
        ]
    if not rows:
        raise OSError(f"no visible GPU (CUDA_VISIBLE_DEVICES={visible!r})")
    _, _, name, memory, driver = rows[0]
    return Hardware(name, len(rows), round(float(memory) / 1024, 1), driver, socket.gethostname())


def _cpu() -> Hardware:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return Hardware(f"CPU {model or platform.machine()}", os.cpu_count() or 1, host=socket.gethostname())
