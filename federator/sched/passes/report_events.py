"""Turns a site's report into events of a workload, in the order they must have been."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.reason import Reason, ReasonCode
from federator.model.site import AttemptReport, SiteJobState, combined_state
from federator.sched.passes.continuation import AT_LIMIT, NO_PROGRESS, has_saved, is_last_chance
from federator.sched.state.ledger import WorkloadRecord
from federator.sched.state.resizes import is_on_trial, last_good

WITHDRAWAL_TAKES_S: Final = 60.0  # of a job that has run for longer a cancel is somebody else's
_ENDINGS: Final[Mapping[SiteJobState, WorkloadEvent]] = MappingProxyType(
    {
        SiteJobState.COMPLETED: WorkloadEvent.COMPLETED,
        SiteJobState.FAILED: WorkloadEvent.FAILED,
        SiteJobState.OUT_OF_MEMORY: WorkloadEvent.FAILED,
        SiteJobState.DEADLINE: WorkloadEvent.FAILED,
        SiteJobState.TIMEOUT: WorkloadEvent.TIMED_OUT,
        SiteJobState.CANCELLED: WorkloadEvent.CANCELLED,
        SiteJobState.NODE_FAIL: WorkloadEvent.NODE_FAILED,
        SiteJobState.BOOT_FAIL: WorkloadEvent.NODE_FAILED,
        SiteJobState.PREEMPTED: WorkloadEvent.SITE_PREEMPTED,
    }
)
_OF_THE_SITE: Final = frozenset({WorkloadEvent.NODE_FAILED, WorkloadEvent.SITE_PREEMPTED})
_LAUNCH_FAILED: Final = "launch failed"  # of Slurm's reasons, as squeue writes them
NEVER_HERE: Final = frozenset(
    {
        "BadConstraints",
        "PartitionConfig",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "AccountNotAllowed",
        "QOSNotAllowed",
        "InvalidAccount",
        "InvalidQOS",
    }
)
"""Slurm's reasons of jobs that can never start as they were submitted, in 22.05 to 26.05. slurmctld
leaves most of these jobs pending, and fails some with ``BadConstraints``."""
_HELD: Final = "held"  # in Slurm's reasons of jobs that were put back and may not start
_STILL_THERE: Final = frozenset(
    {
        WorkloadEvent.ACCEPTED,
        WorkloadEvent.STARTED,
        WorkloadEvent.EVICTED,
        WorkloadEvent.WITHDRAWN,
        WorkloadEvent.SHRINK_DONE,
    }
)
TRIAL_S: Final = 1800.0
"""After a resize, in which a failure at the larger size is taken to be the size's; torchrun gives
up a rendezvous after 15 minutes."""
MAX_WHY: Final = 300  # characters of a site's own words
_WATCH_NOTE: Final = re.compile(r"(?:^| )fed-watch:(zombie|idle)-([0-9]{1,9})s$")
_GATE_NOTE: Final = re.compile(r"(?:^| )fed-gate:([A-Za-z0-9.-]{1,60})$")
BY_THE_SITE: Final = "by the site"
_SENT: Final = (1, 2, 3, 9, 10, 12, 14, 15)
"""HUP INT QUIT KILL USR1 USR2 ALRM TERM: jobs are told, or ended, by these; no crash ends in them.
"""
_CHECKPOINTED: Final = 85
_CRASH_CODES: Final = frozenset(128 + number for number in (4, 6, 7, 8, 11))
"""ILL ABRT BUS FPE SEGV, as shells say."""
_LEFT_CODES: Final = frozenset({_CHECKPOINTED, *(128 + number for number in _SENT)})
"""Exit codes of who left when told to: "checkpointed, start me again", and killed, as shells say.
"""


def events_of_report(entry: WorkloadRecord, report: AttemptReport) -> list[WorkloadEvent]:
    """List what must have happened since the entry's state; empty when nothing is new.

    A report may skip states (a job that ended between two sweeps was never seen running); the
    steps in between are filled in, so that the lifecycle table stays the only truth.
    """
    state = entry.state
    steps: list[WorkloadEvent] = []
    if state is WorkloadState.AWARDED:
        steps.append(WorkloadEvent.ACCEPTED)
        state = WorkloadState.LAUNCHING
    if state in (WorkloadState.CANCELLING, WorkloadState.PREEMPTING):
        return [_ending(entry, report)] if report.state.ended else []
    if report.state is SiteJobState.PENDING:
        if state is WorkloadState.RUNNING or (report.restarts and not entry.withdrawing):
            steps.append(WorkloadEvent.SITE_REQUEUED)
        return steps
    ending = _ending(entry, report) if report.state.ended else None
    if state is WorkloadState.LAUNCHING and ending not in (
        WorkloadEvent.WITHDRAWN,
        WorkloadEvent.CANCELLED,
        WorkloadEvent.DEADLINE_PASSED,
        WorkloadEvent.NODE_FAILED,
        WorkloadEvent.SITE_PREEMPTED,
    ):
        steps.append(WorkloadEvent.STARTED)
    if ending is not None:
        steps.append(ending)
    elif state is WorkloadState.RUNNING and jobs_gone(entry, report):
        steps.append(WorkloadEvent.SHRINK_DONE)
    return steps


def report_of_remaining(entry: WorkloadRecord, report: AttemptReport) -> AttemptReport:
    """The report without its optional jobs that were taken: they were cancelled by us."""
    kept = [c.state for k, c in report.components.items() if k not in entry.taken_jobs]
    if not entry.taken_jobs or not kept or not report.state.ended:
        return report
    return replace(report, state=combined_state(kept))


def jobs_gone(entry: WorkloadRecord, report: AttemptReport) -> tuple[int, ...]:
    """The optional jobs that were taken, and of which the site knows that they have ended."""
    known = report.components
    return tuple(
        k for k in sorted(entry.leaving_jobs) if known and (k not in known or known[k].state.ended)
    )


def _ending(entry: WorkloadRecord, report: AttemptReport) -> WorkloadEvent:
    ending = _ENDINGS[report.state]
    if entry.state is WorkloadState.CANCELLING:
        return _ending_of_cancelled(ending, report)
    if entry.state is WorkloadState.PREEMPTING:
        return _ending_of_leaver(entry, ending, report)
    return _ending_of_its_own(entry, ending, report)


def _ending_of_cancelled(ending: WorkloadEvent, report: AttemptReport) -> WorkloadEvent:
    """As its site says; but who was leaving, and left when told to, has not failed or completed.

    It may have saved half of its work and exited with 0: what waits for its success would start.
    """
    if ending not in (WorkloadEvent.FAILED, WorkloadEvent.COMPLETED) or report.leave is None:
        return ending
    left = _ending_of_victim(ending, report) is WorkloadEvent.PREEMPTED
    return WorkloadEvent.CANCELLED if left else ending


def _ending_of_its_own(
    entry: WorkloadRecord, ending: WorkloadEvent, report: AttemptReport
) -> WorkloadEvent:
    """It was not told to end: what happened to it, and what did it ask for?"""
    if entry.workload.continues and ending is WorkloadEvent.TIMED_OUT:
        return WorkloadEvent.LIMIT_STRUCK
    started_s = report.started_at_s or entry.started_at_s  # by its site's clock, as its end
    soon = report.ended_at_s <= started_s + WITHDRAWAL_TAKES_S
    ours = entry.state is not WorkloadState.RUNNING or soon  # repeated until it has an effect
    if _is_refused_by_slurm(entry, report):
        return WorkloadEvent.WITHDRAWN
    began = entry.state is WorkloadState.RUNNING or report.started_at_s
    if report.state is SiteJobState.DEADLINE and not began:
        return WorkloadEvent.DEADLINE_PASSED
    if ending is WorkloadEvent.CANCELLED and entry.withdrawing and ours:
        return WorkloadEvent.WITHDRAWN
    of_the_site = ending in _OF_THE_SITE and not entry.workload.requeue
    if of_the_site or _is_refused_by_node(entry, report):
        return WorkloadEvent.FAILED
    asks_again = report.state is SiteJobState.FAILED and report.exit_code == _CHECKPOINTED
    if entry.workload.requeue and _has_grown_in_vain(entry, report, started_s):
        ending = WorkloadEvent.GREW_IN_VAIN
    return WorkloadEvent.CHECKPOINTED if asks_again and entry.workload.requeue else ending


def _has_grown_in_vain(entry: WorkloadRecord, report: AttemptReport, started_s: float) -> bool:
    """It failed at a size at which it has done nothing yet: the size may be to blame.

    Its ranks may never have found each other, which launchers notice after minutes.
    """
    saved = report.saved_at_s > started_s
    soon = report.ended_at_s <= started_s + TRIAL_S
    failed = report.state is SiteJobState.FAILED
    return failed and soon and not saved and is_on_trial(entry)


def refusal_of_plan(report: AttemptReport) -> Reason | None:
    """The reason why Slurm can never start a job that it has accepted; None: it may."""
    if report.reason not in NEVER_HERE:
        return None
    return Reason(code=ReasonCode.PLAN_REFUSED, detail=f"Slurm says {report.reason}")


def _is_refused_by_slurm(entry: WorkloadRecord, report: AttemptReport) -> bool:
    """slurmctld may end a job by itself before it starts, with exit code 0 and signal 1."""
    begins = entry.state in (WorkloadState.AWARDED, WorkloadState.LAUNCHING)
    failed = report.state is SiteJobState.FAILED and not report.exit_code
    never_ran = begins and failed and not report.started_at_s
    return never_ran and refusal_of_plan(report) is not None


def _is_refused_by_node(entry: WorkloadRecord, report: AttemptReport) -> bool:
    """Slurm ends what a prolog would not let start, if it may not be put back: one way or other."""
    ended = report.state in (SiteJobState.CANCELLED, SiteJobState.FAILED)
    return ended and bool(report.failed_nodes) and not entry.workload.requeue


def _ending_of_leaver(
    entry: WorkloadRecord, ending: WorkloadEvent, report: AttemptReport
) -> WorkloadEvent:
    """As that of a victim; but at its time limit one that saved nothing has been cut off by it."""
    found = _ending_of_victim(ending, report)
    if found is WorkloadEvent.FAILED and _has_grown_in_vain(entry, report, report.started_at_s):
        return WorkloadEvent.PREEMPTED  # it may have been told too late to say why it left
    if not entry.workload.continues or found not in (
        WorkloadEvent.TIMED_OUT,
        WorkloadEvent.PREEMPTED,
    ):
        return found
    if ending is WorkloadEvent.NODE_FAILED or has_saved(report):
        return WorkloadEvent.PREEMPTED
    if is_last_chance(entry, report.leave):
        return WorkloadEvent.TIMED_OUT
    struck = entry.at_its_limit or found is WorkloadEvent.TIMED_OUT
    return WorkloadEvent.LIMIT_STRUCK if struck else found


def _ending_of_victim(ending: WorkloadEvent, report: AttemptReport) -> WorkloadEvent:
    """It was told to leave, and killed if it did not: only what it decided itself is its end.

    Who exits after having been told is started again, whatever its status, as Slurm itself does
    in its grace: it may just have saved, and launchers make 1 of any other status. A crash is the
    job's own. Who had not been told yet was quicker; of a het job the leader, whose script it is,
    though somebody cancelled another component, or that failed.
    """
    notified = report.leave is not None and report.ended_at_s >= report.leave.told_at_s
    if ending is WorkloadEvent.TIMED_OUT or (ending is WorkloadEvent.COMPLETED and not notified):
        return ending
    leader = report.components.get(0)
    if leader is not None and leader.state is SiteJobState.COMPLETED and not notified:
        if ending is WorkloadEvent.CANCELLED:
            return WorkloadEvent.COMPLETED
        if ending is WorkloadEvent.FAILED:
            return ending
    saved = report.leave is not None and report.leave.saved
    killed = report.signal in _SENT or report.exit_code in _LEFT_CODES
    left = killed or (notified and not report.signal and report.exit_code not in _CRASH_CODES)
    left = saved or (report.state is SiteJobState.FAILED and left)
    if ending is WorkloadEvent.FAILED and not left:
        return ending
    return WorkloadEvent.PREEMPTED


def reason_for(entry: WorkloadRecord, event: WorkloadEvent, report: AttemptReport) -> Reason | None:
    """The reason why the site sent a workload back to the queue, in the federation's words."""
    by_nodes = _ENDINGS.get(report.state) is WorkloadEvent.NODE_FAILED
    by_nodes = by_nodes or _is_refused_by_node(entry, report)
    if event is WorkloadEvent.NODE_FAILED or (event is WorkloadEvent.FAILED and by_nodes):
        nodes = ",".join(report.failed_nodes or report.nodes) or report.state.value
        return Reason(code=ReasonCode.NODE_FAILED, detail=_said(nodes, report))
    if event is WorkloadEvent.FAILED and report.unopened:
        return Reason(code=ReasonCode.FILES, detail=report.unopened)
    if event is WorkloadEvent.SITE_REQUEUED:
        return _why_put_back(report)
    if event is WorkloadEvent.CANCELLED and entry.state is not WorkloadState.CANCELLING:
        return _why_cancelled(report)
    if event is WorkloadEvent.TIMED_OUT:
        return NO_PROGRESS if is_last_chance(entry, report.leave) else None
    known = {
        WorkloadEvent.CHECKPOINTED: Reason(code=ReasonCode.REQUEUED),
        WorkloadEvent.GREW_IN_VAIN: _back(entry),
        WorkloadEvent.SITE_PREEMPTED: Reason(code=ReasonCode.PREEMPTED, detail=BY_THE_SITE),
        WorkloadEvent.CANCELLED: entry.reason,  # None of a user's own cancel
        WorkloadEvent.PREEMPTED: entry.reason,  # for whom it had to leave, or for its time limit
        WorkloadEvent.SHRINK_DONE: entry.reason,
        WorkloadEvent.WITHDRAWN: _why_withdrawn(entry, report),
        WorkloadEvent.LIMIT_STRUCK: entry.reason
        if entry.state is WorkloadState.PREEMPTING
        else AT_LIMIT,
    }
    return known.get(event)


def _back(entry: WorkloadRecord) -> Reason:
    nodes = len(entry.node_names)
    return Reason(
        code=ReasonCode.RESIZED,
        detail="it failed at the larger size",
        needed=last_good(entry, nodes),
        free=nodes,
        unit="nodes",
    )


def _why_put_back(report: AttemptReport) -> Reason:
    """The reason why a site requeued a job that it had started.

    Slurm shows no difference between a job that asks for it itself (submitit, Lightning) and an
    admin who does: nobody is to blame, and the site may have it again. Whoever held it meant it.
    """
    if report.failed_nodes:
        names = ",".join(report.failed_nodes)
        return Reason(code=ReasonCode.NODE_FAILED, detail=_said(names, report))
    if report.reason.startswith(_LAUNCH_FAILED):
        return Reason(code=ReasonCode.NODE_FAILED, detail=report.reason)
    if report.preempted or _HELD in report.reason:
        return Reason(code=ReasonCode.PREEMPTED, detail=BY_THE_SITE)
    seen = _seen_by_watch(report)
    return Reason(code=ReasonCode.REQUEUED, detail=f"by its watch, {seen}" if seen else "")


def _why_withdrawn(entry: WorkloadRecord, report: AttemptReport) -> Reason:
    """For its plan, if Slurm ended it by itself; else as it was withdrawn."""
    by_slurm = refusal_of_plan(report) if report.state is SiteJobState.FAILED else None
    return by_slurm or entry.reason or Reason(code=ReasonCode.LEASE_OVER)


def _why_cancelled(report: AttemptReport) -> Reason:
    """By the site's watch, by its gate, or by whoever else may at the site."""
    seen = _seen_by_watch(report)
    if seen:
        return Reason(code=ReasonCode.RECLAIMED, detail=seen)
    note = _GATE_NOTE.search(report.reason)
    why = f"by its gate: {note[1].replace('-', ' ')}" if note is not None else ""
    return Reason(code=ReasonCode.SITE_CANCELLED, detail=why)


def _seen_by_watch(report: AttemptReport) -> str:
    """The site watch's finding before it requeued or ended the job; "" if it did not."""
    note = _WATCH_NOTE.search(report.reason)
    return f"{note[1]} for {note[2]} s" if note is not None else ""


def _said(nodes: str, report: AttemptReport) -> str:
    """The nodes, and in what words their site took them out."""
    return f"{nodes} ({report.failed_why[:MAX_WHY]})" if report.failed_why else nodes


def failed_nodes(
    entry: WorkloadRecord, event: WorkloadEvent, report: AttemptReport
) -> tuple[str, ...]:
    """The nodes of its plan that ended an attempt; a site may name no others."""
    if not report.failed_nodes or event in _STILL_THERE:
        return ()
    return tuple(name for name in entry.node_names if name in report.failed_nodes)
