"""Takes snapshots of the ledger, and makes a ledger of one.

All that the log has told so far, so that the log before it is needed no more. What follows from
the rest is not kept but made anew (charges, the queue by lanes, arrays), as the tenants are
configured now; what is of the moment, ``WorkloadRecord.refusals``, is lost with the daemon anyhow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from federator.errors import StoreError
from federator.model.dataset import DataSet
from federator.model.event import (
    SnapshotBegan,
    SnapshotData,
    SnapshotDone,
    SnapshotDurations,
    SnapshotEvictions,
    SnapshotOrder,
    SnapshotOutputs,
    SnapshotRecord,
    SnapshotSaves,
    SnapshotScaling,
    SnapshotSubmission,
    SnapshotUsage,
    SnapshotWorkload,
    SnapshotWorkloads,
)
from federator.model.lifecycle import AT_SITE, WorkloadState
from federator.model.workload import ArrayTask, Workload, WorkloadId
from federator.sched.state.bad_nodes import NO_BAD_NODES, BadNodes
from federator.sched.state.workload_record import WorkloadRecord, restored_record

if TYPE_CHECKING:
    from federator.sched.state.ledger import Ledger

CHUNK_BYTES: Final = 1 << 14  # of a record, about; stores read and write a thousand at once
_ROWS: Final = 5_000  # numbers, or pairs of them, in a record
_FAMILIES: Final = 100
_OUTPUTS: Final = 50
_TASKS: Final = 50  # of one array together
_TASK_BYTES: Final = 1_000  # one that has been awarded, about
_DATA_SET_BYTES: Final = 250  # this and the next about, and without names of files
_REPLICA_BYTES: Final = 120

_OTHERWISE_KEPT: Final = frozenset({"id", "index", "optional", "plan", "bad_nodes"})
_ALIKE: Final = tuple(
    field.name
    for field in msgspec.structs.fields(SnapshotWorkload)
    if field.name not in _OTHERWISE_KEPT
)
_values_of: Final = attrgetter(*_ALIKE)
_OWN: Final = ("id", "array", "optional")  # of each task of an array
_SHARED_NAMES: Final = tuple(f.name for f in fields(Workload) if f.name not in _OWN)
_shared_of: Final = attrgetter(*_SHARED_NAMES)
_T = TypeVar("_T")


# ---- from a ledger ----


def taken(ledger: Ledger, at_s: float) -> Iterator[SnapshotRecord]:
    """A ledger's state at ``at_s``, as records; the ledger may change once all are read.

    Each is of some 50 KiB at most, but for a submission that is larger itself.
    """
    yield SnapshotBegan(
        at_s=at_s,
        epoch=ledger.epoch,
        next_id=ledger.next_id,
        latest_s=ledger.latest_s,
        tenants=tuple(tenant.name for tenant in ledger.tenancy.tenants),
        failures=ledger.failures.saved(),
        tax_by_preemptor=dict(ledger.tax.by_preemptor),
        tax_by_victim=dict(ledger.tax.by_victim),
        tax_victims=ledger.tax.victims,
        tax_gpu_s=ledger.tax.gpu_s,
        log_began=ledger.log_began,
    )
    yield from ledger.holdings.saved_usage(at_s)
    for submissions in _chunked(_submissions(ledger), CHUNK_BYTES, _bytes_of):
        yield SnapshotWorkloads(at_s=at_s, submissions=submissions)
    for families in _chunked(ledger.saves.saved(), _FAMILIES):
        yield SnapshotSaves(at_s=at_s, families=families)
    for runs in _chunked(ledger.scaling.saved(), _FAMILIES):
        yield SnapshotScaling(at_s=at_s, families=runs)
    yield from ledger.durations.saved(at_s)
    for evictions in _chunked(ledger.evictions.within, _ROWS):
        yield SnapshotEvictions(at_s=at_s, evictions=evictions)
    for evictions in _chunked(ledger.evictions.beyond, _ROWS):
        yield SnapshotEvictions(at_s=at_s, evictions=(), beyond_budget=evictions)
    for state in WorkloadState:
        for ids in _chunked(ledger.by_state.ids(state), _ROWS):
            yield SnapshotOrder(at_s=at_s, state=state, ids=ids)
    yield from _data(ledger, at_s)
    yield _done(ledger, at_s)


def _done(ledger: Ledger, at_s: float) -> SnapshotDone:
    return SnapshotDone(
        at_s=at_s,
        workloads=len(ledger.entries),
        shrinking=tuple(ledger.promised.shrinking),
        claims=tuple(ledger.claims.values()),
        drains=ledger.drains.saved(),
        written_off=tuple(ledger.drains.written_off.values()),
        planned=ledger.planned,
        loans=tuple(ledger.loans.by_tenant.values()),
        data_planned=ledger.data_moves.planned,
        moves_begun=tuple(ledger.data_moves.begun),
        places=tuple(ledger.moves.places.values()),
        moved_at_s=tuple(ledger.moves.at_s),
    )


def _data(ledger: Ledger, at_s: float) -> Iterator[SnapshotRecord]:
    for sets in _chunked(ledger.catalogue, CHUNK_BYTES, _data_bytes):
        yield SnapshotData(at_s=at_s, sets=sets)
    for outputs in _chunked(ledger.outputs, _OUTPUTS):
        yield SnapshotOutputs(at_s=at_s, outputs=outputs)


def _chunked(
    items: Iterable[_T], most: int, size: Callable[[_T], int] = lambda _: 1
) -> Iterator[tuple[_T, ...]]:
    """Runs of items; each is the shortest that is ``most`` large, the last may be smaller."""
    chunk: list[_T] = []
    total = 0
    for item in items:
        chunk.append(item)
        total += size(item)
        if total >= most:
            yield tuple(chunk)
            chunk, total = [], 0
    if chunk:
        yield tuple(chunk)


def _submissions(ledger: Ledger) -> Iterator[SnapshotSubmission]:
    """All workloads in the ledger's order, what they share kept once."""
    keys: dict[WorkloadId, dict[str, WorkloadId]] = {}
    for key, id_ in ledger.keys.id_of.items():
        keys.setdefault(id_, {})[key] = id_
    like: Workload | None = None
    shared: tuple[Any, ...] = ()
    group: list[WorkloadRecord] = []
    known: dict[str, WorkloadId] = {}
    for entry in ledger.entries.values():
        workload = entry.workload
        new = _shared_of(workload)
        continues = like is not None and _same_array(like, workload) and new == shared
        if not continues or len(group) >= _TASKS:
            if group:
                yield _submission(group, like, known)
            like, group, known = (like if continues else workload), [], {}
            shared = new
        group.append(entry)
        known.update(keys.pop(workload.id, {}))
    if group:
        yield _submission(group, like, known)
    for others in keys.values():  # of arrays of which some tasks are known, but not the first
        yield SnapshotSubmission(workloads=(), keys=others)


def _same_array(like: Workload, workload: Workload) -> bool:
    one, other = like.array, workload.array
    return (
        one is not None
        and other is not None
        and (one.array_id, one.max_running) == (other.array_id, other.max_running)
    )


def _submission(
    entries: list[WorkloadRecord], like: Workload | None, keys: dict[str, WorkloadId]
) -> SnapshotSubmission:
    workloads = tuple(map(_saved, entries))
    if like is None or entries[0].workload is like:
        return SnapshotSubmission(workloads=workloads, like=like, keys=keys)
    return SnapshotSubmission(workloads=workloads, same_as=like.id, keys=keys)


def _saved(entry: WorkloadRecord) -> SnapshotWorkload:
    workload, award = entry.workload, entry.award
    as_awarded = entry.plan is award.jobs if award is not None else not entry.plan
    return SnapshotWorkload(
        id=workload.id,
        index=workload.array.index if workload.array is not None else 0,
        optional=workload.optional,
        plan=None if as_awarded else entry.plan,
        bad_nodes=tuple(entry.bad_nodes.saved()),
        **dict(zip(_ALIKE, _values_of(entry), strict=True)),
    )


def _data_bytes(of: DataSet) -> int:
    return _DATA_SET_BYTES + sum(_REPLICA_BYTES + len(r.path) for r in of.replicas)


def _bytes_of(submission: SnapshotSubmission) -> int:
    """Roughly, and quickly: what counts is that no record grows large."""
    size = _TASK_BYTES * len(submission.workloads)
    if submission.like is not None:
        size += memoryview(submission.like.submission).nbytes
    return size


# ---- to a ledger ----


def restore(ledger: Ledger, record: SnapshotRecord) -> None:
    """Take in one record of a snapshot; a ledger is of use again after the last.

    Raises:
        StoreError: it does not follow, or the snapshot is not whole.
    """
    if isinstance(record, SnapshotBegan) != ledger.is_new:
        raise StoreError("a snapshot begins nowhere but at the beginning of a log")
    match record:
        case SnapshotBegan():
            _restore_head(ledger, record)
        case SnapshotUsage():
            ledger.holdings.restore_usage(record)
        case SnapshotWorkloads():
            for submission in record.submissions:
                _restore_submission(ledger, submission)
        case SnapshotSaves() | SnapshotScaling() | SnapshotDurations() | SnapshotEvictions():
            _restore_learned(ledger, record)
        case SnapshotOrder():
            ledger.by_state.restore(record.state, record.ids)
        case SnapshotData() | SnapshotOutputs():
            _restore_data(ledger, record)
        case SnapshotDone():
            _finish(ledger, record)


def _restore_data(ledger: Ledger, record: SnapshotData | SnapshotOutputs) -> None:
    if isinstance(record, SnapshotData):
        ledger.catalogue.restore(record.sets)
    else:
        ledger.outputs.restore(record.outputs)


def _restore_learned(
    ledger: Ledger,
    record: SnapshotSaves | SnapshotScaling | SnapshotDurations | SnapshotEvictions,
) -> None:
    match record:
        case SnapshotSaves():
            ledger.saves.restore(record.families)
        case SnapshotScaling():
            ledger.scaling.restore(record.families)
        case SnapshotDurations():
            ledger.durations.restore(record)
        case SnapshotEvictions():
            ledger.evictions.restore(record)


def _restore_head(ledger: Ledger, began: SnapshotBegan) -> None:
    ledger.epoch, ledger.next_id = began.epoch, began.next_id
    ledger.log_began = began.log_began or began.epoch
    ledger.latest_s = began.latest_s
    for name in began.tenants:
        ledger.tenancy.row(name)  # those that are not configured any more keep their order
    ledger.failures.restore(began.failures)
    tax = ledger.tax
    tax.by_preemptor, tax.by_victim = dict(began.tax_by_preemptor), dict(began.tax_by_victim)
    tax.victims, tax.gpu_s = began.tax_victims, began.tax_gpu_s


def _restore_submission(ledger: Ledger, submission: SnapshotSubmission) -> None:
    like = submission.like
    ledger.keys.id_of.update(submission.keys)
    if like is not None and len(submission.workloads) > 1:  # else it is most of the record anyhow
        like = replace(like, submission=like.submission.copy())
    if like is None:
        if not submission.workloads:
            return
        if submission.same_as not in ledger.entries:
            raise StoreError(f"the snapshot lacks workload {submission.same_as}")
        like = ledger.entries[submission.same_as].workload
    shared: dict[str, Any] = {}
    if like.array is not None:
        shared = dict(zip(_SHARED_NAMES, _shared_of(like), strict=True))
    for kept in submission.workloads:
        plan = kept.plan
        if plan is None:
            plan = kept.award.jobs if kept.award is not None else ()
        bad_nodes = BadNodes.restored(kept.bad_nodes) if kept.bad_nodes else NO_BAD_NODES
        workload = _workload(like, shared, kept)
        ledger.restore_entry(restored_record(workload, plan, bad_nodes, _values_of(kept)))


def _workload(like: Workload, shared: dict[str, Any], kept: SnapshotWorkload) -> Workload:
    if kept.id == like.id or like.array is None:
        return like
    array = ArrayTask(
        array_id=like.array.array_id, index=kept.index, max_running=like.array.max_running
    )
    return Workload(id=kept.id, array=array, optional=kept.optional, **shared)


def _finish(ledger: Ledger, done: SnapshotDone) -> None:
    """The last record: is all there, and does it agree?"""
    ordered = [ledger.by_state.ids(state) for state in WorkloadState]
    agree = all(
        id_ in ledger.entries and ledger.entries[id_].state is state
        for state, ids in zip(WorkloadState, ordered, strict=True)
        for id_ in ids
    )
    numbers = {done.workloads, len(ledger.entries), sum(map(len, ordered))}
    if not agree or len(numbers) > 1:
        raise StoreError("the snapshot does not agree with itself: it is damaged")
    ledger.promised.shrinking = dict.fromkeys(done.shrinking)
    ledger.claims = {claim.workload: claim for claim in done.claims}
    ledger.planned = done.planned
    ledger.data_moves.restore(done.data_planned, done.moves_begun)
    ledger.loans.restore(done.loans)
    ledger.moves.restore(done.places, done.moved_at_s)
    running = ledger.in_state(WorkloadState.RUNNING, WorkloadState.PREEMPTING)
    ledger.durations.follow_others(running, ledger.latest_s)
    for entry in ledger.in_state(WorkloadState.INELIGIBLE):
        ledger.dependents.watch(entry)  # all that it can wait for is known now
    ledger.drains.restore((*done.drains, *done.written_off))
    at_sites = ledger.in_state(*AT_SITE)
    ledger.holdings.correct_usage(e.charge for e in at_sites if e.charge is not None)
