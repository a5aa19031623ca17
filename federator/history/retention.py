"""Deletes what the history has kept for long enough, in small steps."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Engine, delete, select

from federator.history import schema
from federator.history.database import transaction

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
        ids = list(connection.execute(old.order_by(ended.c.over_at_s).limit(STEP)).scalars())
        for table in (made, schema.measured, schema.unmeasured):
            connection.execute(delete(table).where(table.c.id.in_(ids)))
        connection.execute(delete(ended).where(ended.c.id.in_(ids)))
    return len(ids) == STEP
