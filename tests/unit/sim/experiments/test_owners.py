"""Whose fault a late job is, on fleets small enough to work by hand."""

from __future__ import annotations

import pytest

from federator.model.workload import SiteName
from federator.sim.experiments.base import run_here
from federator.sim.experiments.owners import OwnersExperiment, figures
from federator.sim.scenario import AttemptInterval, JobTrace
from federator.sim.trace import Timetable, Trace
from tests.fakes.traces import pool, trace


def life(*stays: tuple[str, float, float], preemptions: int = 0) -> JobTrace:
    found = [AttemptInterval(SiteName(site), a, b) for site, a, b in stays]
    return JobTrace(
        start_s=found[-1].start_s,
        end_s=found[-1].end_s,
        stays=found,
        preemptions=preemptions,
    )


def alone(jobs: Trace, starts: list[int]) -> Timetable:
    found = Timetable.of(jobs)
    found.start_s[:] = starts
    found.end_s[:] = [a + b for a, b in zip(starts, jobs.duration_s, strict=True)]
    return found


TWO = trace("owned 0 1000 8 ant\nguest 0 5000 8 bee", pool("ant", 8), pool("bee", 8))


def test_a_job_that_waits_while_a_stranger_has_its_pool_is_harmed_by_guests() -> None:
    lives = [life(("ant", 5000, 6000)), life(("ant", 0, 5000))]
    found = figures(TWO, alone(TWO, [0, 0]), lives, late_s=600)
    assert (found.late, found.by_guests, found.worst_s) == (1, 1, 5000)
    assert (found.beyond_2h, found.late_s, found.worst_by_guests_s) == (0, 5000, 5000)


def test_a_job_that_waits_for_jobs_of_its_own_pool_is_harmed_by_order() -> None:
    jobs = trace("first 0 1000 8 ant\nsecond 0 5000 8 ant", pool("ant", 8))
    lives = [life(("ant", 5000, 6000)), life(("ant", 0, 5000))]
    found = figures(jobs, alone(jobs, [0, 1000]), lives, late_s=600)
    assert (found.late, found.by_guests) == (1, 0)
    assert (found.worst_s, found.worst_by_guests_s) == (5000, 0)


def test_what_its_own_pool_runs_elsewhere_keeps_nobody_out() -> None:
    jobs = trace("first 0 1000 8 ant\nsecond 0 5000 8 ant", pool("ant", 8), pool("bee", 8))
    lives = [life(("ant", 5000, 6000)), life(("bee", 0, 5000))]
    found = figures(jobs, alone(jobs, [0, 1000]), lives, late_s=600)
    assert (found.late, found.by_guests) == (1, 1)


def test_waiting_before_the_start_alone_and_running_count_for_nobody() -> None:
    jobs = trace("first 0 1000 8 ant\nsecond 0 5000 8 ant", pool("ant", 8))
    lives = [life(("ant", 0, 1000)), life(("ant", 1000, 2000), ("ant", 3000, 8000), preemptions=1)]
    found = figures(jobs, alone(jobs, [0, 1000]), lives, late_s=600)
    assert (found.late, found.by_guests, found.evictions) == (1, 1, 1)  # nobody was there meanwhile
    assert found.worst_s == 2000


def test_nobody_is_late_who_ends_as_alone() -> None:
    lives = [life(("ant", 0, 1000)), life(("bee", 0, 5000))]
    found = figures(TWO, alone(TWO, [0, 0]), lives, late_s=600)
    assert (found.late, found.by_guests, found.worst_s, found.lost_frac) == (0, 0, 0, 0)
    assert (found.completion_s, found.alone_s) == (3000, 3000)


@pytest.mark.slow
def test_a_gang_is_late_until_its_quota_has_a_home() -> None:
    """Guests' jobs refill what it waits for; at home it evicts them in stages."""
    guests = "\n".join(f"g{k} {k} 90000 8 bee" for k in range(8))
    jobs = trace(f"{guests}\ngang 3600 3600 32 ant", pool("ant", 4, 8), pool("bee", 4, 8))
    table = run_here(OwnersExperiment(trace=jobs, budget_frac=0.25), 0).tables[0]
    late = dict(zip(table.column("rule"), table.column("late"), strict=True))
    assert late["lends, evicts nobody"] == 1
    assert late["home, start objective"] == 0
    assert late["home, lends by forecasts, evicts nobody"] == 0  # nothing is known of the guests
    assert table.column("claims") == [0, 1, 1, 1, 0, 0]
    assert set(table.column("claims_broken")) == {0}
    assert all(count == 0 for count in table.column("by_order"))


def test_the_first_jobs_of_a_trace_are_those_that_were_submitted_first() -> None:
    jobs = trace("late 900 5 1\nearly 100 5 1 bee\nmiddle 500 7 1", pool("ant", 1), pool("bee", 1))
    found = jobs.first(2)
    assert (found.job_id, found.duration_s, found.pool) == (["early", "middle"], [5, 7], [1, 0])
