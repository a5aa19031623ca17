"""Who waits is ranked by quota, then credit, then submission; as in the federation."""

from __future__ import annotations

from federator.sched.state.credit import CreditWeights
from federator.sched.state.usage import UsageMemory
from federator.sim.fast.lanes import WaitingJobs
from federator.sim.fast.request_shape import shapes_of
from tests.fakes.traces import pool, trace

ANT, BEE = pool("ant", 1, 4), pool("bee", 1, 4)


def waiting(lines: str) -> WaitingJobs:
    jobs = trace(lines, ANT, BEE)
    usage = UsageMemory().average()
    found = WaitingJobs(jobs, jobs.in_order(), shapes_of(jobs), 1e6, CreditWeights(), usage)
    for job in range(len(jobs)):
        found.add(job)
    return found


def test_a_large_job_beyond_the_quota_lets_smaller_ones_behind_it_stay_within() -> None:
    found = waiting("a 0 9 3 ant\nb 1 9 2 ant\nc 2 9 1 ant\nd 3 9 1 ant")
    assert found.ranked(range(4), 1e6 + 10) == [0, 2, 1, 3]


def test_what_a_tenant_borrows_counts_against_its_own_quota() -> None:
    found = waiting("a 0 9 4 ant\nb 0 9 4 ant\nc 1 9 0 ant\nd 2 9 4 bee")
    found.start(0, 1e6)
    found.start(1, 1e6)
    assert found.ranked((2, 3), 1e6 + 10) == [3, 2]  # overdrawn: not even a job without GPUs
    found.end(0, 1e6 + 10)
    assert found.ranked((2, 3), 1e6 + 10) == [3, 2]  # within quota again, and bee used less
    found.end(1, 1e6 + 10)
    assert found.ranked((2, 3), 1e6 + 7 * 86_400 * 2) == [2, 3]  # nobody has used any lately


def test_who_has_left_is_in_no_lane() -> None:
    found = waiting("a 0 9 1 ant\nb 0 9 1 bee\nc 1 9 1 ant")
    (shape,) = found.by_shape
    assert found.first_of(shape, 9) == [0, 2, 1]
    found.start(0, 1e6)
    assert found.first_of(shape, 9) == [2, 1]
    found.start(1, 1e6)
    found.start(2, 1e6)
    assert (found.by_shape, len(found)) == ({}, 0)


def test_the_first_of_a_shape_are_among_those_that_are_looked_at() -> None:
    found = waiting("\n".join(f"{n} {n} 9 1 ant" for n in range(9)) + "\nx 3 9 1 bee")
    (shape,) = found.by_shape
    some = found.first_of(shape, 2)
    assert len(some) < len(found)
    assert set(found.ranked(found.jobs, 1e6 + 10)[:2]) <= set(some)
