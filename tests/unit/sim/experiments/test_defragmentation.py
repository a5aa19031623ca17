"""What the experiment makes of its jobs, and what it counts."""

from __future__ import annotations

import pytest

from federator.sim.experiments.base import run_here
from federator.sim.experiments.defragmentation import DefragmentationExperiment, DefragmentationTask
from tests.fakes.traces import pool, trace

pytestmark = pytest.mark.slow


def test_each_load_is_lived_through_without_moves_and_with_them() -> None:
    jobs = trace(
        "a 0 50 4 ant\nb 0 50 4 ant\ng 10 100 16 bee", pool("ant", 1, 8), pool("bee", 2, 8)
    )
    experiment = DefragmentationExperiment(
        trace=jobs, loads=(0.5,), days=1.0, warm_up_days=0.0, large_gpus=16, one_quota=1
    )
    table = run_here(experiment, 0).table("moves")
    assert table.column("moves") == ["off", "on"]
    assert table.column("gangs") == [1, 1]
    assert table.column("gang_wait_p95_s") == pytest.approx([0.0, 0.0], abs=1e-6)
    assert table.column("moved") == [0, 0]
    assert table.column("lost_gpu_h") == pytest.approx([0.0, 0.0])


def test_a_job_of_more_than_a_node_asks_for_whole_nodes() -> None:
    jobs = trace("g 0 100 20 ant\ns 0 100 8 ant", pool("ant", 3, 8))
    experiment = DefragmentationExperiment(trace=jobs, days=1.0, warm_up_days=0.0)
    task = experiment.runs(0)[0].task
    assert isinstance(task, DefragmentationTask)
    gang, small = (arrival.draft.jobs[0] for arrival in task.scenario.arrivals)
    assert (gang.nodes, gang.gpus_per_node, gang.gpus) == (3, 8, 0)
    assert (small.nodes, small.gpus_per_node) == (1, 8)
