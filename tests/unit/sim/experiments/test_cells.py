"""Cells that tenants own, beside the federation."""

from __future__ import annotations

import pytest

from federator.sim.baselines.fifo import FifoReplay
from federator.sim.experiments.base import ExperimentResult, run_here
from federator.sim.experiments.cells import CellsExperiment, CellTask, GpuTimeParts, gpu_use
from federator.sim.trace import Stays
from tests.fakes.traces import pool, replay, trace

pytestmark = pytest.mark.slow

# ant's b runs on bee's node until bee's c wants it; then on ant's.
LENT = trace(
    "a 0 1000 4\nb 0 1000 4\nc 500 1000 4 bee\nlast 2000 1 4", pool("ant", 1, 4), pool("bee", 1, 4)
)


def row(result: ExperimentResult, rule: str) -> dict[str, object]:
    table = result.table("cells")
    (found,) = (row for row in table.rows if row[0] == rule)
    return dict(zip(table.columns, found, strict=True))


def test_each_rule_beside_alone() -> None:
    result = run_here(CellsExperiment(trace=LENT, late_s=400.0), 0)
    alone, hived = row(result, "pool-fifo"), row(result, "hived")
    held = row(result, "hived, preempts nobody")
    assert (alone["late"], hived["late"], held["late"]) == (0, 0, 1)
    assert (hived["preemptions"], held["preemptions"]) == (1, 0)
    assert held["worst_h"] == 500 / 3600
    assert hived["completion_h"] == (1000 + 1500 + 1000 + 1) / 4 / 3600
    assert hived["allocated_frac"] == 12_000 / 16_000
    assert row(result, "mast")["late"] == 1  # lent, and nobody is evicted
    assert (held["late_h"], alone["speedup_geometric_mean"]) == (500 / 3600, 1.0)
    for rule in ("mast, lends by forecasts", "mast, lends by forecasts, cells"):
        assert row(result, rule)["late"] == 0  # nothing is known of b yet, so it is lent nothing
    assert row(result, "mast, the same, run times known")["late"] == 1  # bee was not expected


def test_pools_of_the_synthetic_workload_may_be_several_nodes() -> None:
    (first, *_) = CellsExperiment(nodes=3, most_jobs=5).runs(0)
    assert isinstance(first.task, CellTask)
    assert {(pool.nodes, pool.gpus_per_node) for pool in first.task.trace.pools} == {(3, 8)}


def test_gpus_that_nobody_could_use_are_not_fragmented() -> None:
    jobs = trace("a 0 10 3\nb 0 10 2\nc 10 1 1", pool("ant", 1, 4))
    stays: Stays = [[(0, 10)], [(10, 20)], [(10, 11)]]
    # For 10 s 3 of 4 are in use, and b, which waits, wants 2.
    assert gpu_use(jobs, stays) == GpuTimeParts(
        allocated_frac=0.75, allocated_in_demand_frac=0.75, fragmented_frac=0.0
    )


def test_gpus_of_which_a_job_wants_no_more_are_fragmented() -> None:
    jobs = trace("a 0 10 3\nb 0 10 3\nc 0 10 2\nd 20 1 1", pool("ant", 2, 4))
    table = replay(jobs, FifoReplay())
    stays: Stays = [[stay] for stay in zip(table.start_s, table.end_s, strict=True)]
    assert table.start_s == [0, 0, 10, 20]
    # For 10 s 2 of 8 are idle and c wants 2; for the other 10 s nobody waits.
    assert gpu_use(jobs, stays) == GpuTimeParts(
        allocated_frac=80 / 160, allocated_in_demand_frac=0.75, fragmented_frac=20 / 160
    )


def test_a_job_that_was_stopped_waits_again() -> None:
    jobs = trace("a 0 10 4\nb 15 9 4", pool("ant", 1, 4))
    found = gpu_use(jobs, [[(0, 5), (10, 15)], [(15, 24)]])
    assert (found.allocated_frac, found.fragmented_frac) == (10 / 15, 5 / 15)
