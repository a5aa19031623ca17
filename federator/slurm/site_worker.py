"""A worker that copies, seals or removes files, and the news of it; part of the helper.

``site_installer.helper`` writes it into ``site_exec``, as a site has one file. So it is
stand-alone, too: standard library only, Python 3.6 or later.

A worker is a process of its own. What it does it notes in the hidden folder where it works, which
is the working directory here.
"""

import contextlib
import hashlib
import json
import os
import signal
import stat
from collections.abc import Callable
from typing import Any

MOST_FDS = 256  # that the helper may have open


class CopyFailed(Exception):
    """The copy cannot be made now; the words are for people."""


def read_news() -> "dict[str, Any]":
    broken = (OSError, ValueError, RecursionError)  # the owner may have written anything there
    with contextlib.suppress(*broken), open("news", encoding="utf-8") as file:
        news = json.load(file)
        sound = type(news) is dict and set(news) == {"phase", "bytes", "detail"}
        if sound and [type(news[of]) for of in ("phase", "bytes", "detail")] == [str, int, str]:
            return {**news, "bytes": min(max(0, news["bytes"]), (1 << 63) - 1)}
    return {"phase": "none", "bytes": 0, "detail": ""}


def note_news(phase: str, copied: int = 0, detail: str = "") -> None:
    """Write for those who ask, in one step."""
    with open("news.new", "w", encoding="utf-8") as file:
        json.dump({"phase": phase, "bytes": copied, "detail": detail[:300]}, file)
    os.rename("news.new", "news")


def note_failure(words: str) -> None:
    """Write why the copy failed, even where the disk is full: what was written before gives way."""
    try:
        note_news("failed", 0, words)
    except OSError:
        for name in ("news.new", "news", "said"):
            with contextlib.suppress(OSError):
                os.unlink(name)
        note_news("failed", 0, words)


def begin_worker(act: "Callable[[], None]", lock: int) -> None:
    """Start a worker that has the lock."""
    os.set_inheritable(lock, True)
    if os.fork() == 0:
        work_apart(act, lock)


def work_apart(act: "Callable[[], None]", lock: int) -> None:
    """Be the worker: a session of its own, with the lock and nothing else of the helper's.

    ``act`` notes what it did; what it fails with is noted here.
    """
    try:
        os.setsid()
        os.nice(10)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nowhere, fd)
        os.closerange(3, lock)
        os.closerange(lock + 1, MOST_FDS)
        signal.alarm(0)
        try:
            act()
        except CopyFailed as failed:
            note_failure(str(failed))
        except OSError as error:
            note_failure("{}: {}".format(error.strerror, error.filename or "a file"))
        except Exception as error:  # a worker without a word would be started for ever
            note_failure(repr(error))
    finally:
        os._exit(0)


def digest_of_tree(path: bytes) -> "tuple[str, int]":
    """The ``sha256tree`` of a file or folder, and its bytes; see docs/data.md."""
    whole, size = hashlib.sha256(), 0
    for below in files_of_tree(path):
        name = os.path.join(path, below) if below else path
        one, read = hashlib.sha256(), 0
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe would block
        with open(fd, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise CopyFailed("it holds what is neither a file nor a folder")
            part = file.read(1 << 20)
            while part:
                one.update(part)
                read += len(part)
                part = file.read(1 << 20)
        whole.update(b"%s %d %s\0" % (one.hexdigest().encode(), read, below))
        size += read
    return "sha256tree:" + whole.hexdigest(), size


def files_of_tree(root: bytes, below: bytes = b"") -> "list[bytes]":
    """The paths of all files, in their byte order; b"" where the root is a file itself."""
    if not below and not stat.S_ISDIR(os.lstat(root).st_mode):
        return [b""]
    found = []
    with os.scandir(os.path.join(root, below) if below else root) as entries:
        kinds = [(each.name, each.is_dir(follow_symlinks=False)) for each in entries]
    for name, is_folder in sorted(kinds, key=lambda kind: kind[0] + b"/" * kind[1]):
        path = os.path.join(below, name)
        found += files_of_tree(root, path) if is_folder else [path]
    return found
