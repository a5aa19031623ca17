"""Finds workloads that may be forgotten: they ended long ago, and nobody refers to them."""

from __future__ import annotations

from collections.abc import Iterator

from federator.model.lifecycle import TERMINAL, WorkloadState
from federator.model.workload import WorkloadId
from federator.sched.state.ledger import Ledger, WorkloadRecord

LIVE = tuple(state for state in WorkloadState if state not in TERMINAL)


def forgettable(ledger: Ledger, before_s: float) -> tuple[WorkloadId, ...]:
    """Those that were over by ``before_s``, by id; an array goes when all of its tasks may.

    Who lives may still have to say what its winner has cost, or let its victims run on, or depends
    on others: none of these is forgotten before.
    """
    needed = {id_ for entry in ledger.in_state(*LIVE) for id_ in _named_by(entry)}
    waiting = ledger.in_state(WorkloadState.INELIGIBLE)
    needed |= {id_ for entry in waiting for id_ in ledger.dependents.waited_for(entry)}
    ended = (e for e in ledger.entries.values() if e.state in TERMINAL)
    old = {e.workload.id for e in ended if e.over_at_s <= before_s} - needed
    for tasks in ledger.array_tasks.values():
        if not old.issuperset(tasks.values()):
            old.difference_update(tasks.values())
    return tuple(sorted(old))


def _named_by(entry: WorkloadRecord) -> Iterator[WorkloadId]:
    """The workloads that a live one refers to."""
    yield from entry.promised_jobs.values()
    yield from entry.leaving_jobs.values()
    yield from entry.victims
    yield from (WorkloadId(shrink.workload) for shrink in entry.shrinks)
    for other in (entry.promised_to, entry.evicted_for):
        if other is not None:
            yield other
