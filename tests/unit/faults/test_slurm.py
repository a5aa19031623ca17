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


GANG = AttemptId(workload=WorkloadId(2), attempt=1)


def gang(spare: int) -> SimulatedSlurm:
    """Three nodes, on which one job runs."""
    names = ("a1", "a2", "a3")
    nodes = [
        Node(name=name, partitions=("gpu",), switch="a", cpus=8, mem_mib=1000) for name in names
    ]
    slurm = SimulatedSlurm(nodes, lambda: 5.0)
    plan = JobPlan(name="x", partition="gpu", nodes=dict.fromkeys(names, NodeShare(cpus=8)))
    slurm.submit(GANG, "ada", [plan], spare=spare)
    return slurm


def test_a_job_with_a_spare_goes_on_without_a_node_that_fails_and_has_it_no_more() -> None:
    slurm = gang(spare=1)
    slurm.fail_node("a2")
    (report,), (holder,) = slurm.reports(), slurm.holders()
    assert (report.state, report.nodes) == (SiteJobState.RUNNING, ("a1", "a3"))
    assert list(holder.nodes) == ["a1", "a3"]
    (job,) = slurm.jobs.values()
    assert job.has_enough_nodes
    slurm.repair_node("a2")
    assert [node.cpus_alloc for node in slurm.nodes()] == [8, 0, 8]
    slurm.fail_node("a3")
    assert not job.has_enough_nodes
    slurm.requeue(GANG)
    assert job.nodes_left == ["a1", "a2", "a3"]


@pytest.mark.parametrize(("spare", "name"), [(1, "a1"), (0, "a2")])
def test_a_job_ends_with_its_first_node_or_with_any_if_it_has_no_spare(
    spare: int, name: str
) -> None:
    slurm = gang(spare)
    slurm.fail_node(name)
    (report,) = slurm.reports()
    assert report.state is SiteJobState.NODE_FAIL
