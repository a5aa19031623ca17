"""Takes down on how many nodes an elastic workload has worked, and which size has failed it.

An attempt that is larger than the last one that worked may come to nothing: sbatch refuses it, its
plan cannot start, or it fails before it has saved anything. Then it was the size; the workload goes
on at its last good one, and is not tried so large again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from federator.model.event import Changed
from federator.model.lifecycle import WorkloadEvent
from federator.model.reason import ReasonCode
from federator.model.sizes import larger_sizes
from federator.sched.state.learned_durations import useful_until_s
from federator.sched.state.save_times import family_of
from federator.sched.state.scaling_curves import ScalingCurves, with_stint

if TYPE_CHECKING:
    from federator.sched.state.ledger import WorkloadRecord

CHECKPOINTED: Final = 85  # the exit status "checkpointed, start me again"
_LEFT: Final = frozenset(
    {
        WorkloadEvent.PREEMPTED,
        WorkloadEvent.LIMIT_STRUCK,
        WorkloadEvent.CHECKPOINTED,
        WorkloadEvent.NODE_FAILED,
        WorkloadEvent.SITE_PREEMPTED,
    }
)
_OF_THE_SIZE: Final = (ReasonCode.SBATCH_REFUSED, ReasonCode.PLAN_REFUSED)


def note_worked(entry: WorkloadRecord, event: Changed) -> None:
    """An attempt is to be resized, or has left with what it saved: it worked at its size."""
    if entry.workload.elastic is None:
        return
    code = event.reason.code if event.reason is not None else None
    to_resize = event.happening is WorkloadEvent.REQUEUE_ASKED and code is ReasonCode.RESIZED
    leave, started_s = event.leave, event.started_at_s or entry.started_at_s
    saved_s = event.saved_at_s if leave is None else leave.saved_at_s
    saved = saved_s > started_s > 0 or event.exit_code == CHECKPOINTED
    if to_resize or (event.happening in _LEFT and saved):
        entry.good_nodes = max(entry.good_nodes, len(entry.node_names))


def note_stint(entry: WorkloadRecord, event: Changed, curves: ScalingCurves) -> None:
    """An attempt that ran is over; one that completed tells how its family scales."""
    started_s = event.started_at_s or entry.started_at_s
    if entry.workload.elastic is None or not started_s:
        return
    completed = event.happening is WorkloadEvent.COMPLETED
    ended_s = event.ended_at_s or event.at_s
    until_s = ended_s if completed else useful_until_s(entry, event, ended_s)
    entry.stints = with_stint(entry.stints, len(entry.node_names), until_s - started_s)
    if completed:
        curves.learn(family_of(entry.workload), entry.stints)


def was_too_large(entry: WorkloadRecord, event: Changed) -> bool:
    """Tell whether an attempt came to nothing for its size; if so, bound the next ones.

    The record still has the attempt's plan.
    """
    nodes, least = len(entry.node_names), entry.workload.jobs[0].nodes or 1
    if entry.workload.elastic is None or nodes <= least:
        return False
    code = event.reason.code if event.reason is not None else None
    refused = event.happening in (WorkloadEvent.DECLINED, WorkloadEvent.WITHDRAWN)
    if event.happening is not WorkloadEvent.GREW_IN_VAIN and not (refused and code in _OF_THE_SIZE):
        return False
    entry.most_nodes = last_good(entry, nodes)
    return True


def last_good(entry: WorkloadRecord, nodes: int) -> int:
    """The size to go back to: one on which it has worked, or else one of half as many nodes."""
    if 0 < (good := _known_good(entry)) < nodes:
        return good
    least = entry.workload.jobs[0].nodes or 1
    return next((n for n in larger_sizes(entry.workload) if n <= nodes // 2), least)


def is_on_trial(entry: WorkloadRecord) -> bool:
    """Tell whether an attempt has more nodes than any before it that is known to have worked."""
    return 0 < _known_good(entry) < len(entry.node_names)


def _known_good(entry: WorkloadRecord) -> int:
    """On how many nodes it has worked; 0: none is known.

    Where no run has saved yet, one that was to be resized counts. Beside runs that did it proves
    nothing: it may have been asked seconds after its start.
    """
    return max((nodes for nodes, _ in entry.stints), default=entry.good_nodes)
