"""Starts a workload again whose progress lease is over: once, and not on the same nodes.

Its site tells which (``agent.progress``). It leaves as one does that is requeued; what it has not
saved is lost. If the next attempt stalls as well the nodes are not to blame, and it is left alone.
"""

from __future__ import annotations

from typing import Final

from federator.model.lifecycle import WorkloadState
from federator.model.reason import Reason, ReasonCode
from federator.model.site import AttemptReport
from federator.sched.state.ledger import WorkloadRecord

MOST: Final = 1  # attempts of one workload that are ended for it
MAX_SAID: Final = 1000  # characters of what its ranks say


def may_leave_stalled(entry: WorkloadRecord) -> bool:
    """Whether an attempt that stands still is to be ended for that."""
    runs = entry.state is WorkloadState.RUNNING
    return runs and entry.workload.requeue and entry.stalls < MOST


def reason_of_stall(report: AttemptReport, now_s: float) -> Reason:
    """What is shown of it: since when, and what its ranks say."""
    since_s = max(0.0, now_s - report.stalled_since_s)
    said = report.stall[:MAX_SAID] or "no rank says anything"
    return Reason(code=ReasonCode.STALLED, detail=said, more_in_s=since_s)
