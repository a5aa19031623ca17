"""Writes small traces down in tests: one line a job."""

from __future__ import annotations

from federator.sim.importers.trace_csv import TraceBuilder
from federator.sim.registry import trace_policy
from federator.sim.trace import ReplayOptions, Timetable, Trace, TracePolicy, TracePool


def pool(name: str, nodes: int, gpus_per_node: int = 1) -> TracePool:
    return TracePool(name=name, nodes=nodes, gpus_per_node=gpus_per_node)


def trace(lines: str, *pools: TracePool) -> Trace:
    """Jobs as ``id submit_s duration_s gpus [pool]``; the first pool where none is named."""
    builder = TraceBuilder(pools)
    for number, line in enumerate(lines.strip().splitlines(), 1):
        job_id, submit_s, duration_s, gpus, *where = line.split()
        builder.add(
            job_id=job_id,
            line=number,
            submit_s=int(submit_s),
            duration_s=int(duration_s),
            gpus=int(gpus),
            num_nodes=None,
            cpus=None,
            pool=where[0] if where else pools[0].name,
            user="",
        )
    return builder.trace


def prefix(jobs: Trace, count: int) -> Trace:
    """The jobs that come first."""
    builder = TraceBuilder(jobs.pools)
    for row in jobs.in_order()[:count]:
        builder.add(
            job_id=jobs.job_id[row],
            line=row + 2,
            submit_s=jobs.submit_s[row],
            duration_s=jobs.duration_s[row],
            gpus=jobs.gpus[row],
            num_nodes=jobs.num_nodes[row],
            cpus=jobs.cpus[row],
            pool=jobs.pools[jobs.pool[row]].name,
            user=jobs.user[row],
        )
    return builder.trace


def replay(jobs: Trace, policy: TracePolicy | str) -> Timetable:
    """Audited: a GPU used twice is an error."""
    chosen = trace_policy(policy) if isinstance(policy, str) else policy
    return chosen.replay(jobs, ReplayOptions(audit=True))


def starts(jobs: Trace, policy: TracePolicy | str) -> dict[str, int]:
    """Start of the last attempt, by job id."""
    return dict(zip(jobs.job_id, replay(jobs, policy).start_s, strict=True))


def ends(jobs: Trace, policy: TracePolicy | str) -> dict[str, int]:
    return dict(zip(jobs.job_id, replay(jobs, policy).end_s, strict=True))
