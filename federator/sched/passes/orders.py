"""Makes the command for a site that a workload's state calls for."""

from __future__ import annotations

from federator.model.lifecycle import WorkloadState
from federator.model.message import LaunchAt, PreemptAt, SendTo
from federator.model.site_message import CancelOrder, ShrinkOrder
from federator.sched.passes.continuation import grace_s, limit_at_s
from federator.sched.state.failures import checkpoint_interval_s, mtbf_s
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules
from federator.sched.state.save_times import family_of


def launch_order(entry: WorkloadRecord, ledger: Ledger) -> LaunchAt:
    """Start the attempt on the nodes of its plan."""
    save_s = ledger.saves.p95_s(family_of(entry.workload)) or 0.0
    w, award = entry.workload, entry.award
    mean_s = mtbf_s(len(entry.node_names), ledger.failures.per_node_s(entry.site))
    return LaunchAt(
        site=entry.site,
        attempt=entry.attempt_id,
        workload=w,
        jobs=entry.plan,
        has_run=bool(entry.ran_at),
        victims=entry.victims,
        shrinks=entry.shrinks,
        checkpoint_interval_s=checkpoint_interval_s(save_s, mean_s),
        key=ledger.keys.of(w),
        priority=award.priority if award is not None else 0,
        within_quota=award is not None and award.within_quota,
        credit=award.credit if award is not None else 0.0,
        data=award.data if award is not None else (),
        output=award.output if award is not None else None,
    )


def order_to_leave(entry: WorkloadRecord, rules: Rules, now_s: float) -> PreemptAt | SendTo:
    """Cancel, withdraw, let it save and leave, or take its optional jobs."""
    if entry.state is WorkloadState.RUNNING and entry.leaving_jobs:
        shrink = ShrinkOrder(
            attempt=entry.attempt_id,
            user=entry.workload.user,
            components=tuple(sorted(entry.leaving_jobs)),
        )
        return SendTo(site=entry.site, message=shrink)
    if entry.state is WorkloadState.PREEMPTING:
        return PreemptAt(
            site=entry.site,
            attempt=entry.attempt_id,
            workload=entry.workload,
            site_job_id=entry.site_job_id,
            grace_s=grace_s(entry, rules, now_s),
        )
    cancel = CancelOrder(
        attempt=entry.attempt_id,
        user=entry.workload.user,
        site_job_id=entry.site_job_id,
        pending_only=entry.state is not WorkloadState.CANCELLING,
    )
    return SendTo(site=entry.site, message=cancel)


def lease_end_s(entry: WorkloadRecord, rules: Rules) -> float:
    """By when a launched workload must have started; its victims leave within their grace.

    It is counted anew when the last of them has left, which may take longer if their site is cut
    off.
    """
    clearing_s = rules.grace_s if entry.displaces else 0.0
    return entry.lease_from_s + clearing_s + rules.launch_lease_s


def leave_by_s(entry: WorkloadRecord, rules: Rules) -> float:
    """The end of the grace of one that is notified to leave; 0 for all others.

    The site of an evicted one counts from when the order reached it, so it may be a moment later,
    and long after where the site was cut off.
    """
    if entry.state is not WorkloadState.PREEMPTING:
        return 0.0
    return limit_at_s(entry) if entry.at_its_limit else entry.evicted_at_s + rules.grace_s
