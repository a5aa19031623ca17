"""How long a planner takes: to read its history, to learn, and for one plan.

    python -m tests.bench.bench_planner --tenants 500 --days 7

Every tenant brings a workload each two hours on average, at random.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from statistics import median

import numpy as np

from federator.model.event import Awarded, Changed, LogRecord, Submitted
from federator.model.lifecycle import WorkloadEvent
from federator.model.tenant import Tenancy
from federator.model.workload import FIRST_WORKLOAD_ID, WorkloadId
from federator.planner.boosted import BoostedForecast
from federator.planner.history import STEP_S
from federator.planner.lending_planner import LendingPlanner
from tests.fakes.build import attempt, draft, gang, plan_on, tenant

T0 = 1_000_000.0
_EACH_S = 7200.0


def records(tenants: int, days: int) -> Iterator[LogRecord]:
    """A history in the order of time, but for the ends."""
    draw = np.random.default_rng(0)
    times = np.sort(draw.uniform(0.0, days * 86_400.0, int(tenants * days * 86_400 / _EACH_S)))
    for number, after_s in enumerate(times):
        at_s, id_ = T0 + float(after_s), WorkloadId(FIRST_WORKLOAD_ID + number)
        wanted = draft(gang(1, int(draw.integers(1, 9))), tenant=f"t{number % tenants}")
        yield Submitted(at_s=at_s, draft=wanted, first_id=id_, key=f"k{number}")
        yield Awarded(at_s=at_s, attempt=attempt(number), site="alpine", jobs=plan_on("a1"))
        for happening, later_s in (
            (WorkloadEvent.ACCEPTED, 0.0),
            (WorkloadEvent.STARTED, 1.0),
            (WorkloadEvent.COMPLETED, float(draw.exponential(3600.0))),
        ):
            yield Changed(at_s=at_s + later_s, workload=id_, happening=happening, attempt=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tenants", type=int, default=500)
    parser.add_argument("--days", type=int, default=7)
    asked = parser.parse_args()
    tenants = [tenant(f"t{k}", 64) for k in range(asked.tenants)]
    planner = LendingPlanner(Tenancy(tenants), BoostedForecast(), "boosted")
    history = list(records(asked.tenants, asked.days))
    began_s = time.perf_counter()
    for record in history:
        planner.take(record)
    read_s = time.perf_counter() - began_s
    now_s = T0 + asked.days * 86_400.0
    began_s = time.perf_counter()
    planner.plan(now_s)
    first_s = time.perf_counter() - began_s
    took_s = []
    for step in range(1, 25):
        began_s = time.perf_counter()
        planner.plan(now_s + step * STEP_S)
        took_s.append(time.perf_counter() - began_s)
    rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{asked.tenants} tenants, {asked.days} days, {len(history)} records")
    print(f"read {read_s:.1f} s; first plan with learning {first_s:.1f} s")
    print(f"a plan: median {median(took_s):.3f} s, most {max(took_s):.3f} s; {rss_mib:.0f} MiB")


if __name__ == "__main__":
    main()
