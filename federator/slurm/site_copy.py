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
import select
import shlex
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

from federator.slurm.site_rclone import (
    JSON_LOG,
    OBJECTS,
    is_folder_words,
    rclone_words,
    read_log_line,
    says_folder,
)
from federator.slurm.site_streams import LISTS, MOST_STREAMS, deal_out

RSYNC, SSH = "/usr/bin/rsync", "/usr/bin/ssh"
ASKED_WITHIN_S, NEWS_S, SILENT_S = 900.0, 1.0, 60  # a worker that nobody asks about ends itself
LEFT_FOR_S = 14 * 86400.0  # a hidden folder that nobody asked about for so long is nobody's
NUMBER = re.compile(rb"[0-9][0-9,]*\Z")
MOST_LINES = 1 << 17  # bytes that are not read yet; more are nobody's progress
MOST_FDS = 256  # that the helper may have open
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


class CopyFailed(Exception):
    """The copy cannot be made now; the words are for people."""


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


def begin_worker(act: "Callable[[], None]", lock: int) -> None:
    """Start a worker that has the lock."""
    os.set_inheritable(lock, True)
    if os.fork() == 0:
        work_apart(act, lock)


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


def fetch(order: "dict[str, Any]", lock: int) -> None:
    """Bring all that is at the source; what an earlier worker has left is not sent again."""
    os.makedirs("in", exist_ok=True)
    have = sum(os.lstat(os.path.join(b"in", name)).st_size for name in files_of_tree(b"in"))
    check_room(order, max(0, order["size_bytes"] - have))
    streams, copied = min(order.get("streams", 1), MOST_STREAMS), 0
    if OBJECTS.match(order["source"]):
        fetch_objects(order, lock, streams)
        return
    if streams > 1 and deal_out(listing_of(order), streams) > 1:
        parent = order["source"].rpartition("/")[0] + "/"
        shares = [
            rsync_words(order, ["-tps", "--from0", "--files-from=" + name], parent, streams)
            for name in LISTS[:streams]
        ]
        copied = run_side_by_side(shares, order, lock, 0)
    run_side_by_side(
        [rsync_words(order, ["-rtps", "--delete"], order["source"], 1)], order, lock, copied
    )


def fetch_objects(order: "dict[str, Any]", lock: int, streams: int) -> None:
    """Run rclone to its end; a file of which it has a part is sent again."""
    source = order["source"]
    asking = start(in_bytes(is_folder_words(source)), ())
    answer = asking.communicate()[0]
    require_success(asking, "rclone")
    target = "in/" + source.rpartition("/")[2]
    words = rclone_words(source, target, order["kib_per_s"], streams, says_folder(answer))
    run_side_by_side([in_bytes(words)], order, lock, 0)


def rsync_words(
    order: "dict[str, Any]", how: "list[str]", source: str, streams: int
) -> "list[bytes]":
    """The command of one of some rsyncs that share the bandwidth."""
    argv = [RSYNC, *how, "--inplace", "--chmod=u+rw,Du+x,ug-s"]
    argv += ["--info=progress2", "--outbuf=N"]
    share = max(1, order["kib_per_s"] // streams)
    argv += ["--bwlimit=" + str(share)] if order["kib_per_s"] else []
    return in_bytes([*argv, *reached(order), "--", from_host(order, source), "in/"])


def reached(order: "dict[str, Any]") -> "list[str]":
    """How rsync reaches the source, and how long it waits for it."""
    shell = [SSH, "-oBatchMode=yes", "-oConnectTimeout=10", "-oServerAliveInterval=15"]
    shell += ["-p", order["port"]] if order["port"] else []
    rsh = ["--rsh=" + " ".join(map(shlex.quote, shell))] if order["host"] else []
    return [f"--timeout={SILENT_S}", *rsh]


def from_host(order: "dict[str, Any]", source: str) -> str:
    return source if not order["host"] else order["host"] + ":" + source


def in_bytes(words: "list[str]") -> "list[bytes]":
    return [word.encode("utf-8", "surrogateescape") for word in words]


def start(words: "list[bytes]", lock: "tuple[int, ...]") -> "subprocess.Popen[bytes]":
    """Start a program; what it complains of goes to the file ``said``, where others may write.

    rclone's log is told with its progress.
    """
    is_log = JSON_LOG.encode() in words
    variables = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": os.path.expanduser("~")}
    with open("said", "ab") as said:
        return subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if is_log else said,
            pass_fds=lock,
            env=variables,
        )


def listing_of(order: "dict[str, Any]") -> "Iterator[bytes]":
    """The lines in which rsync lists the source, each with what is above it in the source."""
    words = [RSYNC, "-rts8", "--list-only", *reached(order), "--"]
    process = start(in_bytes([*words, from_host(order, order["source"])]), ())
    assert process.stdout is not None
    with process.stdout:
        yield from process.stdout
    require_success(process)


def run_side_by_side(
    commands: "list[list[bytes]]", order: "dict[str, Any]", lock: int, before: int
) -> int:
    """Run programs to their end, all of them or until one fails; return the bytes copied.

    Args:
        before: bytes that earlier ones have copied.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink("said")
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for words in commands:
            processes.append(start(words, (lock,)))
        return watch(processes, order, before)
    except BaseException:
        for process in processes:
            process.kill()
            process.wait()
        raise


def require_success(process: "subprocess.Popen[bytes]", name: str = "rsync") -> None:
    if process.wait() != 0:
        with open("said", "rb") as said:
            words_said = said.read().decode("utf-8", "replace").strip().replace("\n", "; ")
        raise CopyFailed(f"{name} ended with {process.returncode}: {words_said[-200:]}")


def watch(processes: "list[subprocess.Popen[bytes]]", order: "dict[str, Any]", before: int) -> int:
    """Pass on how far programs are; end where there is no room, or nobody asks any more."""
    program = "rclone" if OBJECTS.match(order["source"]) else "rsync"
    of_pipe = {process.stdout: process for process in processes if process.stdout is not None}
    copied, rest, news_at_s = dict.fromkeys(of_pipe, 0), dict.fromkeys(of_pipe, b""), 0.0
    while of_pipe:
        for pipe in select.select(list(of_pipe), [], [], NEWS_S)[0]:
            part = os.read(pipe.fileno(), 65536)
            if not part:
                require_success(of_pipe.pop(pipe), program)
                continue
            *lines, rest[pipe] = (
                (rest[pipe] + part).replace(b"\r", b"\n")[-MOST_LINES:].split(b"\n")
            )
            for line in lines:
                copied[pipe] = bytes_said(line, copied[pipe])
        if time.time() - news_at_s < NEWS_S:
            continue
        news_at_s = time.time()
        note_news("copying", before + sum(copied.values()))
        check_room(order, 0)
        with contextlib.suppress(FileNotFoundError):
            if news_at_s - os.stat("asked").st_mtime < ASKED_WITHIN_S:
                continue
        raise CopyFailed("nobody asks for it any more")
    return before + sum(copied.values())


def bytes_said(line: bytes, before: int) -> int:
    """The bytes copied by a line of rsync's progress, or of rclone's log; else as before."""
    if line.startswith(b"{"):
        before, complaint = read_log_line(line, before)
        if complaint:
            with open("said", "w", encoding="utf-8", errors="replace") as said:
                said.write(complaint)
        return before
    first = line.split()[:1]
    return int(first[0].replace(b",", b"")) if first and NUMBER.match(first[0]) else before


def check_room(order: "dict[str, Any]", needed: int) -> None:
    """Refuse what would leave less free than is to be kept."""
    room = os.statvfs(".")
    if room.f_bavail * room.f_frsize < order["keep_free_bytes"] + needed:
        raise CopyFailed("no room: it would leave less free than storage.NAME.keep_free_gib")


def kind_of(order: "dict[str, Any]") -> str:
    return str(order["digest"]).partition(":")[0]


def proof_of(order: "dict[str, Any]", path: bytes) -> "tuple[str, int]":
    """The digest of what is at a path, of the kind that is ordered, and its bytes."""
    proof: tuple[str, int] = PROOFS.get(kind_of(order), digest_of_tree)(path)
    return proof


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
