"""Keeps the grounds of the last awards, in two files of bounded size.

``decisions`` grows; when it is full it becomes ``decisions.before``, in place of the one before. A
record is its length and checksum, then MessagePack. Nothing is synced: what a crash loses is only
what nobody can look up any more. A torn end is cut off before more is written.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from federator.errors import AuditError
from federator.model.decision import SeenDecision

NAME: Final = "decisions"
BEFORE: Final = "decisions.before"
_HEAD: Final = struct.Struct(">II")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(SeenDecision).decode


class DecisionRing:
    """Writes decisions.

    Args:
        folder: is there.
        max_bytes: of both files together.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._is_whole = False

    def append(self, decisions: Sequence[SeenDecision]) -> None:
        """Keep some more; the oldest go where there is no room.

        Raises:
            AuditError: the files cannot be written.
        """
        bodies = [_encode(each) for each in decisions]
        data = b"".join(_HEAD.pack(len(body), crc32(body)) + body for body in bodies)
        if not data:
            return
        path = self._folder / NAME
        self._mend(path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            file = os.open(path, flags, 0o600)
            try:
                size = os.fstat(file).st_size
                os.write(file, data)
            finally:
                os.close(file)
            if 2 * (size + len(data)) > self._max_bytes:
                path.replace(self._folder / BEFORE)
        except OSError as error:
            raise AuditError(f"{path}: {error.strerror}") from error

    def _mend(self, path: Path) -> None:
        """Cut off what an earlier process left half written; once."""
        if self._is_whole:
            return
        self._is_whole = True
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise AuditError(f"{path}: {error.strerror}") from error
        whole = sum(_HEAD.size + len(body) for body in _bodies(data))
        if whole < len(data):
            os.truncate(path, whole)


def _bodies(data: bytes) -> Iterator[bytes]:
    """The whole records, up to the first that is not."""
    at = 0
    while at + _HEAD.size <= len(data):
        length, crc = _HEAD.unpack_from(data, at)
        body = data[at + _HEAD.size : at + _HEAD.size + length]
        if len(body) != length or crc32(body) != crc:
            return
        at += _HEAD.size + length
        yield body


def kept_decisions(folder: Path) -> Iterator[SeenDecision]:
    """The decisions that are kept, the oldest first; those that cannot be read are left out."""
    for name in (BEFORE, NAME):
        try:
            data = (folder / name).read_bytes()
        except FileNotFoundError:
            continue
        for body in _bodies(data):
            try:
                yield _decode(body)
            except msgspec.MsgspecError:  # of another release
                continue
