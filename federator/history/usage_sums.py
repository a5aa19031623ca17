"""Keeps the sums of usage by day beside the attempts that they are of.

``counted_anew`` surrounds every change of attempts: in one transaction it takes off what their
workloads had added, and adds what they come to now. So the sums always are those of the attempts
that are there, whatever was written twice, late, or in another order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Engine, Numeric, and_, bindparam, cast, func, select
from sqlalchemy.dialects import postgresql, sqlite

from federator.history import schema
from federator.history.database import chunks, transaction
from federator.history.rows import HistoryBatch
from federator.history.values import MAX_WORD, amount, fitted, word
from federator.usage.classes import AttemptTimes
from federator.usage.days import (
    MEASURES,
    AttemptUse,
    Evictor,
    Key,
    Sums,
    add_up,
    difference,
    family_name,
)
from federator.wire.accounting_rows import (
    AccountingAttempt,
    AccountingRow,
    AttemptFacts,
)

STEP: Final = 500  # workloads that are counted at once, of those from before there were sums
_IDS_AT_ONCE: Final = 500
MOST_GPUS: Final = 2**20  # of one attempt, as the next two: no site has more
MOST_CPUS: Final = 2**24
MOST_MEM_MIB: Final = 2**36
MOST_SUM: Final = 2**56  # of a day and key; a database can still add up a hundred of them
_LOCK: Final = 0x666564757361  # of PostgreSQL's, of this database
_A: Final = schema.attempts.c
_M: Final = schema.measured.c
_W: Final = schema.workloads.c
_MEASURED: Final = (
    *("gpu_util_frac", "ready_s", "save_s", "alloc_cpus", "alloc_mem_mib", "accounts_end_at_s"),
)
_decode: Final = msgspec.msgpack.Decoder(AccountingRow).decode


@contextmanager
def counted_anew(connection: Connection, ids: Collection[int]) -> Iterator[None]:
    """Surround a change of the attempts of these workloads, or of what they are known to use."""
    alone(connection)
    before = _sums_of(connection, ids)
    yield
    _add(connection, difference(_sums_of(connection, ids), before))


def alone(connection: Connection) -> None:
    """Wait until nobody else changes attempts or their sums, and keep others waiting till the end.

    A statement of its own, before any that reads: in PostgreSQL a statement that waits for a lock
    goes on with what the other tables held before it waited. SQLite has one writer at a time.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))


def owner_values(batch: HistoryBatch, id_: int, made: AccountingAttempt) -> dict[str, Any]:
    """The columns of an attempt that are for reports of usage alone."""
    row = batch.ended.get(id_) or batch.live.get(id_) or batch.known.get(id_)
    facts = made.facts or AttemptFacts()
    values: dict[str, object] = {
        name: int(value) if isinstance(value, bool) else value
        for name, value in msgspec.structs.asdict(facts).items()
    }
    return fitted(values | _owner(row) | {"counted": int(row is not None)})


def _owner(row: AccountingRow | None) -> dict[str, object]:
    if row is None:
        return dict.fromkeys(schema.OWNER, "")
    return {
        "tenant": row.tenant,
        "user": row.user,
        "project": row.project,
        "family": family_name(row.name),
    }


def count_some(engine: Engine) -> bool:
    """Count attempts that were written before there were sums, of some workloads.

    Returns:
        Whether there may be more.

    Raises:
        HistoryError: the database failed; what was counted before stays.
    """
    uncounted = select(_A.id).where(_A.counted == 0).distinct().order_by(_A.id).limit(STEP)
    with transaction(engine) as connection:
        ids = list(connection.execute(uncounted).scalars())
        if not ids:
            return False
        owners = _owners(connection, ids)
        change = (
            schema.attempts.update()
            .where(and_(_A.id == bindparam("of"), _A.counted == 0))
            .values({name: bindparam(f"its_{name}") for name in schema.OWNER} | {"counted": 1})
        )
        with counted_anew(connection, ids):
            connection.execute(
                change,
                [
                    {"of": id_} | {f"its_{name}": value for name, value in owners[id_].items()}
                    for id_ in ids
                ],
            )
    return len(ids) == STEP


def _owners(connection: Connection, ids: Collection[int]) -> dict[int, dict[str, object]]:
    found = {id_: _owner(None) for id_ in ids}
    for some in chunks(ids, _IDS_AT_ONCE):
        query = select(_W.id, _W.tenant, _W.user, _W.project, _W.name).where(_W.id.in_(some))
        for id_, tenant, user, project, name in connection.execute(query):
            family = family_name(name)
            found[id_] = {"tenant": tenant, "user": user, "project": project, "family": family}
        live = select(schema.live).where(schema.live.c.id.in_(some))
        found |= {id_: fitted(_owner(_decode(row))) for id_, row in connection.execute(live)}
    return found


# ---- sums ----


def _sums_of(connection: Connection, ids: Collection[int]) -> Sums:
    """What the counted attempts of these workloads come to."""
    sums: Sums = {}
    for uses in uses_of(connection, ids).values():
        add_up(sums, uses)
    return sums


def uses_of(connection: Connection, ids: Iterable[int]) -> dict[int, list[AttemptUse]]:
    """The counted attempts of these workloads, by workload."""
    columns = [*schema.attempts.columns, *(_M[name] for name in _MEASURED)]
    found: dict[int, list[AttemptUse]] = {}
    for some in chunks(ids, _IDS_AT_ONCE):
        query = (
            select(*columns)
            .select_from(schema.attempts_and_use)
            .where(_A.id.in_(some), _A.counted == 1)
        )
        for row in connection.execute(query).mappings():
            found.setdefault(row["id"], []).append(_use(row))
    return found


def live_uses(row: AccountingRow, now_s: float) -> AttemptUse | None:
    """The attempt of a workload that lives, as if it were over now; None: it holds nothing."""
    made = row.last
    if made is None or not (made.started_at_s or made.awarded_at_s):
        return None
    facts = msgspec.structs.asdict(made.facts or AttemptFacts())
    values = msgspec.structs.asdict(made) | facts | _owner(row)
    over_s = made.ended_at_s or now_s
    began_s = made.started_at_s if made.ended_at_s else min(made.started_at_s, now_s)
    values |= {"state": "", "started_at_s": began_s, "ended_at_s": over_s, "known_at_s": 0.0}
    return _use(values | dict.fromkeys(_MEASURED))


def _use(row: Mapping[Any, Any]) -> AttemptUse:
    return AttemptUse(
        times=AttemptTimes(
            attempt=row["attempt"],
            awarded_at_s=row["awarded_at_s"],
            started_at_s=row["started_at_s"],
            ended_at_s=_ended_at_s(row),
            known_at_s=row["known_at_s"],
            state=row["state"],
            evicted=bool(row["evicted"]),
            told_at_s=row["told_at_s"],
            saved_at_s=row["saved_at_s"],
            ready_s=row["ready_s"],
            save_s=row["save_s"],
            site_job_id=row["site_job_id"],
            last_job_id=row["last_job_id"],
        ),
        site=word(row["site"]),
        partition=word(row["partition"]),
        gpus=amount(row["gpus"], MOST_GPUS),
        gpu_types=_short_types(row["gpu_types"]),
        cpus=_given(row["alloc_cpus"], row["cpus"], MOST_CPUS),
        mem_mib=_given(row["alloc_mem_mib"], row["mem_mib"], MOST_MEM_MIB),
        tenant=word(row["tenant"]),
        user=word(row["user"]),
        project=word(row["project"]),
        family=word(row["family"]),
        over_quota=bool(row["over_quota"]),
        evictor=Evictor(
            word(row["evictor_tenant"]),
            word(row["evictor_user"]),
            word(row["evictor_project"]),
            word(row["evictor_family"]),
        ),
        busy_frac=row["gpu_util_frac"],
    )


def _ended_at_s(row: Mapping[Any, Any]) -> float:
    """By its site's accounts, if these know of an earlier end: it was requeued, and seen later."""
    ended_at_s, told_at_s = float(row["ended_at_s"]), row["accounts_end_at_s"]
    earlier = told_at_s is not None and row["started_at_s"] <= told_at_s < ended_at_s
    return float(told_at_s) if earlier else ended_at_s


def _short_types(gpu_types: str) -> str:
    """``a100=8,h100=4`` with names that a key takes."""
    if len(gpu_types) <= MAX_WORD // 4:
        return gpu_types
    parts = (each.rpartition("=") for each in gpu_types.split(","))
    return ",".join(f"{word(name)}{sign}{count}" for name, sign, count in parts)


def _given(by_site: float | None, planned: int, most: int) -> int:
    """The amount that Slurm gave, if its site has told; it may be more than was planned."""
    return round(min(max(0.0, by_site), float(most))) if by_site else amount(planned, most)


def _add(connection: Connection, sums: Sums) -> None:
    """Add to the sums that are there; one that no number holds stays at the greatest."""
    table = schema.usage_days
    if connection.dialect.name == "postgresql":
        insert: Any = postgresql.insert(table)
        least: Any = func.least
        greatest: Any = func.greatest
        there: dict[str, Any] = {name: cast(table.c[name], Numeric) for name in MEASURES}
    else:
        insert = sqlite.insert(table)
        least, greatest = func.min, func.max  # of two values
        there = {name: table.c[name] for name in MEASURES}
    more = insert.excluded
    added = {
        name: greatest(-MOST_SUM, least(MOST_SUM, there[name] + more[name])) for name in MEASURES
    }
    statement = insert.on_conflict_do_update(index_elements=list(Key._fields), set_=added)
    rows = (
        key._asdict() | dict(zip(MEASURES, map(_bounded, values), strict=True))
        for key, values in sums.items()
    )
    for some in chunks(rows, 1_000):
        connection.execute(statement, some)


def _bounded(value: int) -> int:
    return min(max(-MOST_SUM, value), MOST_SUM)
