"""The simulated Slurm: what squeue shows of a job is what the job is by then."""

from __future__ import annotations

from typing import Any

import pytest

from federator.faults.slurm import SimulatedSlurm
from federator.model.plan import JobPlan
from federator.model.site import Leave, Node, NodeShare, SiteJobState
from federator.model.workload import AttemptId, WorkloadId

CHANGES: dict[str, Any] = {
    "state": SiteJobState.FAILED,
    "exit_code": 3,
    "signal": 9,
    "started_at_s": 7.0,
    "ended_at_s": 9.0,
    "leave": Leave(told_at_s=5.0, saved_at_s=0.0, forced=False),
    "restarts": 1,
    "preempted": True,
    "saved_at_s": 6.0,
}


def cluster() -> SimulatedSlurm:
    node = Node(name="a1", partitions=("gpu",), switch="a", cpus=8, mem_mib=1000)
    slurm = SimulatedSlurm([node], lambda: 5.0)
    plans = [JobPlan(name=n, partition="gpu", nodes={"a1": NodeShare(cpus=1)}) for n in "xy"]
    slurm.submit(AttemptId(workload=WorkloadId(1), attempt=1), "ada", plans)
    return slurm


@pytest.mark.parametrize("field", CHANGES)
def test_a_report_shows_each_change_of_its_job(field: str) -> None:
    slurm = cluster()
    (job,) = slurm.jobs.values()
    (before,) = slurm.reports()
    setattr(job, field, CHANGES[field])
    (after,) = slurm.reports()
    assert getattr(after, field) == CHANGES[field] != getattr(before, field)


def test_a_report_shows_that_a_component_was_ended() -> None:
    slurm = cluster()
    (job,) = slurm.jobs.values()
    assert slurm.reports()[0].components[1].state is SiteJobState.RUNNING
    slurm.cancel_components(job.job_id, (1,))
    assert slurm.reports()[0].components[1].state is SiteJobState.CANCELLED


def test_a_report_shows_why_its_job_waits_now() -> None:
    slurm = cluster()
    slurm.starts_jobs = False
    slurm.requeue(AttemptId(workload=WorkloadId(1), attempt=1))
    assert slurm.reports()[0].reason == ""
    slurm.waits_for = "Resources"
    assert slurm.reports()[0].reason == "Resources"
