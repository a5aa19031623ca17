"""The lines of the audit, each with the hash of the line before: what was changed is found.

A line is ``HASH JSON``: the SHA-256 of the JSON in hex, which holds the hash of the line before.
Who may write the file can write a chain anew from any line on. Against that, the number and hash of
a line are kept elsewhere: in the daemon's log, and wherever an admin puts what ``federator audit
--verify`` prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from federator.errors import DamagedAudit
from federator.model.unreadable import UNREADABLE

ZEROS: Final = "0" * 64
_LINE: Final = re.compile(rb"([0-9a-f]{64}) (\{.*\})\n", re.DOTALL)


class AuditAct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that was done, or refused.

    ``by``: a user; "": the federation itself. ``via``: the site whose agent vouches for the user;
    "": they were on the daemon's host.
    """

    at_s: float  # Unix time
    act: str  # such as "award", "drain" or "reload"
    by: str = ""
    via: str = ""
    on: str = ""  # a workload's attempt, a site, a key
    why: dict[str, Any] = {}
    effect: dict[str, Any] = {}
    refused: str = ""  # why it was not done
    record: int = 0  # position in the event log; 0: it is not from there


class AuditLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An act at its place in the chain."""

    n: int  # from 1
    before: str  # hash of the line before
    done: AuditAct


class AuditEnd(NamedTuple):
    """The last line of a chain, or of a part of it."""

    n: int = 0
    hash: str = ZEROS

    def __str__(self) -> str:
        return f"{self.n}:{self.hash}"


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(AuditLine).decode


def sealed(act: AuditAct, end: AuditEnd) -> tuple[bytes, AuditEnd]:
    """The line of an act behind others, and the end of the chain then."""
    body = _encode(AuditLine(n=end.n + 1, before=end.hash, done=act))
    hash_ = sha256(body).hexdigest()
    return hash_.encode() + b" " + body + b"\n", AuditEnd(end.n + 1, hash_)


def opened(raw: bytes) -> tuple[AuditLine, AuditEnd]:
    """A line, and where the chain is behind it; how it is joined to others is not looked at.

    Raises:
        DamagedAudit: it is not as it was written.
    """
    match = _LINE.fullmatch(raw)
    if match is None:
        raise DamagedAudit("is no whole line of an audit")
    hash_ = match[1].decode()
    if sha256(match[2]).hexdigest() != hash_:
        raise DamagedAudit("was changed: its hash is another")
    try:
        line = _decode(match[2])
    except UNREADABLE as error:
        raise DamagedAudit(f"cannot be read: {error}") from error
    return line, AuditEnd(line.n, hash_)


def verified(raws: Iterable[bytes], end: AuditEnd) -> Iterator[tuple[AuditLine, AuditEnd]]:
    """Each line with the chain's end behind it; they follow ``end``.

    Raises:
        DamagedAudit: names the first line that is not as it was written, or not where it was.
    """
    for raw in raws:
        try:
            line, after = opened(raw)
        except DamagedAudit as error:
            raise DamagedAudit(f"line {end.n + 1} {error}") from None
        if line.n != end.n + 1:
            raise DamagedAudit(f"line {end.n + 1} is missing: line {line.n} is in its place")
        if line.before != end.hash:
            raise DamagedAudit(f"line {line.n} does not follow from line {end.n}")
        end = after
        yield line, after
