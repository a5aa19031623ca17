"""Says what keeps a workload out of the queue: a hold, or a begin time that has not come.

The ledger keeps it up to date with each record; ``sched.passes.eligibility`` moves workloads out
of the queue and back into it.
"""

from __future__ import annotations

from federator.model.eligibility import Hold
from federator.model.event import Amended, Submitted
from federator.model.lifecycle import WorkloadState
from federator.model.reason import Reason, ReasonCode
from federator.model.workload import Workload
from federator.sched.state.workload_record import RareFields, WorkloadRecord


def may_not_start(event: Submitted) -> bool:
    """Whether what was just submitted has to wait outside of the queue."""
    return event.draft.hold is not Hold.NONE or event.draft.begin_at_s > event.at_s


def record_of(workload: Workload, event: Submitted) -> WorkloadRecord:
    """The record of a workload that was just submitted; ``INELIGIBLE`` if it may not start yet."""
    if not may_not_start(event):
        return WorkloadRecord(workload=workload)
    draft = event.draft
    rare = RareFields(hold=draft.hold, begin_at_s=draft.begin_at_s)
    return WorkloadRecord(workload=workload, rare=rare, state=WorkloadState.INELIGIBLE)


def amend(entry: WorkloadRecord, event: Amended) -> None:
    """Change what a workload waits for."""
    if event.hold is not None:
        entry.hold = event.hold
    if event.begin_at_s is not None:
        entry.begin_at_s = event.begin_at_s


def is_eligible(entry: WorkloadRecord, now_s: float) -> bool:
    """Whether a workload may wait in the queue at ``now_s`` (Unix time)."""
    return entry.hold is Hold.NONE and entry.begin_at_s <= now_s


def ineligible_reason(entry: WorkloadRecord) -> Reason:
    """The reason of a workload that is ``INELIGIBLE``, the first of several as Slurm names it."""
    if entry.hold is not Hold.NONE:
        held_by_user = entry.hold is Hold.USER
        return Reason(code=ReasonCode.USER_HOLD if held_by_user else ReasonCode.ADMIN_HOLD)
    return Reason(code=ReasonCode.BEGIN_TIME)
