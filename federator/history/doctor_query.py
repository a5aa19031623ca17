"""Reads what ``federator doctor`` judges: attempts with what they used, and what runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Engine, Select, or_, select

from federator.history import schema
from federator.history.database import snapshot
from federator.history.usage_query import has_attempt
from federator.history.values import word
from federator.model.viewer import Viewer
from federator.usage.days import family_name
from federator.usage.diagnosis import JudgedAttempt
from federator.usage.quota_review import PoweredTime, QueuedWorkload
from federator.wire.accounting_rows import AccountingRow, MeasuredUse

MOST_ATTEMPTS: Final = 50_000  # that one answer judges, the latest
MOST_WORKLOADS: Final = 200_000  # whose waits one review reads
_A: Final = schema.attempts.c
_M: Final = schema.measured.c
_W: Final = schema.workloads.c
_SAME: Final = tuple(  # columns that a judged attempt has by the same name
    name
    for name in MeasuredUse.__struct_fields__
    if name in JudgedAttempt.__struct_fields__ and name not in ("cpu_s", "mem_mib")
)
_USE: Final = ("gpu_util_frac", "cpu_s", "mem_mib", "alloc_cpus", "alloc_mem_mib", *_SAME)
_decode: Final = msgspec.msgpack.Decoder(AccountingRow).decode


class DoctorQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Whose attempts are judged; an empty tuple asks for any. Times are Unix times."""

    start_s: float
    end_s: float
    tenants: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    viewer: Viewer | None = None  # who asks; None: one who sees all


class AttemptsFound(NamedTuple):
    """The records, and up to when the history has them."""

    records: list[JudgedAttempt]
    at_s: float
    is_whole: bool  # False: there were more, earlier ones


def attempts(engine: Engine, question: DoctorQuestion, most: int = MOST_ATTEMPTS) -> AttemptsFound:
    """The attempts that ended in a time, and those that run.

    Raises:
        HistoryError: the database cannot be read, or is of another release.
    """
    with snapshot(engine) as connection:
        schema.check_ready(connection)
        place = connection.execute(select(schema.log_place.c.at_s)).scalar_one_or_none()
        query = _ended(question).limit(most + 1)
        ended = [_record(row) for row in connection.execute(query).mappings()]
        running = list(_running(connection, question))
    return AttemptsFound([*ended[:most], *running], float(place or 0.0), len(ended) <= most)


def queue(
    engine: Engine, start_s: float, end_s: float, most: int = MOST_WORKLOADS
) -> list[QueuedWorkload] | None:
    """The waits for first starts that ended in a time, or last; None: they are more than that.

    The waits of those that have ended with several attempts are not told: when the first of them
    started is not in their rows.

    Raises:
        HistoryError: the database cannot be read.
    """
    columns = (_W.tenant, _W.asked_gpus, _W.eligible_at_s, _W.started_at_s, _W.over_at_s)
    wanted = (_W.over_at_s >= start_s, _W.eligible_at_s > 0, _W.eligible_at_s < end_s)
    query = select(*columns).where(*wanted, _W.attempt <= 1).limit(most + 1)
    with snapshot(engine) as connection:
        schema.check_ready(connection)
        ended = [
            QueuedWorkload(tenant, gpus, eligible_s, started_s or over_s)
            for tenant, gpus, eligible_s, started_s, over_s in connection.execute(query)
        ]
        if len(ended) > most:
            return None
        rows = (_decode(packed) for (packed,) in connection.execute(select(schema.live.c.row)))
        waits = list(islice(_waits(rows), most - len(ended) + 1))
    return [*ended, *waits] if len(ended) + len(waits) <= most else None


def power_times(
    engine: Engine, start_s: float, end_s: float, most: int = MOST_WORKLOADS
) -> list[PoweredTime] | None:
    """The power of attempts that have ended, as far as it is known, which ran in a time.

    None: they are more than that.

    Raises:
        HistoryError: the database cannot be read, or is of another release.
    """
    columns = (_A.tenant, _A.gpus, _A.started_at_s, _A.ended_at_s, _M.gpu_power_frac)
    wanted = (
        _A.ended_at_s >= start_s,
        _A.started_at_s > 0,
        _A.started_at_s < end_s,
        _A.gpus > 0,
        _A.counted == 1,
        _M.gpu_power_frac.is_not(None),
    )
    its = (schema.attempts.c.id == _M.id) & (schema.attempts.c.attempt == _M.attempt)
    query = select(*columns).select_from(schema.attempts.join(schema.measured, its))
    with snapshot(engine) as connection:
        schema.check_ready(connection)
        rows = connection.execute(query.where(*wanted).limit(most + 1)).all()
    return [PoweredTime(*row) for row in rows] if len(rows) <= most else None


def _waits(rows: Iterable[AccountingRow]) -> Iterator[QueuedWorkload]:
    for row in rows:
        made = row.last
        if row.eligible_at_s and (made is None or made.attempt == 1):
            left_s = made.started_at_s if made is not None else 0.0
            yield QueuedWorkload(row.tenant, row.asked_gpus, row.eligible_at_s, left_s)


def _ended(question: DoctorQuestion) -> Select[Any]:
    use = [_M[name].label(f"use_{name}") for name in _USE]
    return (
        select(schema.attempts, *use)
        .select_from(schema.attempts_and_use)
        .where(*_wanted(question))
        .order_by(_A.ended_at_s.desc(), _A.id.desc())
    )


def _wanted(question: DoctorQuestion) -> list[ColumnElement[bool]]:
    found = [
        _A.ended_at_s >= question.start_s,
        _A.ended_at_s < question.end_s,
        _A.started_at_s > 0,
        _A.counted == 1,  # of the rest it is not known whose they are
    ]
    if question.tenants:
        found.append(_A.tenant.in_(sorted(map(word, question.tenants))))
    if question.users:
        found.append(_A.user.in_(sorted(map(word, question.users))))
    viewer = question.viewer
    if viewer is not None:
        tenants = sorted(map(word, viewer.tenants))
        found.append(or_(_A.user == word(viewer.user), _A.tenant.in_(tenants)))
    return found


def _record(row: Mapping[Any, Any]) -> JudgedAttempt:
    return JudgedAttempt(
        id=row["id"],
        attempt=row["attempt"],
        tenant=row["tenant"],
        user=row["user"],
        family=row["family"],
        site=row["site"],
        nodes=max(1, row["nodes"]),
        gpus=row["gpus"],
        cpus=round(row["use_alloc_cpus"] or row["cpus"]),
        mem_mib=float(row["use_alloc_mem_mib"] or row["mem_mib"]),
        started_at_s=row["started_at_s"],
        ended_at_s=row["ended_at_s"],
        state=row["state"],
        saved_at_s=row["saved_at_s"],
        gpu_busy_frac=row["use_gpu_util_frac"],
        cpu_s=row["use_cpu_s"],
        used_mem_mib=row["use_mem_mib"],
        **{name: row[f"use_{name}"] for name in _SAME},
    )


def _running(connection: Connection, question: DoctorQuestion) -> Iterator[JudgedAttempt]:
    for (packed,) in connection.execute(select(schema.live.c.row).where(has_attempt(connection))):
        row = _decode(packed)
        made, viewer = row.last, question.viewer
        if made is None or not made.started_at_s or made.ended_at_s:
            continue
        if viewer is not None and not viewer.sees(row.user, row.tenant):
            continue
        named = ((row.tenant, question.tenants), (row.user, question.users))
        if any(names and name not in names for name, names in named):
            continue
        yield JudgedAttempt(
            id=row.id,
            attempt=made.attempt,
            tenant=row.tenant,
            user=row.user,
            family=family_name(row.name),
            site=made.site,
            nodes=max(1, made.nodes),
            gpus=made.gpus,
            cpus=made.cpus,
            mem_mib=float(made.mem_mib),
            started_at_s=made.started_at_s,
            state=row.state,
            time_limit_s=row.time_limit_s,
        )
