"""Elastic jobs in the simulator: their pace, their resizes, and what the experiment counts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from federator.model.draft import Draft
from federator.model.submission import NodeRange
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from federator.sim.experiments.base import ExperimentResult, run_here
from federator.sim.experiments.elastic import ElasticExperiment
from federator.sim.fleet import Fleet
from federator.sim.importers.trace_csv import read_pools, read_trace
from federator.sim.physics import Physics
from federator.sim.scenario import Arrival, JobTrace, Scenario, SimulatedSite
from federator.sim.trace import ReplayOptions
from tests.fakes.build import draft, gang, rack
from tests.fakes.traces import pool, trace

pytestmark = pytest.mark.slow

BESIDE = Path(__file__).resolve().parents[5] / "shared" / "traces"
TRACES = Path(os.environ.get("FEDERATOR_TRACES", BESIDE))
VENUS = TRACES / "helios-venus-sept2020.csv.gz"
HOUR_S = 3600.0
OWNER = Tenant(name=TenantName("owner"), priority=2, quota=Allowance(gpus=640))
SAVES = Physics(save_s=60.0, restore_s=60.0)


def rigid(nodes: int) -> Draft:
    return replace(draft(gang(nodes, 8)), tenant=OWNER.name, time_limit_s=1e6)


def elastic(least: int, most: int, asked: int) -> Draft:
    return replace(rigid(least), elastic=NodeRange(least=least, most=most, step=1, asked=asked))


def lived(*jobs: tuple[float, Draft, float], nodes: int = 4) -> list[JobTrace]:
    site = SimulatedSite(name=SiteName("alpine"), nodes=tuple(rack("a", nodes)))
    arrivals = tuple(Arrival(at_s=at, draft=d, duration_s=s, doubling=1.8) for at, d, s in jobs)
    scenario = Scenario(sites=(site,), tenants=(OWNER,), arrivals=arrivals)
    rules = Rules(cooldown_s=1800.0)
    return Fleet(scenario, Mast(), rules, SAVES, ReplayOptions(audit=True)).run()


def test_a_job_on_half_its_nodes_takes_as_much_longer_as_it_scales() -> None:
    taken, small = lived((0.0, rigid(2), HOUR_S), (1.0, elastic(1, 4, asked=4), HOUR_S / 2))
    assert (taken.start_s, small.start_s) == (0.0, 1.0)
    assert small.end_s == pytest.approx(1.0 + 1.8 * HOUR_S / 2)
    assert small.useful_gpu_s == pytest.approx(1.8 * HOUR_S / 2 * 16)


def test_it_goes_on_with_more_when_others_have_left_and_loses_nothing() -> None:
    taken, grows = lived((0.0, rigid(2), HOUR_S), (1.0, elastic(1, 4, asked=4), 10 * HOUR_S))
    assert (grows.resizes, grows.preemptions, grows.lost_gpu_s) == (1, 1, 0.0)
    (small, large) = grows.stays
    assert small.end_s - taken.end_s < 200.0  # the look, and the save
    done_s = (small.end_s - small.start_s - 60.0) / 1.8
    assert large.end_s == pytest.approx(large.start_s + 60.0 + 10 * HOUR_S - done_s, abs=1.0)


def test_a_rigid_job_keeps_its_pace() -> None:
    (life,) = lived((0.0, rigid(2), HOUR_S))
    assert (life.end_s, life.useful_gpu_s, life.resizes) == (HOUR_S, 16 * HOUR_S, 0)


def compared(**parameters: float | tuple[float, ...]) -> ExperimentResult:
    jobs = trace("gang 0 36000 32 ant\nshort 0 600 16 ant\nsmall 5 600 4 ant", pool("ant", 6, 8))
    made = ElasticExperiment(trace=jobs, draws=1, fracs=(1.0,), **parameters)  # type: ignore[arg-type]
    return run_here(made, 0)


def test_the_same_jobs_are_told_of_in_every_arm() -> None:
    table = compared().table("arms")
    assert table.column("arm") == [
        "rigid",
        "rigid, other start-ups",
        "100% elastic",
        "100% elastic, never resized",
    ]
    assert table.column("jobs") == [3, 3, 3, 3]
    assert table.column("elastic") == [0, 0, 2, 2]  # of several whole nodes
    (small,) = {row[1] for row in compared().table("neighbours").rows[1:]}
    assert small == 1


def test_a_job_that_may_have_more_is_done_sooner() -> None:
    table = compared().table("arms")
    row = dict(zip(table.columns, table.rows[2], strict=True))
    assert isinstance(row["jct_elastic_h"], float)
    assert isinstance(row["jct_elastic_as_rigid_h"], float)
    assert row["resizes"] == 1
    assert row["jct_elastic_h"] < row["jct_elastic_as_rigid_h"]


def test_without_a_range_nothing_changes() -> None:
    table = compared(least_frac=1.0, most_factor=1.0).table("arms")
    assert table.column("elastic") == [0, 0, 0, 0]
    assert table.rows[0][3:] == table.rows[2][3:]


@pytest.mark.skipif(
    not VENUS.exists(), reason="no Venus trace in ../shared/traces; set FEDERATOR_TRACES"
)
def test_on_venus_elastic_jobs_are_done_sooner() -> None:
    jobs = read_trace(VENUS, read_pools(TRACES / "helios-venus-sept2020.pools.csv"))
    result = run_here(ElasticExperiment(trace=jobs, most_jobs=150, draws=1, fracs=(1.0,)), 0)
    row = dict(zip(result.table("arms").columns, result.table("arms").rows[2], strict=True))
    assert float(row["jct_elastic_h"] or 0) < float(row["jct_elastic_as_rigid_h"] or 0)
