"""The embedded store: SQLite in WAL mode, fsynced at every commit, one writer by file lock."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from federator.errors import StoreError

_SCHEMA: Final = "CREATE TABLE IF NOT EXISTS events (seq INTEGER PRIMARY KEY, record BLOB NOT NULL)"
_FORMAT: Final = 1  # PRAGMA user_version


class SqliteStore:
    """An event log in one SQLite file, readable by its owner only.

    Args:
        path: the database; created with its folder when absent.

    Raises:
        StoreError: another daemon has it open, or it is no log of this format.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}; is the folder writable?") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise StoreError(f"{path} is in use by another daemon; stop it first") from error
        try:
            self._db = self._open()
        except (OSError, sqlite3.Error) as error:
            os.close(self._lock)
            raise StoreError(f"{path}: {error}") from error
        except StoreError:
            os.close(self._lock)
            raise

    def _open(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        found = int(db.execute("PRAGMA user_version").fetchone()[0])
        if found not in (0, _FORMAT):
            db.close()
            raise StoreError(f"{self._path} has log format {found}; this release reads {_FORMAT}")
        db.execute(_SCHEMA)
        db.execute(f"PRAGMA user_version={_FORMAT}")
        return db

    def append(self, records: Sequence[bytes]) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany(
                    "INSERT INTO events(record) VALUES (?)", [(r,) for r in records]
                )
                self._db.execute("COMMIT")
            except sqlite3.Error:
                self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: cannot append: {error}") from error

    def records(self) -> Iterator[bytes]:
        try:
            for (record,) in self._db.execute("SELECT record FROM events ORDER BY seq"):
                yield record
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: cannot read: {error}") from error

    def close(self) -> None:
        if self._lock >= 0:
            self._db.close()
            os.close(self._lock)
            self._lock = -1
