"""A trace in less time, or more: its load is what was asked for, and all else is as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.errors import InvalidRequest
from federator.model.tenant import Allowance
from federator.sim.experiments.base import run_here
from federator.sim.experiments.mast_slo import MastSloExperiment
from federator.sim.experiments.trace_load import TraceSetup
from federator.sim.trace import Trace
from tests.fakes.traces import pool, trace

# 8 GPUs for 1,000 s in each pool: half of the 16 GPUs in the 2,000 s between first and last.
JOBS = trace("a 500 500 8 ant\nb 1500 1000 8 bee\nc 2500 500 8 ant", pool("ant", 8), pool("bee", 8))


def setup(jobs: Trace = JOBS, days: float = 1.0, home: bool = False) -> TraceSetup:
    return TraceSetup(trace=jobs, days=days, warm_up_days=0.0, home=home)


@pytest.mark.parametrize(("load", "last_s"), [(0.5, 2000.0), (1.0, 1000.0), (0.25, 4000.0)])
def test_only_the_times_between_submissions_make_the_load(load: float, last_s: float) -> None:
    found = setup().scenario(load, 0)
    assert [a.at_s for a in found.arrivals] == [0.0, last_s / 2, last_s]
    assert [a.duration_s for a in found.arrivals] == [500.0, 1000.0, 500.0]
    assert [(t.name, t.quota and t.quota.gpus) for t in found.tenants] == [("ant", 8), ("bee", 8)]


def test_jobs_after_the_last_day_are_left_out() -> None:
    found = setup(days=1500 / 86_400).scenario(0.5, 0)
    assert len(found.arrivals) == 2


def test_a_quota_may_have_its_home_in_its_own_pool() -> None:
    assert [t.home for t in setup(home=True).scenario(1.0, 0).tenants] == [("ant",), ("bee",)]
    assert [t.home for t in setup().scenario(1.0, 0).tenants] == [(), ()]


def test_a_tenant_may_be_guaranteed_a_part_of_its_pool() -> None:
    quotas = [t.quota for t in replace(setup(), quota_frac=0.8).scenario(1.0, 0).tenants]
    assert quotas == [Allowance(gpus=6), Allowance(gpus=6)]


def test_what_leaves_nothing_to_measure_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="warm_up_days"):
        replace(setup(), warm_up_days=1.0).check()
    with pytest.raises(InvalidRequest, match="jobs with GPUs"):
        setup(trace("a 0 500 0 ant", pool("ant", 8))).check()


@pytest.mark.slow
@pytest.mark.parametrize("home", [0, 1])
def test_every_router_serves_a_trace(home: int) -> None:
    """An owner whose pool a guest fills has it back after the minute that saving takes."""
    jobs = trace(
        "guest 0 40000 8 bee\nguest 1 40000 8 bee\nowner 100 500 8 ant\nlast 30000 500 1 ant",
        pool("ant", 8),
        pool("bee", 8),
    )
    made = MastSloExperiment(
        trace=jobs, home=home, loads=(1.33,), days=1.0, warm_up_days=0.0, budget_frac=1.0
    )
    result = run_here(made, 0)
    routers, late = (result.tables[0].column(name) for name in ("router", "violations_frac"))
    assert routers == ["mast", "federated", "local allocation", "ideal"]
    assert dict(zip(routers, late, strict=True))["mast"] == 0.0
