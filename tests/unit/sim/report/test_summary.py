"""A replay is summed up in figures that were worked by hand, and written job by job."""

from __future__ import annotations

import io

import pytest

from federator.sim.baselines.themis import ThemisReplay
from federator.sim.report.summary import Spread, summary, write_jobs
from tests.fakes.traces import pool, replay, trace

pytestmark = pytest.mark.slow

TWO = pool("ant", 1, 4), pool("bee", 1)


def test_waits_completion_times_and_use() -> None:
    jobs = trace("a 10 3600 4\nb 10 3600 2\nc 20 10 1 bee\nbig 0 1 5", *TWO)
    result = summary(jobs, replay(jobs, "pool-fifo"), "pool-fifo", 7)
    assert (result.schema, result.policy, result.seed, result.preemptions) == (1, "pool-fifo", 7, 0)
    assert (result.jobs, result.left_out, result.gpus, result.makespan_s) == (3, 1, 5, 7200)
    assert result.gpu_hours == 6 + 10 / 3600
    assert result.utilisation_frac == (6 * 3600 + 10) / (5 * 7200)
    assert result.wait_s == Spread(1200.0, 0.0, 3600, 3600)
    assert result.jct_s == Spread((3600 + 7200 + 10) / 3, 3600.0, 7200, 7200)
    ant, bee = result.pools
    assert (ant.jobs, ant.left_out, ant.utilisation_frac) == (2, 1, 0.75)
    assert ant.wait_s == Spread(1800.0, 1800.0, 3600, 3600)
    assert (bee.gpus, bee.jobs, bee.utilisation_frac) == (1, 1, 10 / 7200)
    assert [(job.job_id, job.reason) for job in result.left_out_jobs] == [
        ("big", "larger than its pool")
    ]


def test_p95_is_the_least_time_that_95_percent_do_not_exceed() -> None:
    lines = "\n".join(f"{k} 0 {k} 1" for k in range(1, 41))
    jobs = trace(lines, pool("ant", 40))
    result = summary(jobs, replay(jobs, "pool-fifo"), "pool-fifo", 0)
    assert result.jct_s == Spread(20.5, 20.5, 38, 40)


def test_without_jobs_there_is_nothing_to_say() -> None:
    jobs = trace("", *TWO)
    result = summary(jobs, replay(jobs, "pool-fifo"), "pool-fifo", 0)
    assert (result.jobs, result.makespan_s, result.gpu_hours) == (0, 0, 0.0)
    assert (result.utilisation_frac, result.wait_s, result.jct_s) == (None, None, None)


def test_a_wait_is_all_time_in_which_a_job_did_not_run() -> None:
    jobs = trace("a 0 10 1\nb 1 2 1", pool("ant", 1))
    result = summary(jobs, replay(jobs, ThemisReplay(lease_s=4)), "themis", 0)
    assert result.preemptions == 1
    assert result.wait_s == Spread(2.5, 2.5, 3, 3)


def test_jobs_are_written_in_the_order_of_the_trace() -> None:
    jobs = trace("b 5 3 1\na 0 9 4\nc 6 1 1 bee", *TWO)
    file = io.StringIO()
    write_jobs(jobs, replay(jobs, "pool-fifo"), file)
    assert file.getvalue() == (
        "job_id,pool,submit_s,start_s,end_s,gpus,site,preemptions\n"
        "b,ant,5,9,12,1,ant,0\na,ant,0,0,9,4,ant,0\nc,bee,6,6,7,1,bee,0\n"
    )
