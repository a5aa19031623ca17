"""Appends to the files of an audit; a process that is killed at any byte leaves no half line.

``audit-NNNNNNNNNNNN.jsonl`` begins with line N; the last one grows. ``end`` notes how far it was
written, after each append: so lines that are cut off at the end are missed. It may be late, never
early.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from federator.audit.chain import AuditAct, AuditEnd, AuditLine, opened, sealed, verified
from federator.audit.latest import LatestActs
from federator.errors import AuditError, DamagedAudit
from federator.store.chain import LogEnd, LogPlace

MAX_BYTES: Final = 64 * 2**20  # of one file; then another begins
END: Final = "end"
_NAME: Final = re.compile(r"audit-(\d{12})\.jsonl", re.ASCII)


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``end``."""

    n: int = 0
    hash: str = AuditEnd().hash
    first: int = 0  # place in the event log up to which it was followed; 0: nothing was
    next: int = 0
    crc: int = 0
    within_snapshot: bool = False  # that place is in one: it tells nothing new

    @property
    def end(self) -> AuditEnd:
        return AuditEnd(self.n, self.hash)

    @property
    def place(self) -> LogPlace | None:
        return LogPlace(self.first, LogEnd(self.next, self.crc)) if self.first else None


def files_of(folder: Path) -> list[Path]:
    """The files of an audit, in their order."""
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))


def read_mark(folder: Path) -> Mark | None:
    """How far it was written, as noted; None: nothing was.

    Raises:
        DamagedAudit: the note cannot be read.
    """
    try:
        return msgspec.json.decode((folder / END).read_bytes(), type=Mark)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise DamagedAudit(f"the note of its end, {folder / END}, cannot be read") from error


def raw_lines(paths: Sequence[Path]) -> Iterator[bytes]:
    """The lines of some files, as they are."""
    for path in paths:
        with path.open("rb") as file:
            yield from file


class AuditFile:
    """The one writer of an audit. Its methods may be called by one thread at a time.

    Args:
        folder: made if it is missing.
        max_bytes: as ``MAX_BYTES``.

    Attributes:
        end: of the chain.
        place: in the event log up to which it was followed; None: from its beginning.
        within_snapshot: whether that place is within one, which tells nothing new.
        last_record: position of the last record that has a line.
        latest: its last acts.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._file: int | None = None
        self._size = 0
        self.end = AuditEnd()
        self.place: LogPlace | None = None
        self.within_snapshot = False
        self.last_record = 0
        self.latest = LatestActs()

    def open(self, now_s: float) -> None:
        """Find the end, and mend it where a writer was killed in the middle of a line.

        What was damaged otherwise stays as it is, and is noted in a line behind it.

        Raises:
            AuditError: the folder cannot be used.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            paths = files_of(self._folder)
            cut = _cut_torn_tail(paths[-1]) if paths else 0
            mark, wrong = self._found(paths)
            self.place, self.within_snapshot = mark.place, mark.within_snapshot
            self._open_file(paths[-1] if paths and not wrong else None)
        except OSError as error:
            raise AuditError(f"{self._folder}: {error.strerror}") from error
        if wrong:
            self.append(
                [AuditAct(at_s=now_s, act="audit-damaged", why={"found": wrong})], self.place
            )
        elif cut:
            self.append(
                [AuditAct(at_s=now_s, act="audit-mended", effect={"cut_bytes": cut})], self.place
            )

    def _found(self, paths: Sequence[Path]) -> tuple[Mark, str]:
        """How far it was written, and what is wrong with that; sets ``end``."""
        mark, wrong = Mark(), ""
        try:
            mark = read_mark(self._folder) or Mark()
        except DamagedAudit as error:
            wrong = str(error)
        first = AuditEnd()
        try:
            # A file that was begun and never written is empty: the one before has the end.
            written = [path for path in paths if path.stat().st_size]
            for line, end in _unlinked(written[-1:]):
                if line.n == mark.n and end != mark.end:
                    wrong = f"line {line.n} is another one than was written"
                first = end
                self.last_record = max(self.last_record, line.done.record)
                self.latest.add(line.n, line.done)
        except DamagedAudit as error:
            wrong = str(error)
        if not wrong and first.n < mark.n:
            wrong = f"lines {first.n + 1} to {mark.n} are missing"
        self.end = first if not wrong else max(first, mark.end, key=lambda end: end.n)
        return mark, wrong

    def append(
        self, acts: Sequence[AuditAct], place: LogPlace | None, *, within_snapshot: bool = False
    ) -> None:
        """Add lines; they survive a crash once this returns.

        Args:
            acts: in their order.
            place: in the event log up to which it is followed with them.
            within_snapshot: of that place.

        Raises:
            AuditError: the file cannot be written; the same call may succeed later.
        """
        lines, end = [], self.end
        for act in acts:
            line, end = sealed(act, end)
            lines.append(line)
        data = b"".join(lines)
        try:
            if data and self._size and self._size + len(data) > self._max_bytes:
                self._open_file(None)  # the one before stays open if this fails
            if data:
                self._write(data)
            for n, act in enumerate(acts, self.end.n + 1):
                self.latest.add(n, act)
            self.end, self.place, self.within_snapshot = end, place, within_snapshot
            self.last_record = max([self.last_record, *(act.record for act in acts)])
            self._note_end()
        except OSError as error:
            raise AuditError(f"{self._folder}: {error.strerror}") from error

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        try:
            _write_all(self._file, data)
            os.fsync(self._file)
        except OSError:  # a part of it may be there
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def _open_file(self, path: Path | None) -> None:
        path = path or self._folder / f"audit-{self.end.n + 1:012}.jsonl"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(path, flags, 0o600)
        self.close()
        self._file = file
        self._size = os.fstat(file).st_size
        self._sync_folder()

    def _note_end(self) -> None:
        first, end = self.place if self.place is not None else (0, LogEnd(0, 0))
        mark = Mark(
            n=self.end.n,
            hash=self.end.hash,
            first=first,
            next=end.next,
            crc=end.crc,
            within_snapshot=self.within_snapshot,
        )
        new = self._folder / f"{END}.new"
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(file, msgspec.json.encode(mark))
            os.fsync(file)
        finally:
            os.close(file)
        new.replace(self._folder / END)
        self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _cut_torn_tail(path: Path) -> int:
    """Remove what follows the last whole line; how many bytes that was."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    return len(data) - whole


def _unlinked(paths: Sequence[Path]) -> Iterator[tuple[AuditLine, AuditEnd]]:
    """The lines of files, verified from the first of them on."""
    raws = raw_lines(paths)
    for raw in raws:
        line, end = opened(raw)
        yield line, end
        yield from verified(raws, end)
