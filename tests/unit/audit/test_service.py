"""The audit follows the log: every award and act once, whoever is killed when."""

from __future__ import annotations

from pathlib import Path

import pytest

from federator.audit.chain import AuditAct, AuditEnd, verified
from federator.audit.file import AuditFile, files_of, raw_lines
from federator.audit.service import MOST_REFUSED, AuditFollower, audit_folder
from federator.model.dataset import DataSet
from federator.model.drain import LeaveDrill
from federator.model.event import (
    Amended,
    Awarded,
    Changed,
    DataSetDropped,
    DataSetKept,
    EpochBegan,
    LogRecord,
    SiteDrained,
    SiteResumed,
    SnapshotBegan,
    SnapshotDone,
    Submitted,
    encode_event,
)
from federator.model.lifecycle import WorkloadEvent
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.store.memory import MemoryLog, MemoryStore
from tests.fakes.build import attempt, draft, plan_on

ALPINE = SiteName("alpine")
W = WorkloadId(2**32)
DATA = DataSet(name="a", version="1", owner="ada", tenant=TenantName("vision"))


def awarded(k: int = 1) -> Awarded:
    return Awarded(
        at_s=2.0,
        attempt=attempt(k),
        site="alpine",
        jobs=plan_on("a1", "a2"),
        priority=2,
        within_quota=True,
        credit=3.5,
        offers={"alpine": {"gpu_worth": 80.0}, "boreal": {"gpu_worth": 90.0}},
        victims=(WorkloadId(7),),
    )


class Log:
    """A log with one leader, and its audit in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept = MemoryLog()
        self.store = MemoryStore(self.kept)
        self.store.lead(1)

    def append(self, *events: LogRecord) -> None:
        self.store.append([encode_event(event) for event in events])

    def follower(self) -> AuditFollower:
        return AuditFollower(MemoryStore(self.kept), AuditFile(self.folder), lambda: 50.0)

    def acts(self) -> list[AuditAct]:
        lines = verified(raw_lines(files_of(self.folder)), AuditEnd())
        return [line.done for line, _ in lines]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "audit")


def test_an_award_is_told_with_who_offered_what_and_what_came_of_it(log: Log) -> None:
    log.append(EpochBegan(at_s=1.0, epoch=1), awarded())
    assert log.follower().take()
    lead, award = log.acts()
    assert (lead.act, lead.effect) == ("lead", {"epoch": 1})
    assert (award.act, award.on, award.record) == ("award", str(attempt(1)), 2)
    assert award.why["offers"] == {"alpine": {"gpu_worth": 80.0}, "boreal": {"gpu_worth": 90.0}}
    assert award.why["priority"] == 2
    assert award.effect["site"] == "alpine"
    assert award.effect["nodes"] == ["a1", "a2"]
    assert award.effect["victims"] == [7]


def test_what_operators_and_users_ask_for_is_told_with_their_names(log: Log) -> None:
    log.append(
        SiteDrained(at_s=1.0, site=ALPINE, reason="fans", by="root", nodes=("a1",), cordon=True),
        SiteResumed(at_s=2.0, site=ALPINE, by="eve"),
        SiteResumed(at_s=2.0, site=ALPINE, by="eve", drill=LeaveDrill(took_s=9.0, workloads=2)),
        Submitted(at_s=3.0, draft=draft(user="ada"), first_id=W, key="k", by="root"),
        Submitted(at_s=3.0, draft=draft(user="ada"), first_id=WorkloadId(W + 1), key="l"),
        Changed(at_s=4.0, workload=W, happening=WorkloadEvent.CANCEL_ASKED, by="root"),
        Changed(at_s=4.0, workload=W, happening=WorkloadEvent.CANCELLED),
        Amended(at_s=5.0, workloads=(W,), by="ada", time_limit_s=60.0),
        Amended(at_s=5.0, workloads=(W,)),
        DataSetKept(at_s=6.0, kept=DATA, by="ada"),
        DataSetKept(at_s=6.0, kept=DATA),
        DataSetDropped(at_s=6.0, name="a", version="1", by="eve"),
    )
    log.follower().take()
    told = [(each.act, each.by, each.on) for each in log.acts()]
    assert told == [
        ("cordon", "root", "alpine:a1"),
        ("resume", "eve", "alpine"),
        ("leave-drill", "eve", "alpine"),
        ("submit-as", "root", f"{W} of ada"),
        ("cancel_asked", "root", str(W)),
        ("amend", "ada", str(W)),
        ("data-keep", "ada", "a@1"),
        ("data-rm", "eve", "a@1"),
    ]
    assert log.acts()[0].why == {"reason": "fans"}


def test_the_next_follower_goes_on_where_the_last_was(log: Log) -> None:
    for k in range(1, 6):
        log.append(awarded(k))
        log.follower().take()  # and it is killed
    assert [act.record for act in log.acts()] == [1, 2, 3, 4, 5]


def test_lines_that_were_written_before_their_place_was_noted_come_once(log: Log) -> None:
    log.append(awarded(1), awarded(2))
    log.follower().take()
    (log.folder / "end").unlink()
    log.append(awarded(3))
    log.follower().take()
    assert [act.record for act in log.acts()] == [1, 2, 3]


def test_what_no_record_tells_of_is_noted(log: Log) -> None:
    follower = log.follower()
    follower.note(AuditAct(at_s=1.0, act="reload", by="root", effect={"privacy": ["open", "own"]}))
    follower.take()
    assert [act.act for act in log.acts()] == ["reload"]


def test_a_refusal_again_and_again_is_noted_once_a_minute(log: Log) -> None:
    follower = log.follower()
    for at_s in (0.0, 1.0, 59.0, 61.0):
        follower.note(AuditAct(at_s=at_s, act="drain", by="eve", refused="eve is no operator"))
    follower.take()
    assert [act.at_s for act in log.acts()] == [0.0, 61.0]


def test_a_site_that_invents_users_fills_neither_the_audit_nor_keeps_others_out(log: Log) -> None:
    follower = log.follower()

    def denied(by: str, via: str, at_s: float) -> None:
        why = f"site {via} may not speak for {by}"
        follower.note(AuditAct(at_s=at_s, act="submit", by=by, via=via, refused=why))

    for number in range(2 * MOST_REFUSED):
        denied(f"u{number}", "alpine", 1.0)
    denied("bob", "cedar", 2.0)
    denied("bob", "alpine", 61.0)
    while not follower.take():
        pass
    acts = log.acts()
    assert len(acts) == MOST_REFUSED + 2
    assert [(act.by, act.via) for act in acts[-2:]] == [("bob", "cedar"), ("bob", "alpine")]


def test_a_snapshot_tells_nothing_new(log: Log) -> None:
    log.append(SiteDrained(at_s=1.0, site=ALPINE, by="root"))
    log.follower().take()
    snapshot: list[LogRecord] = [
        SnapshotBegan(at_s=9.0, epoch=1, next_id=W),
        SiteDrained(at_s=1.0, site=ALPINE, by="root"),
        SnapshotDone(at_s=9.0, workloads=0),
    ]
    log.store.compact([encode_event(event) for event in snapshot])
    log.append(awarded())
    follower = log.follower()
    while not follower.take():
        pass
    assert [act.act for act in log.acts()] == ["drain", "award"]


def test_what_was_compacted_away_unread_is_said_to_be_missing(log: Log) -> None:
    log.append(awarded(1))
    log.follower().take()
    log.append(awarded(2), awarded(3))
    log.store.compact([])
    log.append(awarded(4))
    follower = log.follower()
    while not follower.take():
        pass
    assert [act.act for act in log.acts()] == ["award", "log-compacted", "award"]
    assert log.acts()[1].effect == {"missed": {"first": 2, "last": 3}}


def test_it_stands_beside_a_log_that_is_a_file() -> None:
    beside = Path("/var/lib/federator/queue-audit")
    assert audit_folder("", "sqlite:///var/lib/federator/queue.db") == beside
    assert audit_folder("/a", "redis://h/0") == Path("/a")
    assert audit_folder("", "redis://h/0") is None
    assert audit_folder("none", "sqlite:///var/lib/federator/queue.db") is None


def test_a_quarantine_of_slow_nodes_and_its_end_are_kept_with_why(log: Log) -> None:
    log.append(
        SiteDrained(at_s=1.0, site=ALPINE, nodes=("a1",), reason="slow", gangs=True, until_s=9.0),
        SiteResumed(at_s=9.0, site=ALPINE, nodes=("a1",), reason="its time is over", gangs=True),
    )
    assert log.follower().take()
    begun, ended = log.acts()
    assert (begun.act, begun.by, begun.on) == ("quarantine", "", "alpine:a1")
    assert (ended.act, ended.why) == ("resume", {"reason": "its time is over"})
