"""What every store must promise, for each of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from federator.errors import StoreError
from federator.store.base import Store
from federator.store.memory import MemoryStore
from federator.store.sqlite import SqliteStore

WRITER = """
import sys
from pathlib import Path
from federator.store.sqlite import SqliteStore
store = SqliteStore(Path(sys.argv[1]))
for n in range(1_000_000):
    store.append([b"%d.%d" % (n, k) for k in range(3)])
    print(n, flush=True)
"""


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    kinds: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "sqlite": lambda: SqliteStore(tmp_path / "log.db"),
    }
    opened = kinds[request.param]()
    yield opened
    opened.close()


def test_a_new_log_is_empty(store: Store) -> None:
    assert list(store.records()) == []


def test_records_come_back_in_the_order_they_were_added(store: Store) -> None:
    store.append([b"one", b"two"])
    store.append([])
    store.append([b"three", b"\x00\xff"])
    assert list(store.records()) == [b"one", b"two", b"three", b"\x00\xff"]
    assert list(store.records()) == [b"one", b"two", b"three", b"\x00\xff"]


def test_a_closed_store_takes_nothing(store: Store) -> None:
    store.append([b"one"])
    store.close()
    store.close()
    with pytest.raises(StoreError):
        store.append([b"two"])


# ---- stores that outlive their process ----


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "queue.db"


def test_records_survive_a_reopen(path: Path) -> None:
    first = SqliteStore(path)
    first.append([b"one", b"two"])
    first.close()
    second = SqliteStore(path)
    second.append([b"three"])
    assert list(second.records()) == [b"one", b"two", b"three"]
    second.close()


def test_an_append_is_all_or_nothing(path: Path) -> None:
    store = SqliteStore(path)
    store.append([b"one"])
    with pytest.raises(StoreError):
        store.append([b"two", object()])  # type: ignore[list-item]  # fails half way
    store.append([b"three"])
    assert list(store.records()) == [b"one", b"three"]
    store.close()


def test_a_second_opener_is_refused_until_the_first_is_done(path: Path) -> None:
    first = SqliteStore(path)
    with pytest.raises(StoreError, match="in use by another daemon"):
        SqliteStore(path)
    first.close()
    SqliteStore(path).close()


def test_a_killed_writer_loses_nothing_that_it_acknowledged(path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    for _ in range(40):
        writer.stdout.readline()
    os.kill(writer.pid, signal.SIGKILL)
    acknowledged = 40 + len(writer.stdout.readlines())
    writer.stdout.close()
    assert writer.wait() == -signal.SIGKILL
    store = SqliteStore(path)  # the lock went with its holder
    found = list(store.records())
    store.close()
    whole = [b"%d.%d" % (n, k) for n in range(len(found) // 3) for k in range(3)]
    assert found == whole  # in order, and no append is there by halves
    assert len(found) // 3 >= acknowledged


def test_the_log_is_readable_by_its_owner_only(path: Path) -> None:
    store = SqliteStore(path)
    store.append([b"one"])
    modes = {p.name: p.stat().st_mode & 0o077 for p in path.parent.iterdir()}
    store.close()
    assert set(modes.values()) == {0}, modes
