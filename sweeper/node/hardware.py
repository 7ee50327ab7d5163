"""What the processors are that one server runs on."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sweeper.records import Hardware

COLUMNS = ("index", "uuid", "name", "memory.total", "driver_version", "pci.bus_id")
"""What nvidia-smi is asked for; a row has them in this order."""


def visible_hardware(device: str) -> Hardware:
    """The GPUs that this process may use (``CUDA_VISIBLE_DEVICES``), or the CPU.

    Raises:
        OSError: ``device`` is cuda and nvidia-smi cannot be run or lists no visible GPU.
    """
    return _gpus() if device == "cuda" else _cpu()


def visible_gpu_ids(device: str) -> tuple[str, ...]:
    """UUIDs of the GPUs (or MIG slices) that this process may use; none on a CPU.

    Raises:
        OSError: as ``visible_hardware``.
    """
    if device != "cuda":
        return ()
    slices = _mig_slices()
    return tuple(slices) if slices else tuple(row[1] for row in _visible_rows())


def visible_pci_addresses(device: str) -> tuple[str, ...]:
    """Where the visible GPUs are plugged in; none on a CPU, nor for MIG slices.

    Raises:
        OSError: as ``visible_hardware``.
    """
    return () if device != "cuda" or _mig_slices() else tuple(row[5] for row in _visible_rows())


def together(parts: Sequence[Hardware]) -> Hardware:
    """The hardware of a server that spans several nodes, from what each of them has."""
    if len(parts) == 1:
        return parts[0]
    devices = " and ".join(sorted({part.device for part in parts}))
    drivers = " and ".join(sorted({part.driver for part in parts}))
    return Hardware(
        devices,
        sum(part.count for part in parts),
        min(part.memory_gib for part in parts),
        drivers,
        parts[0].host,
        len(parts),
    )


def _gpus() -> Hardware:
    slices = _mig_slices()
    if slices:
        _, _, name, _, driver, _ = _rows()[0]
        return Hardware(f"{name} MIG", len(slices), 0.0, driver, socket.gethostname())
    rows = _visible_rows()
    _, _, name, memory, driver, _ = rows[0]
    return Hardware(name, len(rows), round(float(memory) / 1024, 1), driver, socket.gethostname())


def _rows() -> list[list[str]]:
    """One row per GPU of the machine."""
    command = ["nvidia-smi", f"--query-gpu={','.join(COLUMNS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except subprocess.CalledProcessError as error:
        said = (error.stdout or error.stderr or "").strip().splitlines()
        raise OSError(f"nvidia-smi failed: exit code {error.returncode}: {' '.join(said[-1:])}") from None
    except (subprocess.SubprocessError, OSError) as error:
        raise OSError(f"nvidia-smi failed: {error}") from None
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    if not rows:
        raise OSError("nvidia-smi lists no GPU")
    return rows


def _visible_rows() -> list[list[str]]:
    rows, wanted = _rows(), _wanted()
    if wanted is not None:
        rows = [
            row
            for row in rows
            if row[0] in wanted or any(row[1].startswith(w) for w in wanted if w[:4] == "GPU-")
        ]
    if not rows:
        raise OSError(f"no visible GPU (CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']!r})")
    return rows


def _mig_slices() -> list[str]:
    wanted = _wanted() or []
    return wanted if any(item.startswith("MIG-") for item in wanted) else []


def _wanted() -> list[str] | None:
    """What ``CUDA_VISIBLE_DEVICES`` names; None where it is unset, so that all are visible."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if visible is None else [item.strip() for item in visible.split(",") if item.strip()]


def _cpu() -> Hardware:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return Hardware(f"CPU {model or platform.machine()}", os.cpu_count() or 1, host=socket.gethostname())
