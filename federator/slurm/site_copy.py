"""Copies a data set to this site, as its owner, in steps that survive everybody's death; a part of
the helper.

``site_installer.helper`` writes it into ``site_exec``, as a site has one file. So it is
stand-alone, too: standard library only, Python 3.6 or later, and no name that ``site_exec`` has.

Each call takes one step: it starts a worker if none is at work, and tells how far that has come.
The worker is a process of its own, which holds a lock as long as it or its rsync lives. What is
copied lies in a hidden folder beside the place where it belongs, and is put there whole, by one
rename, once its digest has proved right. So a worker that is killed is followed by another one,
which goes on with what is there.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
from typing import Any

from federator.slurm.site_fetch import fetch
from federator.slurm.site_rclone import OBJECTS
from federator.slurm.site_streams import LISTS
from federator.slurm.site_worker import (
    CopyFailed,
    begin_worker,
    digest_of_tree,
    note_news,
    read_news,
)

LEFT_FOR_S = 14 * 86400.0  # a hidden folder that nobody asked about for so long is nobody's
STEP_INTO = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
HIDDEN = re.compile(r"\.fed-copy-[0-9a-f]{16}\Z")
OF_A_COPY = frozenset(("asked", "lock", "news", "news.new", "said", "in", *LISTS))
HOST = re.compile(
    r"((?:[a-z_][a-z0-9_.-]{0,31}@)?(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:]+\]))?\Z"
)
PORT = re.compile(r"[0-9]{0,5}\Z")
NO_STEP = '{"error": "the storage domain does not answer", "exit_status": 124}'
COPY_WORDS = ("host", "port", "source", "root", "path", "digest")
COPY_NUMBERS = ("size_bytes", "keep_free_bytes", "kib_per_s")
PROOFS: "dict[str, Any]" = {}  # by what a digest begins with: returns that of a path, and its bytes
READY: "dict[str, Any]" = {}  # the same: is called with what was proved, before it is published


def order_mistake(order: "Any") -> str:
    """The reason why an order cannot be; "" when it can."""
    kinds = {**dict.fromkeys(COPY_WORDS, str), **dict.fromkeys(COPY_NUMBERS, int)}
    kinds.update(replace=bool, drop=bool)
    if "streams" in order:
        kinds["streams"] = int
    if set(order) != set(kinds):
        return "the order has other fields"
    for name, kind in kinds.items():
        if type(order[name]) is not kind or (kind is str and "\0" in order[name]):
            return name + " is not what it must be"
    if not HOST.match(order["host"]) or not PORT.match(order["port"]):
        return "host or port is malformed"
    is_stored = OBJECTS.match(order["source"]) and not order["host"]
    if not (is_stored or os.path.isabs(order["source"])) or not os.path.isabs(order["root"]):
        return "source and root must be absolute"
    numbers = [order[name] for name, kind in kinds.items() if kind is int]
    return "" if all(number >= 0 for number in numbers) else "a number is negative"


def step_in_words(request: "dict[str, Any]", user: "dict[str, str]") -> str:
    """Take a step, and put where the copy stands into JSON, or why the order is refused."""
    order: Any = request.get("order")
    sound = isinstance(order, dict) and set(request) == {"op", "order"}
    wrong = order_mistake(order) if sound else "expected exactly: op, order"
    if wrong:
        return json.dumps({"error": wrong, "exit_status": 64})
    os.environ["HOME"] = user["HOME"]
    try:
        return json.dumps(copy_step(order))
    except CopyFailed as failed:
        return json.dumps({"phase": "failed", "bytes": 0, "detail": str(failed)})
    except OSError as error:
        words = "{}: {}".format(error.strerror, error.filename or order["path"])
        return json.dumps({"phase": "failed", "bytes": 0, "detail": words})


def copy_step(order: "dict[str, Any]") -> "dict[str, Any]":
    """Have the copy go on, or drop it; tell where it stands.

    Args:
        order: ``host`` "": the source is on this host; ``replace``: what is at the path is known to
            be damaged, and gives way; ``drop``: what is half copied goes.
    """
    here = copy_folder(order)
    if here is None:
        return {"phase": "dropped", "bytes": 0, "detail": ""}
    os.fchdir(here)
    lock = ask_and_lock()
    news = read_news()
    if lock is None:
        if order["drop"]:
            os.unlink("asked")  # the worker ends, and a later step finds the lock free
        if news["phase"] in ("done", "failed"):  # it is about to end: the next step has the lock
            news["phase"] = "checking"
        return news
    if news["phase"] == "done" and not is_there(order):
        news = {"phase": "failed", "bytes": 0, "detail": "nothing is at its place"}
    if order["drop"] or news["phase"] == "done":
        shutil.rmtree("../" + copy_name(order), ignore_errors=True)
        return news if news["phase"] == "done" else {"phase": "dropped", "bytes": 0, "detail": ""}
    with contextlib.suppress(FileNotFoundError):
        os.unlink("news")
    if news["phase"] == "failed":  # said once; the next step begins again
        return news
    note_news("copying")
    begin_worker(lambda: note_news("done", make_copy(order, lock)), lock)
    return read_news()


def ask_and_lock() -> "int | None":
    """Note in the hidden folder that somebody asks, and take its lock; None: a worker has it."""
    with open("asked", "wb"):
        pass
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return None
    return lock


def is_there(order: "dict[str, Any]") -> bool:
    """Whether a file or folder is at the place of the copy, beside the hidden folder."""
    place = os.path.join(b"..", order["path"].encode("utf-8", "surrogateescape").split(b"/")[-1])
    with contextlib.suppress(OSError):
        return stat.S_IFMT(os.lstat(place).st_mode) in (stat.S_IFREG, stat.S_IFDIR)
    return False


def copy_name(order: "dict[str, Any]") -> str:
    """The hidden folder; of another content another one."""
    words = "\0".join((os.uname().nodename, order["path"], order["digest"]))
    return ".fed-copy-" + hashlib.sha256(words.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def copy_folder(order: "dict[str, Any]") -> "int | None":
    """Open the hidden folder, made where it is not there; None: it is to be dropped, and is not.

    Below the root no link is followed: whoever may write there could else lead the copy anywhere.
    """
    parts = parts_of(order)
    at = step_into(open_root(order), [*parts[:-1], copy_name(order).encode()], not order["drop"])
    if at is not None and os.fstat(at).st_uid != os.getuid():
        raise CopyFailed("the folder of its copy is another user's")
    return at


def parts_of(order: "dict[str, Any]") -> "list[bytes]":
    parts: list[bytes] = order["path"].encode("utf-8", "surrogateescape").split(b"/")
    if any(part in (b"", b".", b"..") for part in parts):
        raise CopyFailed("its path has an empty part, . or ..")
    return parts


def open_root(order: "dict[str, Any]") -> int:
    try:
        return os.open(order["root"], os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise CopyFailed("its storage domain is not mounted on this host") from error


def step_into(at: int, parts: "list[bytes]", make: bool) -> "int | None":
    """Open a folder below another, which is closed; None: it is not there, nor to be made."""
    for part in parts:
        try:
            below = os.open(part, STEP_INTO, dir_fd=at)
        except FileNotFoundError:
            if not make:
                os.close(at)
                return None
            os.mkdir(part, 0o700, dir_fd=at)  # the source's parents may hide it, too
            below = os.open(part, STEP_INTO, dir_fd=at)
        os.close(at)
        at = below
    return at


def make_copy(order: "dict[str, Any]", lock: int) -> int:
    """Copy, prove, publish; return its bytes."""
    place = os.path.join(b"..", order["path"].encode("utf-8", "surrogateescape").split(b"/")[-1])
    aside = copy_name(order).replace(".fed-copy-", "../.fed-old-").encode()
    if os.path.lexists(place):  # an earlier worker may have put it there
        note_news("checking", 0)
        digest, size = proof_of(order, place)
        if digest == order["digest"]:
            remove_tree(aside)
            return size
        if not order["replace"]:
            raise CopyFailed("something else is at its place: " + order["path"])
    sweep(copy_name(order))
    fetch(order, lock)
    fresh = os.path.join(b"in", order["source"].encode("utf-8", "surrogateescape").split(b"/")[-1])
    note_news("checking", order["size_bytes"])
    digest, size = proof_of(order, fresh)
    if digest != order["digest"]:
        shutil.rmtree("in")
        raise CopyFailed("what came has another digest, " + digest)
    READY.get(kind_of(order), len)(fresh)
    os.sync()
    if not os.path.exists("asked"):
        raise CopyFailed("it is not wanted any more")
    if order["replace"] and os.path.lexists(place):
        remove_tree(aside)
        os.rename(place, aside)
    if os.path.isdir(fresh):
        os.rename(fresh, place)  # over no folder but an empty one
    else:
        os.link(fresh, place)  # over nothing
    remove_tree(aside)  # only now: what was replaced is kept until the new one is there
    return size


def remove_tree(path: bytes) -> None:
    """Remove a file or folder, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.unlink(path)


def sweep(own: str) -> None:
    """Remove the user's hidden folders beside this one that were left long ago."""
    here = os.open(".", STEP_INTO)
    now_s = os.stat("asked").st_mtime if os.path.exists("asked") else 0.0  # by the disk's clock
    for name in os.listdir(".."):
        if name == own or not HIDDEN.match(name):
            continue
        with contextlib.suppress(OSError):
            left = os.open("../" + name, STEP_INTO)
            try:
                os.fchdir(left)
                if is_left(now_s):
                    empty_folder()
            finally:
                os.fchdir(here)
                os.close(left)
            os.rmdir("../" + name)  # which an emptied folder alone allows
    os.close(here)


def is_left(now_s: float) -> bool:
    """Whether the working directory is a copy's, the user's own, and old; no other is touched.

    Somebody who may write beside it could have renamed anything to such a name.
    """
    names, own = os.listdir("."), os.stat(".")
    if own.st_uid != os.getuid() or "lock" not in names or not OF_A_COPY.issuperset(names):
        return False
    times_s = [own.st_mtime, *(os.lstat(name).st_mtime for name in names if name != "in")]
    return max(times_s) < now_s - LEFT_FOR_S


def empty_folder() -> None:
    """Remove all that a copy has left in the working directory, unless a worker holds it."""
    lock = os.open("lock", os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.isdir("in"):
            shutil.rmtree("in")
        for name in os.listdir("."):
            os.unlink(name)
    finally:
        os.close(lock)


def kind_of(order: "dict[str, Any]") -> str:
    return str(order["digest"]).partition(":")[0]


def proof_of(order: "dict[str, Any]", path: bytes) -> "tuple[str, int]":
    """The digest of what is at a path, of the kind that is ordered, and its bytes."""
    proof: tuple[str, int] = PROOFS.get(kind_of(order), digest_of_tree)(path)
    return proof
