"""Who chooses the site, and whose start is late: on fleets small enough to work by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from federator.errors import InvalidRequest
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import Job, SiteName, TenantName
from federator.sched.state.rules import Rules
from federator.sim.experiments.base import ExperimentResult, run_here
from federator.sim.experiments.mast_slo import MastSloExperiment
from federator.sim.experiments.preemption_budget import PreemptionBudgetExperiment
from federator.sim.experiments.routers import ROUTERS, Premise, bindings
from federator.sim.experiments.slo import Lived, entitled, figures, together
from federator.sim.physics import Physics
from federator.sim.scenario import Arrival, FleetSample, JobTrace, Scenario, SimulatedSite
from federator.sim.trace import ReplayOptions
from tests.fakes.build import draft, rack

pytestmark = pytest.mark.slow

OWNER = Tenant(name=TenantName("owner"), priority=2, quota=Allowance(gpus=16))
GUEST = Tenant(name=TenantName("guest"), priority=7)
HOUR_S = 3600.0


def part(gpus: int) -> Job:
    return Job(name="part", nodes=1, gpus_per_node=gpus)


def asks(at_s: float, gpus: int, duration_s: float, tenant: Tenant = OWNER) -> Arrival:
    """Up to 8 GPUs on one node, more as a total."""
    job = part(gpus) if gpus <= 8 else Job(name="total", gpus=gpus)
    wanted = replace(draft(job, tenant=tenant.name, priority=tenant.priority), time_limit_s=inf)
    return Arrival(at_s=at_s, draft=wanted, duration_s=duration_s)


def fleet(nodes: tuple[int, ...], *arrivals: Arrival) -> Scenario:
    sites = tuple(
        SimulatedSite(name=SiteName(name), nodes=rack(name, count))
        for name, count in zip(("alpine", "boreal"), nodes, strict=False)
    )
    return Scenario(sites=sites, tenants=(OWNER, GUEST), arrivals=arrivals)


def lived(router: str, scenario: Scenario, rules: Rules | None = None) -> Lived:
    given = Premise(
        scenario=scenario,
        rules=rules or Rules(),
        physics=Physics(),
        options=ReplayOptions(audit=True),
    )
    return ROUTERS[router](given)


def starts(found: Lived) -> list[float]:
    return [round(life.first_start_s, 3) for life in found.lives]


def sites(found: Lived) -> list[str]:
    return [str(life.site) for life in found.lives]


# ---- who is entitled ----


def test_a_workload_is_entitled_while_its_tenants_demand_is_within_quota() -> None:
    scenario = fleet(
        (2,),
        asks(0, 8, 100),
        asks(10, 8, 100),
        asks(20, 1, 5),
        asks(100, 8, 10),
        asks(101, 4, 10, GUEST),
    )
    # The third is one GPU too many. The first is over at 100; a guest has no quota.
    assert entitled(scenario) == [True, True, False, True, False]


# ---- routers ----


def test_demand_decides_where_a_workload_is_bound() -> None:
    scenario = fleet((1, 2), asks(0, 8, 100), asks(1, 8, 100), asks(2, 8, 100), asks(150, 8, 10))
    # 8/8 or 8/16; then 8/8 or 16/16: the site named first; then 16/8 or 16/16. At 150 all is over.
    assert bindings(scenario) == ["boreal", "alpine", "boreal", "boreal"]


def test_what_waits_at_a_site_is_demand_too() -> None:
    scenario = fleet(
        (1, 1), asks(0, 8, 100), asks(1, 8, 10), asks(2, 8, 100), asks(50, 8, 10), asks(105, 8, 10)
    )
    # alpine has 0-100 and, bound at 2 as both are equally full, 100-200; boreal is free from 11.
    assert bindings(scenario) == ["alpine", "boreal", "alpine", "boreal", "boreal"]


def test_a_workload_is_bound_where_it_could_ever_run() -> None:
    scenario = fleet((1, 2), asks(0, 16, 1000), asks(1, 16, 10))
    assert bindings(scenario) == ["boreal", "boreal"]


def test_bound_early_a_workload_waits_while_another_site_is_free() -> None:
    scenario = fleet((1, 1), asks(0, 8, 100), asks(1, 8, 10), asks(2, 8, 100))
    early, late = lived("federated", scenario), lived("mast", scenario)
    assert (sites(early), starts(early)) == (["alpine", "boreal", "alpine"], [0, 1, 100])
    assert (sites(late), starts(late)) == (["alpine", "boreal", "boreal"], [0, 1, 11])
    assert early.bound == ["alpine", "boreal", "alpine"]


def test_sent_by_count_a_workload_starts_at_once_where_it_fits() -> None:
    crowd = [asks(0, 2, 100, GUEST) for _ in range(2)]
    found = lived("local allocation", fleet((2, 1), *crowd, asks(10, 8, 10)))
    # alpine has the most free GPUs each time, and the guests share one of its nodes.
    assert (sites(found), starts(found)) == (["alpine"] * 3, [0, 0, 10])


def test_what_does_not_fit_where_it_was_sent_waits_there() -> None:
    # 6 GPUs on each node of alpine leave 2 + 2 free there, and 3 on boreal's one leave 5.
    crowd = [asks(0, 6, 100, GUEST), asks(1, 5, 300, GUEST), asks(2, 6, 100, GUEST)]
    scenario = fleet((2, 1), *crowd, asks(10, 4, 10))
    found = lived("local allocation", scenario)
    assert sites(found)[:3] == ["alpine", "alpine", "boreal"]
    # alpine has 2 + 3 GPUs free, the most, so the last goes there; no node has 4 until 100.
    assert (sites(found)[3], starts(found)[3]) == ("alpine", 100)


def test_all_nodes_as_one_site_are_no_worse_than_bids() -> None:
    scenario = fleet((1, 1), asks(0, 4, 100, GUEST), asks(0, 8, 50, GUEST), asks(1, 16, 10))
    assert starts(lived("ideal", scenario))[2] == 100  # no single site could ever hold it


@pytest.mark.parametrize("router", ROUTERS)
def test_every_router_ends_every_workload_with_evictions(router: str) -> None:
    crowd = [asks(k, 8, HOUR_S, GUEST) for k in range(4)]
    scenario = fleet((2, 1), *crowd, asks(100, 8, 60), asks(110, 8, 60), asks(120, 4, 60))
    found = lived(router, scenario, Rules(preempt_gpus=24.0, grace_s=30.0))
    assert all(life.end_s > life.first_start_s >= 0 for life in found.lives)
    assert sum(life.preemptions for life in found.lives) > 0
    assert found.moments[-1][1:] == (0, 0)


# ---- figures ----


def test_late_starts_and_what_was_allocated() -> None:
    late = JobTrace(first_start_s=700.0, start_s=700.0, end_s=1000.0, site=SiteName("alpine"))
    lives = [JobTrace(start_s=0.0, first_start_s=0.0, end_s=700.0, site=SiteName("alpine")), late]
    scenario = fleet((1,), asks(0, 8, 700), asks(10, 8, 300))
    moments = [
        FleetSample(0, 8, 0),
        FleetSample(10, 8, 8),
        FleetSample(700, 8, 0),
        FleetSample(1000, 0, 0),
    ]
    one = figures(scenario, Lived(lives=lives, moments=moments), (0.0, 2000.0), 600.0)
    assert (one.entitled, one.violations_frac, one.violations_high_frac) == (2, 0.5, 0.5)
    assert one.violations_busiest_frac is None  # two are too few to tell of two hours
    assert (one.p95_s, one.wait_all_mean_s) == (690.0, 345.0)
    assert (one.allocated_frac, one.allocated_busy_frac, one.busy_frac) == (0.5, 1.0, 0.5)
    assert one.hottest == 0.5


def test_only_the_window_is_measured() -> None:
    lives = [
        JobTrace(start_s=s, first_start_s=s, end_s=s + 100, site=SiteName("alpine"))
        for s in (0.0, 500.0)
    ]
    scenario = fleet((1,), asks(0, 8, 100), asks(400, 8, 100))
    moments = [
        FleetSample(0, 8, 0),
        FleetSample(100, 0, 0),
        FleetSample(500, 8, 0),
        FleetSample(600, 0, 0),
    ]
    one = figures(scenario, Lived(lives=lives, moments=moments), (300.0, 700.0), 50.0)
    assert (one.entitled, one.violations_frac) == (1, 1.0)
    assert (one.allocated_frac, one.hottest) == (0.25, 0.25)


def test_bound_early_a_workload_is_demand_from_then_on() -> None:
    lives = [JobTrace(start_s=50.0, first_start_s=50.0, end_s=100.0, site=SiteName("alpine"))]
    scenario = fleet((1,), asks(0, 8, 50))
    for bound, hottest in (((), 0.5), ((SiteName("alpine"),), 1.0)):
        given = Lived(lives=lives, moments=[FleetSample(50, 8, 0)], bound=bound)
        assert figures(scenario, given, (0.0, 100.0), 600.0).hottest == hottest


def test_an_empty_window_says_nothing() -> None:
    one = figures(fleet((1,)), Lived(lives=[], moments=[]), (0.0, 10.0), 600.0)
    assert (one.entitled, one.violations_frac, one.p95_s, one.allocated_frac) == (
        0,
        None,
        None,
        None,
    )


def test_moments_of_several_fleets_are_added_up() -> None:
    assert together([[FleetSample(1, 8, 0), FleetSample(5, 0, 0)], [FleetSample(3, 4, 2)]]) == [
        FleetSample(1, 8, 0),
        FleetSample(3, 12, 2),
        FleetSample(5, 4, 2),
    ]


# ---- the experiments ----


def small(**parameters: object) -> ExperimentResult:
    settings = {
        "sites": 2,
        "nodes": 8,
        "tenants": 7,
        "days": 0.2,
        "warm_up_days": 0.0,
        "loads": (0.9,),
        "draws": 2,
    }
    made = MastSloExperiment(**{**settings, **parameters})  # type: ignore[arg-type]
    return run_here(made, 1)


def test_every_router_is_measured_on_the_same_entitled_workloads() -> None:
    found = small()
    runs = found.table("runs")
    assert [row[:3] for row in runs.rows] == [(0.9, name, k) for name in ROUTERS for k in (0, 1)]
    counts = runs.column("entitled")
    assert counts[0:2] == counts[2:4] == counts[4:6] == counts[6:8]
    for plot in found.plots:
        assert plot.only is not None
        assert {plot.x, plot.y, plot.by, plot.low, plot.high} <= set(
            found.table(plot.table).columns
        )
    assert small() == found


def test_a_budget_of_nothing_evicts_nobody() -> None:
    made = PreemptionBudgetExperiment(
        budgets=(0.0, 1.0),
        loads=(3.5,),
        draws=1,
        sites=2,
        nodes=16,
        tenants=7,
        days=0.3,
        warm_up_days=0.0,
    )
    found = run_here(made, 1).table("summary")
    assert found.column("budget_frac") == ["0", "1"]
    none, some = found.column("preemptions")
    assert none == 0
    assert isinstance(some, float)
    assert some > 0


def test_what_makes_no_sense_is_said_before_the_work() -> None:
    with pytest.raises(InvalidRequest, match="routers: 'best' is unknown; expected mast, feder"):
        small(routers=("best",))
    with pytest.raises(InvalidRequest, match="warm_up_days: expected less than days"):
        small(warm_up_days=0.2)
