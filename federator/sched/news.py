"""What does a site's report mean for a workload? Happenings, in the order they must have been."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from federator.model.lifecycle import Happening, WorkloadState
from federator.model.reason import Reason, ReasonCode
from federator.model.site import AttemptReport, SiteJobState, combined_state
from federator.sched.ledger import Entry

WITHDRAWAL_TAKES_S: Final = 60.0  # a cancel later than this was somebody else's
_ENDINGS: Final[Mapping[SiteJobState, Happening]] = MappingProxyType({
    SiteJobState.COMPLETED: Happening.COMPLETED,
    SiteJobState.FAILED: Happening.FAILED,
    SiteJobState.OUT_OF_MEMORY: Happening.FAILED,
    SiteJobState.DEADLINE: Happening.FAILED,
    SiteJobState.TIMEOUT: Happening.TIMED_OUT,
    SiteJobState.CANCELLED: Happening.CANCELLED,
    SiteJobState.NODE_FAIL: Happening.NODE_FAILED,
    SiteJobState.BOOT_FAIL: Happening.NODE_FAILED,
    SiteJobState.PREEMPTED: Happening.NODE_FAILED,
})  # fmt: skip
_KILLED: Final = frozenset({9, 15})  # signals
_LEFT_CODES: Final = frozenset({85, 128 + 9, 128 + 15})
"""Exit codes of who left when told to: "checkpointed, start me again", and killed, as shells say.
"""


def happenings(entry: Entry, report: AttemptReport) -> list[Happening]:
    """List what must have happened since the entry's state; empty when nothing is new.

    A report may skip states (a job that ended between two sweeps was never seen running); the
    steps in between are filled in, so that the lifecycle table stays the only truth.
    """
    report = _of_what_is_left(entry, report)
    state = entry.state
    steps: list[Happening] = []
    if state is WorkloadState.AWARDED:
        steps.append(Happening.ACCEPTED)
        state = WorkloadState.LAUNCHING
    if state in (WorkloadState.CANCELLING, WorkloadState.PREEMPTING):
        return [_ending(entry, report)] if report.state.ended else []
    if state is WorkloadState.RUNNING and report.state is SiteJobState.PENDING:
        return [Happening.SITE_REQUEUED]
    if report.state is SiteJobState.PENDING:
        return steps
    ending = _ending(entry, report) if report.state.ended else None
    if state is WorkloadState.LAUNCHING and ending not in (
        Happening.WITHDRAWN,
        Happening.CANCELLED,
        Happening.NODE_FAILED,
    ):
        steps.append(Happening.STARTED)
    if ending is not None:
        steps.append(ending)
    elif state is WorkloadState.RUNNING and jobs_gone(entry, report):
        steps.append(Happening.SHRINK_DONE)
    return steps


def _of_what_is_left(entry: Entry, report: AttemptReport) -> AttemptReport:
    """How it has ended, without its optional jobs that were taken: they were cancelled by us."""
    kept = [c.state for k, c in report.components.items() if k not in entry.taken_jobs]
    if not entry.taken_jobs or not kept or not report.state.ended:
        return report
    return replace(report, state=combined_state(kept))


def jobs_gone(entry: Entry, report: AttemptReport) -> tuple[int, ...]:
    """The optional jobs that were taken, and of which the site knows that they have ended."""
    known = report.components
    return tuple(
        k for k in sorted(entry.leaving_jobs) if known and (k not in known or known[k].state.ended)
    )


def _ending(entry: Entry, report: AttemptReport) -> Happening:
    ending = _ENDINGS[report.state]
    if entry.state is WorkloadState.CANCELLING:
        return ending
    if entry.state is WorkloadState.PREEMPTING:
        return _ending_of_victim(ending, report)
    soon = report.ended_at_s <= entry.withdrawn_at_s + WITHDRAWAL_TAKES_S
    ours = entry.state is WorkloadState.LAUNCHING or soon  # repeated until it has an effect
    if ending is Happening.CANCELLED and entry.withdrawing and ours:
        return Happening.WITHDRAWN
    if ending is Happening.NODE_FAILED and not entry.workload.requeue:
        return Happening.FAILED
    return ending


def _ending_of_victim(ending: Happening, report: AttemptReport) -> Happening:
    """It was told to leave, and killed if it did not: only what it decided itself is its end.

    Who leaves with success after having been told may just have saved, and must be started again,
    as Slurm itself does with whatever exits in its grace. Who had not been told yet was quicker.
    """
    told = report.leave is not None and report.ended_at_s >= report.leave.told_at_s
    if ending is Happening.TIMED_OUT or (ending is Happening.COMPLETED and not told):
        return ending
    left = report.signal in _KILLED or report.exit_code in _LEFT_CODES
    if ending is Happening.FAILED and not (report.state is SiteJobState.FAILED and left):
        return ending
    return Happening.PREEMPTED


def reason_for(entry: Entry, happening: Happening, report: AttemptReport) -> Reason | None:
    """Why the site sent a workload back to the queue, in the federation's words."""
    if happening is Happening.NODE_FAILED:
        nodes = ",".join(report.nodes)
        return Reason(code=ReasonCode.NODE_FAILED, detail=nodes or report.state.value)
    if happening in (Happening.PREEMPTED, Happening.SHRINK_DONE):
        return entry.reason  # told when it was evicted: for whom
    if happening is Happening.WITHDRAWN:
        return Reason(code=ReasonCode.LEASE_OVER)
    return None
