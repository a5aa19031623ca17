"""What does a site's report mean for a workload? Happenings, in the order they must have been."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from federator.model.lifecycle import Happening, WorkloadState
from federator.model.reason import Reason, ReasonCode
from federator.model.site import AttemptReport, SiteJobState, combined_state
from federator.sched.passes.continuing import AT_LIMIT, NO_PROGRESS, has_saved, is_last_chance
from federator.sched.state.ledger import Entry

WITHDRAWAL_TAKES_S: Final = 60.0  # of a job that has run for longer a cancel is somebody else's
_ENDINGS: Final[Mapping[SiteJobState, Happening]] = MappingProxyType(
    {
        SiteJobState.COMPLETED: Happening.COMPLETED,
        SiteJobState.FAILED: Happening.FAILED,
        SiteJobState.OUT_OF_MEMORY: Happening.FAILED,
        SiteJobState.DEADLINE: Happening.FAILED,
        SiteJobState.TIMEOUT: Happening.TIMED_OUT,
        SiteJobState.CANCELLED: Happening.CANCELLED,
        SiteJobState.NODE_FAIL: Happening.NODE_FAILED,
        SiteJobState.BOOT_FAIL: Happening.NODE_FAILED,
        SiteJobState.PREEMPTED: Happening.SITE_PREEMPTED,
    }
)
_OF_THE_SITE: Final = frozenset({Happening.NODE_FAILED, Happening.SITE_PREEMPTED})
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
        Happening.ACCEPTED,
        Happening.STARTED,
        Happening.EVICTED,
        Happening.WITHDRAWN,
        Happening.SHRINK_DONE,
    }
)
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


def happenings(entry: Entry, report: AttemptReport) -> list[Happening]:
    """List what must have happened since the entry's state; empty when nothing is new.

    A report may skip states (a job that ended between two sweeps was never seen running); the
    steps in between are filled in, so that the lifecycle table stays the only truth.
    """
    state = entry.state
    steps: list[Happening] = []
    if state is WorkloadState.AWARDED:
        steps.append(Happening.ACCEPTED)
        state = WorkloadState.LAUNCHING
    if state in (WorkloadState.CANCELLING, WorkloadState.PREEMPTING):
        return [_ending(entry, report)] if report.state.ended else []
    if report.state is SiteJobState.PENDING:
        if state is WorkloadState.RUNNING or (report.restarts and not entry.withdrawing):
            steps.append(Happening.SITE_REQUEUED)
        return steps
    ending = _ending(entry, report) if report.state.ended else None
    if state is WorkloadState.LAUNCHING and ending not in (
        Happening.WITHDRAWN,
        Happening.CANCELLED,
        Happening.NODE_FAILED,
        Happening.SITE_PREEMPTED,
    ):
        steps.append(Happening.STARTED)
    if ending is not None:
        steps.append(ending)
    elif state is WorkloadState.RUNNING and jobs_gone(entry, report):
        steps.append(Happening.SHRINK_DONE)
    return steps


def of_what_is_left(entry: Entry, report: AttemptReport) -> AttemptReport:
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
        return _ending_of_leaver(entry, ending, report)
    return _ending_of_its_own(entry, ending, report)


def _ending_of_its_own(entry: Entry, ending: Happening, report: AttemptReport) -> Happening:
    """It was not told to end: what happened to it, and what did it ask for?"""
    if entry.workload.continues and ending is Happening.TIMED_OUT:
        return Happening.LIMIT_STRUCK
    started_s = report.started_at_s or entry.started_at_s  # by its site's clock, as its end
    soon = report.ended_at_s <= started_s + WITHDRAWAL_TAKES_S
    ours = entry.state is WorkloadState.LAUNCHING or soon  # repeated until it has an effect
    if _is_refused_by_slurm(entry, report):
        return Happening.WITHDRAWN
    if ending is Happening.CANCELLED and entry.withdrawing and ours:
        return Happening.WITHDRAWN
    of_the_site = ending in _OF_THE_SITE and not entry.workload.requeue
    if of_the_site or _is_refused_by_node(entry, report):
        return Happening.FAILED
    asks_again = report.state is SiteJobState.FAILED and report.exit_code == _CHECKPOINTED
    return Happening.CHECKPOINTED if asks_again and entry.workload.requeue else ending


def refusal_of_plan(report: AttemptReport) -> Reason | None:
    """Why Slurm can never start a job that it has accepted; None: it may."""
    if report.reason not in NEVER_HERE:
        return None
    return Reason(code=ReasonCode.PLAN_REFUSED, detail=f"Slurm says {report.reason}")


def _is_refused_by_slurm(entry: Entry, report: AttemptReport) -> bool:
    """slurmctld may end a job by itself before it starts, with exit code 0 and signal 1."""
    begins = entry.state in (WorkloadState.AWARDED, WorkloadState.LAUNCHING)
    failed = report.state is SiteJobState.FAILED and not report.exit_code
    never_ran = begins and failed and not report.started_at_s
    return never_ran and refusal_of_plan(report) is not None


def _is_refused_by_node(entry: Entry, report: AttemptReport) -> bool:
    """Slurm ends what a prolog would not let start, if it may not be put back: one way or other."""
    ended = report.state in (SiteJobState.CANCELLED, SiteJobState.FAILED)
    return ended and bool(report.failed_nodes) and not entry.workload.requeue


def _ending_of_leaver(entry: Entry, ending: Happening, report: AttemptReport) -> Happening:
    """As that of a victim; but at its time limit one that saved nothing has been cut off by it."""
    found = _ending_of_victim(ending, report)
    if not entry.workload.continues or found not in (Happening.TIMED_OUT, Happening.PREEMPTED):
        return found
    if ending is Happening.NODE_FAILED or has_saved(report):
        return Happening.PREEMPTED
    if is_last_chance(entry, report.leave):
        return Happening.TIMED_OUT
    struck = entry.at_its_limit or found is Happening.TIMED_OUT
    return Happening.LIMIT_STRUCK if struck else found


def _ending_of_victim(ending: Happening, report: AttemptReport) -> Happening:
    """It was told to leave, and killed if it did not: only what it decided itself is its end.

    Who exits after having been told is started again, whatever its status, as Slurm itself does
    in its grace: it may just have saved, and launchers make 1 of any other status. A crash is the
    job's own. Who had not been told yet was quicker.
    """
    told = report.leave is not None and report.ended_at_s >= report.leave.told_at_s
    if ending is Happening.TIMED_OUT or (ending is Happening.COMPLETED and not told):
        return ending
    saved = report.leave is not None and report.leave.saved
    killed = report.signal in _SENT or report.exit_code in _LEFT_CODES
    left = killed or (told and not report.signal and report.exit_code not in _CRASH_CODES)
    left = saved or (report.state is SiteJobState.FAILED and left)
    if ending is Happening.FAILED and not left:
        return ending
    return Happening.PREEMPTED


def reason_for(entry: Entry, happening: Happening, report: AttemptReport) -> Reason | None:
    """Why the site sent a workload back to the queue, in the federation's words."""
    by_nodes = _ENDINGS.get(report.state) is Happening.NODE_FAILED
    by_nodes = by_nodes or _is_refused_by_node(entry, report)
    if happening is Happening.NODE_FAILED or (happening is Happening.FAILED and by_nodes):
        nodes = ",".join(report.failed_nodes or report.nodes) or report.state.value
        return Reason(code=ReasonCode.NODE_FAILED, detail=_said(nodes, report))
    if happening is Happening.FAILED and report.unopened:
        return Reason(code=ReasonCode.FILES, detail=report.unopened)
    if happening is Happening.SITE_REQUEUED:
        return _why_put_back(report)
    if happening is Happening.CANCELLED and entry.state is not WorkloadState.CANCELLING:
        return _why_cancelled(report)
    if happening is Happening.TIMED_OUT:
        return NO_PROGRESS if is_last_chance(entry, report.leave) else None
    known = {
        Happening.CHECKPOINTED: Reason(code=ReasonCode.REQUEUED),
        Happening.SITE_PREEMPTED: Reason(code=ReasonCode.PREEMPTED, detail=BY_THE_SITE),
        Happening.PREEMPTED: entry.reason,  # for whom it had to leave, or for its time limit
        Happening.SHRINK_DONE: entry.reason,
        Happening.WITHDRAWN: _why_withdrawn(entry, report),
        Happening.LIMIT_STRUCK: entry.reason
        if entry.state is WorkloadState.PREEMPTING
        else AT_LIMIT,
    }
    return known.get(happening)


def _why_put_back(report: AttemptReport) -> Reason:
    """Why a site put a job that it had started back into its own queue.

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


def _why_withdrawn(entry: Entry, report: AttemptReport) -> Reason:
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
    """What the site's watch saw before it put the job back or ended it; "" if it did not."""
    note = _WATCH_NOTE.search(report.reason)
    return f"{note[1]} for {note[2]} s" if note is not None else ""


def _said(nodes: str, report: AttemptReport) -> str:
    """The nodes, and in what words their site took them out."""
    return f"{nodes} ({report.failed_why[:MAX_WHY]})" if report.failed_why else nodes


def failed_nodes(entry: Entry, happening: Happening, report: AttemptReport) -> tuple[str, ...]:
    """The nodes of its plan that ended an attempt; a site may name no others."""
    if not report.failed_nodes or happening in _STILL_THERE:
        return ()
    return tuple(name for name in entry.node_names if name in report.failed_nodes)
