"""Sums a replay up: waits, completion times and use, in all, by pool and by job.

For every policy alike: a job's ``jct`` is its end - its submission, its wait is ``jct`` - duration,
that is all the time in which it did not run, also after a preemption.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from typing import TextIO

from msgspec import Struct

from federator.sim.trace import Timetable, Trace

COLUMNS = ("job_id", "pool", "submit_s", "start_s", "end_s", "gpus", "site", "preemptions")


class Spread(Struct, frozen=True):
    """Of times in seconds. ``p95``: the least of them that 95 % do not exceed."""

    mean: float
    median: float
    p95: int
    max: int


class PoolSummary(Struct, frozen=True):
    """One pool, by the jobs that were submitted to it, wherever they ran."""

    pool: str
    gpus: int
    jobs: int
    left_out: int
    gpu_hours: float
    utilisation_frac: float | None
    wait_s: Spread | None
    jct_s: Spread | None


class LeftOutJob(Struct, frozen=True):
    """A job that was not replayed, and why."""

    job_id: str
    line: int
    pool: str
    gpus: int
    reason: str


class ReplaySummary(Struct, frozen=True):
    """What ``simulate --json`` prints. Null: there is no job to say it of."""

    schema: int
    policy: str
    seed: int
    jobs: int
    left_out: int
    preemptions: int
    gpus: int
    makespan_s: int
    gpu_hours: float
    utilisation_frac: float | None
    wait_s: Spread | None
    jct_s: Spread | None
    pools: list[PoolSummary]
    left_out_jobs: list[LeftOutJob]


def summary(trace: Trace, timetable: Timetable, policy: str, seed: int) -> ReplaySummary:
    """Sum up a replay. The makespan, which use is relative to, is that of all pools together."""
    rows = range(len(trace))
    makespan_s = max(timetable.end_s, default=0) - min(trace.submit_s, default=0)
    hours, use, wait_s, jct_s = _figures(trace, timetable, rows, trace.capacity, makespan_s)
    left_out = [
        LeftOutJob(job.job_id, job.line, job.pool, job.gpus, job.reason.value)
        for job in trace.left_out
    ]
    by_pool = trace.by_pool()
    pools = [
        PoolSummary(
            pool.name,
            pool.gpus,
            len(own),
            sum(job.pool == pool.name for job in left_out),
            *_figures(trace, timetable, own, pool.gpus, makespan_s),
        )
        for pool, own in zip(trace.pools, by_pool, strict=True)
    ]
    return ReplaySummary(
        1,
        policy,
        seed,
        len(trace),
        len(left_out),
        sum(timetable.preemptions),
        trace.capacity,
        makespan_s,
        hours,
        use,
        wait_s,
        jct_s,
        pools,
        left_out,
    )


def _figures(
    trace: Trace, timetable: Timetable, rows: Sequence[int], gpus: int, makespan_s: int
) -> tuple[float, float | None, Spread | None, Spread | None]:
    """GPU-hours, utilisation, waits and completion times of some jobs."""
    jcts_s = [timetable.end_s[row] - trace.submit_s[row] for row in rows]
    waits_s = [jct_s - trace.duration_s[row] for jct_s, row in zip(jcts_s, rows, strict=True)]
    gpu_s = sum(trace.gpus[row] * trace.duration_s[row] for row in rows)
    use = gpu_s / (gpus * makespan_s) if makespan_s else None
    return gpu_s / 3600, use, spread(waits_s), spread(jcts_s)


def spread(times_s: list[int]) -> Spread | None:
    """How the times are spread; None where there are none. Sorts them."""
    if not times_s:
        return None
    times_s.sort()
    count = len(times_s)
    p95 = times_s[-(-count * 95 // 100) - 1]
    return Spread(sum(times_s) / count, float(statistics.median(times_s)), p95, times_s[-1])


def job_columns(trace: Trace, timetable: Timetable) -> tuple[Sequence[str | int], ...]:
    """When and where each job ran, in the order of the trace: one sequence for each of COLUMNS."""
    names = [pool.name for pool in trace.pools]
    return (
        trace.job_id,
        [names[pool] for pool in trace.pool],
        trace.submit_s,
        timetable.start_s,
        timetable.end_s,
        trace.gpus,
        timetable.site,
        timetable.preemptions,
    )


def write_jobs(trace: Trace, timetable: Timetable, file: TextIO) -> None:
    """Write when and where each job ran as CSV."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(zip(*job_columns(trace, timetable), strict=True))
