"""What every store must promise, for each of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from federator.errors import LeadershipLost, StoreError
from federator.store.base import Store
from federator.store.memory import MemoryLog, MemoryStore
from federator.store.sqlite import SqliteStore

WRITER = """
import sys
from pathlib import Path
from federator.store.sqlite import SqliteStore
store = SqliteStore(Path(sys.argv[1]))
store.lead(0)
for n in range(1_000_000):
    store.append([b"%d.%d" % (n, k) for k in range(3)])
    print(n, flush=True)
"""

Opener = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same log again and again."""
    log = MemoryLog()
    kinds: dict[str, Opener] = {
        "memory": lambda: MemoryStore(log),
        "sqlite": lambda: SqliteStore(tmp_path / "log.db"),
    }
    return kinds[request.param]


@pytest.fixture
def store(opener: Opener) -> Iterator[Store]:
    """A leading one."""
    opened = opener()
    opened.lead(0)
    yield opened
    opened.close()


def test_a_new_log_is_empty(opener: Opener, store: Store) -> None:
    assert list(store.records()) == []
    assert list(opener().records()) == []


def test_a_log_that_nobody_has_led_is_empty(opener: Opener) -> None:
    assert list(opener().records()) == []


def test_records_come_back_in_the_order_they_were_added(opener: Opener, store: Store) -> None:
    store.append([b"one", b"two"])
    store.append([])
    store.append([b"three", b"\x00\xff"])
    assert list(store.records()) == [b"one", b"two", b"three", b"\x00\xff"]
    assert list(opener().records()) == [b"one", b"two", b"three", b"\x00\xff"]  # beside the leader


def test_a_closed_store_takes_nothing(store: Store) -> None:
    store.append([b"one"])
    store.close()
    store.close()
    with pytest.raises(StoreError):
        store.append([b"two"])


def test_who_does_not_lead_can_read_and_write_nothing(opener: Opener, store: Store) -> None:
    store.append([b"one"])
    other = opener()
    for write in (other.append, other.compact):
        with pytest.raises(StoreError, match="not lead"):
            write([b"two"])
    with pytest.raises(StoreError, match="not lead"):
        other.renew()
    assert list(other.records()) == [b"one"]


def test_one_leads_at_a_time_and_a_closed_one_does_not(opener: Opener, store: Store) -> None:
    store.append([b"one"])
    other = opener()
    assert other.lead(0) is None
    store.append([b"two"])
    store.close()
    assert other.lead(0) is not None
    other.append([b"three"])
    assert list(other.records()) == [b"one", b"two", b"three"]
    other.close()


def test_every_term_has_a_greater_epoch(opener: Opener) -> None:
    epochs = []
    for at_least in (0, 1000, 7):
        leader = opener()
        epochs += [leader.lead(at_least), leader.lead(0)]
        leader.close()
    assert epochs == [1, 2, 1000, 1001, 1002, 1003]


def test_a_leader_that_renews_leads_on(store: Store) -> None:
    assert store.renew() > 0.0
    store.append([b"one"])
    assert store.renew() > 0.0


def test_a_compacted_log_holds_what_it_was_given_and_what_came_later(
    opener: Opener, store: Store
) -> None:
    store.append([b"one", b"two"])
    before = store.records()
    store.compact([b"both"])
    store.append([b"three"])
    assert list(store.records()) == list(opener().records()) == [b"both", b"three"]
    store.compact([])
    assert list(store.records()) == []
    store.append([b"four"])
    assert list(opener().records()) == [b"four"]
    assert list(before) in ([b"one", b"two"], [b"four"])  # never a mixture


# ---- leases that end by time ----


def test_a_leader_whose_lease_ended_is_refused_once_another_leads() -> None:
    now_s = 0.0
    log = MemoryLog(lease_s=3.0, clock=lambda: now_s)
    paused, standby = MemoryStore(log), MemoryStore(log)
    paused.lead(0)
    paused.append([b"one"])
    now_s = 2.9
    assert standby.lead(0) is None
    assert paused.renew() == 3.0
    now_s = 5.8
    assert standby.lead(0) is None
    now_s = 5.9
    assert standby.lead(0) == 2
    for act in (paused.append, paused.compact):
        with pytest.raises(LeadershipLost):
            act([b"two"])
    with pytest.raises(LeadershipLost):
        paused.renew()
    paused.close()  # is not the other's end
    standby.append([b"three"])
    assert list(standby.records()) == [b"one", b"three"]


# ---- stores that outlive their process ----


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "queue.db"


def leading(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    assert store.lead(0) is not None
    return store


def test_records_survive_a_reopen(path: Path) -> None:
    first = leading(path)
    first.append([b"one", b"two"])
    first.close()
    second = leading(path)
    second.append([b"three"])
    assert list(second.records()) == [b"one", b"two", b"three"]
    second.close()


def test_an_append_is_all_or_nothing(path: Path) -> None:
    store = leading(path)
    store.append([b"one"])
    with pytest.raises(StoreError):
        store.append([b"two", object()])  # type: ignore[list-item]  # fails half way
    store.append([b"three"])
    assert list(store.records()) == [b"one", b"three"]
    store.close()


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
    store = leading(path)  # the lock went with its holder
    found = list(store.records())
    store.close()
    whole = [b"%d.%d" % (n, k) for n in range(len(found) // 3) for k in range(3)]
    assert found == whole  # in order, and no append is there by halves
    assert len(found) // 3 >= acknowledged


def test_the_log_is_readable_by_its_owner_only(path: Path) -> None:
    store = leading(path)
    store.append([b"one"])
    modes = {p.name: p.stat().st_mode & 0o077 for p in path.parent.iterdir()}
    store.close()
    assert set(modes.values()) == {0}, modes
