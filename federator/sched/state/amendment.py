"""Applies what users and operators change of a workload: its wishes, and what it waits for."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from federator.model.event import Amended
from federator.model.lifecycle import TERMINAL, WorkloadState
from federator.model.mappings import NOTHING
from federator.model.submission import with_options
from federator.model.workload import Workload
from federator.sched.state.workload_record import WorkloadRecord

if TYPE_CHECKING:
    from federator.sched.state.ledger import Ledger

_OF_PLACE: Final = frozenset({"nice"})
Packed = dict[int, tuple[msgspec.Raw, msgspec.Raw]]
"""Submissions as they were and as they are now, by the identity of the first: tasks of an array
share them. While the first is kept no other has its identity."""


def amend(ledger: Ledger, event: Amended) -> None:
    """Change a ledger's entries, and where they wait in it."""
    packed: Packed = {}
    for entry in map(ledger.entries.__getitem__, event.workloads):
        if event.hold is not None:
            entry.hold = event.hold
        if event.begin_at_s is not None:
            entry.begin_at_s = event.begin_at_s
        if event.waits_for is not None and entry.state not in TERMINAL:
            ledger.dependents.unwatch(entry)
            entry.waits_for = event.waits_for
            ledger.dependents.watch(entry)
        if event.try_anew:
            _forget_refusals(entry)
        if asks_for_other(event):
            _ask_for_other(ledger, entry, event, packed)


def asks_for_other(event: Amended) -> bool:
    """Whether a workload asks for something else than before, not only waits for something else."""
    return bool(event.options or event.without) or any(
        value is not None
        for value in (
            *(event.name, event.time_limit_s, event.nice, event.requeue, event.jobs),
            *(event.tenant, event.asked_priority, event.priority, event.array_max_running),
            *(event.deadline_at_s, event.starts_by_s),
        )
    )


def asks_sites_for_other(event: Amended) -> bool:
    """Whether more is other than its place among those of one priority, or its array's throttle."""
    options = {*(option.name for option in event.options), *event.without}
    return not options <= _OF_PLACE or any(
        value is not None
        for value in (
            *(event.name, event.time_limit_s, event.requeue, event.jobs, event.tenant),
            *(event.asked_priority, event.priority, event.deadline_at_s, event.starts_by_s),
        )
    )


def _ask_for_other(ledger: Ledger, entry: WorkloadRecord, event: Amended, packed: Packed) -> None:
    is_queued = entry.state is WorkloadState.PENDING
    if is_queued:
        ledger.backlog.remove(entry.workload, entry.ranks_since_s)
        if asks_sites_for_other(event):
            ledger.claims.pop(entry.workload.id, None)
    ledger.counts.left(entry.workload, entry.state)
    ledger.dependents.renamed(entry, partial(_replace, entry, event, packed))
    ledger.counts.came(entry.workload, entry.state)
    if is_queued:
        ledger.backlog.add(entry.workload, entry.ranks_since_s)


def _replace(entry: WorkloadRecord, event: Amended, packed: Packed) -> None:
    """A site that refused what was asked for before may take what is asked for now."""
    entry.workload = _changed(entry.workload, event, packed)
    if asks_sites_for_other(event):
        _forget_refusals(entry)


def _forget_refusals(entry: WorkloadRecord) -> None:
    entry.refusals = entry.avoid_until_s = entry.failures_at = NOTHING
    entry.setbacks = entry.plans_refused = NOTHING
    entry.most_nodes = 0


def _changed(workload: Workload, event: Amended, packed: Packed) -> Workload:
    old, array = workload.submission, workload.array
    if array is not None and event.array_max_running is not None:
        array = msgspec.structs.replace(array, max_running=event.array_max_running)
    if id(old) not in packed:
        packed[id(old)] = old, with_options(old, event.options, event.without)
    return replace(
        workload,
        submission=packed[id(old)][1],
        name=workload.name if event.name is None else event.name,
        time_limit_s=workload.time_limit_s if event.time_limit_s is None else event.time_limit_s,
        nice=workload.nice if event.nice is None else event.nice,
        requeue=workload.requeue if event.requeue is None else event.requeue,
        jobs=workload.jobs if event.jobs is None else event.jobs,
        tenant=workload.tenant if event.tenant is None else event.tenant,
        asked_priority=(
            workload.asked_priority if event.asked_priority is None else event.asked_priority
        ),
        priority=workload.priority if event.priority is None else event.priority,
        deadline_at_s=(
            workload.deadline_at_s if event.deadline_at_s is None else event.deadline_at_s
        ),
        starts_by_s=workload.starts_by_s if event.starts_by_s is None else event.starts_by_s,
        array=array,
    )
