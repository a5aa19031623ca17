"""The effective training time ratio of sites is read from the history, for metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from federator.daemon.training_time import training_look
from federator.history import schema
from federator.history.database import open_reader, open_writer, put_rows, transaction
from federator.history.service import JobHistory
from federator.history.tier_use import DAYS
from federator.usage.days import DIMENSIONS, MEASURES

DAY_S = 86_400.0
TODAY = 20_417


class History:
    """Answers from one database."""

    def __init__(self, url: str) -> None:
        self._reader = open_reader(url)

    async def read(self, read: Callable[..., Any]) -> Any:
        return read(self._reader)

    def close(self) -> None:
        self._reader.dispose()


def day(back: int, productive_h: int, lost_h: int) -> dict[str, object]:
    key = dict.fromkeys(DIMENSIONS, "") | {"site": "alpine", "partition": "gpu"}
    measures = dict.fromkeys(MEASURES, 0) | {
        "productive_gpu_ms": productive_h * 3_600_000,
        "lost_failure_gpu_ms": lost_h * 3_600_000,
    }
    return {"day": TODAY - back, **key, **measures}


def test_the_last_whole_days_are_read(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    writer = open_writer(url)
    with transaction(writer) as connection:
        schema.prepare(connection)
        days = [day(0, 0, 900), day(1, 60, 10), day(DAYS, 30, 20), day(DAYS + 1, 0, 900)]
        put_rows(connection, schema.usage_days, iter(days), replace=False)
        place = dict.fromkeys((c.name for c in schema.log_place.c), 0)
        at = {"at_s": (TODAY + 1) * DAY_S}
        put_rows(connection, schema.log_place, iter([place | at]), replace=False)
    writer.dispose()

    told: list[Mapping[str, float]] = []
    history = History(url)
    now_s = TODAY * DAY_S + 40_000
    look = training_look(cast(JobHistory, history), lambda: now_s, told.append)
    asyncio.run(look.look())
    history.close()
    assert told == [{"alpine": 0.75}]
