"""Checks that a log's folder is on a file system that keeps SQLite's promises."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
_SHARED: Final = frozenset(
    {  # over a network: locks and syncs may mean less than they say
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "gfs2",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "ocfs2",
        "panfs",
        "smb3",
        "smbfs",
        "wekafs",
    }
)
_FORGETFUL: Final = frozenset({"ramfs", "tmpfs"})


def doubts_about(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """One line on a folder whose file system is no place for a log; None where nothing is known.

    Args:
        folder: it need not be there yet.
        mounts: as the kernel writes them (proc(5), mountinfo).
    """
    try:
        text = mounts.read_text(encoding="utf-8", errors="surrogateescape")
        kind = _kind_of(folder.resolve(), text)
    except OSError:
        return None
    if kind in _SHARED:
        return (
            f"store: {folder} is on {kind}: over a network neither locks nor syncs can be relied "
            "on; use a local disk, or redis:// for two hosts"
        )
    if kind in _FORGETFUL:
        return f"store: {folder} is on {kind}, which the next boot clears: use a disk"
    return None


def _kind_of(folder: Path, mounts: str) -> str:
    """The type of the last file system mounted at the innermost mount point above a folder."""
    found = (-1, "")
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        words = left.split(" ")
        if len(words) < 5 or not right:
            continue
        point = Path(words[4].encode("latin-1", "replace").decode("unicode_escape"))
        if folder.is_relative_to(point) and len(point.parts) >= found[0]:
            found = (len(point.parts), right.split(" ")[0])
    return found[1]
