"""A standby reads the log along: it knows what the log says, whatever becomes of the log."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import pytest
from structlog.testing import capture_logs

from federator.daemon import log_tailer
from federator.daemon.log_tailer import LogTailer
from federator.errors import DamagedLog, LogDiverged
from federator.model.event import Changed, EpochBegan, Submitted, encode_event
from federator.model.lifecycle import WorkloadEvent
from federator.model.workload import FIRST_WORKLOAD_ID, SiteName, WorkloadId
from federator.policies.fifo import Fifo
from federator.sched.passes.federation import Federation
from federator.sched.state.rules import Rules
from federator.store.chain import LogPlace
from federator.store.memory import MemoryLog, MemoryStore
from tests.fakes.build import draft, gang


def empty() -> Federation:
    return Federation({SiteName("alpine"): ("gpu",)}, Fifo(), Rules())


def submitted(k: int) -> bytes:
    id_ = WorkloadId(FIRST_WORKLOAD_ID + k)
    return encode_event(Submitted(at_s=float(k), draft=draft(gang(1)), first_id=id_, key=f"k{k}"))


def whole(follower: LogTailer) -> Federation:
    while not follower.tail():
        pass
    return follower.federation


def keys(federation: Federation) -> Sequence[str]:
    return tuple(federation.ledger.keys.id_of)


class Leader:
    def __init__(self, records: Sequence[bytes]) -> None:
        self.log = MemoryLog()
        self.store = MemoryStore(self.log)
        self.store.lead(0)
        self.store.append(records)


def test_what_comes_is_taken_in_once() -> None:
    leader = Leader([submitted(0)])
    follower = LogTailer(empty, MemoryStore(leader.log))
    for k in range(1, 4):
        assert follower.tail()
        leader.store.append([submitted(k)])
    assert keys(whole(follower)) == ("k0", "k1", "k2", "k3")


def test_a_long_log_is_taken_in_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tailer, "RECORDS_AT_ONCE", 2)
    follower = LogTailer(empty, MemoryStore(Leader([submitted(k) for k in range(5)]).log))
    assert [follower.tail() for _ in range(3)] == [False, False, True]
    assert len(keys(whole(follower))) == 5


def test_a_log_that_was_compacted_is_read_anew() -> None:
    leader = Leader([submitted(0), submitted(1)])
    follower = LogTailer(empty, MemoryStore(leader.log))
    assert follower.tail()
    leader.store.compact([encode_event(EpochBegan(at_s=9.0, epoch=7)), submitted(0), submitted(1)])
    leader.store.append([submitted(2)])
    assert not follower.tail()
    federation = whole(follower)
    assert keys(federation) == ("k0", "k1", "k2")
    assert federation.ledger.epoch == 7


def test_a_log_that_is_another_one_is_read_anew_and_that_is_said() -> None:
    class Diverging(MemoryStore):
        def read_on(self, place: LogPlace | None) -> Generator[tuple[LogPlace, bytes]]:
            if place is not None and len(self._log.records) == 1:
                raise LogDiverged("record 2 is not the one that was read before")
            yield from super().read_on(place)

    log = Leader([submitted(0), submitted(1)]).log
    follower = LogTailer(empty, Diverging(log))
    with capture_logs() as said:
        assert keys(whole(follower)) == ("k0", "k1")
        assert said == []
        log.records[:] = [submitted(2)]
        assert keys(whole(follower)) == ("k2",)
    assert [(line["event"], line["log_level"]) for line in said] == [("log_diverged", "warning")]


def test_a_record_that_cannot_follow_is_told_each_time_and_nothing_is_built_on_it() -> None:
    wrong = Changed(
        at_s=1.0,
        workload=WorkloadId(FIRST_WORKLOAD_ID + 7),
        attempt=1,
        happening=WorkloadEvent.STARTED,
    )
    leader = Leader([submitted(0), encode_event(wrong)])
    follower = LogTailer(empty, MemoryStore(leader.log))
    for _ in range(2):
        with pytest.raises(DamagedLog, match="record 2"):
            follower.tail()
    leader.store.compact([submitted(0)])  # somebody mends it
    assert keys(whole(follower)) == ("k0",)
