"""Brings the files of a data set into the hidden folder of its copy; part of the helper.

``site_installer.helper`` writes it into ``site_exec``, as a site has one file. So it is
stand-alone, too: standard library only, Python 3.6 or later.

rsync and rclone go on with what earlier ones have left. They are watched: news is noted, and they
end where there is no room, or nobody asks any more.
"""

import contextlib
import os
import re
import select
import shlex
import subprocess
import time
from collections.abc import Iterator
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
from federator.slurm.site_worker import CopyFailed, files_of_tree, note_news

RSYNC, SSH = "/usr/bin/rsync", "/usr/bin/ssh"
ASKED_WITHIN_S, NEWS_S, SILENT_S = 900.0, 1.0, 60  # a worker that nobody asks about ends itself
BETWEEN_LOGINS_S = 0.3  # sshd drops logins of which too many begin at once (MaxStartups)
NUMBER = re.compile(rb"[0-9][0-9,]*\Z")
MOST_LINES = 1 << 17  # bytes that are not read yet; more are nobody's progress


def fetch(order: "dict[str, Any]", lock: int) -> None:
    """Bring all that is at the source; what an earlier worker has left is not sent again."""
    os.makedirs("in", exist_ok=True)
    have = sum(os.lstat(os.path.join(b"in", name)).st_size for name in files_of_tree(b"in"))
    check_room(order, max(0, order["size_bytes"] - have))
    streams, copied = min(order.get("streams", 1), MOST_STREAMS), 0
    if OBJECTS.match(order["source"]):
        fetch_objects(order, lock, streams)
        return
    if streams > 1:
        streams = min(streams, deal_out(listing_of(order), streams))
    if streams > 1:
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
    os.umask(0o077)  # objects have no permissions that could be kept
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
    news_at_s = time.time()
    try:
        for line in process.stdout:
            yield line
            if time.time() - news_at_s > NEWS_S:
                news_at_s = time.time()
                require_asked(news_at_s)
    except BaseException:
        process.kill()
        raise
    finally:
        process.stdout.close()
        process.wait()
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
            if processes and order["host"]:
                time.sleep(BETWEEN_LOGINS_S)
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
        require_asked(news_at_s)
    return before + sum(copied.values())


def require_asked(now_s: float) -> None:
    """Fail where nobody asks any more."""
    with contextlib.suppress(FileNotFoundError):
        if now_s - os.stat("asked").st_mtime < ASKED_WITHIN_S:
            return
    raise CopyFailed("nobody asks for it any more")


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
