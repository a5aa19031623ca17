"""Reads the workloads of a time as a simulation takes them: when they came, and what they held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, Engine, func, select

from federator.history import schema, supply
from federator.history.database import snapshot
from federator.history.usage_query import has_attempt
from federator.usage.days import gpus_by_type
from federator.usage.supply import SupplyRow
from federator.wire.accounting_rows import AccountingRow

MOST_WORKLOADS: Final = 500_000
_W: Final = schema.workloads.c
_A: Final = schema.attempts.c
_NAMES: Final = (
    *("id", "site", "tenant", "user", "gpus", "gpu_types", "nodes"),
    *("submitted_at_s", "eligible_at_s", "started_at_s", "ended_at_s", "time_limit_s"),
)
_decode: Final = msgspec.msgpack.Decoder(AccountingRow).decode


class PastWork(NamedTuple):
    """A workload with GPUs that has started. Times are Unix times.

    ``ran_s``: of its last attempt, so far; ``gpu_types``: that it had, most of the first.
    """

    id: int
    site: str
    tenant: str
    user: str
    gpus: int
    gpu_types: tuple[str, ...]
    nodes: int
    came_s: float
    start_s: float  # of its first attempt
    ran_s: float
    limit_s: float


class PastWorkFound(NamedTuple):
    """The workloads by their ids, and the last that is known of what sites have."""

    work: list[PastWork]
    supply: list[SupplyRow]
    is_whole: bool  # False: there were more


def past_work(
    engine: Engine, start_s: float, end_s: float, most: int = MOST_WORKLOADS
) -> PastWorkFound:
    """What held GPUs in a time, from the history alone.

    Args:
        engine: of one who reads.
        start_s: what was over before does not count.
        end_s: nor what came later.
        most: workloads.

    Raises:
        HistoryError: the database cannot be read, or is of another release.
    """
    wanted = (
        _W.over_at_s >= start_s,
        _W.submitted_at_s < end_s,
        _W.started_at_s > 0,
        _W.gpus > 0,
    )
    with snapshot(engine) as connection:
        schema.check_ready(connection)
        again = select(_W.id).where(*wanted, _W.attempt > 1)
        first = (
            select(_A.id, func.min(_A.started_at_s))
            .where(_A.started_at_s > 0, _A.id.in_(again))
            .group_by(_A.id)
        )
        started = {row[0]: row[1] for row in connection.execute(first)}
        query = select(*(_W[name] for name in _NAMES)).where(*wanted)
        rows = connection.execute(query.order_by(_W.id).limit(most + 1)).mappings()
        found = [_made({**row}, started.get(row["id"])) for row in rows]
        place = connection.execute(select(schema.log_place.c.at_s)).scalar_one_or_none()
        found += _running(connection, end_s, float(place or 0.0))
        there = supply.latest(connection)
    return PastWorkFound(sorted(found)[:most], there, len(found) <= most)


def _running(connection: Connection, end_s: float, at_s: float) -> Iterator[PastWork]:
    """What runs by the last record; when an attempt before began, these rows do not tell."""
    for packed in connection.execute(select(schema.live.c.row).where(has_attempt(connection))):
        row = _decode(packed[0])
        last = row.last
        if last is None or not last.started_at_s or not last.gpus or row.submitted_at_s >= end_s:
            continue
        values = {name: getattr(row if hasattr(row, name) else last, name) for name in _NAMES}
        yield _made(values | {"ended_at_s": last.ended_at_s or at_s}, None)


def _made(row: Mapping[str, Any], first_s: float | None) -> PastWork:
    """Args: values by ``_NAMES``, and the start of the first attempt where that is not the last."""
    types = gpus_by_type(row["gpus"], row["gpu_types"])
    start_s = min(row["started_at_s"], first_s or inf)
    limit_s = row["time_limit_s"]
    return PastWork(
        id=row["id"],
        site=row["site"],
        tenant=row["tenant"],
        user=row["user"],
        gpus=row["gpus"],
        gpu_types=tuple(sorted(filter(None, types), key=lambda name: (-types[name], name))),
        nodes=max(1, row["nodes"]),
        came_s=min(row["eligible_at_s"] or row["submitted_at_s"], start_s),
        start_s=start_s,
        ran_s=max(1.0, row["ended_at_s"] - row["started_at_s"]),
        limit_s=limit_s if limit_s > 0 else inf,
    )
