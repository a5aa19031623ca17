"""What does a site remember that the log does not hold? Attempts are taken in as they stand there.

After a log was lost, or its end, the sites' records win: a workload that nobody knows is known
again, with its id, and the attempt that runs is its attempt. An attempt is adopted only with the
order that its site was given for it, and never while the ledger has a later one. A site vouches for
that as it does for what its users submit; its numbers must make sense, as those of a bid.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite
from typing import Final

from federator.model.event import Awarded, Draft, Submitted
from federator.model.lifecycle import AT_SITE, Happening, WorkloadState
from federator.model.message import CancelAt, Note, Remembered
from federator.model.reason import Reason, ReasonCode
from federator.model.site import SiteJobState
from federator.model.submission import unpack_submission
from federator.model.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from federator.model.workload import (
    FIRST_WORKLOAD_ID,
    SiteName,
    Workload,
)
from federator.sched.passes.plausible import plan_contradiction
from federator.sched.passes.turn import Turn
from federator.sched.state.ledger import Entry

MOST_ATTEMPTS: Final = 2**31  # of a workload; later ones must have numbers too
_LOST = Reason(code=ReasonCode.LOST)
_OVER = {  # how an older attempt is taken for over, whose end the log has lost
    WorkloadState.AWARDED: Happening.DECLINED,
    WorkloadState.LAUNCHING: Happening.WITHDRAWN,
    WorkloadState.RUNNING: Happening.WITHDRAWN,
    WorkloadState.PREEMPTING: Happening.PREEMPTED,
    WorkloadState.CANCELLING: Happening.LOST,
}


def adopt(turn: Turn, site: SiteName, told: Remembered) -> Entry | None:
    """See to it that the ledger knows the attempt as its workload's present one, at this site.

    Returns:
        The entry, if that is so now and its site's reports are to be followed; None: the attempt
        is of no concern any more, or cannot be adopted (a live one is then noted, or ended).
    """
    entry = turn.ledger.entries.get(told.attempt.workload)
    if entry is not None and entry.workload.user != told.user:
        return None  # a number that two logs gave out; nothing of this one is there
    if entry is None or entry.attempt < told.attempt.attempt:
        entry = _taken_in(turn, site, told, entry)
        if entry is None:
            _leave_alone(turn, site, told)
            return None
    elif entry.attempt > told.attempt.attempt or entry.site != site or entry.state not in AT_SITE:
        return None
    _follow_orders(turn, entry, told)
    return entry if entry.state in AT_SITE else None


def _taken_in(turn: Turn, site: SiteName, told: Remembered, entry: Entry | None) -> Entry | None:
    """Record what the log lacks: the submission, and the award of the attempt."""
    if not 1 <= told.attempt.attempt < MOST_ATTEMPTS:
        return None
    workload = told.workload
    if workload is None:  # its order is gone; but what waits here must not run twice
        workload = entry.workload if entry is not None else None
    elif not _is_believed(turn, told, workload, entry):
        workload = None
    if workload is None:
        return None
    if entry is None:
        at_s = min(workload.submitted_at_s, turn.now_s)  # a clock may be ahead of this one
        workload = replace(workload, submitted_at_s=at_s)
        turn.adopt(_submitted(workload, _key(turn, workload, told.key)))
        entry = turn.ledger.entries[workload.id]
    if entry.state in AT_SITE:
        turn.change(entry, _OVER[entry.state], reason=_LOST)
    if entry.state is WorkloadState.HELD:
        turn.change(entry, Happening.RELEASED)
    if entry.state is not WorkloadState.PENDING:
        _end(turn, site, told)  # it is over, whatever still runs
        return None
    turn.adopt(
        Awarded(
            at_s=turn.now_s,
            attempt=told.attempt,
            site=site,
            jobs=told.jobs,
            priority=told.priority,
            within_quota=told.within_quota,
            credit=told.credit,
        )
    )
    return entry


def _is_believed(turn: Turn, told: Remembered, workload: Workload, entry: Entry | None) -> bool:
    if entry is None and not (_is_whole(told, workload) and _is_free(turn, workload)):
        return False
    return _is_sound(told, workload) and _is_sane(turn, told, workload)


def _is_sound(told: Remembered, workload: Workload) -> bool:
    """Whether a site's words fit each other; whatever it says of others is not its to say."""
    report = told.report
    return (
        workload.id == told.attempt.workload
        and workload.user == told.user
        and len(unpack_submission(workload.submission).components) in (0, len(workload.jobs))
        and (report is None or (report.attempt, report.user) == (told.attempt, told.user))
    )


def _is_sane(turn: Turn, told: Remembered, workload: Workload) -> bool:
    """Whether its numbers can be charged, ranked and stored, in this run and the next."""
    return (
        turn.ledger.tenancy.is_configured(workload.tenant)
        and HIGHEST_PRIORITY <= workload.priority <= LOWEST_PRIORITY
        and 0 <= told.priority <= LOWEST_PRIORITY
        and all(map(isfinite, (told.credit, workload.submitted_at_s, workload.signal_lead_s)))
        and 0 < workload.time_limit_s <= inf
        and not plan_contradiction(workload.jobs, told.jobs)
    )


def _is_whole(told: Remembered, workload: Workload) -> bool:
    """Whether it can start again, or never will: of what has completed no submission is kept."""
    report = told.report
    if unpack_submission(workload.submission).components:
        return True
    fits = report is not None and told.site_job_id in (0, report.site_job_id)
    return fits and report is not None and report.done_for_good


def _is_free(turn: Turn, workload: Workload) -> bool:
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


def _key(turn: Turn, workload: Workload, key: str) -> str:
    """Its submit key, unless another submission has it."""
    id_ = workload.id if workload.array is None else workload.array.array_id
    known = turn.ledger.id_of_key.get(key, id_)
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
        continues=workload.continues,
        signal_lead_s=workload.signal_lead_s,
        project=workload.project,
        datasets=workload.datasets,
        elastic=workload.elastic,
    )
    array_id = None if array is None else array.array_id
    return Submitted(
        at_s=workload.submitted_at_s, draft=draft, first_id=workload.id, key=key, array_id=array_id
    )


def _follow_orders(turn: Turn, entry: Entry, told: Remembered) -> None:
    """Bring the entry where the site was told to bring the attempt; reports go on from there."""
    if told.site_job_id and entry.state is WorkloadState.AWARDED and not told.void:
        turn.change(entry, Happening.ACCEPTED, site_job_id=told.site_job_id)
    report = told.report
    never_ran = report is not None and not report.started_at_s
    if told.cancelled and entry.state is not WorkloadState.CANCELLING:
        turn.change(entry, Happening.CANCEL_ASKED)
    elif told.withdrawn and never_ran and entry.state is WorkloadState.LAUNCHING:
        if not entry.withdrawing:
            turn.change(entry, Happening.LEASE_OVER)
    elif report is not None and report.leave is not None and report.state.ended:
        was_seen = entry.state is WorkloadState.LAUNCHING
        if was_seen:
            turn.change(
                entry,
                Happening.STARTED,
                started_at_s=report.started_at_s,
                site_state=SiteJobState.RUNNING.value,
            )
        if entry.state is WorkloadState.RUNNING:  # the log forgot that it was told to leave
            turn.change(entry, Happening.EVICTED, reason=Reason(code=ReasonCode.PREEMPTED))


def _leave_alone(turn: Turn, site: SiteName, told: Remembered) -> None:
    if told.void or (told.report is not None and told.report.state.ended):
        return
    fields = {
        "site": site,
        "attempt": str(told.attempt),
        "job_id": told.site_job_id,
        "detail": "the site has no order for it any more, or none that fits",
    }
    turn.commands.append(Note(event="attempt_not_adopted", fields=fields))


def _end(turn: Turn, site: SiteName, told: Remembered) -> None:
    if told.report is not None and not told.report.state.ended:
        turn.commands.append(
            CancelAt(
                site=site,
                attempt=told.attempt,
                user=told.user,
                site_job_id=told.report.site_job_id,
                pending_only=False,
            )
        )
