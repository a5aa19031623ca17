"""Locks out a second run of a hook, by a lock that only root can open.

Whoever can open a file can lock it, for reading too, and keep every hook waiting.
"""

import contextlib
import fcntl
import os
import time
from typing import Iterator

_MODE = 0o600
_POLL_S = 0.01


@contextlib.contextmanager
def locked(file: str, wait_s: float = 0.0) -> "Iterator[None]":
    """Hold the lock ``file``; who dies meanwhile lets go.

    Raises:
        OSError: it cannot be made, or another has held it for ``wait_s``.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(file, flags, _MODE)
    try:
        os.fchmod(descriptor, _MODE)  # one of an earlier release was open to all
        deadline = time.monotonic() + wait_s
        while not _taken(descriptor):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{file} has been held by another for {wait_s:g} s")
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
