"""Short builders of model values for tests, such as "two racks of four nodes"."""

from __future__ import annotations

from math import inf

from federator.model.draft import Draft
from federator.model.eligibility import NO_DEPENDENCY, Dependency, Hold
from federator.model.plan import BidRequest, JobPlan
from federator.model.site import Node, NodeShare
from federator.model.submission import Submission, pack_submission
from federator.model.tenant import LOWEST_PRIORITY, Allowance, Tenant
from federator.model.workload import (
    FIRST_WORKLOAD_ID,
    AttemptId,
    Job,
    TenantName,
    Workload,
    WorkloadId,
)


def rack(
    switch: str,
    count: int,
    *,
    gpus: int = 8,
    cpus: int = 64,
    mem_mib: int = 512_000,
    gpu_type: str = "a100",
    partitions: tuple[str, ...] = ("gpu",),
    features: tuple[str, ...] = (),
) -> tuple[Node, ...]:
    """Idle nodes ``<switch>1`` … under one leaf switch."""
    return tuple(
        Node(
            name=f"{switch}{k}",
            partitions=partitions,
            switch=switch,
            cpus=cpus,
            mem_mib=mem_mib,
            gpu_type=gpu_type if gpus else "",
            gpus=gpus,
            features=features,
        )
        for k in range(1, count + 1)
    )


def gang(nodes: int, gpus_per_node: int = 8, name: str = "train", cpus_per_node: int = 1) -> Job:
    return Job(name=name, nodes=nodes, gpus_per_node=gpus_per_node, cpus_per_node=cpus_per_node)


def submission(jobs: int = 1) -> Submission:
    return Submission(components=((),) * jobs, script="#!/bin/sh\ntrue\n")


def draft(
    *jobs: Job,
    name: str = "train",
    user: str = "ada",
    priority: int = 3,
    requeue: bool = True,
    array_indices: tuple[int, ...] = (),
    array_max_running: int = 0,
    tenant: str = "vision",
    asked_priority: int = 1,
    nice: int = 0,
    optional: tuple[int, ...] = (),
    no_preempt: bool = False,
    continues: bool = False,
    migrates: bool = False,
    time_limit_s: float = 3600.0,
    hold: Hold = Hold.NONE,
    begin_at_s: float = 0.0,
    waits_for: Dependency = NO_DEPENDENCY,
) -> Draft:
    """A sound submission; one gang of one node with 8 GPUs when no job is given."""
    jobs = jobs or (gang(1),)
    return Draft(
        name=name,
        user=user,
        tenant=TenantName(tenant),
        priority=priority,
        jobs=jobs,
        submission=pack_submission(submission(len(jobs))),
        time_limit_s=time_limit_s,
        requeue=requeue,
        array_indices=array_indices,
        array_max_running=array_max_running,
        asked_priority=asked_priority,
        nice=nice,
        optional=optional,
        no_preempt=no_preempt,
        continues=continues,
        migrates=migrates,
        hold=hold,
        begin_at_s=begin_at_s,
        waits_for=waits_for,
    )


def workload(
    number: int = 0,
    *jobs: Job,
    priority: int = 3,
    submitted_at_s: float = 0.0,
    user: str = "ada",
    tenant: str = "vision",
    asked_priority: int = 1,
    nice: int = 0,
) -> Workload:
    """The ``number``-th workload of a federation."""
    return Workload(
        id=WorkloadId(FIRST_WORKLOAD_ID + number),
        name=f"w{number}",
        user=user,
        tenant=TenantName(tenant),
        priority=priority,
        jobs=jobs or (gang(1),),
        submission=pack_submission(submission(max(1, len(jobs)))),
        submitted_at_s=submitted_at_s,
        asked_priority=asked_priority,
        nice=nice,
        time_limit_s=inf,
    )


def bid_request(
    *,
    id: WorkloadId,
    jobs: tuple[Job, ...],
    priority: int = LOWEST_PRIORITY,
    preempt_gpus: float = 0.0,
    time_limit_s: float = inf,
    predicted_run_s: float = inf,
) -> BidRequest:
    """A request of somebody, which may evict nobody."""
    return BidRequest(
        id=id,
        tenant="vision",
        user="ada",
        priority=priority,
        jobs=jobs,
        time_limit_s=time_limit_s,
        preempt_gpus=preempt_gpus,
        predicted_run_s=predicted_run_s,
    )


def tenant(
    name: str = "vision",
    quota: Allowance | float | None = None,
    *,
    priority: int = 3,
    limit: float = inf,
    parent: str | None = None,
) -> Tenant:
    """A tenant with a quota, and perhaps a limit, of so many GPUs."""
    return Tenant(
        name=TenantName(name),
        priority=priority,
        quota=Allowance(gpus=quota) if isinstance(quota, int | float) else quota,
        limit=Allowance(gpus=limit),
        parent=None if parent is None else TenantName(parent),
    )


def attempt(number: int = 0, nth: int = 1) -> AttemptId:
    """The ``nth`` try of the ``number``-th workload."""
    return AttemptId(workload=WorkloadId(FIRST_WORKLOAD_ID + number), attempt=nth)


def plan_on(*names: str, gpus: int = 8, cpus: int = 1, job: str = "train") -> tuple[JobPlan, ...]:
    """A plan of one job with the same share of every node."""
    share = NodeShare(gpus=gpus, cpus=cpus)
    return (JobPlan(name=job, partition="gpu", nodes=dict.fromkeys(names, share)),)
