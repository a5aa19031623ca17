"""Digests of data sets on disk: one for a whole tree, whatever owns it and however it is mounted.

``sha256tree`` is the SHA-256 of one line for each regular file, in the byte order of paths: the
file's SHA-256 in hexadecimal, a blank, its size, a blank, its path from the data set's own (of a
data set that is one file: nothing), and a NUL. Empty folders, times and permissions do not count.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from federator.cli.text import printable
from federator.errors import InvalidRequest

ALGORITHM: Final = "sha256tree"
_BLOCK: Final = 1 << 20
_AHEAD: Final = 4  # files for each thread that are opened before their turn
_LOOK: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class TreeDigest(NamedTuple):
    """What was read: a digest, and how much that was."""

    digest: str
    files: int
    size_bytes: int


class _File(NamedTuple):
    digest: str
    size: int
    path: bytes


def tree_digest(
    path: bytes, threads: int = 4, on_read: Callable[[int], None] = lambda _bytes: None
) -> TreeDigest:
    """The digest of a file, or of all that is below a folder.

    Args:
        path: of the file or folder; no link is followed from there on.
        threads: files that are read at the same time.
        on_read: hears how many bytes more were read, from any thread.

    Raises:
        InvalidRequest: something cannot be read, is neither file nor folder, or changes meanwhile.
    """
    whole = hashlib.sha256()
    files = size = 0
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[_File]] = deque()
        found = _files(path)
        try:
            while True:
                while len(waiting) < _AHEAD * threads and (name := next(found, None)) is not None:
                    waiting.append(pool.submit(_read, path, name, on_read))
                if not waiting:
                    break
                file = waiting.popleft().result()
                whole.update(b"%s %d %s\0" % (file.digest.encode(), file.size, file.path))
                files, size = files + 1, size + file.size
        except OSError as error:
            where = os.fsdecode(error.filename or path)
            raise InvalidRequest(printable(f"{where}: {error.strerror}")) from error
        finally:
            for future in waiting:
                future.cancel()
    return TreeDigest(f"{ALGORITHM}:{whole.hexdigest()}", files, size)


def _files(root: bytes, below: bytes = b"") -> Iterator[bytes]:
    """The paths of all files, from the root, in their byte order."""
    here = os.path.join(root, below) if below else root
    if not below and not stat.S_ISDIR(os.lstat(root).st_mode):
        yield b""
        return
    with os.scandir(here) as entries:
        kinds = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in sorted(kinds, key=lambda kind: kind[0] + b"/" * kind[1]):
        path = os.path.join(below, name)
        if is_folder:
            yield from _files(root, path)
        else:
            yield path


def _read(root: bytes, path: bytes, on_read: Callable[[int], None]) -> _File:
    name = os.path.join(root, path) if path else root
    before = os.lstat(name)
    if not stat.S_ISREG(before.st_mode):
        what = "a link" if stat.S_ISLNK(before.st_mode) else "neither a file nor a folder"
        raise InvalidRequest(f"{printable(os.fsdecode(name))} is {what}; a data set has none")
    digest, read = hashlib.sha256(), 0
    fd = os.open(name, _LOOK)
    try:
        opened = os.fstat(fd)
        while read <= opened.st_size and (part := os.read(fd, _BLOCK)):  # it may grow for ever
            digest.update(part)
            read += len(part)
            on_read(len(part))
        after = os.fstat(fd)
    finally:
        os.close(fd)
    if len({_state(before), _state(opened), _state(after)}) > 1 or read != after.st_size:
        raise InvalidRequest(f"{printable(os.fsdecode(name))} has changed while it was read")
    return _File(digest.hexdigest(), read, path)


def _state(state: os.stat_result) -> tuple[int, int, int]:
    return state.st_ino, state.st_size, state.st_mtime_ns
