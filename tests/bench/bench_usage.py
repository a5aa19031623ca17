"""How long a report of usage takes, and what the sums cost who writes them.

    python -m tests.bench.bench_usage --attempts 1000000
    python -m tests.bench.bench_usage --url postgresql://... --attempts 1000000

Attempts end evenly over a month: 1,000 users with 5 families each in 50 tenants, 8 sites with two
GPU types, one in ten evicted, and one in a hundred of a workload of its own name. Sums are made in
memory and written at once, as the follower makes them batch by batch; how fast the follower and a
migration make them is measured apart, on fewer.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Engine

from federator.history import schema
from federator.history.database import open_reader, open_writer, put_rows, transaction
from federator.history.supply import SupplyWriter
from federator.history.usage_query import UsageQuestion, find
from federator.history.usage_sums import count_some
from federator.model.prices import PriceList, PriceRule, Rates
from federator.model.viewer import Viewer
from federator.model.workload import FIRST_WORKLOAD_ID
from federator.usage.days import Sums, add_up
from federator.usage.report import report, with_prices
from federator.usage.supply import SupplyRow
from tests.fakes.usage_rows import attempt_use, attempt_values

BEGAN_S = 1_759_276_800.0  # 2025-10-01
DAYS = 30
DAY_S = 86_400.0
AT_ONCE = 50_000
COUNTED = 10_000  # workloads, one by one


def fill(engine: Engine, count: int, families: int) -> int:
    """Write attempts and their sums; the number of sums."""
    with transaction(engine) as connection:
        schema.prepare(connection)
        connection.execute(
            schema.log_place.insert().values(
                one=1, first=0, next=1, crc=0, within_snapshot=False, at_s=BEGAN_S + DAYS * DAY_S
            )
        )
    sums: Sums = {}
    apart_s = DAYS * DAY_S / count
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(count, first + AT_ONCE))
        uses = [(k, attempt_use(k, BEGAN_S + k * apart_s, families)) for k in numbers]
        for _, use in uses:
            add_up(sums, [use])
        with transaction(engine) as connection:
            rows = (attempt_values(FIRST_WORKLOAD_ID + k, use) for k, use in uses)
            put_rows(connection, schema.attempts, rows, replace=True)
    with transaction(engine) as connection:
        names = [c.name for c in schema.usage_days.columns]
        kept = (
            dict(zip(names, (*key, *values), strict=True)) for key, values in sorted(sums.items())
        )
        put_rows(connection, schema.usage_days, kept, replace=True)
    SupplyWriter(engine).note(list(_supply()), BEGAN_S)
    return len(sums)


def _supply() -> Iterator[SupplyRow]:
    for site in range(8):
        for kind in ("a100", "h100"):
            yield SupplyRow(f"site{site}", kind, 0.0, 1, 64, 512, 8192, 64 << 20)


def asked(reader: Engine, *by: str, viewer: Viewer | None = None) -> tuple[float, float]:
    """Seconds for a month's report, and of them CPU time."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    first = int(BEGAN_S // DAY_S)
    question = UsageQuestion(
        first_day=first, end_day=first + DAYS, columns=with_prices(by), viewer=viewer
    )
    prices = PriceList([PriceRule(rates=Rates(gpu_h=2.0))])
    report(find(reader, question), by, prices, most=5_000, shows_supply=viewer is None)
    return time.perf_counter() - began_s, time.process_time() - began_cpu_s


def _median(took: list[tuple[float, float]]) -> str:
    wall_s, cpu_s = (statistics.median(some) for some in zip(*took, strict=True))
    return f"{wall_s:6.2f} s, {cpu_s:.2f} s of CPU time"


def count_anew(engine: Engine) -> float:
    """Seconds for a thousand attempts of before there were sums."""
    with transaction(engine) as connection:
        change = schema.attempts.update().where(schema.attempts.c.id < FIRST_WORKLOAD_ID + COUNTED)
        connection.execute(change.values(counted=0))
    began_s = time.perf_counter()
    while count_some(engine):
        pass
    return (time.perf_counter() - began_s) / COUNTED * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=1_000_000)
    parser.add_argument("--url", help="an empty database; by default a SQLite file")
    parser.add_argument("--families", type=int, default=5, help="names that each user gives")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.url or f"sqlite://{folder}/history.db"
        engine, reader = open_writer(url), open_reader(url)
        began_s = time.perf_counter()
        sums = fill(engine, given.attempts, given.families)
        filled_s = time.perf_counter() - began_s
        print(f"{given.attempts} attempts, {sums} sums, written in {filled_s:.0f} s")
        if not given.url:
            print(f"file: {Path(folder, 'history.db').stat().st_size / 2**20:.0f} MiB")
        for by in (
            (),
            ("tenant",),
            ("user",),
            ("site", "gpu_type"),
            ("day",),
            ("family",),
            ("tenant", "user", "gpu_type"),
        ):
            took = [asked(reader, *by) for _ in range(given.rounds)]
            print(f"month by {', '.join(by) or 'nothing':<24} {_median(took)}")
        member = Viewer(user="user7", tenants=frozenset({"tenant7"}))
        took = [asked(reader, "user", viewer=member) for _ in range(given.rounds)]
        print(f"month by user, of a member   {_median(took)}")
        print(f"counting 1000 attempts       {count_anew(engine):6.2f} s")


if __name__ == "__main__":
    main()
