"""Which sweeper this is: a driver, its actors and its nodes must all run the same source."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from sweeper import __version__

PACKAGES = ("sweeper", "actors", "reports")


def package_directories() -> list[Path]:
    """Where the three packages lie that a job needs."""
    found = []
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"package {name} is not installed beside sweeper")
        found.append(Path(spec.submodule_search_locations[0]))
    return found


@cache
def code_identity() -> str:
    """``0.1.0+3f2a91c04b1d``: the release and a digest of its source, which differs between two checkouts."""
    digest = hashlib.sha256()
    for directory in package_directories():
        for path in sorted(directory.rglob("*.py")):
            digest.update(f"{directory.name}/{path.relative_to(directory)}\0".encode())
            digest.update(path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:12]}"
