"""Reads the file in which a site says that its provider takes nodes back."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Final, NamedTuple

from federator.model.site_message import Revocation
from federator.slurm.parse_base import expand_hosts

FILE: Final = "revoked"
"""Its name, in the agent's folder."""
MOST_BYTES: Final = 65_536
MOST_NODES: Final = 10_000  # of all lines
ALL: Final = "*"
_ROOT: Final = 0
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Revoked(NamedTuple):
    """The notices of the file, and what is wrong with it."""

    notices: tuple[Revocation, ...] = ()
    problems: tuple[str, ...] = ()


def read_revoked(folder: Path) -> Revoked:
    """Read the file of a folder; without one nothing is revoked.

    Each line has a host list, or ``*`` for the whole site; when it is gone, as Unix time or
    as ISO 8601 with its zone; and a reason, if there is one. A file that somebody else than root
    and this process's user could have written is not believed.
    """
    try:
        at = os.open(folder / FILE, _FLAGS)
        try:
            wrong = _wrong(os.fstat(at))
            text = b"" if wrong else os.read(at, MOST_BYTES + 1)
        finally:
            os.close(at)
    except FileNotFoundError:
        return Revoked()
    except OSError as error:
        wrong, text = f"cannot be read: {error.strerror}", b""
    if len(text) > MOST_BYTES:
        wrong = f"has more than {MOST_BYTES} bytes"
    if wrong:
        return Revoked(problems=(f"{FILE} {wrong}",))
    return parse_revoked(text.decode(errors="replace"))


def _wrong(state: os.stat_result) -> str:
    """Say why the file is not believed; "": it is."""
    if not stat.S_ISREG(state.st_mode):
        return "is no file"
    if state.st_uid not in (_ROOT, os.getuid()):
        return f"is another user's (UID {state.st_uid})"
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "may be written by others: chmod go-w"
    return ""


def parse_revoked(text: str) -> Revoked:
    """The notices of a text; a line that cannot be read is a problem, and the others count."""
    notices: list[Revocation] = []
    problems: list[str] = []
    nodes = 0
    for number, line in _lines(text):
        try:
            notice = _notice(line)
        except (ValueError, OverflowError) as error:
            problems.append(f"{FILE}, line {number}: {error}"[:200])
            continue
        nodes += len(notice.nodes)
        if nodes > MOST_NODES:
            problems.append(f"{FILE}, line {number}: more than {MOST_NODES} nodes in all")
            break
        notices.append(notice)
    return Revoked(tuple(notices), tuple(problems))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def _notice(line: str) -> Revocation:
    words = line.split(maxsplit=2)
    if len(words) < 2:
        raise ValueError("expected NODES DEADLINE [REASON]")
    nodes = () if words[0] == ALL else expand_hosts(words[0])
    if words[0] != ALL and not nodes:
        raise ValueError(f"{words[0][:60]!r} names no node")
    reason = words[2] if len(words) > 2 else ""
    return Revocation(nodes=nodes, deadline_s=_time(words[1]), reason=reason[:200])


def _time(word: str) -> float:
    try:
        at_s = float(word)
    except ValueError:
        at = datetime.fromisoformat(word)
        if at.tzinfo is None:
            raise ValueError(f"{word[:60]!r} has no time zone") from None
        at_s = at.timestamp()
    if not isfinite(at_s) or at_s <= 0:
        raise ValueError(f"{word[:60]!r} is no time")
    return at_s
