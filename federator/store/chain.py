"""Detects damage in a log: each record has a checksum over itself and all before it.

A record that was changed, left out, added or moved breaks the chain at its place. What was cut off
at the end leaves a whole, shorter chain: against that a writer notes how far it has got.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from federator.errors import StoreError

_MARK: Final = re.compile(rb"(\d{20}) (\d{10})\n")
_MARK_BYTES: Final = 32


class LogEnd(NamedTuple):
    """The end of a log. Positions count all records that ever were, also those compacted away."""

    next: int = 1  # position of the record that comes next
    crc: int = 0  # CRC-32 of the last one, continued from the one before; the first from 0

    def after(self, record: bytes) -> LogEnd:
        return LogEnd(self.next + 1, crc32(record, self.crc))

    def chained(self, records: Iterable[bytes]) -> list[tuple[int, int, bytes]]:
        """Each record with its position and checksum."""
        end, found = self, []
        for record in records:
            position, end = end.next, end.after(record)
            found.append((position, end.crc, record))
        return found


class LogPlace(NamedTuple):
    """A reader's place in a log."""

    first: int  # position of the first record that the log had then; a compaction changes it
    end: LogEnd  # of what was read


@dataclass(frozen=True, slots=True)
class EndMark:
    """A note beside a log of how far it was acknowledged; it may be late, never early.

    In the same file, behind it, stands who leads.
    """

    file: int  # descriptor

    def read(self) -> LogEnd | None:
        found = _MARK.fullmatch(os.pread(self.file, _MARK_BYTES, 0))
        return LogEnd(int(found[1]), int(found[2])) if found else None

    def write(self, end: LogEnd) -> None:
        os.pwrite(self.file, b"%020d %010d\n" % (end.next, end.crc), 0)

    def name_leader(self, name: str) -> None:
        os.ftruncate(self.file, _MARK_BYTES)
        os.pwrite(self.file, name.encode(), _MARK_BYTES)

    def leader(self) -> str:
        return os.pread(self.file, 256, _MARK_BYTES).decode(errors="replace")


def read_mark(file: Path) -> LogEnd | None:
    """The content of a mark file, without holding it; None: there is none.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{file}: cannot be read: {error.strerror}") from error
    try:
        return EndMark(descriptor).read()
    finally:
        os.close(descriptor)


def this_process() -> str:
    """In words, for people."""
    return f"{socket.gethostname()} (pid {os.getpid()})"


def what_is_lost(found: LogEnd, mark: LogEnd | None, file: Path) -> str | None:
    """The fault of a log that ends at ``found``, by the mark in ``file``; None: nothing."""
    remedy = (
        "put the newest copy back, or see 'federator recover'; "
        f"to go on with what is there, stop every daemon, then remove {file}"
    )
    if mark is None or found.next > mark.next or found == mark:
        return None
    if found.next == mark.next:
        return f"the log is another one than {file} was written for; {remedy}"
    lost = mark.next - found.next
    return f"{lost} records that were acknowledged are missing at the end; {remedy}"
