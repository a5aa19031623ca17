"""Removes a data set's files from this site, as its owner, in steps; a part of the helper.

``site_installer.helper`` writes it into ``site_exec``, as a site has one file. So it is
stand-alone, too: standard library and other parts only, Python 3.6 or later.

What is at the place must have the digest that it is said to have: anything else stays. Then, if it
is still asked for, it is renamed to a hidden name beside its place, and removed there: so nobody
takes for whole what is removed in part. A worker does that, as it does copies, and one that is
killed is followed by another.
"""

import hashlib
import json
import os
import shutil
from typing import Any

from federator.slurm.site_copy import (
    ask_and_lock,
    copy_name,
    open_root,
    parts_of,
    proof_of,
    remove_tree,
    step_into,
)
from federator.slurm.site_files import BARE, holds_something
from federator.slurm.site_worker import CopyFailed, begin_worker, note_news, read_news

REMOVAL_WORDS = ("root", "path", "digest")
UNASKED_S = 15.0  # for which nobody asked: it may not be wanted any more


def removal_mistake(order: "Any") -> str:
    """The reason why an order cannot be; "" when it can."""
    if type(order) is not dict or set(order) != set(REMOVAL_WORDS):
        return "the order has other fields"
    if any(type(order[name]) is not str or "\0" in order[name] for name in REMOVAL_WORDS):
        return "the order has other types"
    return "" if os.path.isabs(order["root"]) else "root must be absolute"


def removal_in_words(order: "dict[str, Any]") -> str:
    """Take a step, and put where the removal stands into JSON, or why the order is refused."""
    wrong = removal_mistake(order)
    if wrong:
        return json.dumps({"error": wrong, "exit_status": 64})
    try:
        return json.dumps(removal_step(order))
    except CopyFailed as failed:
        return json.dumps(said_of_removal("failed", str(failed)))
    except OSError as error:
        words = "{}: {}".format(error.strerror, error.filename or order["path"])
        return json.dumps(said_of_removal("failed", words))


def said_of_removal(phase: str, detail: str = "") -> "dict[str, Any]":
    return {"phase": phase, "bytes": 0, "detail": detail[:300]}


def removal_step(order: "dict[str, Any]") -> "dict[str, Any]":
    """Have the removal go on; tell where it stands."""
    parts, hidden, gone = parts_of(order), copy_name(order).encode(), gone_name(order)
    parent = step_into(open_root(order), parts[:-1], False)
    there = set() if parent is None else {os.fsencode(name) for name in os.listdir(parent)}
    if parent is None or not there.intersection((parts[-1], hidden, gone)):
        if not holds_something(order["root"].encode("utf-8", "surrogateescape")):
            raise CopyFailed(BARE)
        return said_of_removal("dropped")
    here = step_into(parent, [hidden], True)
    if here is None or os.fstat(here).st_uid != os.getuid():
        raise CopyFailed("the folder of its removal is another user's")
    os.fchdir(here)
    lock, news = ask_and_lock(), read_news()
    if lock is None:
        return dict(news, phase="checking")
    if news["phase"] == "failed":  # said once; the next step begins again
        os.unlink("news")
        return news
    if news["phase"] == "dropped" and not there.intersection((parts[-1], gone)):
        shutil.rmtree("../" + copy_name(order), ignore_errors=True)
        return news
    note_news("checking")
    begin_worker(lambda: note_news("dropped", remove_files(order)), lock)
    return said_of_removal("checking")


def gone_name(order: "dict[str, Any]") -> bytes:
    """What is removed is renamed to this, whichever login node does it: the next goes on."""
    words = "\0".join((order["path"], order["digest"])).encode("utf-8", "surrogateescape")
    return b".fed-gone-" + hashlib.sha256(words).hexdigest()[:16].encode()


def remove_files(order: "dict[str, Any]") -> int:
    """Remove what is at the place, if it is what it should be, and the rest of an earlier try."""
    place, gone = os.path.join(b"..", parts_of(order)[-1]), os.path.join(b"..", gone_name(order))
    remove_opened(gone)
    if os.path.lexists(place):
        digest, _ = proof_of(order, place)
        if digest != order["digest"]:
            raise CopyFailed("something else is at its place, and stays: " + order["path"])
        note_news("checking")  # by the disk's clock
        if os.stat("news").st_mtime - os.stat("asked").st_mtime > UNASKED_S:
            raise CopyFailed("nobody asks for its removal any more")
        if os.path.isdir(place):
            os.chmod(place, 0o700)  # one that may not be written to cannot be renamed
        os.rename(place, gone)
        remove_opened(gone)
    return 0


def remove_opened(gone: bytes) -> None:
    """Remove a file, or a folder with all in it that is the user's, also what is read-only."""
    for folder, _, _ in os.walk(gone):  # follows no link
        os.chmod(folder, 0o700)
    remove_tree(gone)
    if os.path.lexists(gone):
        raise CopyFailed("some of it cannot be removed")
