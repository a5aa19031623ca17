"""Carries out plans of where data sets should be: as copies, oldest plan first, within a quota.

A move is a copy; once that is whole, the data set's home is there, if the plan says so. What was
there before stays. Each copy is begun by one record, which also counts it in the day's quota: so a
daemon that takes over goes on with what was begun, and begins nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from federator.model.data_placement import DataPlanning, MovedSet, PlannedMove
from federator.model.dataset import (
    MOST_REPLICAS,
    CopyPhase,
    DataCopy,
    DataSet,
    ReplicaState,
    home_of,
)
from federator.model.event import DataPlanned, DataSetKept
from federator.model.message import AnswerPlanned, DataPlacementAsked
from federator.sched.passes.data_copies import (
    PLANNED_TRIES,
    copy_refusal,
    source_of,
    used_bytes,
    with_copy,
)
from federator.sched.passes.transaction import Transaction

AT_ONCE: Final = 1  # copies by plans to one domain: the others are for users, and jobs that wait


def take_data_plan(turn: Transaction, asked: DataPlacementAsked) -> None:
    """Put a plan in place of the one before, and begin what may be begun of it."""
    turn.record(DataPlanned(at_s=turn.now_s, plan=asked.plan))
    turn.commands.append(AnswerPlanned(client=asked.client))
    move_data(turn)


def move_data(turn: Transaction) -> None:
    """Begin the copies of the plan in force that may begin now."""
    ledger, moving = turn.ledger, turn.rules.moving
    planned = ledger.data_moves.planned
    if moving.planning is not DataPlanning.AUTOMATIC or planned is None:
        return
    if not planned.plan.holds(turn.now_s) or not planned.plan.moves:
        return
    busy = Counter(
        replica.domain
        for _, replica in ledger.catalogue.copies()
        if replica.copy is not None
        and replica.copy.planned
        and (replica.copy.phase is not CopyPhase.FAILED or replica.copy.tries < PLANNED_TRIES)
    )
    left = moving.quota_bytes - ledger.data_moves.used_bytes(turn.now_s)
    for move, each in _to_do(planned.plan.moves):
        if move.to not in ledger.catalogue.domains or busy[move.to] >= AT_ONCE:
            continue
        of = ledger.catalogue.find(each.name, each.version)
        if of is None or _is_there(turn, of, move):
            continue
        after = _begun(turn, of, move) if of.size_bytes <= left else None
        if after is None:
            continue
        turn.record(DataSetKept(at_s=turn.now_s, kept=after, moved_to=move.to))
        busy[move.to] += 1
        left -= of.size_bytes


def _to_do(moves: tuple[PlannedMove, ...]) -> Iterator[tuple[PlannedMove, MovedSet]]:
    for move in moves:
        for each in move.sets:
            yield move, each


def _is_there(turn: Transaction, of: DataSet, move: PlannedMove) -> bool:
    """Whether it has a whole replica there; its home is there then, if that is planned."""
    replica = of.replica_in(move.to)
    if replica is None or replica.state is not ReplicaState.READY:
        return False
    if move.home and home_of(of) != move.to:
        kept = replace(of, home=move.to)
        turn.record(DataSetKept(at_s=turn.now_s, kept=kept, moved_to=move.to))
    return True


def _begun(turn: Transaction, of: DataSet, move: PlannedMove) -> DataSet | None:
    """The data set with the copy under way; None: it may not be begun."""
    ledger = turn.ledger
    catalogue = ledger.catalogue
    if of.replica_in(move.to) is not None or len(of.replicas) >= MOST_REPLICAS:
        return None  # it is on its way, or lost there, which is for people to look at
    if not of.size_bytes:
        return None
    if ledger.data_moves.was_begun(of.name, of.version, move.to, turn.now_s):
        return None  # somebody has taken it out again, or it cannot be made
    if copy_refusal(of, move.to, catalogue.domains, used_bytes(catalogue, move.to)) is not None:
        return None
    source = source_of(of, move.to, catalogue.domains)
    if source is None or catalogue.in_the_way(of, move.to, source.path):
        return None
    copy = DataCopy(by="", asked_at_s=turn.now_s, planned=True, becomes_home=move.home)
    return with_copy(of, move.to, source.path, copy)
