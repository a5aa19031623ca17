"""Finds ended workloads in the history, a page at a time in order of their ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Engine, and_, func, literal, or_, select, tuple_

from federator.history import schema
from federator.history.database import explained
from federator.history.values import key
from federator.model.viewer import Viewer
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow

_IDS_AT_ONCE: Final = 500  # in one statement
_LAST_ID: Final = 2**63 - 1
_W: Final = schema.workloads.c
_ATTEMPT_NAMES: Final = tuple(
    n for n in AccountingAttempt.__struct_fields__ if n not in ("use", "use_due_at_s", "facts")
)
_ROW_NAMES: Final = tuple(
    name for name in AccountingRow.__struct_fields__ if name in _W and name != "attempt"
)


class JobName(NamedTuple):
    """A workload, or the tasks of an array, as users name them."""

    id: int
    task: int | None = None  # the index of one task of the array ``id``


class HistoryQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Which workloads are asked for; an empty tuple asks for any. Times are Unix times."""

    start_s: float = 0.0
    end_s: float = inf
    jobs: tuple[JobName, ...] = ()
    users: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()  # this and the next whatever their case, as sacct's
    names: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    states: frozenset[str] = frozenset()  # Slurm's; then those in such a state in that time
    viewer: Viewer | None = None  # who asks; None: one who sees all


class HistoryPage(NamedTuple):
    """Some of the rows, and where the next page begins; None: there is none."""

    rows: list[AccountingRow]
    after: tuple[float, int] | None


def page(
    engine: Engine, question: HistoryQuestion, after: tuple[float, int] | None, most: int
) -> HistoryPage:
    """Answer a question.

    Args:
        engine: see ``history.database.open_reader``.
        question: what is asked for.
        after: the place that the page before ended at; None: the first page.
        most: rows.

    Raises:
        HistoryError: the database cannot be read.
    """
    with explained(), engine.connect() as connection:
        schema.check_version(schema.found_version(connection))
        query = select(schema.workloads).where(*_wanted(question))
        if after is not None:
            place = tuple_(literal(after[0]), literal(after[1]))
            query = query.where(_W.over_at_s >= after[0], tuple_(_W.over_at_s, _W.id) > place)
        query = query.order_by(_W.over_at_s, _W.id).limit(most)
        rows = [_row(found) for found in connection.execute(query).mappings()]
    last = rows[-1] if len(rows) == most else None
    return HistoryPage(rows, (last.over_at_s, last.id) if last is not None else None)


def attempts_of(engine: Engine, ids: Iterable[int]) -> dict[int, tuple[AccountingAttempt, ...]]:
    """All attempts of workloads that are over, in order; also of workloads that live.

    Raises:
        HistoryError: as ``page``.
    """
    wanted, found = list(ids), dict[int, list[AccountingAttempt]]()
    table = schema.attempts
    with explained(), engine.connect() as connection:
        for k in range(0, len(wanted), _IDS_AT_ONCE):
            some = wanted[k : k + _IDS_AT_ONCE]
            query = select(table).where(table.c.id.in_(some)).order_by(table.c.id, table.c.attempt)
            for row in connection.execute(query).mappings():
                made = AccountingAttempt(**{name: row[name] for name in _ATTEMPT_NAMES})
                found.setdefault(row["id"], []).append(made)
    return {id_: tuple(made) for id_, made in found.items()}


def is_wanted(row: AccountingRow, question: HistoryQuestion) -> bool:
    """Whether a row of the ledger answers a question, as a row of the history would.

    Jobs are not looked at: the ledger knows them by id.
    """
    end_s = row.over_at_s or inf
    last = row.last or AccountingAttempt(attempt=0)
    viewer = question.viewer
    if viewer is not None and not viewer.sees(row.user, row.tenant):
        return False
    if not is_called(row.user, row.tenant, row.name, question):
        return False
    if question.sites and last.site not in question.sites:
        return False
    if end_s < question.start_s or row.submitted_at_s > question.end_s:
        return False
    return not question.states or _was_in_states(row, last.started_at_s, question)


def is_called(user: str, tenant: str, name: str, question: HistoryQuestion) -> bool:
    """Whether a workload of this user, tenant and name is among those that are named."""
    if question.users and user not in question.users:
        return False
    if question.tenants and tenant.lower() not in {word.lower() for word in question.tenants}:
        return False
    return not question.names or name.lower() in {word.lower() for word in question.names}


def _was_in_states(row: AccountingRow, started_at_s: float, question: HistoryQuestion) -> bool:
    if row.over_at_s and row.state in question.states and row.over_at_s <= question.end_s:
        return True
    if "RUNNING" in question.states and 0 < started_at_s <= question.end_s:
        return True
    began = not started_at_s or started_at_s >= question.start_s
    return "PENDING" in question.states and row.eligible_at_s <= question.end_s and began


def _row(found: Mapping[Any, Any]) -> AccountingRow:
    row = AccountingRow(**{name: found[name] for name in _ROW_NAMES})
    if found["attempt"]:
        row.last = AccountingAttempt(
            **{name: found[name] for name in _ATTEMPT_NAMES if name not in ("state", "reason")}
        )
        row.last.state, row.last.reason = row.state, row.reason
    return row


def _wanted(question: HistoryQuestion) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = [_W.over_at_s >= question.start_s]
    if question.end_s < inf:
        found.append(_W.submitted_at_s <= question.end_s)
    if question.jobs:
        found.append(_named(question.jobs))
    for column, values in ((_W.user, question.users), (_W.site, question.sites)):
        if values:
            found.append(column.in_(sorted(map(key, values))))
    for column, values in ((_W.tenant, question.tenants), (_W.name, question.names)):
        if values:  # the database makes both sides small, or they might differ
            small = [func.lower(literal(value)) for value in sorted(map(key, values))]
            found.append(func.lower(column).in_(small))
    if question.viewer is not None:
        found.append(_seen(question.viewer))
    if question.states:
        found.append(_in_states(question))
    return found


def _seen(viewer: Viewer) -> ColumnElement[bool]:
    return or_(_W.user == key(viewer.user), _W.tenant.in_(sorted(map(key, viewer.tenants))))


def _named(jobs: Iterable[JobName]) -> ColumnElement[bool]:
    wanted = list(jobs)
    whole = [job.id for job in wanted if job.task is None and job.id <= _LAST_ID]
    tasks = [
        and_(_W.array_id == job.id, _W.array_index == job.task, _W.array_id > 0)
        for job in wanted
        if job.task is not None and max(job.id, job.task) <= _LAST_ID
    ]
    return or_(_W.id.in_(whole), and_(_W.array_id.in_(whole), _W.array_id > 0), *tasks)


def _in_states(question: HistoryQuestion) -> ColumnElement[bool]:
    """Those that ended in such a state in the time, or were in one for a while before they ended.

    As sacct has it: ``sacct -s RUNNING -S … -E …`` shows what ran then, whatever became of it.
    """
    ended = question.states - {"PENDING", "RUNNING"}
    ways = [and_(_W.state.in_(sorted(ended)), _W.over_at_s <= question.end_s)] if ended else []
    if "RUNNING" in question.states:
        ways.append(and_(_W.started_at_s > 0, _W.started_at_s <= question.end_s))
    if "PENDING" in question.states:
        began = or_(_W.started_at_s == 0, _W.started_at_s >= question.start_s)
        ways.append(and_(_W.eligible_at_s <= question.end_s, began))
    return or_(*ways)
