"""Starts a workload again whose progress lease is over: once, and not on the same nodes.

Its site tells which (``agent.progress``). It leaves as one does that is requeued; what it has not
saved is lost. If the next attempt stalls as well the nodes are not to blame, and it is left alone.
"""

from __future__ import annotations

from typing import Final

from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import Note
from federator.model.reason import Reason, ReasonCode
from federator.model.site import AttemptReport
from federator.sched.passes.transaction import Transaction
from federator.sched.state.ledger import WorkloadRecord

MOST: Final = 1  # attempts of one workload that are ended for it
MAX_SAID: Final = 1000  # characters of what its ranks say


def stall_reported(turn: Transaction, entry: WorkloadRecord, report: AttemptReport) -> None:
    """Have an attempt that stands still leave, or say that it is left alone: once of an attempt."""
    if entry.state is not WorkloadState.RUNNING:
        return
    if entry.workload.requeue and entry.stalls < MOST:
        reason = _reason(report, turn.now_s)
        turn.change(entry, WorkloadEvent.REQUEUE_ASKED, reason=reason)
        return
    if entry.workload.id in turn.left_alone:
        return
    turn.left_alone.add(entry.workload.id)
    fields = {
        "attempt": str(entry.attempt_id),
        "site": entry.site,
        "detail": report.stall[:MAX_SAID],
    }
    turn.commands.append(Note(event="stands_still", fields=fields))


def _reason(report: AttemptReport, now_s: float) -> Reason:
    """What is shown of it: since when, and what its ranks say."""
    since_s = max(0.0, now_s - report.stalled_since_s)
    said = report.stall[:MAX_SAID] or "no rank says anything"
    return Reason(code=ReasonCode.STALLED, detail=said, more_in_s=since_s)
