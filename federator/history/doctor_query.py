"""Reads what ``federator doctor`` judges: attempts with what they used, and what runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Engine, Select, and_, or_, select

from federator.history import schema
from federator.history.database import snapshot
from federator.history.usage_query import has_attempt
from federator.history.values import word
from federator.model.viewer import Viewer
from federator.usage.days import family_name
from federator.usage.diagnosis import JudgedAttempt
from federator.wire.accounting_rows import AccountingRow

MOST_ATTEMPTS: Final = 50_000  # that one answer judges, the latest
_A: Final = schema.attempts.c
_M: Final = schema.measured.c
_USE: Final = ("gpu_util_frac", "cpu_s", "mem_mib", "save_s", "alloc_cpus", "alloc_mem_mib")
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


def _ended(question: DoctorQuestion) -> Select[Any]:
    joined = schema.attempts.outerjoin(
        schema.measured, and_(_A.id == _M.id, _A.attempt == _M.attempt)
    )
    use = [_M[name].label(f"use_{name}") for name in _USE]
    return (
        select(schema.attempts, *use)
        .select_from(joined)
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
        save_s=row["use_save_s"],
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
