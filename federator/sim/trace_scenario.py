"""Turns a trace into a scenario: each pool is a site, and a tenant whose quota is the pool."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from federator.model.draft import Draft
from federator.model.site import Node
from federator.model.submission import Submission, pack_submission
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import Job, SiteName, TenantName
from federator.sim.scenario import Arrival, JobTrace, Scenario, SimulatedSite
from federator.sim.trace import Timetable, Trace, TracePool

PARTITION: Final = "gpu"
NODES_PER_RACK: Final = 16  # a trace does not say it
TENANT_PRIORITY: Final = 4  # where most workloads are (MAST sec. 4.2)
_SCRIPT: Final = pack_submission(Submission(components=((),), script=""))


def scenario_of(trace: Trace, *, home: bool = False, start_within_s: float = 0.0) -> Scenario:
    """The whole trace; its rows in order of submission.

    Jobs that ask for the same are one object.

    Args:
        trace: its pools are sites, and tenants.
        home: whether a tenant's quota is guaranteed in its own pool only, see ``Tenant.home``.
        start_within_s: of every tenant, see ``Tenant.start_within_s``.
    """
    alike: dict[tuple[Job, ...], tuple[Job, ...]] = {}
    sites = tuple(
        SimulatedSite(name=SiteName(pool.name), nodes=nodes_of(pool)) for pool in trace.pools
    )
    tenants = tuple(
        Tenant(
            name=TenantName(pool.name),
            priority=TENANT_PRIORITY,
            quota=Allowance(gpus=pool.gpus),
            home=(SiteName(pool.name),) if home else (),
            start_within_s=start_within_s,
        )
        for pool in trace.pools
    )
    arrivals = tuple(
        Arrival(
            at_s=trace.submit_s[row],
            draft=draft_of(trace, row, alike),
            duration_s=trace.duration_s[row],
        )
        for row in trace.in_order()
    )
    return Scenario(sites=sites, tenants=tenants, arrivals=arrivals)


def timetable_of(trace: Trace, lives: Sequence[JobTrace]) -> Timetable:
    """When the rows of a trace ran, from the lives of ``scenario_of`` it."""
    timetable = Timetable.of(trace)
    for row, life in zip(trace.in_order(), lives, strict=True):
        timetable.start_s[row] = int(life.start_s)
        timetable.end_s[row] = int(life.end_s)
        timetable.site[row] = life.site
        timetable.preemptions[row] = life.preemptions
    return timetable


def draft_of(
    trace: Trace, row: int, alike: dict[tuple[Job, ...], tuple[Job, ...]] | None = None
) -> Draft:
    """A submission as a trace tells of it; it says no time limit.

    ``alike``: jobs of other rows, which it shares if they are the same.
    """
    jobs: tuple[Job, ...] = (job_of(trace, row),)
    jobs = jobs if alike is None else alike.setdefault(jobs, jobs)
    return Draft(
        name=trace.job_id[row],
        user=trace.user[row] or "user",
        tenant=TenantName(trace.pools[trace.pool[row]].name),
        priority=TENANT_PRIORITY,
        jobs=jobs,
        submission=_SCRIPT,
        time_limit_s=inf,
        requeue=True,
    )


def nodes_of(pool: TracePool) -> tuple[Node, ...]:
    """A pool's nodes in racks; a CPU for each GPU, and one more for jobs without any."""
    return tuple(
        Node(
            name=f"{pool.name}-{k}",
            partitions=(PARTITION,),
            switch=f"{pool.name}-r{k // NODES_PER_RACK}",
            cpus=max(1, 2 * pool.gpus_per_node),
            gpus=pool.gpus_per_node,
            gpu_type="gpu",
        )
        for k in range(pool.nodes)
    )


def job_of(trace: Trace, row: int) -> Job:
    """A job on as few nodes of its own pool's size as hold its GPUs."""
    gpus, each = trace.gpus[row], trace.pools[trace.pool[row]].gpus_per_node
    if gpus <= each:
        return Job(name="job", nodes=1, gpus_per_node=gpus)
    return Job(name="job", gpus=gpus)
