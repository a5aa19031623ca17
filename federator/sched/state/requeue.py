"""Takes down that a site, or a time limit, has failed a workload; forgives what came right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from federator.model.eligibility import Hold
from federator.model.event import Changed
from federator.model.lifecycle import WorkloadEvent
from federator.model.mappings import without_key
from federator.model.reason import Reason, ReasonCode
from federator.model.workload import SiteName
from federator.sched.state.backoff import OF_THE_PLAN, pause_s

if TYPE_CHECKING:
    from federator.sched.state.ledger import WorkloadRecord

_WITHOUT_NOTICE: Final = frozenset(
    {
        WorkloadEvent.NODE_FAILED,
        WorkloadEvent.SITE_PREEMPTED,
        WorkloadEvent.LIMIT_STRUCK,
        WorkloadEvent.SITE_REQUEUED,
        WorkloadEvent.PREEMPTED,
    }
)  # of those too that were to leave, but were not told in time
_BY_THE_SITE: Final = frozenset({WorkloadEvent.SITE_PREEMPTED, WorkloadEvent.SITE_REQUEUED})
_NOBODYS_FAULT: Final = (
    ReasonCode.REQUEUED,
    ReasonCode.RESIZED,
    ReasonCode.STALLED,  # its nodes alone are avoided
    ReasonCode.SLOW_NODES,  # likewise
    ReasonCode.DRAINED,
    ReasonCode.WRITTEN_OFF,
)

_NODES_GO: Final = frozenset({ReasonCode.DRAINED, ReasonCode.NODE_FAILED})
_INTERRUPTIONS_KEPT_S: Final = 86_400.0
MOST_INTERRUPTIONS: Final = 16


def left_unasked(entry: WorkloadRecord, event: Changed) -> None:
    """Note what one has saved that left without notice, and whether its site preempted it."""
    if event.saved_at_s > 0 and event.happening in _WITHOUT_NOTICE:
        entry.saved_at = entry.site
    code = event.reason.code if event.reason is not None else None
    if event.happening in _BY_THE_SITE and code is ReasonCode.PREEMPTED:
        entry.site_evicted_at_s = event.at_s


def copy_is_over(entry: WorkloadRecord, event: Changed) -> None:
    """Once an attempt has begun, the newest checkpoint is where that ran, and nowhere else.

    A copy that is made while it runs counts until its site tells how it has left.
    """
    began = event.happening is WorkloadEvent.STARTED or event.started_at_s > 0
    requeues_itself = event.reason is not None and event.reason.code is ReasonCode.REQUEUED
    saved = event.saved_at_s > 0 or event.happening is WorkloadEvent.CHECKPOINTED
    if entry.copied_to and (began or saved or requeues_itself):
        entry.saved_at, entry.copied_to = entry.site, SiteName("")


def note_interruption(entry: WorkloadRecord, event: Changed) -> None:
    """Note that an attempt leaves its nodes because these went, or are to go.

    Of the last day, and as many as anybody counts: a site that loses nodes all the time must not
    make the record grow.
    """
    reason = entry.reason if event.reason is None else event.reason
    gone = event.happening is WorkloadEvent.NODE_FAILED or bool(event.failed_nodes)
    if not (gone or (reason is not None and reason.code in _NODES_GO)) or not entry.plan:
        return
    plan = entry.plan[0]
    since_s = event.at_s - _INTERRUPTIONS_KEPT_S
    kept = tuple(each for each in entry.interruptions if each[0] > since_s)
    here = (event.at_s, entry.site, plan.partition, plan.gpu_type)
    entry.interruptions = (*kept, here)[-MOST_INTERRUPTIONS:]


def set_back(entry: WorkloadRecord, at_s: float) -> None:
    """Leave the site that failed it alone for a while, longer each time.

    Not for nodes that are known to have failed: these alone are avoided. Nor for a job that its
    user, or an admin, put back into the queue, or holds, nor for a site that was drained.
    """
    site = entry.site
    reason = entry.reason or Reason(code=ReasonCode.LEASE_OVER)
    entry.setbacks = {**entry.setbacks, site: reason}
    plans_refused = entry.plans_refused.get(site, 0)
    entry.plans_refused = without_key(entry.plans_refused, site)
    if reason.code in OF_THE_PLAN:
        plans_refused += 1
        entry.plans_refused = {**entry.plans_refused, site: plans_refused}
    nodes_did_it = reason.code is ReasonCode.NODE_FAILED and not set(entry.node_names).isdisjoint(
        entry.bad_nodes.avoided(site, at_s)
    )
    if nodes_did_it or reason.code in _NOBODYS_FAULT or entry.hold is not Hold.NONE:
        return
    failures = entry.failures_at.get(site, 0) + 1
    entry.failures_at = {**entry.failures_at, site: failures}
    until_s = at_s + pause_s(reason.code, failures, plans_refused)
    entry.avoid_until_s = {**entry.avoid_until_s, site: until_s}


def forgive(entry: WorkloadRecord, at_s: float) -> None:
    """It started at a site that had failed it; nodes that it avoids there are still told of."""
    entry.failures_at = without_key(entry.failures_at, entry.site)
    entry.plans_refused = without_key(entry.plans_refused, entry.site)
    reason = entry.setbacks.get(entry.site)
    nodes_did_it = reason is not None and reason.code is ReasonCode.NODE_FAILED
    if not (nodes_did_it and entry.bad_nodes.avoided(entry.site, at_s)):
        entry.setbacks = without_key(entry.setbacks, entry.site)


def mark_progress(entry: WorkloadRecord, event: Changed, was_at_its_limit: bool) -> None:
    """Count the attempts in a row that their time limit cut off with nothing saved."""
    started_s = event.started_at_s or entry.started_at_s
    saved = event.leave is not None and event.leave.saved_at_s > started_s
    requeued = event.reason is not None and event.reason.code is ReasonCode.REQUEUED
    if (event.happening is WorkloadEvent.PREEMPTED and (saved or was_at_its_limit)) or requeued:
        entry.fruitless_attempts = 0
    elif event.happening is WorkloadEvent.LIMIT_STRUCK and was_at_its_limit:
        entry.fruitless_attempts += event.leave is not None  # or else its site had not told it


def is_stall(reason: Reason | None) -> bool:
    """Whether it is told to leave, or has left, since it finished no step in its lease."""
    return reason is not None and reason.code is ReasonCode.STALLED


def blames_its_nodes(reason: Reason | None) -> bool:
    """Whether it is told to leave, or has left, for what its nodes did, or may have done."""
    return is_stall(reason) or (reason is not None and reason.code is ReasonCode.SLOW_NODES)
