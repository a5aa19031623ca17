"""A site's queue is replayed as Slurm's backfill serves it: nobody delays who is ahead."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from federator.model.site import Node
from federator.model.workload import Job
from federator.sim.backfill_plan import WINDOW_S
from federator.sim.slurm_queue import QueuedJob, slurm_starts_s
from tests.fakes.plain_backfill import PlainQueue

MINUTE_S = 60.0
HOUR_S = 3600.0


def nodes(count: int, gpu_type: str = "a100") -> list[Node]:
    return [
        Node(name=f"{gpu_type}{k}", partitions=("gpu",), cpus=8, gpus=8, gpu_type=gpu_type)
        for k in range(count)
    ]


def asks(*parts: Job, came_s: float = 0.0, limit_s: float = HOUR_S, **more: float) -> QueuedJob:
    values = {"submitted_s": came_s, "duration_s": limit_s} | more
    return QueuedJob(came_s=came_s, limit_s=limit_s, parts=parts, **values)


def even(gpus: int, count: int = 1, *types: str) -> Job:
    return Job(name="job", nodes=count, gpus_per_node=gpus, gpu_types=types)


def test_a_short_job_starts_early_only_where_it_delays_nobody_planned_before_it() -> None:
    """The third that waits would fit beside the reservation of the first, not of the second."""
    jobs = [
        asks(even(8), limit_s=HOUR_S),
        asks(even(6), limit_s=2 * HOUR_S),
        asks(even(8, 2), came_s=60.0, limit_s=HOUR_S),  # waits for both nodes: 2 hours
        asks(even(8), came_s=120.0, limit_s=50 * MINUTE_S),  # at 1 hour, on the first's node
        asks(even(2), came_s=180.0, limit_s=4 * HOUR_S),  # would be in the way of the pair
        asks(even(2), came_s=240.0, limit_s=30 * MINUTE_S),  # is in nobody's way
    ]
    assert slurm_starts_s(jobs, nodes(2)) == [0, 0, 7200, 3600, 10_800, 240]


def test_each_who_waits_has_a_reservation_not_the_first_alone() -> None:
    """A reservation for the first alone would let the long job start before the second."""
    jobs = [
        asks(even(8), limit_s=HOUR_S),
        asks(even(4), limit_s=2 * HOUR_S),
        asks(even(8), came_s=60.0, limit_s=HOUR_S),  # 1 hour, on the first node
        asks(even(8, 2), came_s=120.0, limit_s=HOUR_S),  # 2 hours, on both
        asks(even(4), came_s=180.0, limit_s=3 * HOUR_S),  # in the way of the second alone
    ]
    assert slurm_starts_s(jobs, nodes(2))[2:] == [3600, 7200, 10_800]


def test_what_ends_before_its_limit_makes_room_at_once() -> None:
    jobs = [
        asks(even(8), limit_s=10 * HOUR_S, duration_s=100.0),
        asks(even(8), came_s=10.0),
    ]
    assert slurm_starts_s(jobs, nodes(1)) == [0, 100]


def test_gpus_are_free_again_after_the_turnaround() -> None:
    jobs = [asks(even(8), duration_s=100.0), asks(even(8), came_s=10.0)]
    assert slurm_starts_s(jobs, nodes(1), turnaround_s=7.0) == [0, 107]


def test_who_was_submitted_sooner_goes_first_though_it_could_start_later() -> None:
    jobs = [
        asks(even(8), limit_s=HOUR_S),
        asks(even(8), came_s=300.0, submitted_s=10.0),
        asks(even(8), came_s=20.0),
    ]
    assert slurm_starts_s(jobs, nodes(1)) == [0, 3600, 7200]


def test_a_job_that_leaves_the_queue_was_in_the_way_until_then() -> None:
    jobs = [
        asks(even(6), limit_s=HOUR_S),
        asks(even(8), came_s=10.0, leaves_s=1000.0),
        asks(even(2), came_s=20.0, limit_s=2 * HOUR_S),
        asks(even(1), came_s=2000.0),
    ]
    assert slurm_starts_s(jobs, nodes(1)) == [0, None, 1000, 3600]


def test_one_that_starts_though_it_left_the_queue_ends_as_it_left() -> None:
    jobs = [
        asks(even(8), limit_s=HOUR_S, duration_s=100.0),
        asks(even(8), came_s=10.0, leaves_s=1000.0, limit_s=inf),
        asks(even(8), came_s=20.0),
    ]
    assert slurm_starts_s(jobs, nodes(1)) == [0, 100, 1000]


def test_types_of_gpu_and_components_that_start_together() -> None:
    there = nodes(1, "a100") + nodes(1, "h100")
    jobs = [
        asks(even(8, 1, "h100"), limit_s=HOUR_S),
        asks(even(2, 1, "a100"), even(2, 1, "h100"), came_s=10.0),
        asks(even(8, 1, "a100"), came_s=20.0, limit_s=50 * MINUTE_S),
    ]
    assert slurm_starts_s(jobs, there) == [0, 3600, 20]


def test_a_component_of_any_type_leaves_the_nodes_of_one_to_the_component_that_needs_them() -> None:
    """The node of h100 is the fullest, but nothing else holds the second."""
    site = [*nodes(1), replace(*nodes(1, "h100"), gpus=6)]
    assert slurm_starts_s([asks(even(4), even(4, 1, "h100"))], site) == [0]


def test_components_start_where_less_room_fits_them_though_more_did_not() -> None:
    """What may have a100 or h100 takes the fullest node that fits, which is a100's once it has less
    than h100's; only then are 4 of h100 left.
    """
    site = [*nodes(1), replace(*nodes(1, "h100"), gpus=6), replace(*nodes(1, "v100"), gpus=2)]
    both = asks(even(4, 1, "a100", "h100"), even(4, 1, "h100", "v100"), came_s=60.0)
    assert slurm_starts_s([both], site) == [None]  # of two ways it tries one
    before = asks(even(3, 1, "a100"), came_s=60.0, submitted_s=0.0)
    assert slurm_starts_s([before, both], site) == [60, 60]
    assert PlainQueue([before, both], site, 0.0).run() == [60, 60]


def test_gpus_without_nodes_are_spread_over_as_few_as_hold_them() -> None:
    jobs = [
        asks(Job(name="job", gpus=12)),
        asks(even(4), came_s=10.0),
        asks(Job(name="job", gpus=9), came_s=20.0),
    ]
    assert slurm_starts_s(jobs, nodes(2)) == [0, 10, 3600]


@pytest.mark.parametrize("limit_s", [inf, 3 * WINDOW_S])
def test_nobody_is_planned_beyond_the_window(limit_s: float) -> None:
    """Who cannot be planned holds nobody up: as with bf_window."""
    jobs = [
        asks(even(4), limit_s=limit_s, duration_s=HOUR_S),
        asks(even(8), came_s=10.0),
        asks(even(4), came_s=20.0, limit_s=10 * HOUR_S),
    ]
    assert slurm_starts_s(jobs, nodes(1)) == [0, 36_020, 20]


def test_a_limit_of_nothing_ends_no_replay() -> None:
    jobs = [
        asks(even(8), limit_s=HOUR_S),
        asks(even(6), came_s=10.0, limit_s=0.0, duration_s=50.0),
        asks(even(4), came_s=20.0),
    ]
    assert slurm_starts_s(jobs, nodes(1)) == [0, 3600, 3650]


def test_a_job_that_no_node_holds_never_starts_and_holds_nobody_up() -> None:
    assert slurm_starts_s([asks(even(9)), asks(even(8), came_s=5.0)], nodes(1)) == [None, 5]
    assert slurm_starts_s([], nodes(1)) == []
