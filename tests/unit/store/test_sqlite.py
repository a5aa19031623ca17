"""What the embedded store says when its file is not a log."""

from __future__ import annotations

import errno
import fcntl
import getpass
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from federator.errors import LeadershipLost, StoreError
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


def test_a_leader_whose_lock_was_removed_leads_no_more(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with closing(SqliteStore(path)) as store:
        store.lead(0)
        Path(f"{path}.lock").unlink()
        with pytest.raises(LeadershipLost, match=r"queue\.db\.lock was removed"):
            store.renew()


@pytest.mark.parametrize("beside", [False, True])
def test_what_a_leader_finds_is_synced_anew_also_while_somebody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    """The process before may have ended because a sync failed."""
    path, wal = tmp_path / "queue.db", tmp_path / "queue.db-wal"
    before, leader = SqliteStore(path), SqliteStore(path)
    before.lead(0)
    before.append([b"one"])
    reader = leader.read_on(None)
    before.append([b"two" * 1000])
    if beside:
        next(reader)
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)  # as of a process that was killed
    synced: list[str] = []
    fsync = os.fsync

    def noted(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted)
    with closing(before), closing(reader), closing(leader):
        held = wal.read_bytes()
        assert leader.lead(0) == 2
        assert wal.read_bytes().startswith(held) is beside  # else it begins anew
        assert synced == [str(wal)] * beside
        assert list(leader.records()) == [b"one", b"two" * 1000]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "the disk is full: make room"),
        (errno.EIO, "the disk failed"),
        (errno.EACCES, "may this user write"),
    ],
)
def test_trouble_with_the_lock_file_is_named_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", fails)
    with pytest.raises(StoreError, match=f"{os.strerror(number)}; {remedy}"):
        SqliteStore(tmp_path / "queue.db").lead(0)


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
    with pytest.raises(StoreError, match="format 7, of a later release; this one reads up to 2"):
        SqliteStore(path).lead(0)
    with pytest.raises(StoreError, match="format 7, of a later release; this one reads up to 2"):
        list(SqliteStore(path).records())


def test_a_folder_that_cannot_be_made_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="may this user write"):
        SqliteStore(tmp_path / "file" / "queue.db").lead(0)


def test_missing_folders_are_made_for_the_owner_only(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state" / "queue.db")
    store.lead(0)
    store.close()
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0


def written(path: Path, *records: bytes) -> None:
    with closing(SqliteStore(path)) as store:
        store.lead(0)
        store.append(records)


def test_a_log_of_the_first_format_is_read_and_then_kept_on(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, record BLOB NOT NULL)")
        db.executemany("INSERT INTO events(record) VALUES (?)", [(b"one",), (b"two",)])
        db.execute("PRAGMA user_version=1")
        db.commit()
    path.chmod(0o600)
    assert list(SqliteStore(path).records()) == [b"one", b"two"]  # before anybody leads
    written(path, b"three")
    assert list(SqliteStore(path).records()) == [b"one", b"two", b"three"]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE events SET record = x'00' WHERE seq = 2", "record 2 is not as written"),
        ("DELETE FROM events WHERE seq = 2", "record 2 is missing"),
        ("DELETE FROM events WHERE seq = 1", "record 1 is missing"),
        ("UPDATE events SET seq = 9 WHERE seq = 3", "record 3 is missing"),
    ],
)
def test_a_changed_or_missing_record_is_named(tmp_path: Path, damage: str, words: str) -> None:
    path = tmp_path / "queue.db"
    written(path, b"one", b"two", b"three")
    with closing(sqlite3.connect(path)) as db:
        db.execute(damage)
        db.commit()
    with pytest.raises(StoreError, match=f"queue.db: damaged: {words}"):
        list(SqliteStore(path).records())


def test_a_log_copied_back_in_time_is_not_led(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    written(path, b"one")
    older = path.read_bytes()
    written(path, b"two", b"three")
    path.write_bytes(older)
    with pytest.raises(StoreError, match=r"2 records .* missing .* remove .*queue\.db\.lock"):
        SqliteStore(path).lead(0)
    assert list(SqliteStore(path).records()) == [b"one"]
    Path(f"{path}.lock").unlink()  # as the message says
    written(path, b"other")
    assert list(SqliteStore(path).records()) == [b"one", b"other"]


def test_another_log_of_the_same_length_is_not_led(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    written(tmp_path / "other.db", b"one", b"2")
    written(path, b"one", b"two")
    (tmp_path / "other.db").replace(path)
    with pytest.raises(StoreError, match="another one than"):
        SqliteStore(path).lead(0)


def test_a_log_that_others_may_write_is_not_led(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    written(path, b"one")
    path.chmod(0o620)
    with pytest.raises(StoreError, match=f"others than its owner: chmod 600 {path}"):
        SqliteStore(path).lead(0)


def test_a_log_of_another_user_is_not_led(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "queue.db"
    written(path, b"one")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4711)
    with pytest.raises(StoreError, match=f"belongs to {getpass.getuser()}: run as"):
        SqliteStore(path).lead(0)
