"""Keeps what attempts used, and of which attempts that is still to be asked.

An attempt that ran is put on the list in the transaction that writes its row. It leaves the list
when its site has told all, or has not for ``TRIES``, or has been away for too long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Engine, and_, delete, select

from federator.history import schema
from federator.history.database import explained, put_rows, transaction
from federator.history.rows import HistoryBatch
from federator.history.usage_sums import counted_anew
from federator.history.values import fitted
from federator.model.workload import AttemptId, SiteName, WorkloadId
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob

FIRST_S: Final = 2.0  # after the end: slurmdbd mostly knows by then
PAUSES_S: Final = (5.0, 30.0, 600.0, 3600.0)  # between two tries of one attempt
TRIES: Final = len(PAUSES_S) + 1
KEPT_S: Final = 7 * 86_400.0  # on the list once it is due, for a site that is away
_IDS_AT_ONCE: Final = 500
_U: Final = schema.unmeasured.c
_M: Final = schema.measured.c
_A: Final = schema.attempts.c
_FIELDS: Final = MeasuredUse.__struct_fields__


class Unmeasured(NamedTuple):
    """An attempt whose site is to be asked."""

    site: SiteName
    job: EndedJob
    tries: int  # so far


def to_measure(batch: HistoryBatch) -> Iterator[dict[str, Any]]:
    """Rows of ``schema.unmeasured`` for the attempts of a batch that ran."""
    for (id_, number), made in batch.attempts.items():
        row = batch.ended.get(id_) or batch.live.get(id_)
        if row is None or not made.site_job_id or not made.started_at_s:
            continue
        values: dict[str, object] = {
            "id": id_,
            "attempt": number,
            "site": made.site,
            "site_job_id": made.site_job_id,
            "user": row.user,
            "started_at_s": made.started_at_s,
            "ended_at_s": made.ended_at_s,
            "due_at_s": made.ended_at_s + FIRST_S,
            "tries": 0,
        }
        yield fitted(values)


def due(engine: Engine, sites: Iterable[str], now_s: float, most: int) -> list[Unmeasured]:
    """The attempts at these sites that it is time to ask about, the longest due first.

    Args:
        engine: reads the database.
        sites: others are left out.
        now_s: the time.
        most: of each site.

    Raises:
        HistoryError: the database cannot be read.
    """
    with explained(), engine.connect() as connection:
        if schema.found_version(connection) < schema.VERSION:  # the follower is about to make it
            return []
        return [each for site in sorted(sites) for each in _due_at(connection, site, now_s, most)]


def _due_at(connection: Connection, site: str, now_s: float, most: int) -> Iterator[Unmeasured]:
    its = and_(_A.id == _U.id, _A.attempt == _U.attempt)
    query = (
        select(schema.unmeasured, _A.gpus)
        .select_from(schema.unmeasured.outerjoin(schema.attempts, its))
        .where(and_(_U.site == site, _U.due_at_s <= now_s))
        .order_by(_U.due_at_s, _U.id)
        .limit(most)
    )
    for row in connection.execute(query):
        job = EndedJob(
            attempt=AttemptId(workload=WorkloadId(row.id), attempt=row.attempt),
            user=row.user,
            site_job_id=row.site_job_id,
            started_at_s=row.started_at_s,
            ended_at_s=row.ended_at_s,
            gpus=row.gpus or 0,
        )
        yield Unmeasured(SiteName(site), job, row.tries)


def put(
    engine: Engine,
    asked: Sequence[Unmeasured],
    uses: Sequence[MeasuredUse | None],
    now_s: float,
    more_later: Collection[int] = (),
) -> None:
    """Write what a site has told; who it has not told all of is asked about again.

    Args:
        engine: writes to the database.
        asked: the site was asked about these.
        uses: what it has told of each; None: nothing.
        now_s: the time.
        more_later: places of those of which it may know more later.

    Raises:
        HistoryError: the database failed; all of it can be done once more.
    """
    known = [(each, use) for each, use in zip(asked, uses, strict=True) if use is not None]
    again = [e for k, e in enumerate(asked) if uses[k] is None or k in more_later]
    whole = [e for k, e in enumerate(asked) if uses[k] is not None and k not in more_later]
    with transaction(engine) as connection:
        rows = (_key(e) | fitted(_values(connection, e, use)) for e, use in known)
        with counted_anew(connection, {int(each.job.attempt.workload) for each, _ in known}):
            put_rows(connection, schema.measured, rows, replace=True)
        for each in whole:
            _remove(connection, each)
        for each in again:
            if each.tries + 1 >= TRIES:
                _remove(connection, each)
                continue
            values = {"tries": each.tries + 1, "due_at_s": now_s + PAUSES_S[each.tries]}
            connection.execute(schema.unmeasured.update().where(_is(each)).values(values))
        connection.execute(delete(schema.unmeasured).where(_U.due_at_s < now_s - KEPT_S))


class KnownUse(NamedTuple):
    """What is known of the use that one attempt made of its nodes."""

    use: MeasuredUse | None
    due_at_s: float  # when its site is asked (again); 0: no more


def use_of(engine: Engine, ids: Iterable[int]) -> dict[tuple[int, int], KnownUse]:
    """What the attempts of these workloads used, by workload and attempt, as far as it is known.

    Raises:
        HistoryError: the database cannot be read.
    """
    wanted, found = list(ids), dict[tuple[int, int], KnownUse]()
    with explained(), engine.connect() as connection:
        for k in range(0, len(wanted), _IDS_AT_ONCE):
            some = wanted[k : k + _IDS_AT_ONCE]
            listed = select(_U.id, _U.attempt, _U.due_at_s).where(_U.id.in_(some))
            for id_, attempt, due_at_s in connection.execute(listed):
                found[id_, attempt] = KnownUse(None, due_at_s)
            query = select(schema.measured).where(_M.id.in_(some))
            for row in connection.execute(query).mappings():
                use = MeasuredUse(**{name: row[name] for name in _FIELDS})
                before = found.get((row["id"], row["attempt"]))
                due_at_s = before.due_at_s if before is not None else 0.0
                found[row["id"], row["attempt"]] = KnownUse(use, due_at_s)
    return found


def _key(each: Unmeasured) -> dict[str, int]:
    attempt = each.job.attempt
    return {"id": int(attempt.workload), "attempt": attempt.attempt}


def _is(each: Unmeasured) -> ColumnElement[bool]:
    key = _key(each)
    return and_(_U.id == key["id"], _U.attempt == key["attempt"])


def _values(connection: Connection, each: Unmeasured, use: MeasuredUse) -> dict[str, Any]:
    """What was told now; for the rest what an earlier try was told: a folder may hang by now."""
    values = msgspec.structs.asdict(use)
    if not each.tries:
        return values
    key = _key(each)
    query = select(schema.measured).where(_M.id == key["id"], _M.attempt == key["attempt"])
    before = connection.execute(query).mappings().first()
    if before is None:
        return values
    return {name: before[name] if value is None else value for name, value in values.items()}


def _remove(connection: Connection, each: Unmeasured) -> None:
    connection.execute(delete(schema.unmeasured).where(_is(each)))
