"""Keeps and reads the records of the sites' own jobs, and when they were watched.

What was told is written in the order in which it came; the same twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, Engine, delete, func, select, update

from federator.errors import HistoryError
from federator.history import schema
from federator.history.database import put_rows, snapshot, transaction
from federator.history.values import fitted
from federator.model.local_record import GONE, ORDINARY, WAITS_OR_RUNS, LocalRecord
from federator.model.site import Capacity
from federator.model.workload import SiteName

MOST_RECORDS: Final = 2_000_000  # then the oldest go, however short they were kept
GAP_S: Final = 180.0  # between two notes that a site is watched: longer, and it was not
_J, _W, _N = schema.local_jobs.c, schema.local_watch.c, schema.local_sites.c


class LocalBatch(NamedTuple):
    """What a site has told at a time; ``complete`` as of ``LocalJobs``."""

    site: SiteName
    at_s: float
    records: Sequence[LocalRecord]
    complete: bool


class WatchedTime(NamedTuple):
    """A time in which a site was watched."""

    site: SiteName
    since_s: float
    until_s: float


class KeptRecord(NamedTuple):
    """A record as it is kept; ``unsure_s``: its end may be so much earlier."""

    site: SiteName
    record: LocalRecord
    unsure_s: float


class LocalHistory(NamedTuple):
    """All that is kept of the sites' own jobs in some time."""

    kept: list[KeptRecord]
    spans: list[WatchedTime]
    capacities: dict[SiteName, Capacity]


def put(engine: Engine, news: Iterable[LocalBatch]) -> None:
    """Write what was told, all or nothing.

    Raises:
        HistoryError: the database failed, or is not of this release yet.
    """
    with transaction(engine) as connection:
        schema.check_ready(connection)
        for each in news:
            kept = {"held_by": ORDINARY}
            put_rows(connection, schema.local_jobs, _rows(each), replace=True, kept=kept)
            if each.complete:
                _end_unseen(connection, each.site, each.at_s)


def _rows(news: LocalBatch) -> Iterator[dict[str, Any]]:
    for record in news.records:
        values = fitted(msgspec.structs.asdict(record))
        values["federated"] = int(record.federated)
        yield {"site": news.site, **values, "seen_at_s": news.at_s, "unsure_s": 0.0}


def _end_unseen(connection: Connection, site: SiteName, at_s: float) -> None:
    """What was open and was not told again has ended since the site was last watched."""
    last = connection.execute(
        select(func.max(_W.until_s)).where(_W.site == site, _W.until_s < at_s)
    ).scalar()
    unseen = (_J.site == site, _J.state.in_(WAITS_OR_RUNS), _J.seen_at_s < at_s)
    since_s = _J.seen_at_s if last is None else last
    connection.execute(
        update(schema.local_jobs)
        .where(*unseen)
        .values(state=GONE, ended_at_s=at_s, unsure_s=at_s - since_s)
    )


def note_watched(engine: Engine, sites: Mapping[SiteName, Capacity | None], now_s: float) -> None:
    """Note that these sites are watched now, and what they have.

    Raises:
        HistoryError: as ``put``.
    """
    with transaction(engine) as connection:
        schema.check_ready(connection)
        for site, capacity in sites.items():
            _prolong(connection, site, now_s)
            if capacity is not None:
                row = {"site": site, "capacity": msgspec.msgpack.encode(capacity)}
                put_rows(connection, schema.local_sites, iter([row]), replace=True)


def _prolong(connection: Connection, site: SiteName, now_s: float) -> None:
    newest = select(func.max(_W.since_s)).where(_W.site == site).scalar_subquery()
    done = connection.execute(
        update(schema.local_watch)
        .where(_W.site == site, _W.since_s == newest, _W.until_s >= now_s - GAP_S)
        .where(_W.since_s <= now_s)
        .values(until_s=now_s)
    )
    if not done.rowcount:
        row = {"site": site, "since_s": now_s, "until_s": now_s}
        put_rows(connection, schema.local_watch, iter([row]), replace=True)


def read(engine: Engine, since_s: float, until_s: float) -> LocalHistory:
    """What is kept of the jobs that were there in a time: submitted before its end, and not over
    before its beginning.

    Raises:
        HistoryError: the database failed, or is not of this release.
    """
    there = (_J.submitted_at_s < until_s, (_J.ended_at_s == 0.0) | (_J.ended_at_s >= since_s))
    names = LocalRecord.__struct_fields__
    with snapshot(engine) as connection:
        schema.check_ready(connection)
        rows = connection.execute(
            select(_J.site, _J.unsure_s, *(_J[name] for name in names))
            .where(*there)
            .order_by(_J.submitted_at_s, _J.site, _J.job_id, _J.restarts)
        )
        kept = [
            KeptRecord(SiteName(row[0]), _record(zip(names, row[2:], strict=True)), row[1])
            for row in rows
        ]
        spans = connection.execute(
            select(_W.site, _W.since_s, _W.until_s)
            .where(_W.until_s >= since_s, _W.since_s < until_s)
            .order_by(_W.since_s)
        )
        found = [WatchedTime(SiteName(site), *times) for site, *times in spans]
        sites = connection.execute(select(_N.site, _N.capacity))
        capacities = {SiteName(name): _capacity(name, packed) for name, packed in sites}
    return LocalHistory(kept, found, capacities)


def _record(values: Iterable[tuple[str, Any]]) -> LocalRecord:
    record = LocalRecord(**dict(values))
    return msgspec.structs.replace(record, federated=bool(record.federated))


def _capacity(name: str, packed: bytes) -> Capacity:
    try:
        return msgspec.msgpack.decode(packed, type=Capacity)
    except msgspec.MsgspecError as error:
        raise HistoryError(f"the nodes kept of site {name} cannot be read: {error}") from error


def delete_old(connection: Connection, before_s: float) -> None:
    """Delete what was submitted before a Unix time, and the oldest of too many."""
    table = schema.local_jobs
    connection.execute(delete(table).where(_J.submitted_at_s < before_s))
    connection.execute(delete(schema.local_watch).where(_W.until_s < before_s))
    newest_too_many = (
        select(_J.submitted_at_s).order_by(_J.submitted_at_s.desc()).offset(MOST_RECORDS).limit(1)
    )
    last = connection.execute(newest_too_many).scalar()
    if last is not None:
        connection.execute(delete(table).where(_J.submitted_at_s <= last))
