"""What fsacct is answered: the ledger's rows and the history's, each workload once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.daemon import accounting
from federator.daemon.accounting import AccountingDesk
from federator.daemon.history_answers import NO_HISTORY
from federator.errors import InvalidRequest
from federator.history import measured, service
from federator.history.database import open_reader, open_writer
from federator.history.query import HistoryQuestion, is_wanted, page
from federator.history.rows import row_of
from federator.history.service import JobHistory
from federator.model.event import Awarded, Changed, Forgotten, LogRecord, Submitted, encode_event
from federator.model.lifecycle import TERMINAL, WorkloadEvent
from federator.model.plan import JobPlan
from federator.model.reason import Reason, ReasonCode
from federator.model.site import NodeShare
from federator.model.viewer import Viewer
from federator.model.workload import FIRST_WORKLOAD_ID, AttemptId, SiteName, WorkloadId
from federator.sched.passes.spoken import Spoken
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.store.memory import MemoryStore
from federator.wire.accounting_rows import AccountingRow, MeasuredUse
from federator.wire.client_protocol import AccountingCall, AccountingReply, ErrorKind, ErrorReply
from federator.wire.replies import Reply
from tests.fakes.build import draft
from tests.fakes.long_log import long_log

_H = WorkloadEvent
SITES = (SiteName("alpine"), SiteName("boreal"))


class Office:
    """A desk over a ledger, and a history that is brought up to date when a test says so."""

    def __init__(self, path: Path) -> None:
        self.path, self.ledger, self.store = path, Ledger(), MemoryStore()
        self.looked_up: list[int] = []  # those that it was asked why they wait
        self.store.lead(0)
        url = f"sqlite://{path}"
        self.reader = open_reader(url)
        self.history = JobHistory(open_writer(url), self.reader, self.store, 1e9)
        self.desk = self.with_history(self.history)

    def with_history(self, history: JobHistory | None) -> AccountingDesk:
        desk = AccountingDesk("demo", self.ledger, history, lambda: 5000.0, self._why_waits)
        desk.sites = frozenset(SITES)
        return desk

    def _why_waits(self, entry: WorkloadRecord, _: Spoken) -> Reason:
        self.looked_up.append(entry.workload.id - FIRST_WORKLOAD_ID)
        return Reason(code=ReasonCode.RESOURCES)

    def write(self, *events: LogRecord) -> None:
        for event in events:
            self.ledger.apply(event)
        self.store.append([encode_event(event) for event in events])

    def ask(self, call: AccountingCall, desk: AccountingDesk | None = None) -> Reply:
        async def asked() -> Reply:
            answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            (desk or self.desk).take(call, answer.set_result)
            return await answer

        return asyncio.run(asked())

    def rows(self, desk: AccountingDesk | None = None, **wanted: object) -> list[AccountingRow]:
        reply = self.ask(AccountingCall(**wanted), desk)  # type: ignore[arg-type]
        assert isinstance(reply, AccountingReply)
        return sorted(reply.rows, key=lambda row: row.id)

    def ids(self, desk: AccountingDesk | None = None, **wanted: object) -> list[int]:
        return [row.id - FIRST_WORKLOAD_ID for row in self.rows(desk, **wanted)]


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    # A compaction gives the history up so soon; a test waits, however slow its machine is.
    monkeypatch.setattr(service, "TAKE_ALL_S", 300.0)
    made = Office(tmp_path / "history.db")
    yield made
    made.history.stop()


def submitted(number: int, at_s: float = 1000.0, user: str = "ada", tasks: int = 1) -> Submitted:
    indices = tuple(range(tasks)) if tasks > 1 else ()
    id_ = WorkloadId(FIRST_WORKLOAD_ID + number)
    wanted = draft(user=user, array_indices=indices, array_max_running=2 if indices else 0)
    return Submitted(at_s=at_s, draft=wanted, first_id=id_, key=f"key {number}")


def changed(number: int, what: WorkloadEvent, at_s: float, **more: object) -> Changed:
    id_ = WorkloadId(FIRST_WORKLOAD_ID + number)
    return Changed(at_s=at_s, workload=id_, happening=what, **more)  # type: ignore[arg-type]


def awarded(number: int, at_s: float, attempt: int = 1, site: str = "alpine") -> Awarded:
    share = NodeShare(gpus=8, cpus=8)
    nodes = {f"{site}{k}": share for k in range(4)}
    return Awarded(
        at_s=at_s,
        attempt=AttemptId(workload=WorkloadId(FIRST_WORKLOAD_ID + number), attempt=attempt),
        site=site,
        jobs=(JobPlan(name="train", partition="gpu", nodes=nodes),),
    )


def started(number: int, at_s: float, attempt: int = 1, site: str = "alpine") -> list[LogRecord]:
    return [
        awarded(number, at_s, attempt, site),
        changed(number, _H.ACCEPTED, at_s, site_job_id=70 + number),
        changed(number, _H.STARTED, at_s, started_at_s=at_s),
    ]


def test_what_lives_comes_from_the_ledger_and_what_ended_from_the_history(office: Office) -> None:
    office.write(submitted(1), *started(1, 1010), changed(1, _H.COMPLETED, 1100, ended_at_s=1100))
    office.write(submitted(2), *started(2, 1020), submitted(3))
    office.history.take_all()
    found = office.rows()
    assert [row.state for row in found] == ["COMPLETED", "RUNNING", "PENDING"]
    assert found[1].last is not None
    assert (found[1].last.site, found[1].last.site_job_id) == ("alpine", 72)


def test_why_what_waits_does_is_looked_up_only_if_it_is_asked_for(office: Office) -> None:
    office.write(submitted(1), *started(1, 1010), submitted(2), submitted(3, tasks=3))
    office.write(submitted(9), changed(9, _H.CANCEL_ASKED, 1100, by="eve"))
    office.history.take_all()
    assert {row.reason for row in office.rows()} == {""}
    assert office.looked_up == []
    found = office.rows(reasons=True)
    waits = ReasonCode.RESOURCES.value
    assert [row.reason for row in found] == ["", waits, waits, ""]
    assert office.looked_up == [2, 3]


def test_what_has_just_ended_is_shown_before_the_history_has_it(office: Office) -> None:
    office.write(submitted(1), changed(1, _H.CANCEL_ASKED, 1100, by="eve"))
    office.history.take_all()
    office.write(submitted(2), changed(2, _H.CANCEL_ASKED, 1200, by="eve"))
    assert office.ids() == [1, 2]
    office.history.take_all()
    assert office.ids() == [1, 2]
    assert {row.cancelled_by for row in office.rows()} == {"eve"}


def test_what_the_log_has_forgotten_is_in_the_history_alone(office: Office) -> None:
    office.write(submitted(1), changed(1, _H.CANCEL_ASKED, 1100, by="eve"))
    office.history.take_all()
    office.ledger.apply(Forgotten(at_s=1200, ids=(WorkloadId(FIRST_WORKLOAD_ID + 1),)))
    assert office.ids(ids=(str(FIRST_WORKLOAD_ID + 1),)) == [1]


def test_attempts_come_with_what_lives_and_with_what_ended(office: Office) -> None:
    gone = {"ended_at_s": 1050.0, "site_state": "NODE_FAIL"}
    for number in (1, 2):
        office.write(submitted(number), *started(number, 1010, site="boreal"))
        office.write(changed(number, _H.NODE_FAILED, 1050, **gone), *started(number, 1060, 2))
    office.write(changed(1, _H.COMPLETED, 1100, ended_at_s=1100))
    office.history.take_all()
    for row in office.rows(attempts=True):
        assert [(a.attempt, a.site, a.state) for a in row.earlier] == [(1, "boreal", "NODE_FAIL")]
        assert row.last is not None
        assert (row.last.attempt, row.last.site) == (2, "alpine")
    assert [row.earlier for row in office.rows()] == [(), ()]


def test_waiting_tasks_of_an_array_share_a_row(office: Office) -> None:
    office.write(submitted(1, tasks=5), *started(2, 1010))
    first, *tasks = office.rows()
    assert (first.array_tasks, first.state) == ("[0,2-4%2]", "PENDING")
    assert [(task.array_index, task.state) for task in tasks] == [(1, "RUNNING")]
    (task,) = office.rows(ids=(f"{FIRST_WORKLOAD_ID + 1}_3",))
    assert (task.array_index, task.array_tasks) == (3, "")


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"users": ("bob",)}, [2]),
        ({"clusters": ("alpine",)}, [1]),
        ({"clusters": ("demo",)}, [1, 2, 3]),
        ({"partitions": ("gpu",)}, [1]),
        ({"nodes": ("alpine3", "other")}, [1]),
        ({"nodes": ("alpine9",)}, []),
        ({"names": ("TRAIN",), "tenants": ("Vision",)}, [1, 2, 3]),
        ({"users": ("BOB",)}, []),
        ({"names": ("train",), "tenants": ("vision",), "start_s": 1500.0}, [1, 3]),
        ({"states": ("PENDING",)}, [1, 2, 3]),  # each was that for a while
        ({"states": ("RUNNING",)}, [1]),
        ({"end_s": 1015.0}, [1, 2]),
    ],
)
@pytest.mark.parametrize("is_followed", [True, False])
def test_a_question_is_answered_alike_by_ledger_and_history(
    office: Office, wanted: dict[str, object], expected: list[int], is_followed: bool
) -> None:
    office.write(submitted(1), *started(1, 1010))
    office.write(submitted(2, 1010, "bob"), changed(2, _H.CANCEL_ASKED, 1400, by="bob"))
    office.write(submitted(3, 1020), changed(1, _H.COMPLETED, 1600, ended_at_s=1599))
    if is_followed:
        office.history.take_all()
    assert office.ids(None, **wanted) == expected


@pytest.mark.parametrize("states", [(), ("RUNNING",), ("PENDING",), ("COMPLETED", "FAILED")])
def test_ledger_and_history_agree_on_who_was_there_in_any_time(
    office: Office, states: tuple[str, ...]
) -> None:
    office.write(*long_log(400))
    office.history.take_all()
    entries = office.ledger.entries.values()
    rows = [row_of(entry) for entry in entries if entry.state in TERMINAL]
    moments = sorted({row.submitted_at_s for row in rows} | {row.over_at_s for row in rows})
    for k in range(0, len(moments) - 3, 2):
        question = HistoryQuestion(
            start_s=moments[k] + 0.5, end_s=moments[k + 3], states=frozenset(states)
        )
        found = {row.id for row in page(office.reader, question, None, 1000).rows}
        assert found == {row.id for row in rows if is_wanted(row, question)}
    assert len(moments) > 6


def test_more_rows_than_one_answer_holds_come_in_pages(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "MAX_ROWS", 2)
    for number in range(1, 6):
        office.write(submitted(number), changed(number, _H.CANCEL_ASKED, 1100, by="eve"))
    office.write(submitted(9))
    office.history.take_all()
    found, after = set[int](), None
    for _ in range(3):
        reply = office.ask(AccountingCall(after=after))
        assert isinstance(reply, AccountingReply)
        found |= {row.id - FIRST_WORKLOAD_ID for row in reply.rows}
        after = reply.after
    assert (found, after) == ({1, 2, 3, 4, 5, 9}, None)


def test_live_workloads_that_an_answer_does_not_hold_are_counted(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "MAX_LIVE", 2)
    office.write(*map(submitted, range(1, 6)))
    reply = office.ask(AccountingCall())
    assert isinstance(reply, AccountingReply)
    assert (len(reply.rows), reply.left_off) == (2, 3)


def test_what_is_not_asked_for_takes_no_place_of_what_is(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "MAX_LIVE", 2)
    office.write(*map(submitted, range(1, 6)))
    office.write(*started(1, 1010), *started(2, 1020, site="boreal"))
    office.write(*map(submitted, range(6, 12)))
    for wanted in (
        {"states": ("RUNNING",)},
        {"clusters": ("alpine", "boreal")},
        {"partitions": ("gpu",)},
        {"nodes": ("alpine1", "boreal1")},
    ):
        reply = office.ask(AccountingCall(**wanted))
        assert isinstance(reply, AccountingReply)
        assert (len(reply.rows), reply.left_off) == (2, 0), wanted


@pytest.mark.parametrize("is_followed", [True, False])
def test_what_somebody_does_not_see_is_left_out_of_ledger_and_history(
    office: Office, is_followed: bool
) -> None:
    office.write(submitted(1, user="ada"), submitted(2, user="bob"))
    office.write(submitted(3, user="bob"), changed(3, _H.CANCEL_ASKED, 1400, by="bob"))
    if is_followed:
        office.history.take_all()

    def seen(viewer: Viewer, **wanted: object) -> list[int]:
        async def asked() -> Reply:
            answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            call = AccountingCall(**wanted)  # type: ignore[arg-type]
            office.desk.take(call, answer.set_result, viewer)
            return await answer

        reply = asyncio.run(asked())
        assert isinstance(reply, AccountingReply)
        return sorted(row.id - FIRST_WORKLOAD_ID for row in reply.rows)

    assert seen(Viewer(user="bob")) == [2, 3]
    assert seen(Viewer(user="eve", tenants=frozenset({"vision"}))) == [1, 2, 3]
    assert seen(Viewer(user="eve")) == []
    assert seen(Viewer(user="ada"), ids=(str(FIRST_WORKLOAD_ID + 3),)) == []


def test_without_a_history_the_ledger_answers_and_says_what_is_missing(office: Office) -> None:
    office.write(submitted(1), changed(1, _H.CANCEL_ASKED, 1100, by="eve"), submitted(2))
    desk = office.with_history(None)
    reply = office.ask(AccountingCall(), desk)
    assert isinstance(reply, AccountingReply)
    assert (office.ids(desk), reply.note) == ([1, 2], NO_HISTORY)


def test_while_the_database_is_away_the_ledger_answers_and_a_later_page_is_refused(
    office: Office,
) -> None:
    office.write(submitted(1), changed(1, _H.CANCEL_ASKED, 1100, by="eve"), submitted(2))
    office.history.take_all()
    for file in office.path.parent.glob("history.db*"):
        file.unlink()
    reply = office.ask(AccountingCall())
    assert isinstance(reply, AccountingReply)
    assert sorted(row.id - FIRST_WORKLOAD_ID for row in reply.rows) == [1, 2]
    assert reply.note.startswith("the history's database: unable to open database file; ")
    later = office.ask(AccountingCall(after=(1.0, 1)))
    assert isinstance(later, ErrorReply)
    assert later.kind is ErrorKind.UNAVAILABLE


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (AccountingCall(clusters=("nowhere",)), "'nowhere' is no cluster: give a site"),
        (AccountingCall(ids=("12x",)), "Invalid job id specified: 12x"),
        (AccountingCall(ids=("1_",)), "Invalid job id specified: 1_"),
        (AccountingCall(names=("n",) * 1001), "more than 1000 names"),
    ],
)
def test_a_question_that_names_nothing_is_refused(
    office: Office, call: AccountingCall, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        office.desk.take(call, lambda _: None)


def test_each_attempt_says_when_its_site_is_asked_what_it_used(office: Office) -> None:
    for number in (1, 2):
        end = changed(number, _H.COMPLETED, 1100, ended_at_s=1100)
        office.write(submitted(number), *started(number, 1010), end)
    office.history.take_all()
    office.write(submitted(3), *started(3, 1120), changed(3, _H.COMPLETED, 1200, ended_at_s=1200))
    office.write(submitted(4), *started(4, 1120), submitted(5))
    asked = asyncio.run(office.history.unmeasured([*SITES], 9))
    writer = open_writer(f"sqlite://{office.path}")
    measured.put(writer, asked[:1], [MeasuredUse(cpu_s=3.0)], 1300.0)
    found = [row.last for row in office.rows(use=True)]
    told = [None if made is None else (made.use, made.use_due_at_s) for made in found]
    first, just = 1100 + measured.FIRST_S, 1200 + measured.FIRST_S
    expected = [(MeasuredUse(cpu_s=3.0), 0.0), (None, first), (None, just), (None, 0.0), None]
    assert told == expected
