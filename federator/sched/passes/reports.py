"""Applies a site's report of an attempt to its workload, and records each event.

What the ledger has given up is ended there; what it should know and does not is asked about
(``sched.passes.adoption``); and what nobody can tell the end of is lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadEvent, WorkloadState
from federator.model.message import Note, Remembered, SendTo, SiteUp
from federator.model.reason import Reason, ReasonCode
from federator.model.site import AttemptReport
from federator.model.site_message import CancelOrder
from federator.model.workload import AttemptId, SiteName
from federator.sched.passes.adoption import adopt
from federator.sched.passes.report_events import (
    events_of_report,
    failed_nodes,
    jobs_gone,
    reason_for,
    report_of_remaining,
)
from federator.sched.passes.stalls import stall_reported
from federator.sched.passes.transaction import Transaction
from federator.sched.state.ledger import Ledger, WorkloadRecord

LATEST_S: Final = 1e11  # Unix time; what is later is none
_SHRINK_DONE = WorkloadEvent.SHRINK_DONE
_HOLDS_NODES = (
    WorkloadEvent.ACCEPTED,
    WorkloadEvent.STARTED,
    WorkloadEvent.SITE_REQUEUED,
    WorkloadEvent.EVICTED,
    WorkloadEvent.REQUEUE_ASKED,
    _SHRINK_DONE,
)


def current(ledger: Ledger, attempt: AttemptId, site: SiteName) -> WorkloadRecord | None:
    """The entry whose present attempt this is, if it is at that site and not over."""
    entry = ledger.entries.get(attempt.workload)
    if entry is None or entry.attempt != attempt.attempt or entry.site != site:
        return None
    return entry if entry.state in AT_SITE else None


def attempt_reported(turn: Transaction, site: SiteName, report: AttemptReport) -> bool:
    """Follow it; False: the log should know it and does not."""
    entry = current(turn.ledger, report.attempt, site)
    if entry is not None and report.user != entry.workload.user:
        return True  # somebody else's job, with a comment that pretends
    if entry is None or entry.site_job_id not in (0, report.site_job_id):
        return _orphan(turn, site, report)
    report = report_of_remaining(entry, with_sound_times(report))
    for event in events_of_report(entry, report):
        turn.change(
            entry,
            event,
            site_job_id=report.site_job_id,
            started_at_s=report.started_at_s,
            ended_at_s=report.ended_at_s if event not in _HOLDS_NODES else 0.0,
            exit_code=report.exit_code,
            signal=report.signal,
            site_state=report.state.value,
            reason=reason_for(entry, event, report),
            leave=report.leave,
            components=jobs_gone(entry, report) if event is _SHRINK_DONE else (),
            failed_nodes=failed_nodes(entry, event, report),
            saved_at_s=report.saved_at_s,
            work_dir=report.work_dir if entry.work_dir is None else None,
        )
    if report.stalled_since_s > 0:
        stall_reported(turn, entry, report)
    return True


def with_sound_times(report: AttemptReport) -> AttemptReport:
    """The report without times that are none, which whoever reckons with them may not survive.

    They are not known then: 0.
    """
    leave = report.leave
    times = [report.started_at_s, report.ended_at_s, report.saved_at_s, report.stalled_since_s]
    times += [leave.told_at_s, leave.saved_at_s] if leave is not None else []
    if all(0.0 <= at_s <= LATEST_S for at_s in times):
        return report
    if leave is not None:
        told_at_s, saved_at_s = _sound(leave.told_at_s), _sound(leave.saved_at_s)
        leave = replace(leave, told_at_s=told_at_s, saved_at_s=saved_at_s)
    return replace(
        report,
        started_at_s=_sound(report.started_at_s),
        ended_at_s=_sound(report.ended_at_s),
        saved_at_s=_sound(report.saved_at_s),
        stalled_since_s=_sound(report.stalled_since_s),
        leave=leave,
    )


def _sound(at_s: float) -> float:
    return at_s if 0.0 <= at_s <= LATEST_S else 0.0


def _orphan(turn: Transaction, site: SiteName, report: AttemptReport) -> bool:
    """An attempt that the ledger has given up, or never knew, is at a site."""
    known = turn.ledger.entries.get(report.attempt.workload)
    if known is not None and report.user != known.workload.user:
        return True
    is_newer = known is not None and report.attempt.attempt > known.attempt
    is_over = known is None or known.state in TERMINAL
    if report.state.ended and (is_over or not is_newer):
        return True
    fields = {"site": site, "attempt": str(report.attempt), "job_id": report.site_job_id}
    turn.commands.append(Note(event="stray_attempt", fields=fields))
    if known is None or is_newer:
        return False
    cancel = CancelOrder(
        attempt=report.attempt, user=known.workload.user, site_job_id=report.site_job_id
    )
    turn.commands.append(SendTo(site=site, message=cancel))
    return True


def attempt_shown(turn: Transaction, site: SiteName, remembered: Remembered) -> None:
    """Take a site's memory of an attempt that it does not show, or the log does not know."""
    entry = adopt(turn, site, remembered)
    if entry is None:
        return
    if remembered.report is not None:
        attempt_reported(turn, site, remembered.report)
    elif entry.state is WorkloadState.AWARDED and remembered.void:
        turn.change(entry, WorkloadEvent.DECLINED)
    elif entry.state is WorkloadState.CANCELLING or entry.site_job_id:
        attempt_lost(turn, site, remembered.attempt, unnotified=remembered.unnotified)


def attempt_lost(
    turn: Transaction, site: SiteName, attempt: AttemptId, *, unnotified: bool = False
) -> None:
    """Nobody knows how an attempt ended; ``unnotified``: it was not to leave, and may be done."""
    entry = current(turn.ledger, attempt, site)
    if entry is not None and entry.state is not WorkloadState.AWARDED:
        reason = Reason(code=ReasonCode.LOST, detail=str(entry.site_job_id))
        ended = unnotified and entry.state is WorkloadState.PREEMPTING
        event = WorkloadEvent.FAILED if ended else WorkloadEvent.LOST
        turn.change(entry, event, ended_at_s=turn.now_s, reason=reason)


def lost_log(log_epoch: int, epoch: int, seen: SiteUp) -> str:
    """The reason why the log cannot be the one that a site's jobs come from; "": it can.

    A site that has served an epoch which the log never heard of has seen a later log, or another.

    Args:
        log_epoch: the last one in the log before this term; 0: none.
        epoch: of this term; a site that comes up again in it has served it.
        seen: the site.
    """
    if not log_epoch < seen.last_epoch < epoch:
        return ""
    served = f"site {seen.site} has served epoch {seen.last_epoch}"
    if not log_epoch:
        return f"{served}, and this log is new: if one was lost, see federator recover"
    return (
        f"{served}, and the log ends with epoch {log_epoch}: it is an older copy; put the right "
        "one in place, or build it anew with federator recover. If the log is whole and the site "
        "is wrong, take it out of the configuration (docs/reliability.md, The log is old)"
    )
