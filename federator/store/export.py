"""Exports a log as lines of JSON, which can be read by people and imported again.

The first line names the format, the last one says how many records there were and their checksum,
so that a file that was cut off or changed is not taken for a whole one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import msgspec

from federator.errors import DamagedLog, StoreError
from federator.model.unreadable import UNREADABLE
from federator.store.chain import LogEnd

_FORMAT: Final = 1
_T = TypeVar("_T", bound=msgspec.Struct)


class ExportBegin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """First line."""

    federator_log: int  # version of the format


class ExportedRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One record; ``event`` shows people what is in it."""

    position: int  # from 1
    event: Any
    record: bytes  # as in the log; base64


class ExportEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Last line."""

    records: int
    crc32: int  # of all records, one after the other


def write_export(records: Iterable[bytes], out: IO[bytes]) -> int:
    """Write a log; returns how many records it has.

    Raises:
        OSError: it cannot be written.
    """
    encode = msgspec.json.Encoder().encode
    out.write(encode(ExportBegin(federator_log=_FORMAT)) + b"\n")
    end = LogEnd()
    for record in records:
        line = ExportedRecord(position=end.next, event=_shown(record), record=record)
        out.write(encode(line) + b"\n")
        end = end.after(record)
    out.write(encode(ExportEnd(records=end.next - 1, crc32=end.crc)) + b"\n")
    return end.next - 1


def read_export(path: Path) -> Iterator[bytes]:
    """The records of an exported log, oldest first; all are checked once the last was taken.

    Raises:
        DamagedLog: it is no export, or was cut off or changed; the line is named.
        StoreError: it cannot be read, or is of a later release.
    """
    try:
        with path.open("rb") as file:
            yield from _read(path, file)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error


def _read(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    begin = _line(path, 1, file.readline(), ExportBegin)
    if begin.federator_log > _FORMAT:
        raise StoreError(f"{path}: format {begin.federator_log} is of a later release: use that")
    end, number = LogEnd(), 1
    for number, line in enumerate(file, start=2):
        if line.startswith(b'{"records":'):
            break
        found = _line(path, number, line, ExportedRecord)
        if found.position != end.next:
            raise DamagedLog(f"{path}:{number}: expected position {end.next}")
        end = end.after(found.record)
        yield found.record
    else:
        raise DamagedLog(f"{path}: ends after {end.next - 1} records without a last line: cut off")
    last = _line(path, number, line, ExportEnd)
    if (last.records, last.crc32) != (end.next - 1, end.crc):
        raise DamagedLog(f"{path}:{number}: the records are not those that were exported")


def _line(path: Path, number: int, line: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except UNREADABLE as error:
        raise DamagedLog(f"{path}:{number}: no line of an exported log: {error}") from error


def _shown(record: bytes) -> Any:
    """For people: what JSON has no word for (an infinite limit) is null."""
    try:
        return msgspec.msgpack.decode(record)
    except UNREADABLE:
        return None
