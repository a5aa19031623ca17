"""The embedded store: SQLite in WAL mode, fsynced at every commit, one writer by file lock."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from math import inf
from pathlib import Path
from typing import Final

from federator.errors import StoreError

_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS events (seq INTEGER PRIMARY KEY, record BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS term (one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER)",
)
_FORMAT: Final = 1  # PRAGMA user_version


class SqliteStore:
    """An event log in one SQLite file, readable by its owner only.

    Args:
        path: the database; ``lead`` makes it, with its folder, when absent.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = -1
        self._db: sqlite3.Connection | None = None  # of the leader

    def lead(self, at_least: int) -> int | None:
        try:
            if self._db is None and not self._take_lock():
                return None
            if self._db is None:
                self._db = self._prepare()
            return self._begin_term(self._db, at_least)
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise StoreError(f"{self._path}: {error}; is the folder writable?") from error
        except StoreError:
            self.close()
            raise

    def _take_lock(self) -> bool:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(f"{self._path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def _prepare(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            self._check_format(db)
            for statement in _SCHEMA:
                db.execute(statement)
            db.execute(f"PRAGMA user_version={_FORMAT}")
        except BaseException:
            db.close()
            raise
        return db

    def _check_format(self, db: sqlite3.Connection) -> None:
        found = int(db.execute("PRAGMA user_version").fetchone()[0])
        if found not in (0, _FORMAT):
            raise StoreError(f"{self._path} has log format {found}; this release reads {_FORMAT}")

    @staticmethod
    def _begin_term(db: sqlite3.Connection, at_least: int) -> int:
        found = db.execute("SELECT epoch FROM term").fetchone()
        epoch = max((found[0] if found else 0) + 1, at_least)
        db.execute("INSERT OR REPLACE INTO term VALUES (1, ?)", (epoch,))
        return epoch

    def renew(self) -> float:
        self._leading()
        return inf

    def append(self, records: Sequence[bytes]) -> None:
        self._write(records, anew=False)

    def compact(self, records: Sequence[bytes]) -> None:
        self._write(records, anew=True)

    def _write(self, records: Sequence[bytes], *, anew: bool) -> None:
        db = self._leading()
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                if anew:
                    db.execute("DELETE FROM events")
                db.executemany("INSERT INTO events(record) VALUES (?)", [(r,) for r in records])
                db.execute("COMMIT")
            except sqlite3.Error:
                db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: cannot append: {error}") from error

    def _leading(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreError(f"{self._path}: this process does not lead; nothing may be written")
        return self._db

    def records(self) -> Iterator[bytes]:
        if not self._path.exists():
            return
        try:
            with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as db:
                self._check_format(db)
                if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchone():
                    return
                for (record,) in db.execute("SELECT record FROM events ORDER BY seq"):
                    yield record
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: cannot read: {error}") from error

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
