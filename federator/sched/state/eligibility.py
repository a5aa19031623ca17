"""Says what keeps a workload out of the queue: a hold, a dependency, or a begin time to come.

The ledger keeps it up to date with each record; ``sched.passes.eligibility`` moves workloads out
of the queue and back into it.
"""

from __future__ import annotations

from math import inf
from typing import Any, Final

import msgspec

from federator.model.eligibility import (
    NO_DEPENDENCY,
    Condition,
    Dependency,
    DependencyKind,
    Hold,
)
from federator.model.event import Submitted
from federator.model.lifecycle import WorkloadState
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site import SiteJobState
from federator.model.workload import Workload
from federator.sched.state.dependents import Dependents, Key
from federator.sched.state.workload_record import RareFields, WorkloadRecord

_K = DependencyKind
_BEGIN_TIME: Final = Reason(code=ReasonCode.BEGIN_TIME)
MOST_TEXT: Final = 300  # characters of a dependency in a reason


def may_not_start(event: Submitted) -> bool:
    """Whether what was just submitted has to wait outside of the queue."""
    draft = event.draft
    return draft.hold is not Hold.NONE or draft.begin_at_s > event.at_s or bool(draft.waits_for)


def record_of(workload: Workload, event: Submitted) -> WorkloadRecord:
    """The record of a workload that was just submitted; ``INELIGIBLE`` if it may not start yet."""
    if not may_not_start(event):
        return WorkloadRecord(workload=workload)
    draft = event.draft
    rare = RareFields(hold=draft.hold, begin_at_s=draft.begin_at_s, waits_for=draft.waits_for)
    return WorkloadRecord(workload=workload, rare=rare, state=WorkloadState.INELIGIBLE)


def is_eligible(entry: WorkloadRecord, now_s: float) -> bool:
    """Whether a workload may wait in the queue at ``now_s`` (Unix time)."""
    return entry.hold is Hold.NONE and not entry.waits_for and entry.begin_at_s <= now_s


def ineligible_reason(entry: WorkloadRecord) -> Reason:
    """The reason of a workload that is ``INELIGIBLE``, the first of several as Slurm names it."""
    if entry.hold is not Hold.NONE:
        held_by_user = entry.hold is Hold.USER
        return Reason(code=ReasonCode.USER_HOLD if held_by_user else ReasonCode.ADMIN_HOLD)
    return dependency_reason(entry.waits_for) if entry.waits_for else _BEGIN_TIME


def dependency_reason(waits_for: Dependency) -> Reason:
    """The reason of a workload with a dependency that is not satisfied."""
    code = ReasonCode.NEVER_SATISFIED if waits_for.never else ReasonCode.DEPENDENCY
    return Reason(code=code, detail=dependency_text(waits_for)[:MOST_TEXT])


def dependency_text(waits_for: Dependency) -> str:
    """The conditions that are left, as squeue writes them."""
    return ("?" if waits_for.any_of else ",").join(c.text() for c in waits_for.conditions)


def too_late(deadline_at_s: float) -> Refusal:
    """The refusal of what cannot end by its deadline any more."""
    reason = Reason(code=ReasonCode.DEADLINE, until_s=deadline_at_s)
    return Refusal(kind=RefusalKind.REJECT, reasons=(reason,))


def deadline_passed(entry: WorkloadRecord) -> dict[str, Any]:
    """What is recorded of a workload that cannot end by its deadline any more, as Slurm does."""
    reason = too_late(entry.workload.deadline_at_s).reasons[0]
    return {"reason": reason, "signal": 1, "site_state": SiteJobState.DEADLINE.value}


# ---- dependencies ----


def left_of(
    entry: WorkloadRecord, dependents: Dependents, now_s: float
) -> tuple[Dependency, float]:
    """What is left of a workload's dependency, and when it must be looked at again.

    A condition that was met is gone for good, and one that failed stays failed, whatever becomes of
    the job later. Where any of them is enough, one that is met satisfies the rest.

    Args:
        entry: the workload that waits.
        dependents: of its ledger.
        now_s: Unix time.

    Returns:
        The dependency, the same object if nothing has changed; Unix time, inf: nothing will change
        by time alone.

    Source:
        ``test_job_dependency`` of slurmctld. There the last of several conditions of which any is
        enough decides whether it can never be satisfied; here all must have failed.
    """
    waits_for, left, again_s = entry.waits_for, [], inf
    for condition in waits_for.conditions:
        met, failed, at_s = _judged(condition, entry, dependents, now_s)
        again_s = min(again_s, at_s)
        if met and waits_for.any_of:
            return NO_DEPENDENCY, inf
        if not met:
            changed = failed and not condition.failed
            left.append(msgspec.structs.replace(condition, failed=True) if changed else condition)
    if not left:
        return NO_DEPENDENCY, inf
    if tuple(left) == waits_for.conditions:
        return waits_for, again_s
    return msgspec.structs.replace(waits_for, conditions=tuple(left)), again_s


def _judged(
    condition: Condition, entry: WorkloadRecord, dependents: Dependents, now_s: float
) -> tuple[bool, bool, float]:
    """Whether a condition is met, whether it never can be, and when time alone may meet it."""
    if condition.kind is _K.SINGLETON:
        return dependents.is_its_turn(entry), False, inf
    key = dependents.key_of(condition, entry)
    if condition.failed:
        return False, True, inf
    if condition.kind is _K.AFTER:
        return _judged_by_start(condition, key, dependents, now_s)
    if dependents.has_live(key):
        return False, False, inf
    jobs = dependents.jobs_of(key)
    if condition.kind is _K.AFTER_ANY:
        return True, False, inf
    is_ok = bool(jobs) and all(job.state is WorkloadState.COMPLETED for job in jobs)
    met = bool(jobs) and not is_ok if condition.kind is _K.AFTER_NOT_OK else is_ok
    return met, not met, inf


def _judged_by_start(
    condition: Condition, key: Key, dependents: Dependents, now_s: float
) -> tuple[bool, bool, float]:
    if dependents.has_unstarted(key):
        return False, False, inf
    if not condition.delay_s:
        return True, False, inf
    since_s = max(map(_started_at_s, dependents.jobs_of(key)), default=0.0)
    at_s = since_s + condition.delay_s
    return at_s <= now_s, False, at_s


def _started_at_s(entry: WorkloadRecord) -> float:
    """When it started last, or ended without, or went to its site."""
    awarded_at_s = entry.award.at_s if entry.award is not None else 0.0
    return entry.started_at_s or entry.over_at_s or awarded_at_s
