"""Builds logs of a few workloads, and the histories that follow them."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Engine, select

from federator.history import query, schema
from federator.history.database import open_reader, open_writer
from federator.history.follower import HistoryFollower
from federator.history.query import HistoryQuestion
from federator.model.event import (
    Awarded,
    Changed,
    EpochBegan,
    LogRecord,
    Submitted,
    encode_event,
)
from federator.model.lifecycle import WorkloadEvent
from federator.model.plan import JobPlan
from federator.model.site import NodeShare
from federator.model.workload import FIRST_WORKLOAD_ID, AttemptId, WorkloadId
from federator.sched.state.ledger import Ledger
from federator.sched.state.snapshot import taken
from federator.store.memory import MemoryLog, MemoryStore
from federator.wire.accounting_rows import AccountingRow
from tests.fakes.build import draft

_H = WorkloadEvent
T0_S = 1_760_000_000.0
_OPEN = list[Engine]()


def writer(url: str) -> Engine:
    _OPEN.append(open_writer(url))
    return _OPEN[-1]


def reader(url: str) -> Engine:
    _OPEN.append(open_reader(url))
    return _OPEN[-1]


class Log:
    """A log that a daemon writes, and the ledger that it keeps by it."""

    def __init__(self) -> None:
        self.store = MemoryStore(MemoryLog())
        self.store.lead(0)
        self.ledger = Ledger()
        self.write(EpochBegan(at_s=T0_S, epoch=1))

    def write(self, *events: LogRecord) -> None:
        for each in events:
            self.ledger.apply(each)
        self.store.append([encode_event(each) for each in events])

    def compact(self) -> None:
        self.store.compact([encode_event(each) for each in taken(self.ledger, T0_S)])


def submitted(number: int, at_s: float = T0_S, user: str = "ada", tasks: int = 1) -> Submitted:
    indices = tuple(range(tasks)) if tasks > 1 else ()
    return Submitted(
        at_s=at_s,
        draft=draft(user=user, array_indices=indices),
        first_id=WorkloadId(FIRST_WORKLOAD_ID + number),
        key=f"key-{number}",
    )


def awarded(number: int, attempt: int = 1, at_s: float = T0_S, site: str = "alpine") -> Awarded:
    share = NodeShare(gpus=8, cpus=16, mem_mib=64_000)
    nodes = {f"{site}{k}": share for k in range(1, 5)}
    return Awarded(
        at_s=at_s,
        attempt=AttemptId(workload=WorkloadId(FIRST_WORKLOAD_ID + number), attempt=attempt),
        site=site,
        jobs=(JobPlan(name="train", partition="gpu", nodes=nodes, gpu_types={"a100": 32}),),
        priority=3,
    )


def changed(number: int, what: WorkloadEvent, at_s: float = T0_S, **fields: object) -> Changed:
    return Changed(
        at_s=at_s,
        workload=WorkloadId(FIRST_WORKLOAD_ID + number),
        happening=what,
        **fields,  # type: ignore[arg-type]
    )


def life(
    number: int, at_s: float = T0_S, end: WorkloadEvent = _H.COMPLETED, user: str = "ada"
) -> list[LogRecord]:
    """Submitted at ``at_s``, awarded 10 s later, started after 20 s and over after 80 s."""
    return [
        submitted(number, at_s, user),
        awarded(number, at_s=at_s + 10),
        changed(number, _H.ACCEPTED, at_s + 11, site_job_id=700 + number),
        changed(number, _H.STARTED, at_s + 21, started_at_s=at_s + 20),
        changed(number, end, at_s + 81, ended_at_s=at_s + 80, site_state=end.name),
    ]


def brought_up_to_date(follower: HistoryFollower) -> HistoryFollower:
    while not follower.take():
        pass
    return follower


def follow(log: Log, url: str) -> HistoryFollower:
    return brought_up_to_date(HistoryFollower(log.store, writer(url)))


def ask(url: str, **wanted: object) -> list[AccountingRow]:
    """All pages, with the earlier attempts of each."""
    engine, rows, after = reader(url), list[AccountingRow](), None
    while True:
        page = query.page(engine, HistoryQuestion(**wanted), after, most=7)  # type: ignore[arg-type]
        rows += page.rows
        after = page.after
        if after is None:
            break
    made = query.attempts_of(engine, [row.id for row in rows])
    for row in rows:
        row.earlier = tuple(a for a in made.get(row.id, ()) if a != row.last)
    return rows


def ids(rows: Iterable[AccountingRow]) -> list[int]:
    return [row.id - FIRST_WORKLOAD_ID for row in rows]


def contents(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table."""
    with reader(url).connect() as connection:
        return {
            table.name: sorted(tuple(row) for row in connection.execute(select(table)))
            for table in schema.METADATA.sorted_tables
        }
