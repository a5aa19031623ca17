"""Adopts attempts that a site remembers and the log does not hold, as they stand there.

After a log was lost, or its end, the sites' records win: a workload that nobody knows is known
again, with its id, and the attempt that runs is its attempt. An attempt is adopted only with the
order that its site was given for it, and never while the ledger has a later one. A site vouches for
that as it does for what its users submit; its numbers must make sense, as those of a bid.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite
from typing import Final

from federator.model.draft import Draft
from federator.model.eligibility import NO_DEPENDENCY, Hold
from federator.model.event import Amended, Awarded, Submitted
from federator.model.lifecycle import AT_SITE, WorkloadEvent, WorkloadState
from federator.model.message import Note, Remembered, SendTo
from federator.model.node_names import jobs_at
from federator.model.reason import Reason, ReasonCode
from federator.model.site import SiteJobState
from federator.model.site_message import CancelOrder
from federator.model.sizes import larger_sizes
from federator.model.submission import unpack_submission
from federator.model.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from federator.model.workload import (
    FIRST_WORKLOAD_ID,
    SiteName,
    Workload,
)
from federator.sched.passes.bid_validation import plan_contradiction, sized
from federator.sched.passes.job_outputs import output_place
from federator.sched.passes.transaction import Transaction
from federator.sched.state.ledger import WorkloadRecord

MOST_ATTEMPTS: Final = 2**31  # of a workload; later ones must have numbers too
_LOST = Reason(code=ReasonCode.LOST)
_OVER = {  # how an older attempt is taken for over, whose end the log has lost
    WorkloadState.AWARDED: WorkloadEvent.DECLINED,
    WorkloadState.LAUNCHING: WorkloadEvent.WITHDRAWN,
    WorkloadState.RUNNING: WorkloadEvent.WITHDRAWN,
    WorkloadState.PREEMPTING: WorkloadEvent.PREEMPTED,
    WorkloadState.CANCELLING: WorkloadEvent.LOST,
}


def adopt(turn: Transaction, site: SiteName, remembered: Remembered) -> WorkloadRecord | None:
    """See to it that the ledger knows the attempt as its workload's present one, at this site.

    Returns:
        The entry, if that is so now and its site's reports are to be followed; None: the attempt
        is of no concern any more, or cannot be adopted (a live one is then noted, or ended).
    """
    entry = turn.ledger.entries.get(remembered.attempt.workload)
    if entry is not None and entry.workload.user != remembered.user:
        return None  # a number that two logs gave out; nothing of this one is there
    if entry is None or entry.attempt < remembered.attempt.attempt:
        entry = _taken_in(turn, site, remembered, entry)
        if entry is None:
            _leave_alone(turn, site, remembered)
            return None
    elif (
        entry.attempt > remembered.attempt.attempt
        or entry.site != site
        or entry.state not in AT_SITE
    ):
        return None
    _follow_orders(turn, entry, remembered)
    return entry if entry.state in AT_SITE else None


def _taken_in(
    turn: Transaction, site: SiteName, remembered: Remembered, entry: WorkloadRecord | None
) -> WorkloadRecord | None:
    """Record what the log lacks: the submission, and the award of the attempt."""
    if not 1 <= remembered.attempt.attempt < MOST_ATTEMPTS:
        return None
    workload = remembered.workload
    if workload is None:  # its order is gone; but what waits here must not run twice
        workload = entry.workload if entry is not None else None
    elif not _accepted(turn, site, remembered, workload, entry):
        workload = None
    if workload is None:
        return None
    if entry is None:
        at_s = min(workload.submitted_at_s, turn.now_s)  # a clock may be ahead of this one
        workload = replace(workload, submitted_at_s=at_s)
        turn.adopt(_submitted(workload, _key(turn, workload, remembered.key)))
        entry = turn.ledger.entries[workload.id]
    if entry.state in AT_SITE:
        turn.change(entry, _OVER[entry.state], reason=_LOST)
    _let_into_queue(turn, entry)
    if entry.state is not WorkloadState.PENDING:
        _end(turn, site, remembered)  # it is over, whatever still runs
        return None
    turn.adopt(
        Awarded(
            at_s=turn.now_s,
            attempt=remembered.attempt,
            site=site,
            jobs=remembered.jobs,
            priority=remembered.priority,
            within_quota=remembered.within_quota,
            credit=remembered.credit,
            output=output_place(turn.ledger, workload, site),
            adopted=True,
        )
    )
    return entry


def _let_into_queue(turn: Transaction, entry: WorkloadRecord) -> None:
    """The log lost that it was let go."""
    if entry.state is WorkloadState.HELD:
        turn.change(entry, WorkloadEvent.RELEASED)
    if entry.state is WorkloadState.INELIGIBLE:
        ids = (entry.workload.id,)
        turn.record(
            Amended(
                at_s=turn.now_s,
                workloads=ids,
                hold=Hold.NONE,
                begin_at_s=0.0,
                waits_for=NO_DEPENDENCY,
            )
        )
        turn.change(entry, WorkloadEvent.ELIGIBLE)


def _accepted(
    turn: Transaction,
    site: SiteName,
    remembered: Remembered,
    workload: Workload,
    entry: WorkloadRecord | None,
) -> bool:
    if entry is None and not (_has_submission(remembered, workload) and _is_free(turn, workload)):
        return False
    return _schema_ok(remembered, workload) and _values_ok(turn, site, remembered, workload)


def _schema_ok(remembered: Remembered, workload: Workload) -> bool:
    """Whether a site's words fit each other; whatever it says of others is not its to say."""
    report = remembered.report
    return (
        workload.id == remembered.attempt.workload
        and workload.user == remembered.user
        and len(unpack_submission(workload.submission).components) in (0, len(workload.jobs))
        and (
            report is None or (report.attempt, report.user) == (remembered.attempt, remembered.user)
        )
    )


def _values_ok(
    turn: Transaction, site: SiteName, remembered: Remembered, workload: Workload
) -> bool:
    """Whether its numbers can be charged, ranked and stored, in this run and the next.

    The plan has the site's own names of what the user may have named ``SITE:NAME``.
    """
    return (
        turn.ledger.tenancy.is_configured(workload.tenant)
        and HIGHEST_PRIORITY <= workload.priority <= LOWEST_PRIORITY
        and 0 <= remembered.priority <= LOWEST_PRIORITY
        and all(map(isfinite, (remembered.credit, workload.submitted_at_s, workload.signal_lead_s)))
        and 0 < workload.time_limit_s <= inf
        and not plan_contradiction(
            sized(jobs_at(workload.jobs, site), remembered.jobs, larger_sizes(workload)),
            remembered.jobs,
        )
    )


def _has_submission(remembered: Remembered, workload: Workload) -> bool:
    """Whether it can start again, or never will: of what has completed no submission is kept."""
    report = remembered.report
    if unpack_submission(workload.submission).components:
        return True
    fits = report is not None and remembered.site_job_id in (0, report.site_job_id)
    return fits and report is not None and report.done_for_good


def _is_free(turn: Transaction, workload: Workload) -> bool:
    """Whether it can have been given this id: no site may use up ids, or join another's array.

    What earlier terms gave out is below what this one began with.
    """
    newest = turn.ledger.next_id
    if workload.array is None:
        return FIRST_WORKLOAD_ID <= workload.id < newest
    array_id, index = workload.array.array_id, workload.array.index
    tasks = turn.ledger.array_tasks.get(array_id, {})
    users = {turn.ledger.entries[task].workload.user for task in tasks.values()}
    fits = FIRST_WORKLOAD_ID <= array_id <= workload.id < newest
    return fits and index not in tasks and users <= {workload.user}


def _key(turn: Transaction, workload: Workload, key: str) -> str:
    """Its submit key, unless another submission has it."""
    id_ = workload.id if workload.array is None else workload.array.array_id
    known = turn.ledger.keys.id_of.get(key, id_)
    return key if key and known == id_ else f"adopted-{id_}"


def _submitted(workload: Workload, key: str) -> Submitted:
    """The record of a submission, of which this may be one task of many."""
    array = workload.array
    optional = workload.optional_jobs
    if array is not None:
        optional = (array.index,) if workload.optional else ()
    draft = Draft(
        name=workload.name,
        user=workload.user,
        tenant=workload.tenant,
        priority=workload.priority,
        jobs=workload.jobs,
        submission=workload.submission,
        time_limit_s=workload.time_limit_s,
        requeue=workload.requeue,
        array_indices=() if array is None else (array.index,),
        array_max_running=0 if array is None else array.max_running,
        asked_priority=workload.asked_priority,
        nice=workload.nice,
        optional=optional,
        no_preempt=workload.no_preempt,
        interactive=workload.interactive,
        watched=workload.watched,
        continues=workload.continues,
        migrates=workload.migrates,
        signal_lead_s=workload.signal_lead_s,
        project=workload.project,
        datasets=workload.datasets,
        data=workload.data,
        output=workload.output,
        elastic=workload.elastic,
        spare=workload.spare,
        deadline_at_s=workload.deadline_at_s,
        starts_by_s=workload.starts_by_s,
    )
    array_id = None if array is None else array.array_id
    return Submitted(
        at_s=workload.submitted_at_s, draft=draft, first_id=workload.id, key=key, array_id=array_id
    )


def _follow_orders(turn: Transaction, entry: WorkloadRecord, remembered: Remembered) -> None:
    """Bring the entry where the site was told to bring the attempt; reports go on from there."""
    if remembered.site_job_id and entry.state is WorkloadState.AWARDED and not remembered.void:
        turn.change(entry, WorkloadEvent.ACCEPTED, site_job_id=remembered.site_job_id)
    report = remembered.report
    never_ran = report is not None and not report.started_at_s
    if remembered.cancelled and entry.state is not WorkloadState.CANCELLING:
        turn.change(entry, WorkloadEvent.CANCEL_ASKED)
    elif remembered.withdrawn and never_ran and entry.state is WorkloadState.LAUNCHING:
        if not entry.withdrawing:
            turn.change(entry, WorkloadEvent.LEASE_OVER)
    elif report is not None and report.leave is not None and report.state.ended:
        was_seen = entry.state is WorkloadState.LAUNCHING
        if was_seen:
            turn.change(
                entry,
                WorkloadEvent.STARTED,
                started_at_s=report.started_at_s,
                site_state=SiteJobState.RUNNING.value,
            )
        if entry.state is WorkloadState.RUNNING:  # the log forgot that it was told to leave
            turn.change(entry, WorkloadEvent.EVICTED, reason=Reason(code=ReasonCode.PREEMPTED))


def _leave_alone(turn: Transaction, site: SiteName, remembered: Remembered) -> None:
    if remembered.void or (remembered.report is not None and remembered.report.state.ended):
        return
    fields = {
        "site": site,
        "attempt": str(remembered.attempt),
        "job_id": remembered.site_job_id,
        "detail": "the site has no order for it any more, or none that fits",
    }
    turn.commands.append(Note(event="attempt_not_adopted", fields=fields))


def _end(turn: Transaction, site: SiteName, remembered: Remembered) -> None:
    if remembered.report is not None and not remembered.report.state.ended:
        cancel = CancelOrder(
            attempt=remembered.attempt,
            user=remembered.user,
            site_job_id=remembered.report.site_job_id,
        )
        turn.commands.append(SendTo(site=site, message=cancel))
