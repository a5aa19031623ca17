"""Removes a user's files from /dev/shm that nobody uses any more.

A file there says whose it is, not of which job: callers ask only when the user has no other job on
the machine, and another may start meanwhile. So the files are listed first, those alone that have
not changed since the epilog began; then it is looked up who uses them; then asked once more whether
there is another job; and only what was listed goes. What some process has open, mapped or as its
directory is left alone. Nothing is followed: every step is relative to an open directory, so a link
cannot lead out of /dev/shm.
"""

import os
import stat
import time
from typing import Callable, Iterator, List, NamedTuple, Optional, Set, Tuple

FOLDER = "/dev/shm"  # noqa: S108  # where it is, not where we put something
PROC = "/proc"
_DEEPEST = 32
_TICK_S = 0.02  # files are stamped by a clock that is up to a tick of the kernel behind
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Identity = Tuple[int, int]  # device and inode


class Swept(NamedTuple):
    """What came of it."""

    files: int = 0
    kib: int = 0  # that the removed files took
    in_use: int = 0  # left, because some process uses them
    trouble: str = ""


def sweep(
    uid: int,
    began_s: float,
    deadline: float,
    alone: "Callable[[], bool]",
    folder: str = FOLDER,
    proc: str = PROC,
) -> "Optional[Swept]":
    """Remove the files of ``uid`` below ``write`` that no process uses.

    Args:
        began_s: Unix time; what has changed since is left, as it may be a new job's.
        deadline: monotonic; when it has come before all processes have been looked at, nothing
            is removed.
        alone: asked right before removing whether the user still has no other job here.

    Returns:
        What came of it; None if ``alone`` said no.

    Raises:
        OSError: ``write`` cannot be read.
    """
    top = os.open(folder, _DIRECTORY)
    try:
        listed = {_identity(status) for status in _old(top, uid, began_s, 0)}
        if not listed:
            return Swept()
        used = identities_in_use(folder, deadline, proc)
        if used is None:
            return Swept(trouble="looking for who uses files of /dev/shm took too long")
        if not alone():
            return None
        counts = [0, 0, 0]
        _remove(top, uid, (listed, used), counts, 0)
        return Swept(counts[0], counts[1], counts[2])
    finally:
        os.close(top)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _old(folder: int, uid: int, began_s: float, depth: int) -> "Iterator[os.stat_result]":
    """Yield what is the user's in an open folder and below, and as it was at ``began_s``."""
    for name in os.listdir(folder):
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if status.st_uid != uid:
                continue
            if status.st_ctime < began_s - _TICK_S:
                yield status
            if stat.S_ISDIR(status.st_mode) and depth < _DEEPEST:
                below = os.open(name, _DIRECTORY, dir_fd=folder)
                try:
                    yield from _old(below, uid, began_s, depth + 1)
                finally:
                    os.close(below)
        except OSError:
            continue  # it went meanwhile


def _remove(
    folder: int,
    uid: int,
    known: "Tuple[Set[Identity], Set[Identity]]",
    counts: "List[int]",
    depth: int,
) -> None:
    """Remove what was listed and is not used; count what went, its KiB, and what is in use."""
    listed, used = known
    for name in os.listdir(folder):
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if status.st_uid != uid:
                continue
            if stat.S_ISDIR(status.st_mode) and depth < _DEEPEST:
                below = os.open(name, _DIRECTORY, dir_fd=folder)
                try:
                    _remove(below, uid, known, counts, depth + 1)
                finally:
                    os.close(below)
            if _identity(status) not in listed:
                continue
            if _identity(status) in used:
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
    """Return what any process has open in ``write``, has mapped or is in; None: time was over.

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
