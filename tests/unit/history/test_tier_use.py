"""What a productive hour takes in each tier: from the history's tables alone."""

from __future__ import annotations

from pathlib import Path

from federator.history import schema
from federator.history.database import open_reader, open_writer, put_rows, transaction
from federator.history.tier_use import DAYS, tier_factors
from federator.model.prices import PriceList, PriceRule
from federator.usage.days import DIMENSIONS, MEASURES

DAY_S = 86_400.0
TODAY = 20_417
PRICES = PriceList([PriceRule(site="a", tier="spot", until_day=TODAY - 5), PriceRule(tier="own")])


def test_the_last_whole_days_count_by_the_tier_that_each_had(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    writer = open_writer(url)
    with transaction(writer) as connection:
        schema.prepare(connection)
        rows = []
        for back in (0, 1, 10, DAYS + 1):  # today, and too long ago, count for nothing
            key = dict.fromkeys(DIMENSIONS, "") | {"site": "a", "partition": "gpu"}
            lost = {1: 30, 10: 90}.get(back, 900)
            measures = dict.fromkeys(MEASURES, 0) | {
                "productive_gpu_ms": 30 * 3_600_000,
                "lost_failure_gpu_ms": lost * 3_600_000,
            }
            rows.append({"day": TODAY - back, **key, **measures})
        put_rows(connection, schema.usage_days, iter(rows), replace=False)
        place = {"at_s": (TODAY + 1) * DAY_S}
        names = {c.name for c in schema.log_place.c} - place.keys()
        put_rows(
            connection, schema.log_place, iter([dict.fromkeys(names, 0) | place]), replace=False
        )
    writer.dispose()
    reader = open_reader(url)
    now_s = TODAY * DAY_S + 40_000
    assert tier_factors(reader, PRICES, now_s) == {("a", "spot"): 4.0, ("a", "own"): 2.0}
    reader.dispose()
