"""The log does not grow for ever, and whatever comes of shortening it, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from federator.config import load_config
from federator.daemon import compaction
from federator.daemon.compaction import Compaction
from federator.daemon.links import SiteLink
from federator.daemon.log_tailer import LogTailer
from federator.daemon.own_config import new_federation
from federator.errors import LeadershipLost, NotCompacted, StoreError
from federator.faults.clock import VirtualClock, run_virtual
from federator.model.event import EpochBegan, SnapshotDone, decode_event, encode_event
from federator.model.lifecycle import WorkloadState
from federator.model.workload import WorkloadId
from federator.sched.state.ledger import Ledger
from federator.store.memory import MemoryLog, MemoryStore
from federator.wire.client_protocol import CancelCall, SubmitReply
from tests.fakes.ledger_dump import dump
from tests.unit.daemon.test_two_daemons import CONFIG, Host, settled, submit

DAY_S = 86_400.0


class World:
    """One daemon, whose log is compacted after every few records."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.log = MemoryLog(clock=self.clock)
        self.folder = folder
        self.hosts = 0

    async def start(self) -> Host:
        self.hosts += 1
        host = Host(self.folder / str(self.hosts), self.clock, self.log)
        await asyncio.sleep(0.1)
        assert host.leads
        return host

    def told(self) -> Ledger:
        """What a daemon that started now would know."""
        path = self.folder / "federation.yaml"
        path.write_text(CONFIG)
        follower = LogTailer(lambda: new_federation(load_config(path)), MemoryStore(self.log))
        while not follower.tail():
            pass
        return follower.federation.ledger

    def snapshots(self) -> int:
        return sum(isinstance(decode_event(r), SnapshotDone) for r in self.log.records)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    async def deaf(_link: SiteLink) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(SiteLink, "run", deaf)
    monkeypatch.setattr(compaction, "LEAST_RECORDS", 4)
    monkeypatch.setattr(compaction, "RECORDS_PER_WORKLOAD", 0.5)
    return World(tmp_path)


async def submit_all(host: Host, keys: Iterable[str]) -> list[int]:
    ids = []
    for key in keys:
        (reply,) = await settled(host.ask(submit(f"the key {key}")))
        assert isinstance(reply, SubmitReply)
        ids.append(int(reply.id))
    return ids


def known(host: Host) -> Ledger:
    assert host.daemon.term is not None
    return host.daemon.term.federation.ledger


def refusing(error: Callable[[], StoreError]) -> Callable[[Sequence[bytes]], None]:
    def compact(_records: Sequence[bytes]) -> None:
        raise error()

    return compact


def test_a_log_that_has_grown_is_replaced_by_what_it_told(world: World) -> None:
    async def script() -> None:
        host = await world.start()
        await submit_all(host, "abcdefgh")
        assert not world.snapshots(), "sites wait for a daemon that has just started"
        await asyncio.sleep(compaction.FIRST_AFTER_S)
        ids = await submit_all(host, "ij")
        assert world.snapshots() == 1
        assert dump(world.told()) == dump(known(host))
        assert known(host).tail == world.told().tail < 8  # as the metric says
        host.run.cancel()
        await asyncio.sleep(1.0)
        again = await world.start()
        assert await submit_all(again, ["i"]) == ids[:1]

    run_virtual(world.clock, script())


def test_compactions_leave_time_for_decisions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "REST", 1e9)

    async def script() -> None:
        host = await world.start()
        await asyncio.sleep(compaction.FIRST_AFTER_S)
        await submit_all(host, "abcdefghijklmnopqrstuvwxyz")
        assert world.snapshots() == 1

    run_virtual(world.clock, script())


def test_ended_workloads_leave_the_log_with_a_snapshot_when_they_are_old(world: World) -> None:
    async def script() -> None:
        host = await world.start()
        old, live = await submit_all(host, ["old", "live"])
        await settled(host.ask(CancelCall(ids=(str(old),))))
        assert known(host).entries[WorkloadId(old)].state is WorkloadState.CANCELLED
        world.clock.advance(31 * DAY_S)
        (young, *_) = await submit_all(host, "abcdefgh")
        await settled(host.ask(CancelCall(ids=(str(young),))))
        await submit_all(host, "ijkl")
        assert world.snapshots() == 1
        ids = known(host).entries.keys()
        assert WorkloadId(old) not in ids
        assert {WorkloadId(live), WorkloadId(young)} <= ids
        assert "the key old" not in known(host).keys.id_of
        assert dump(world.told()) == dump(known(host))

    run_virtual(world.clock, script())


def test_where_there_is_no_room_the_daemon_goes_on_and_says_so_once_until_it_can(
    world: World,
) -> None:
    async def script() -> None:
        host = await world.start()
        store = host.daemon._store
        compact = store.compact
        store.compact = refusing(lambda: NotCompacted("no room"))  # type: ignore[method-assign,assignment]
        await asyncio.sleep(compaction.FIRST_AFTER_S)
        await submit_all(host, "abcdefghijkl")
        await asyncio.sleep(compaction.AGAIN_AFTER_S)
        await submit_all(host, "mnopqrstuvwx")
        assert not world.snapshots()
        store.compact = compact  # type: ignore[method-assign]
        await submit_all(host, "yz")
        assert not world.snapshots(), "not at once again"
        await asyncio.sleep(compaction.AGAIN_AFTER_S)
        await submit_all(host, "ABC")
        assert world.snapshots() == 1
        assert len(known(host).entries) == 29
        assert dump(world.told()) == dump(known(host))

    with capture_logs() as said:
        run_virtual(world.clock, script())
    names = [line["event"] for line in said if line["event"].startswith("log_")]
    assert names == ["log_not_compacted", "log_compacted"]


@pytest.mark.parametrize("error", [LeadershipLost("another leads"), StoreError("no answer")])
def test_whoever_does_not_know_what_became_of_the_log_ends(world: World, error: StoreError) -> None:
    async def script() -> None:
        host = await world.start()
        store = host.daemon._store
        store.compact = refusing(lambda: error)  # type: ignore[method-assign,assignment]
        await asyncio.sleep(compaction.FIRST_AFTER_S)
        for key in "abcdef":
            host.ask(submit(f"the key {key}"))
        with pytest.raises(type(error)):
            await host.run

    run_virtual(world.clock, script())


class Follower:
    """A history that is behind until it is said to be up to date."""

    def __init__(self) -> None:
        self.is_behind = True
        self.acts: list[str] = []

    def take_all(self) -> None:
        self.acts.append("take_all")
        if self.is_behind:
            raise NotCompacted("the history is behind the log")

    async def forget(self) -> None:
        self.acts.append("forget")


def grown(events: int, follower: Follower) -> tuple[Compaction, MemoryStore]:
    """A log of so many records, with whoever must have read them before they go."""
    store, ledger = MemoryStore(), Ledger()
    store.lead(0)
    for epoch in range(1, events + 1):
        ledger.apply(EpochBegan(at_s=0.0, epoch=epoch))
        store.append([encode_event(EpochBegan(at_s=0.0, epoch=epoch))])
    followers = () if follower is None else (follower,)
    return Compaction(ledger, store, here, 0.0, followers), store


async def here(act: Callable[..., object], *arguments: object) -> object:
    return act(*arguments)


def length(store: MemoryStore) -> int:
    return len(list(store.records()))


def test_nothing_is_forgotten_or_compacted_before_the_history_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compaction, "LEAST_RECORDS", 4)
    follower = Follower()
    compacts, store = grown(8, follower)
    with capture_logs() as said:
        asyncio.run(compacts.run(100.0, follower.forget))
    assert (follower.acts, length(store)) == (["take_all"], 8)
    assert [line["event"] for line in said] == ["log_not_compacted"]
    assert not compacts.is_due(100.0 + compaction.AGAIN_AFTER_S / 2)
    assert compacts.is_due(100.0 + compaction.AGAIN_AFTER_S)
    follower.is_behind, follower.acts = False, []
    asyncio.run(compacts.run(1000.0, follower.forget))
    assert follower.acts == ["take_all", "forget", "take_all"]
    assert length(store) < 8


def test_a_history_that_stays_behind_does_not_let_the_log_grow_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compaction, "LEAST_RECORDS", 4)
    monkeypatch.setattr(compaction, "WAITS", 2.0)
    follower = Follower()
    compacts, store = grown(8, follower)
    asyncio.run(compacts.run(100.0, follower.forget))
    assert "forget" not in follower.acts
    assert length(store) < 8
