"""Copies a data set from an object store by rclone, as its owner; part of the helper.

``site_installer.helper`` writes it into ``site_exec``, as a site has one file. So it is
stand-alone, too: standard library only, Python 3.6 or later.

The remote is one that the owner has configured (``~/.config/rclone/rclone.conf``): the helper has
no keys. rclone tells how far it is in lines of JSON, and so what went wrong.
"""

import json
import re

RCLONE = "/usr/bin/rclone"
OBJECTS = re.compile(r"rclone:([A-Za-z0-9_][A-Za-z0-9_.+@-]*:[^\0]*)\Z")  # REMOTE:PATH
JSON_LOG = "--use-json-log"  # where others complain
AT_ONCE = 4  # files, unless the order says how many; rclone's own default


PATIENCE = ("--contimeout=10s", "--timeout=60s", "--retries=1", "--low-level-retries=3")


def is_folder_words(source: str) -> "list[str]":
    """The command that tells whether there are many objects, or one."""
    return [RCLONE, "lsjson", "--stat", *PATIENCE, "--", remote_of(source)]


def says_folder(answer: bytes) -> bool:
    try:
        said = json.loads(answer.decode("utf-8", "replace"))
        return type(said) is dict and said.get("IsDir") is True
    except (ValueError, RecursionError):
        return False


def rclone_words(
    source: str, target: str, kib_per_s: int, streams: int, is_folder: bool
) -> "list[str]":
    """The command that makes the target the same as the source.

    Args:
        source: as ordered.
        target: the path of the file or folder.
        kib_per_s: 0: as fast as it goes.
        streams: files at once; 1: as many as rclone likes.
        is_folder: the source has many files; what else the target has goes.
    """
    argv = [RCLONE, "sync" if is_folder else "copyto", *PATIENCE, JSON_LOG]
    argv += ["--stats=1s", "--stats-log-level=NOTICE"]
    argv += ["--transfers=%d" % (streams if streams > 1 else AT_ONCE)]  # noqa: UP031
    argv += ["--bwlimit=%dk" % kib_per_s] if kib_per_s else []  # noqa: UP031
    return [*argv, "--", remote_of(source), target]


def remote_of(source: str) -> str:
    found = OBJECTS.match(source)
    return found.group(1) if found else source


def read_log_line(line: bytes, before: int) -> "tuple[int, str]":
    """The bytes that rclone has copied by a line of its log, else as before; and its complaint."""
    try:
        said = json.loads(line.decode("utf-8", "replace"))
        if said["level"] in ("error", "critical", "fatal"):
            return before, str(said["msg"])
        copied = said["stats"]["bytes"]
        return (copied if type(copied) is int else before), ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return before, ""
