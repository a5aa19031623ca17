"""Deletes what the history has kept for long enough, in small steps."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, Engine, delete, exists, select

from federator.history import schema
from federator.history.database import transaction
from federator.history.local_jobs import delete_old
from federator.history.usage_sums import alone

STEP: Final = 500  # workloads in one transaction: nobody waits for longer


def delete_some(engine: Engine, before_s: float) -> bool:
    """Delete the oldest workloads that were over before a Unix time, with their attempts.

    Returns:
        Whether there may be more.

    Raises:
        HistoryError: the database failed; what was deleted before is gone.
    """
    ended, made = schema.workloads, schema.attempts
    old = select(ended.c.id).where(ended.c.over_at_s < before_s)
    with transaction(engine) as connection:
        alone(connection)  # or sums could be taken off that another is about to change
        day = int(before_s // 86_400.0)
        connection.execute(delete(schema.usage_days).where(schema.usage_days.c.day < day))
        _delete_supply(connection, before_s)
        delete_old(connection, before_s)
        ids = list(connection.execute(old.order_by(ended.c.over_at_s).limit(STEP)).scalars())
        for table in (made, schema.measured, schema.unmeasured):
            connection.execute(delete(table).where(table.c.id.in_(ids)))
        connection.execute(delete(ended).where(ended.c.id.in_(ids)))
    return len(ids) == STEP


def _delete_supply(connection: Connection, before_s: float) -> None:
    """Of each site and type the last row before stays: it says what there was from then on."""
    old, newer = schema.supply, schema.supply.alias()
    follows = exists().where(
        newer.c.site == old.c.site,
        newer.c.gpu_type == old.c.gpu_type,
        newer.c.since_s > old.c.since_s,
        newer.c.since_s < before_s,
    )
    connection.execute(delete(old).where(old.c.since_s < before_s, follows))
