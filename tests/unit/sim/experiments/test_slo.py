"""Figures of service: who was late."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from federator.model.workload import SiteName
from federator.sim.experiments import slo
from federator.sim.scenario import AttemptInterval, JobTrace

pytestmark = pytest.mark.slow


def test_a_workload_that_never_started_waited_without_end() -> None:
    arrival: Any = SimpleNamespace(at_s=5.0)
    assert slo._wait_s(arrival, JobTrace()) == inf
    assert slo._wait_s(arrival, JobTrace(first_start_s=7.0)) == 2.0


@pytest.mark.parametrize(
    ("quota", "other_tenant", "own"),
    [(12, "one", True), (16, "one", False), (12, "two", False)],
)
def test_who_is_late_for_what_its_own_tenant_ran_is_told_apart(
    quota: int, other_tenant: str, own: bool
) -> None:
    """The first came over quota, started late, and runs on beside the second."""

    def comes(at_s: float, tenant: str) -> Any:
        jobs = (SimpleNamespace(total_gpus=8),)
        return SimpleNamespace(at_s=at_s, draft=SimpleNamespace(tenant=tenant, jobs=jobs))

    tenants = [SimpleNamespace(name=n, quota=SimpleNamespace(gpus=quota)) for n in ("one", "two")]
    scenario: Any = SimpleNamespace(
        tenants=tenants, arrivals=[comes(0.0, other_tenant), comes(100.0, "one")]
    )
    first = JobTrace(first_start_s=50.0, stays=[AttemptInterval(SiteName("a"), 50.0, 700.0)])
    lived: Any = SimpleNamespace(lives=[first, JobTrace(first_start_s=1000.0)])
    assert slo._waited_for_own(scenario, lived, 1) is own
    lived.lives[1].first_start_s = 1400.0  # 600 of 1,300 s
    assert not slo._waited_for_own(scenario, lived, 1)
