"""Which file systems SQLite must not be trusted to.

Over a network, locks may not reach other machines and a page may arrive late: databases get corrupted or stay locked
(SQLite's documentation, "How To Corrupt An SQLite Database File", 2.1; optuna#815, optuna#5138).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

NETWORK = frozenset(
    {
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "panfs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "wekafs",
    }
)
NETWORK_FUSE = frozenset(
    {
        "blobfuse",
        "blobfuse2",
        "ceph",
        "ceph-fuse",
        "davfs2",
        "gcsfuse",
        "geesefs",
        "glusterfs",
        "goofys",
        "juicefs",
        "moosefs",
        "mount-s3",
        "mountpoint-s3",
        "rclone",
        "s3fs",
        "seaweedfs",
        "sshfs",
    }
)


@dataclass(frozen=True)
class Mount:
    """Where a file system of which kind is mounted."""

    point: Path
    kind: str

    @property
    def over_network(self) -> bool:
        """Whether its files lie on another machine; ``fuse.sshfs`` and ``sshfs`` are the same."""
        return self.kind in NETWORK or self.kind.removeprefix("fuse.") in NETWORK_FUSE


def mounts() -> list[Mount]:
    """What is mounted on this machine, in the order in which it was."""
    return [Mount(Path(p.mountpoint), p.fstype) for p in psutil.disk_partitions(all=True)]


def mount_of(path: Path, mounted: Sequence[Mount]) -> Mount | None:
    """The mount that a path, existing or not, lies on: the deepest one, and of several there the last."""
    real = path.resolve()
    found = [mount for mount in mounted if real.is_relative_to(mount.point)]
    depth = max((len(mount.point.parts) for mount in found), default=0)
    return next((mount for mount in reversed(found) if len(mount.point.parts) == depth), None)
