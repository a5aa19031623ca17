"""What is a site told about one workload? The order that its state asks for, as a command."""

from __future__ import annotations

from federator.model.lifecycle import WorkloadState
from federator.model.message import CancelAt, LaunchAt, PreemptAt, ShrinkAt
from federator.sched.ledger import Entry
from federator.sched.rules import Rules


def launch_order(entry: Entry) -> LaunchAt:
    """Start the attempt on the nodes of its plan."""
    return LaunchAt(
        site=entry.site,
        attempt=entry.attempt_id,
        workload=entry.workload,
        jobs=entry.plan,
        victims=entry.victims,
        shrinks=entry.shrinks,
    )


def order_to_leave(entry: Entry, rules: Rules) -> CancelAt | PreemptAt | ShrinkAt:
    """Cancel, withdraw, let it save and leave, or take its optional jobs."""
    if entry.state is WorkloadState.RUNNING and entry.leaving_jobs:
        return ShrinkAt(
            site=entry.site,
            attempt=entry.attempt_id,
            user=entry.workload.user,
            site_job_id=entry.site_job_id,
            components=tuple(sorted(entry.leaving_jobs)),
        )
    if entry.state is WorkloadState.PREEMPTING:
        return PreemptAt(
            site=entry.site,
            attempt=entry.attempt_id,
            workload=entry.workload,
            site_job_id=entry.site_job_id,
            grace_s=rules.grace_s,
        )
    return CancelAt(
        site=entry.site,
        attempt=entry.attempt_id,
        user=entry.workload.user,
        site_job_id=entry.site_job_id,
        pending_only=entry.state is not WorkloadState.CANCELLING,
    )


def lease_end_s(entry: Entry, rules: Rules) -> float:
    """By when a launched workload must have started; its victims leave within their grace.

    It is counted anew when the last of them has left, which may take longer if their site is cut
    off.
    """
    grace_s = rules.grace_s if entry.displaces else 0.0
    return entry.lease_from_s + grace_s + rules.launch_lease_s
