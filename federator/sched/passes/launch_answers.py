"""Applies a site's answer to the order to launch an attempt."""

from __future__ import annotations

from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.reason import Reason, ReasonCode
from federator.model.site_message import AttemptAbsent, LaunchAccepted, LaunchDeclined
from federator.model.workload import SiteName
from federator.sched.passes.held import Holding
from federator.sched.passes.reports import attempt_lost, current
from federator.sched.passes.transaction import Transaction


def launch_accepted(turn: Transaction, site: SiteName, seen: LaunchAccepted) -> None:
    """Follow it, if the attempt's job was not known yet."""
    entry = current(turn.ledger, seen.attempt, site)
    waits = (WorkloadState.AWARDED, WorkloadState.CANCELLING)
    if entry is not None and entry.state in waits and not entry.site_job_id:
        turn.change(
            entry, WorkloadEvent.ACCEPTED, site_job_id=seen.site_job_id, work_dir=seen.work_dir
        )


def launch_refused(
    turn: Transaction, holding: Holding, site: SiteName, seen: LaunchDeclined | AttemptAbsent
) -> None:
    """The site has not submitted the attempt, and never will: also its answer to a cancel."""
    entry = current(turn.ledger, seen.attempt, site)
    if entry is None:
        return
    reason = Reason(code=ReasonCode.LOST) if isinstance(seen, AttemptAbsent) else seen.reason
    if reason.code is ReasonCode.LOST and entry.state is WorkloadState.AWARDED:
        drain = turn.ledger.drains.of(entry.site, entry.node_names)
        if drain is not None:
            reason = Reason(code=ReasonCode.DRAINED, detail=f"{drain.site}: {drain.reason}")
    if reason.code is ReasonCode.LOST and entry.state is not WorkloadState.AWARDED:
        attempt_lost(turn, site, seen.attempt)
        return
    ends_here = entry.state is WorkloadState.CANCELLING and not entry.site_job_id
    if entry.state is WorkloadState.AWARDED or ends_here:
        turn.change(entry, WorkloadEvent.DECLINED, reason=reason)
        holding.hold_if_refused(turn, entry)
    elif entry.state is WorkloadState.LAUNCHING and not entry.withdrawing:
        # An sbatch that was given up for good came through all the same. Reports tell the rest.
        turn.change(entry, WorkloadEvent.LEASE_OVER)
