"""Carries out changes of workloads that live: hold, release, requeue, update.

A hold of a workload that runs counts from when it is next back in the queue, as in Slurm. One that
its site has, and that has not started, is withdrawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final, NamedTuple

from msgspec import structs

from federator.model.eligibility import Hold
from federator.model.event import Amended
from federator.model.lifecycle import TERMINAL, WorkloadEvent, WorkloadState
from federator.model.message import (
    AnswerCancelled,
    AnswerControlled,
    CancelAsked,
    ControlAsked,
    ControlRefusal,
    ControlVerb,
)
from federator.model.reason import Reason, ReasonCode
from federator.model.workload import TenantName, WorkloadId
from federator.sched.passes.limits import submit_refusal
from federator.sched.passes.transaction import Transaction
from federator.sched.state.amendment import asks_sites_for_other
from federator.sched.state.job_counts import Member
from federator.sched.state.ledger import Ledger, WorkloadRecord

_REQUEUES: Final = frozenset({ControlVerb.REQUEUE, ControlVerb.REQUEUE_HOLD})
_AMENDS: Final = frozenset({ControlVerb.UPDATE, ControlVerb.TOP})
_REQUEUED: Final = Reason(code=ReasonCode.REQUEUED)
_WAITS: Final = frozenset({WorkloadState.PENDING, WorkloadState.INELIGIBLE, WorkloadState.HELD})


def control(turn: Transaction, asked: ControlAsked) -> None:
    """Change what is asked for and may be, in one record, and answer which that was."""
    done: list[WorkloadId] = []
    refused: list[tuple[WorkloadId, ControlRefusal]] = []
    moves = _Moves(turn.ledger, asked)
    for id_ in asked.ids:
        entry = turn.ledger.entries[id_]
        refusal = _refusal(entry, asked) or moves.refusal(entry)
        if refusal is None:
            done.append(id_)
        else:
            refused.append((id_, refusal))
    if done:
        _carry_out(turn, asked, tuple(done))
    answer = AnswerControlled(client=asked.client, ids=tuple(done), refused=tuple(refused))
    turn.commands.append(answer)


class _Moves:
    """Lets workloads go to another tenant as far as its submit limits go, one after the other.

    The tasks of an array go together or not at all.
    """

    def __init__(self, ledger: Ledger, asked: ControlAsked) -> None:
        self._ledger = ledger
        self._to = {
            id_: change.tenant
            for change in asked.amended
            if change.tenant is not None
            for id_ in change.workloads
        }
        self._tasks = Counter(
            _array(entry, self._to[id_])
            for id_ in asked.ids
            if id_ in self._to and not _refusal(entry := ledger.entries[id_], asked)
        )
        self._said: dict[_Array, ControlRefusal | None] = {}
        self._came: Counter[Member] = Counter()
        self._came_to: Counter[TenantName] = Counter()

    def refusal(self, entry: WorkloadRecord) -> ControlRefusal | None:
        """The refusal of one that would be too many; None: it may go, and is counted."""
        own, to = entry.workload, self._to.get(entry.workload.id)
        if to is None or to == own.tenant:
            return None
        array = _array(entry, to)
        if array not in self._said:
            self._said[array] = self._refusal_of(array, self._tasks[array], own.user)
        return self._said[array]

    def _refusal_of(self, array: _Array, tasks: int, user: str) -> ControlRefusal | None:
        before = self._came[array.to, user]
        others = self._came_to[array.to] - before
        if submit_refusal(
            self._ledger, array.to, user, before + tasks, others=others, leaves=array.tenant
        ):
            return ControlRefusal.BEYOND_POLICY
        self._came[array.to, user] += tasks
        self._came_to[array.to] += tasks
        return None


class _Array(NamedTuple):
    """The tasks of an array that go from one tenant to another; or one workload that is none."""

    id: WorkloadId
    tenant: TenantName
    to: TenantName


def _array(entry: WorkloadRecord, to: TenantName) -> _Array:
    w = entry.workload
    return _Array(w.id if w.array is None else w.array.array_id, w.tenant, to)


def _refusal(entry: WorkloadRecord, asked: ControlAsked) -> ControlRefusal | None:
    if entry.state in TERMINAL or entry.state is WorkloadState.CANCELLING:
        return ControlRefusal.ENDED if entry.state in TERMINAL else ControlRefusal.ENDING
    if asked.verb in _AMENDS:
        return _refusal_of_update(entry, asked)
    if asked.verb in _REQUEUES and entry.state in _WAITS:
        return ControlRefusal.PENDING
    if asked.verb in _REQUEUES and not entry.workload.requeue:
        return ControlRefusal.NO_REQUEUE
    if entry.hold is Hold.ADMIN and not asked.is_operator:
        return ControlRefusal.DENIED
    return None


def _refusal_of_update(entry: WorkloadRecord, asked: ControlAsked) -> ControlRefusal | None:
    if asked.verb is ControlVerb.TOP and entry.hold is not Hold.NONE:
        return ControlRefusal.HELD
    is_done = entry.workload.id in asked.lowered
    may = is_done or entry.state in _WAITS or all(map(_is_of_running, asked.amended))
    return None if may else ControlRefusal.STARTED


def _is_of_running(change: Amended) -> bool:
    """Whether it may also be of jobs that run: it changes how many tasks of an array may."""
    return change.array_max_running is not None and change == Amended(
        at_s=change.at_s,
        workloads=change.workloads,
        array_max_running=change.array_max_running,
    )


def _update(turn: Transaction, asked: ControlAsked, ids: Collection[WorkloadId]) -> None:
    """Record the changes; a workload that no site took may be taken now."""
    for change in asked.amended:
        found = tuple(id_ for id_ in change.workloads if id_ in ids or _yields(turn, asked, id_))
        if found:
            turn.record(structs.replace(change, at_s=turn.now_s, workloads=found, by=asked.by))
        for entry in map(turn.ledger.entries.__getitem__, found):
            if entry.state is WorkloadState.HELD and asks_sites_for_other(change):
                turn.change(entry, WorkloadEvent.RELEASED)
            if entry.workload.id in asked.lowered and entry.state is WorkloadState.RUNNING:
                turn.watch_limit(entry)
    turn.pass_is_due(turn)


def _yields(turn: Transaction, asked: ControlAsked, id_: WorkloadId) -> bool:
    """Whether it waits behind those that are put before it."""
    is_other = asked.verb is ControlVerb.TOP and id_ not in asked.ids
    return is_other and turn.ledger.entries[id_].state in _WAITS


def _carry_out(turn: Transaction, asked: ControlAsked, ids: tuple[WorkloadId, ...]) -> None:
    if asked.verb in _AMENDS:
        _update(turn, asked, frozenset(ids))
        return
    if asked.verb is not ControlVerb.REQUEUE:
        _set_hold(turn, asked, ids)
    if asked.verb in _REQUEUES:
        for entry in map(turn.ledger.entries.__getitem__, ids):
            _requeue(turn, entry)


def _requeue(turn: Transaction, entry: WorkloadRecord) -> None:
    """Have it leave its site, and wait again; one that leaves already does."""
    if entry.state is WorkloadState.RUNNING:
        turn.change(entry, WorkloadEvent.REQUEUE_ASKED, reason=_REQUEUED)
    elif entry.state is WorkloadState.LAUNCHING and not entry.withdrawing:
        turn.change(entry, WorkloadEvent.LEASE_OVER)


def _set_hold(turn: Transaction, asked: ControlAsked, ids: tuple[WorkloadId, ...]) -> None:
    hold = Hold.NONE
    if asked.verb is not ControlVerb.RELEASE:
        by_admin = asked.is_operator and asked.verb is not ControlVerb.USER_HOLD
        hold = Hold.ADMIN if by_admin else Hold.USER
    changed = tuple(id_ for id_ in ids if turn.ledger.entries[id_].hold is not hold)
    if changed:
        turn.record(Amended(at_s=turn.now_s, workloads=changed, by=asked.by, hold=hold))
    if asked.verb is ControlVerb.RELEASE:
        _try_anew(turn, asked, ids)


def _try_anew(turn: Transaction, asked: ControlAsked, ids: tuple[WorkloadId, ...]) -> None:
    """Let those be tried at once that no site took."""
    entries = [turn.ledger.entries[id_] for id_ in ids]
    held = [entry for entry in entries if entry.state is WorkloadState.HELD]
    if held:
        found = tuple(entry.workload.id for entry in held)
        turn.record(Amended(at_s=turn.now_s, workloads=found, by=asked.by, try_anew=True))
    for entry in held:
        turn.change(entry, WorkloadEvent.RELEASED)


def cancel(turn: Transaction, asked: CancelAsked) -> None:
    """Cancel workloads; those that have ended meanwhile stay what they are."""
    done: list[WorkloadId] = []
    for id_ in asked.ids:
        if turn.change(turn.ledger.entries[id_], WorkloadEvent.CANCEL_ASKED, by=asked.by):
            done.append(id_)
    turn.commands.append(AnswerCancelled(client=asked.client, ids=tuple(done)))
