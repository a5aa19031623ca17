"""The embedded store: SQLite in WAL mode, fsynced at every commit, one writer by file lock."""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import shutil
import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from math import inf
from pathlib import Path
from typing import Final

from federator.errors import DamagedLog, LeadershipLost, NotCompacted, StaleState, StoreError
from federator.store.chain import EndMark, LogEnd, LogPlace, this_process, what_is_lost

_FORMAT: Final = 2  # PRAGMA user_version
_PATIENCE_MS: Final = 5000  # with who holds it locked for a moment
_PART_BYTES: Final = 1 << 20
_ROOM_LEFT_BYTES: Final = 64 << 20  # on the disk, after a compaction
_SCHEMA: Final = (
    "CREATE TABLE events (seq INTEGER PRIMARY KEY, record BLOB NOT NULL, crc INTEGER NOT NULL)",
    "CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL, "
    "first INTEGER NOT NULL)",  # epoch of the last term; seq of the first record
    "INSERT INTO head VALUES (1, 0, 1)",
)
_READ_FROM: Final = {  # by format; in the first one records had no checksum
    1: "SELECT seq, NULL, record FROM events WHERE seq >= ? ORDER BY seq",
    2: "SELECT seq, crc, record FROM events WHERE seq >= ? ORDER BY seq",
}
_CRC_OF: Final = {
    1: "SELECT NULL FROM events WHERE seq = ?",
    2: "SELECT crc FROM events WHERE seq = ?",
}
_REMEDIES: Final = (  # by the start of SQLite's name of the error
    ("SQLITE_FULL", "the disk is full: make room in its folder, then start the daemon again"),
    ("SQLITE_IOERR", "the disk failed (see dmesg): mend it, then start the daemon again"),
    ("SQLITE_CORRUPT", "the file is damaged: put a copy back, or see 'federator recover'"),
    ("SQLITE_NOTADB", "this is no event log: put a copy back, or see 'federator recover'"),
    ("SQLITE_BUSY", "another program holds it locked: end that one"),
    ("SQLITE", "may this user write to the file and its folder?"),
)
_REMEDY_OF: Final = {  # what the system itself says
    errno.ENOSPC: "SQLITE_FULL",
    errno.EDQUOT: "SQLITE_FULL",
    errno.EIO: "SQLITE_IOERR",
}
_DAMAGE: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_COPY: Final = "put a copy back, or see 'federator recover'"


def _translated(what: str, error: OSError | sqlite3.Error) -> StoreError:
    if isinstance(error, OSError):
        name, said = _REMEDY_OF.get(error.errno or 0, "SQLITE"), error.strerror
    else:
        name, said = getattr(error, "sqlite_errorname", ""), str(error)
    remedy = next((text for start, text in _REMEDIES if name.startswith(start)), name)
    kind = DamagedLog if name.startswith(_DAMAGE) else StoreError
    return kind(f"{what}: {said}; {remedy}")


class SqliteStore:
    """An event log in one SQLite file, readable by its owner only.

    Args:
        path: the database; ``lead`` makes it, with its folder, when absent.
        accept_loss: lead also where records are missing that were acknowledged.
    """

    def __init__(self, path: Path, *, accept_loss: bool = False) -> None:
        self._path = path
        self._accept_loss = accept_loss
        self._mark: EndMark | None = None  # in the file that is locked
        self._db: sqlite3.Connection | None = None  # of the leader
        self._end = LogEnd()
        self._epoch = 0  # of the term that it leads
        self._failed = False

    def lead(self, at_least: int) -> int | None:
        try:
            if self._mark is None and not self._take_lock():
                return None
            if self._db is None:
                self._db = self._prepare()
            _at_once(self._db, lambda db: self._begin_term(db, at_least))
            assert self._mark is not None  # it is what is locked
            self._mark.write(self._end)
            self._mark.name_leader(this_process())
            return self._epoch
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise _translated(f"{self._path}", error) from error
        except StoreError:
            self.close()
            raise

    def _take_lock(self) -> bool:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = Path(f"{self._path}.lock")
        for own in (path, self._path):
            _check_owner(own)
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._mark = EndMark(lock)
        return True

    def _prepare(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            match self._format(db):
                case 0:
                    _at_once(db, _create)
                case 1:
                    _at_once(db, _from_format_1)
            _sync_anew(db)
        except BaseException:
            db.close()
            raise
        return db

    def _format(self, db: sqlite3.Connection) -> int:
        found = int(db.execute("PRAGMA user_version").fetchone()[0])
        if found > _FORMAT:
            raise StoreError(
                f"{self._path} has log format {found}, of a later release; this one reads up to "
                f"{_FORMAT}: start the later release"
            )
        return found

    def _begin_term(self, db: sqlite3.Connection, at_least: int) -> None:
        last = db.execute("SELECT seq, crc FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        led, first = db.execute("SELECT epoch, first FROM head").fetchone()
        self._end = LogEnd(last[0] + 1, last[1]) if last else LogEnd(first)
        assert self._mark is not None  # it is what is locked
        lost = what_is_lost(self._end, self._mark.read(), Path(f"{self._path}.lock"))
        if lost and not self._accept_loss:
            raise DamagedLog(f"{self._path}: {lost}")
        self._epoch = max(int(led) + 1, at_least)
        db.execute("UPDATE head SET epoch = ?", (self._epoch,))

    def renew(self) -> float:
        _, mark = self._leading()
        path = Path(f"{self._path}.lock")
        try:
            still_there = os.path.samestat(os.fstat(mark.file), path.stat())
        except FileNotFoundError:
            still_there = False
        except OSError as error:
            raise _translated(f"{path}", error) from error
        if not still_there:
            raise LeadershipLost(f"{path} was removed under this daemon: another one may lead now")
        return inf

    def leader(self) -> str:
        try:
            file = os.open(f"{self._path}.lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:  # somebody holds it
            return EndMark(file).leader()
        finally:
            os.close(file)
        return ""

    def append(self, records: Sequence[bytes]) -> None:
        if records:
            self._write(records, self._end, lambda _db: None)

    def compact(self, records: Sequence[bytes]) -> None:
        self._leading()
        # A transaction that fails leaves this store unable to go on, so look before.
        needed = 2 * sum(map(len, records)) + _ROOM_LEFT_BYTES  # in the WAL, then in the file
        if shutil.disk_usage(self._path.parent).free < needed:
            raise NotCompacted(f"{self._path}: its disk has not {needed >> 20} MiB free")

        def clear(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM events")
            db.execute("UPDATE head SET first = ?", (self._end.next,))

        self._write(records, LogEnd(self._end.next), clear)
        if self._db is not None:
            with suppress(sqlite3.Error):  # who reads just now has it done later
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _write(
        self, records: Sequence[bytes], end: LogEnd, before: Callable[[sqlite3.Connection], None]
    ) -> None:
        db, mark = self._leading()
        rows = end.chained(records)

        def write(db: sqlite3.Connection) -> None:
            # Inside the transaction: another daemon may have taken the lead since the last write.
            self._check_epoch(db)
            before(db)
            db.executemany("INSERT INTO events(seq, crc, record) VALUES (?, ?, ?)", rows)

        try:
            _at_once(db, write)
            # The mark follows the commit: one that is ahead of the log would be taken for a log
            # that lost its end.
            self._end = LogEnd(rows[-1][0] + 1, rows[-1][1]) if rows else end
            mark.write(self._end)
        except BaseException as error:
            self._failed = True  # a second try might follow what is not there
            if isinstance(error, (OSError, sqlite3.Error)):
                raise _translated(f"{self._path}: cannot append", error) from error
            raise

    def _check_epoch(self, db: sqlite3.Connection) -> None:
        """The lock says so too, unless its file was removed."""
        (leads,) = db.execute("SELECT epoch FROM head").fetchone()
        if leads != self._epoch:
            raise LeadershipLost(f"{self._path}: epoch {leads} leads, this was {self._epoch}")

    def _leading(self) -> tuple[sqlite3.Connection, EndMark]:
        if self._db is None or self._mark is None:
            raise StoreError(f"{self._path}: this process does not lead; nothing may be written")
        if self._failed:
            raise StoreError(f"{self._path}: a write has failed; open the log anew")
        return self._db, self._mark

    def will_be_converted(self) -> bool:
        """Whether the file has the format of an earlier release, which ends when it is led.

        Raises:
            StoreError: it is of a later release, or cannot be read.
        """
        try:
            with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)) as db:
                return 0 < self._format(db) < _FORMAT
        except sqlite3.Error as error:
            raise _translated(f"{self._path}: cannot read", error) from error

    def records(self) -> Iterator[bytes]:
        return (record for _, record in self.read_on(None))

    def read_on(self, place: LogPlace | None) -> Generator[tuple[LogPlace, bytes]]:
        if not self._path.exists():
            self._check_place(place, None, None)
            return
        try:
            with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)) as db:
                db.execute("BEGIN")  # one moment for all that is read
                yield from self._read(db, place)
        except sqlite3.Error as error:
            raise _translated(f"{self._path}: cannot read", error) from error

    def _read(
        self, db: sqlite3.Connection, place: LogPlace | None
    ) -> Generator[tuple[LogPlace, bytes]]:
        found = self._format(db)
        if found == 0:  # nobody has led yet
            self._check_place(place, None, None)
            return
        first = db.execute("SELECT first FROM head").fetchone()[0] if found > 1 else 1
        end = LogEnd(first)
        if place is not None:
            row = db.execute(_CRC_OF[found], (place.end.next - 1,)).fetchone()
            self._check_place(place, first, row)
            end = place.end
        for seq, crc, record in db.execute(_READ_FROM[found], (end.next,)):
            if seq != end.next:
                raise DamagedLog(f"{self._path}: damaged: record {end.next} is missing; {_COPY}")
            end = end.after(record)
            if crc not in (None, end.crc):
                raise DamagedLog(f"{self._path}: damaged: record {seq} is not as written; {_COPY}")
            yield LogPlace(first, end), record

    def _check_place(
        self, place: LogPlace | None, first: int | None, row: tuple[int | None] | None
    ) -> None:
        """``row`` holds the checksum of the last record before the place, if that is there."""
        if place is None:
            return
        nothing_read = place.end.next == place.first
        same = nothing_read or (row is not None and row[0] in (None, place.end.crc))
        if place.first != first or not same:
            raise StaleState(f"{self._path} is not the log that was read before")

    def close(self) -> None:
        if self._db is not None:
            with suppress(sqlite3.Error):  # such as a disk that is full; all that counts is synced
                self._db.close()
            self._db = None
        if self._mark is not None:
            os.close(self._mark.file)
            self._mark = None


def _check_owner(path: Path) -> None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    if found.st_uid != os.geteuid():
        owner, user = _user(found.st_uid), _user(os.geteuid())
        raise StoreError(f"{path} belongs to {owner}: run as {owner}, or chown it to {user}")
    if found.st_mode & 0o022:
        raise StoreError(f"{path} may be written by others than its owner: chmod 600 {path}")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _at_once(db: sqlite3.Connection, write: Callable[[sqlite3.Connection], None]) -> None:
    """All or none, and synced."""
    db.execute("BEGIN IMMEDIATE")
    try:
        write(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # some errors end it by themselves
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        raise


def _sync_anew(db: sqlite3.Connection) -> None:
    """Before it counts: what an earlier process failed to sync may be in the kernel's memory alone.

    It is marked as written there, so that another fsync does nothing. Copied from the WAL to the
    file it is synced; while somebody reads the log (an export, say) the WAL has to stay, and is
    written over with what it holds.
    """
    db.execute("PRAGMA busy_timeout=0")  # nobody is waited for
    in_use = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    db.execute(f"PRAGMA busy_timeout={_PATIENCE_MS}")
    if in_use:
        _at_once(db, _write_wal_over)  # meanwhile it does not change


def _write_wal_over(db: sqlite3.Connection) -> None:
    _, _, file = db.execute("PRAGMA database_list").fetchone()
    with Path(f"{file}-wal").open("r+b") as wal:
        while part := wal.read(_PART_BYTES):
            wal.seek(-len(part), os.SEEK_CUR)
            wal.write(part)
            wal.seek(0, os.SEEK_CUR)  # from writing to reading
        wal.flush()
        os.fsync(wal.fileno())


def _create(db: sqlite3.Connection) -> None:
    for statement in _SCHEMA:
        db.execute(statement)
    db.execute(f"PRAGMA user_version={_FORMAT}")


def _from_format_1(db: sqlite3.Connection) -> None:
    """It had no checksums, and no note of its first record: that was always 1."""
    db.execute("ALTER TABLE events RENAME TO old")
    _create(db)
    end = LogEnd()
    for seq, record in db.execute("SELECT seq, record FROM old ORDER BY seq"):
        if seq != end.next:
            raise DamagedLog(f"damaged: record {end.next} is missing; {_COPY}")
        end = end.after(record)
        db.execute("INSERT INTO events VALUES (?, ?, ?)", (seq, record, end.crc))
    db.execute("DROP TABLE old")
