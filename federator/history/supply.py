"""Keeps what sites have to give, so that idle time can be told later."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, Engine, and_, func, select

from federator.history import schema
from federator.history.database import put_rows, transaction
from federator.usage.supply import SUPPLIED, SupplyRow, changes

READ_EVERY_S: Final = 3600.0
_S: Final = schema.supply.c
_COLUMNS: Final = (_S.site, _S.gpu_type, _S.since_s, *(_S[name] for name in SUPPLIED))


class SupplyWriter:
    """Keeps what has changed. Its methods may be called from any thread.

    Args:
        engine: of the one who writes.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str], SupplyRow] | None = None  # None: to be read
        self._read_at_s = 0.0

    def note(self, seen: Sequence[SupplyRow], at_s: float) -> None:
        """Keep what has changed since the last time; the same twice is kept once.

        The last rows are remembered, as reading them takes the whole table; now and then they are
        read all the same, lest another has written, or the database is a new one.

        Args:
            seen: all sites and GPU types that there are now.
            at_s: Unix time.

        Raises:
            HistoryError: the database failed.
        """
        with self._lock:
            last, self._last = self._last, None  # what fails is read anew
            if last is None or not 0 <= at_s - self._read_at_s < READ_EVERY_S:
                last, self._read_at_s = self._read(), at_s
                if last is None:
                    return
            fresh = changes(seen, last.values(), at_s)
            if fresh:
                rows = (dict(zip(SupplyRow._fields, row, strict=True)) for row in fresh)
                with transaction(self._engine) as connection:
                    put_rows(connection, schema.supply, rows, replace=True)
            self._last = last | {(row.site, row.gpu_type): row for row in fresh}

    def _read(self) -> dict[tuple[str, str], SupplyRow] | None:
        with transaction(self._engine) as connection:
            if schema.found_version(connection) < schema.VERSION:  # the follower is to make it
                return None
            return {(row.site, row.gpu_type): row for row in latest(connection)}


def latest(connection: Connection) -> list[SupplyRow]:
    """The last row of each site and type."""
    last = (
        select(_S.site, _S.gpu_type, func.max(_S.since_s).label("at_s"))
        .group_by(_S.site, _S.gpu_type)
        .subquery()
    )
    is_last = and_(
        _S.site == last.c.site, _S.gpu_type == last.c.gpu_type, _S.since_s == last.c.at_s
    )
    query = select(*_COLUMNS).join(last, is_last)
    return [SupplyRow(*row) for row in connection.execute(query)]


def within(
    connection: Connection, start_s: float, end_s: float, sites: Sequence[str]
) -> list[SupplyRow]:
    """The rows that tell what there was in a time, at these sites, or at all."""
    before = (
        select(_S.site, _S.gpu_type, func.max(_S.since_s).label("at_s"))
        .where(_S.since_s <= start_s)
        .group_by(_S.site, _S.gpu_type)
        .subquery()
    )
    is_last = and_(
        _S.site == before.c.site, _S.gpu_type == before.c.gpu_type, _S.since_s == before.c.at_s
    )
    then = select(*_COLUMNS).where(_S.since_s > start_s, _S.since_s < end_s)
    queries = [select(*_COLUMNS).join(before, is_last), then]
    if sites:
        queries = [query.where(_S.site.in_(sites)) for query in queries]
    return [SupplyRow(*row) for query in queries for row in connection.execute(query)]
