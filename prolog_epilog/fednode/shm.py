"""What has a user left in /dev/shm that nobody uses any more, and how is it removed?

A file there says whose it is, not of which job: callers ask only when the user has no other job on
the machine. What some process has open, mapped or as its directory is left alone. Nothing is
followed: every step is relative to an open directory, so a link cannot lead out of /dev/shm.
"""

import os
import stat
import time
from typing import List, NamedTuple, Optional, Set, Tuple

FOLDER = "/dev/shm"  # noqa: S108  # where it is, not where we put something
PROC = "/proc"
_DEEPEST = 32
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Identity = Tuple[int, int]  # device and inode


class Swept(NamedTuple):
    """What came of it."""

    files: int = 0
    kib: int = 0  # that the removed files took
    in_use: int = 0  # left, because some process uses them
    trouble: str = ""


def sweep(uid: int, deadline: float, folder: str = FOLDER, proc: str = PROC) -> Swept:
    """Remove the files of ``uid`` below ``folder`` that no process uses.

    Args:
        deadline: monotonic; when it has come before all processes have been looked at, nothing
            is removed.

    Raises:
        OSError: ``folder`` cannot be read.
    """
    top = os.open(folder, _DIRECTORY)
    try:
        if not any(_owner(top, name) == uid for name in os.listdir(top)):
            return Swept()
        used = identities_in_use(folder, deadline, proc)
        if used is None:
            return Swept(trouble="looking for who uses files of /dev/shm took too long")
        counts = [0, 0, 0]
        _sweep(top, uid, used, counts, 0)
        return Swept(counts[0], counts[1], counts[2])
    finally:
        os.close(top)


def _owner(folder: int, name: str) -> "Optional[int]":
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid
    except OSError:
        return None


def _sweep(folder: int, uid: int, used: "Set[Identity]", counts: "List[int]", depth: int) -> None:
    """Count into ``counts`` what was removed, its KiB, and what is in use."""
    for name in os.listdir(folder):
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if status.st_uid != uid:
                continue
            if stat.S_ISDIR(status.st_mode) and depth < _DEEPEST:
                below = os.open(name, _DIRECTORY, dir_fd=folder)
                try:
                    _sweep(below, uid, used, counts, depth + 1)
                finally:
                    os.close(below)
            if (status.st_dev, status.st_ino) in used:
                counts[2] += 1
            elif stat.S_ISDIR(status.st_mode):
                os.rmdir(name, dir_fd=folder)  # says no where something is left in it
            else:
                os.unlink(name, dir_fd=folder)
                counts[0] += 1
                counts[1] += status.st_blocks // 2
        except OSError:
            continue  # it went meanwhile, or stays


def identities_in_use(folder: str, deadline: float, proc: str = PROC) -> "Optional[Set[Identity]]":
    """Return what any process has open in ``folder``, has mapped or is in; None: time was over.

    A container may see the folder at a longer path, so its name may be anywhere in a file's.
    """
    used = set()  # type: Set[Identity]
    for name in filter(str.isdigit, os.listdir(proc)):
        if time.monotonic() >= deadline:
            return None
        process = os.path.join(proc, name)
        used.update(_opened(process, folder + "/"))
        used.update(_mapped(process))
    return used


def _opened(process: str, within: str) -> "Set[Identity]":
    found = set()  # type: Set[Identity]
    try:
        links = [os.path.join(process, "fd", name) for name in os.listdir(process + "/fd")]
    except OSError:
        links = []  # it has ended
    for link in [*links, os.path.join(process, "cwd"), os.path.join(process, "root")]:
        try:
            if within not in os.readlink(link):
                continue  # to ask about a file of another file system could hang
            status = os.stat(link)
        except OSError:
            continue
        found.add((status.st_dev, status.st_ino))
    return found


def _mapped(process: str) -> "Set[Identity]":
    found = set()  # type: Set[Identity]
    try:
        with open(os.path.join(process, "maps"), "rb") as stream:
            for line in stream:
                fields = line.split(None, 5)
                if len(fields) > 4 and fields[4] != b"0":
                    major, minor = (int(part, 16) for part in fields[3].split(b":"))
                    found.add((os.makedev(major, minor), int(fields[4])))
    except (OSError, ValueError):
        pass  # it has ended
    return found
