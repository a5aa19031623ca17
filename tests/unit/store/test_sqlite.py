"""What the embedded store says when its file is not a log."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from federator.errors import StoreError
from federator.store.sqlite import SqliteStore


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    path.write_bytes(b"this is not a database, and long enough to be seen as none" * 100)
    with pytest.raises(StoreError, match=r"queue\.db"):
        SqliteStore(path).lead(0)
    path.unlink()
    store = SqliteStore(path)
    assert store.lead(0) == 1  # the refusal let go of the lock
    store.close()


def test_a_damaged_page_is_an_error_not_a_shorter_log(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    store = SqliteStore(path)
    store.lead(0)
    store.append([b"x" * 500] * 200)
    store.close()
    content = bytearray(path.read_bytes())
    content[4096 : 8 * 4096] = b"\xff" * (7 * 4096)
    path.write_bytes(bytes(content))
    with pytest.raises(StoreError):
        list(SqliteStore(path).records())


def test_a_log_of_a_later_format_is_refused_with_both_numbers(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version=7")
    db.close()
    with pytest.raises(StoreError, match="format 7; this release reads 1"):
        SqliteStore(path).lead(0)
    with pytest.raises(StoreError, match="format 7; this release reads 1"):
        list(SqliteStore(path).records())


def test_a_folder_that_cannot_be_made_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="writable"):
        SqliteStore(tmp_path / "file" / "queue.db").lead(0)


def test_missing_folders_are_made_for_the_owner_only(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state" / "queue.db")
    store.lead(0)
    store.close()
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0
