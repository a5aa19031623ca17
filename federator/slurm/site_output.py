"""Makes the folder that a job writes a data set in, seals it, and removes it; part of the helper.

``site_installer.helper`` writes it into ``site_exec``, as a site has one file. So it is
stand-alone, too: standard library and other parts only, Python 3.6 or later.

The job writes in ``data`` of a hidden folder beside the place where its output belongs. To seal it
is to compute its digest and to put it there by one rename. A worker does that, as it does copies:
whoever asks is told how far it is. What is done stays noted in the hidden folder until that is
removed, so no answer that is lost is missed.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from typing import Any

from federator.slurm.site_copy import STEP_INTO
from federator.slurm.site_files import BARE, holds_something
from federator.slurm.site_worker import (
    CopyFailed,
    digest_of_tree,
    files_of_tree,
    note_news,
    read_news,
    work_apart,
)

OUTPUT_WORDS = ("root", "path")
GONE = "its folder is gone"


def output_mistake(order: "Any") -> str:
    """The reason why an order cannot be; "" when it can."""
    if type(order) is not dict or set(order) != {*OUTPUT_WORDS, "id", "drop"}:
        return "the order has other fields"
    kinds = {"root": str, "path": str, "id": int, "drop": bool}
    if any(type(order[name]) is not kind for name, kind in kinds.items()):
        return "the order has other types"
    parts = order["path"].split("/")
    sound = os.path.isabs(order["root"]) and "\0" not in order["root"] + order["path"]
    if not sound or len(parts) < 3 or {"", ".", ".."}.intersection(parts):
        return "root or path is malformed"
    return "" if 0 < order["id"] < 1 << 63 else "id is out of range"


def said_of_output(phase: str, detail: str = "") -> "dict[str, Any]":
    """Answer to an order; what was sealed is added."""
    return {"phase": phase, "bytes": 0, "files": 0, "digest": "", "detail": detail[:300]}


def output_folder(own: int, path: str, id_: int, *, make: bool = False) -> int:
    """Open the hidden folder of a job, below the user's own folder, which is open as ``own``.

    What is made gets the permissions of the user's own folder, as its checkpoint folders do. No
    link is followed.
    """
    parts = path.encode("utf-8", "surrogateescape").split(b"/")[1:-1]
    mode, at = os.fstat(own).st_mode & 0o777, own
    for part in [*parts, b".fed-output-%d" % id_, b"data"][: None if make else -1]:
        made = False
        with contextlib.suppress(FileExistsError):
            if make:
                os.mkdir(part, 0o700, dir_fd=at)
                made = True
        below = os.open(part, STEP_INTO, dir_fd=at)
        if made:
            os.fchmod(below, mode)  # whatever the umask is
        if at != own:
            os.close(at)
        at = below
    return at


def make_output(open_own: "Callable[[], int]", order: "dict[str, Any]") -> str:
    """Make the folder that a job writes in; return why it cannot be used, "" where it can.

    What an earlier attempt wrote there stays. ``open_own`` opens the user's folder.
    """
    try:
        at = output_folder(open_own(), order["path"], order["id"], make=True)
        wrong = "" if os.access(".", os.W_OK | os.X_OK, dir_fd=at) else "another owns it"
    except OSError as error:
        wrong = str(error.strerror)
    return wrong and "output {}/{}: {}".format(order["root"], order["path"], wrong)


def output_in_words(open_own: "Callable[[], int]", order: "dict[str, Any]") -> str:
    """Take a step, and put where the output stands into JSON."""
    try:
        return json.dumps(output_step(open_own(), order))
    except FileNotFoundError as error:
        bare = not holds_something(order["root"].encode("utf-8", "surrogateescape"))
        if order["drop"] and not bare:
            return json.dumps(said_of_output("dropped"))
        words = BARE if bare else f"{error.strerror}: {error.filename}"
    except (OSError, CopyFailed) as error:
        words = getattr(error, "strerror", None) or str(error)
    return json.dumps(said_of_output("failed", words))


def output_step(own: int, order: "dict[str, Any]") -> "dict[str, Any]":
    """Have an output be sealed, or removed; tell where that stands."""
    place = order["path"].encode("utf-8", "surrogateescape").split(b"/")[-1]
    try:
        os.fchdir(output_folder(own, order["path"], order["id"]))
    except FileNotFoundError:
        return said_of_output(*(("dropped",) if order["drop"] else ("failed", GONE)))
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return said_of_output("checking")
    if order["drop"]:
        return drop_output(order["id"])
    news = read_news()
    if news["phase"] == "done":
        return {**said_of_output("done"), **sealed_output()}
    with contextlib.suppress(FileNotFoundError):
        os.unlink("news")
    if news["phase"] == "failed":  # said once; the next step begins again
        return said_of_output("failed", news["detail"])
    note_news("checking")
    os.set_inheritable(lock, True)
    if os.fork() == 0:
        work_apart(lambda: seal_output(place), lock)
    return said_of_output("checking")


def drop_output(id_: int) -> "dict[str, Any]":
    """Remove the hidden folder, which is the working directory; the notes go last."""
    if os.path.isdir("data") and not os.path.islink("data"):
        shutil.rmtree("data", ignore_errors=True)
    if os.path.lexists("data"):
        return said_of_output("failed", "some of its folder cannot be removed")
    shutil.rmtree(f"../.fed-output-{id_}")
    return said_of_output("dropped")


def seal_output(place: bytes) -> None:
    """Compute the digest of what was written, and put it in its place, if it is anything."""
    there = os.path.join(b"..", place)
    if not os.path.isdir("data"):
        sealed_output()  # or nothing was ever there
        if not os.path.isdir(there):
            raise CopyFailed("neither its folder nor what it was put as is there")
    else:
        digest, size = digest_of_tree(b"data")
        files = len(files_of_tree(b"data"))
        with open("sealed.new", "w", encoding="utf-8") as file:
            json.dump({"bytes": size, "files": files, "digest": digest}, file)
        os.rename("sealed.new", "sealed")
        if files:
            if os.path.lexists(there):
                raise CopyFailed("something else is at its place")
            os.rename("data", there)
    note_news("done")


def sealed_output() -> "dict[str, Any]":
    """What was sealed, as it was noted before it was put in its place."""
    kinds = {"bytes": int, "files": int, "digest": str}
    try:
        with open("sealed", encoding="utf-8") as file:
            noted = json.load(file)
        if type(noted) is dict and {name: type(noted[name]) for name in noted} == kinds:
            amounts = noted["bytes"], noted["files"]
            if all(0 <= each < 1 << 63 for each in amounts) and len(noted["digest"]) <= 100:
                return dict(noted)
    except (OSError, ValueError, RecursionError):  # the owner may have written anything there
        pass
    raise CopyFailed("its notes were changed, or its folder removed")
