"""A plan of a site keeps room for jobs in their order, and knows who cannot start any more."""

from __future__ import annotations

from math import inf

import pytest

from federator.model.site import Node
from federator.model.workload import Job
from federator.sim.backfill_plan import WINDOW_S, BackfillPlan, NodeRoom, NodesHeld
from federator.sim.slurm_queue import QueuedJob, slurm_starts_s

HOUR_S = 3600.0
NODES = [Node(name=f"n{k}", partitions=("gpu",), cpus=8, gpus=8) for k in range(3)]


def even(gpus: int, nodes: int = 1) -> tuple[Job, ...]:
    return (Job(name="job", nodes=nodes, gpus_per_node=gpus),)


def plan(*shapes: tuple[Job, ...], **until_h: float) -> BackfillPlan:
    """Of three nodes, of which those named are held whole for some hours; the time is 0."""
    room, held = NodeRoom(NODES), NodesHeld.of(0, 0.0, [])
    for row, (name, hours) in enumerate(until_h.items()):
        node = [each.name for each in NODES].index(name)
        room.free[node] = 0
        held = held.beside(NodesHeld.of(row, hours * HOUR_S, [(node, 8)]))
    return BackfillPlan(room, shapes, 0.0, held)


def test_a_job_could_start_until_one_before_it_has_the_room() -> None:
    made = plan(even(8), even(8, 2), n0=1.0, n1=2.0)
    assert made.could_start(0, 3 * HOUR_S)
    assert made.start(1, HOUR_S) is None  # in an hour, on the free node and the first
    assert not made.could_start(0, 3 * HOUR_S)
    assert made.could_start(0, HOUR_S)
    assert made.start(0, HOUR_S) == [(2, 8)]
    assert not made.could_start(0, 1.0)


def test_nodes_must_stay_free_for_all_of_the_time() -> None:
    made = plan(even(8), even(8, 2), n0=1.0, n1=2.0)
    assert made.start(0, 2 * HOUR_S) == [(2, 8)]
    assert made.start(0, HOUR_S) is None  # in an hour, on the first node
    assert made.start(1, 2 * HOUR_S) is None  # in two hours
    assert made.start(0, 1.0) is None
    assert not made.could_start(1, 1.0)


def test_what_is_known_of_a_shorter_job_does_not_hold_back_a_shorter_one_still() -> None:
    made = plan(even(8), even(8, 3), n0=1.0)
    assert made.start(1, HOUR_S) is None  # in an hour, on all nodes
    assert not made.could_start(0, 2 * HOUR_S)
    assert made.start(0, 2 * HOUR_S) is None
    assert made.could_start(0, 1800.0)
    assert made.start(0, 1800.0) == [(1, 8)]


def test_a_job_beyond_the_window_is_not_planned_and_keeps_no_room() -> None:
    made = plan(even(8), even(8, 3), n0=WINDOW_S / HOUR_S + 1)
    assert made.start(1, HOUR_S) is None
    assert made.could_start(0, inf)
    assert made.start(0, inf) == [(1, 8)]


def test_a_pass_plans_nobody_behind_the_last_who_may_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred wait behind a pair, and each would be in its way: one look tells of all."""
    planned = []
    start = BackfillPlan.start

    def counting(self: BackfillPlan, shape: int, limit_s: float) -> object:
        planned.append(shape)
        return start(self, shape, limit_s)

    monkeypatch.setattr(BackfillPlan, "start", counting)
    jobs = [job(0.0, even(8), HOUR_S), job(1.0, even(8, 2), HOUR_S)]
    jobs += [job(2.0, even(8), 2 * HOUR_S) for _ in range(100)]
    starts_s = slurm_starts_s(jobs, NODES[:2])
    assert starts_s[:3] == [0, HOUR_S, 2 * HOUR_S]
    assert len(planned) < 3 * len(jobs)


def job(came_s: float, parts: tuple[Job, ...], limit_s: float) -> QueuedJob:
    return QueuedJob(
        submitted_s=came_s, came_s=came_s, limit_s=limit_s, duration_s=limit_s, parts=parts
    )
