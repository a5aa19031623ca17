"""How long workloads waited within quota, by MAST's scan."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from federator.model.workload import SiteName
from federator.sim.experiments.scan_waits import Waits, scan_waits
from federator.sim.scenario import AttemptInterval, JobTrace

pytestmark = pytest.mark.slow

Row = tuple[float, int, str, tuple[tuple[float, float], ...]]
"""When it came, its GPUs, its tenant, and its attempts."""


def waits(*rows: Row, quota: int = 16) -> Waits:
    def comes(at_s: float, gpus: int, tenant: str) -> Any:
        jobs = (SimpleNamespace(total_gpus=gpus),)
        return SimpleNamespace(at_s=at_s, draft=SimpleNamespace(tenant=tenant, jobs=jobs))

    tenants = [SimpleNamespace(name=n, quota=SimpleNamespace(gpus=quota)) for n in ("one", "two")]
    tenants.append(SimpleNamespace(name="guest", quota=None))
    arrivals = [comes(*row[:3]) for row in rows]
    lives = [
        JobTrace(stays=[AttemptInterval(SiteName("a"), a, b) for a, b in row[3]]) for row in rows
    ]
    scenario: Any = SimpleNamespace(tenants=tenants, arrivals=arrivals)
    return scan_waits(scenario, lives)


def test_one_that_starts_as_it_comes_was_within_quota_and_did_not_wait() -> None:
    assert waits((5.0, 8, "one", ((5.0, 50.0),))) == {0: 0.0}


def test_one_without_a_quota_is_promised_nothing() -> None:
    assert waits((5.0, 8, "guest", ((70.0, 80.0),)), (6.0, 17, "one", ((9.0, 10.0),))) == {}


def test_the_wait_counts_only_while_the_tenants_running_work_leaves_room() -> None:
    rows: list[Row] = [
        (0.0, 16, "one", ((0.0, 100.0),)),
        (10.0, 8, "one", ((160.0, 200.0),)),  # no room in the quota until 100
        (10.0, 8, "two", ((160.0, 200.0),)),  # within quota all the time
    ]
    assert waits(*rows) == {0: 0.0, 1: 60.0, 2: 150.0}


def test_of_those_that_wait_the_older_come_first_and_smaller_ones_may_still_fit() -> None:
    rows: list[Row] = [
        (0.0, 12, "one", ((30.0, 100.0),)),
        (1.0, 8, "one", ((100.0, 110.0),)),
        (2.0, 4, "one", ((50.0, 60.0),)),
    ]
    assert waits(*rows) == {0: 30.0, 2: 48.0, 1: 0.0}


def test_one_that_was_evicted_takes_its_part_again_and_its_second_wait_does_not_count() -> None:
    rows: list[Row] = [
        (0.0, 16, "one", ((0.0, 10.0), (60.0, 70.0))),
        (20.0, 8, "one", ((65.0, 90.0),)),
    ]
    assert waits(*rows) == {0: 0.0}
    # As the first ends, there is room; the second has started by then, over quota.


def test_times_of_one_instant_are_one_in_spite_of_their_last_digits() -> None:
    rows: list[Row] = [
        (0.0, 16, "one", ((0.0, 100.0000001),)),
        (10.0, 16, "one", ((100.0, 120.0),)),
    ]
    assert waits(*rows) == {0: 0.0, 1: 0.0}
