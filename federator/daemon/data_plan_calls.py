"""Reads plans of where data sets should be, which are not believed, and shows the one in force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import isfinite
from typing import Final

from federator.config import FederationConfig
from federator.daemon.callers import Caller
from federator.errors import InvalidRequest
from federator.model.data_placement import (
    MOST_MOVES,
    MOST_SETS,
    MOST_TOGETHER,
    DataPlacement,
    DataPlanning,
    PlannedMove,
)
from federator.model.data_use import is_data_name, is_data_version
from federator.model.dataset import ReplicaState
from federator.model.message import DataPlacementAsked
from federator.model.workload import MAX_AMOUNT
from federator.sched.state.catalogue import Catalogue
from federator.sched.state.ledger import Ledger
from federator.wire.client_protocol import ErrorKind, ErrorReply
from federator.wire.data_rows import DataPlanReply, PlaceDataCall

MADE_WITHIN_S: Final = 3600.0
LASTS_AT_MOST_S: Final = 2 * 86_400.0
MOST_SKEW_S: Final = 60.0  # of the clocks of two processes
MOST_WHY: Final = 1_000  # characters
_SHOWN: Final = 64


def placement_asked(
    call: PlaceDataCall, client: int, config: FederationConfig, ledger: Ledger, now_s: float
) -> DataPlacementAsked:
    """Make the observation of a call.

    Args:
        call: of the planner.
        client: whom to answer.
        config: says whether plans are wanted, and names storage domains.
        ledger: has the plan that this one replaces.
        now_s: Unix time.

    Raises:
        InvalidRequest: the plan makes no sense, or no sense now; nothing of it is used.
    """
    if config.data.moving.planning is DataPlanning.OFF:
        raise InvalidRequest("data plan: data.planning is off in federation.yaml")
    before = ledger.data_moves.planned
    plan = call.plan
    _check_times(plan, None if before is None else before.plan, now_s)
    _check_amounts(plan, config.storage)
    if len(plan.moves) > MOST_MOVES:
        raise _refused("moves", f"at most {MOST_MOVES}", len(plan.moves))
    if sum(len(move.sets) for move in plan.moves) > MOST_SETS:
        raise _refused("moves", f"at most {MOST_SETS} data sets in all", "")
    seen: set[tuple[str, str, str]] = set()
    homes: set[tuple[str, str]] = set()
    for number, move in enumerate(plan.moves):
        _check_move(f"moves[{number}]", move, config.storage, seen)
        if move.home:
            _check_homes(f"moves[{number}]", move, homes)
    return DataPlacementAsked(client=client, plan=plan)


def _check_times(plan: DataPlacement, before: DataPlacement | None, now_s: float) -> None:
    if not (isfinite(plan.made_at_s) and now_s - MADE_WITHIN_S <= plan.made_at_s):
        raise _refused("made_at_s", "a time within the last hour", plan.made_at_s)
    if plan.made_at_s > now_s + MOST_SKEW_S:
        raise _refused("made_at_s", "no time to come", plan.made_at_s)
    if before is not None and before.holds(now_s) and plan.made_at_s <= before.made_at_s:
        raise _refused("made_at_s", f"later than the plan in force ({before.made_at_s:.0f})", "")
    if not plan.made_at_s < plan.expires_at_s <= plan.made_at_s + LASTS_AT_MOST_S:
        raise _refused("expires_at_s", "within two days from made_at_s", plan.expires_at_s)
    if not plan.holds(now_s):
        raise _refused("expires_at_s", "a time to come", plan.expires_at_s)


def _check_amounts(plan: DataPlacement, domains: Collection[str]) -> None:
    bound = () if plan.bound is None else (plan.bound,)
    prices = plan.storage_price
    for number in (plan.cost_before, plan.cost_after, plan.move_price, *prices.values(), *bound):
        if not 0 <= number <= MAX_AMOUNT:  # NaN fails too
            raise _refused("costs and prices", f"numbers from 0 to {MAX_AMOUNT}", number)
    for count in (plan.data_sets, plan.jobs, plan.waiting, plan.nowhere):
        if not 0 <= count <= MAX_AMOUNT:
            raise _refused("counts", f"numbers from 0 to {MAX_AMOUNT}", count)
    for name in prices:
        if name not in domains:
            raise _refused("storage_price", "storage domains of federation.yaml", name)


def _check_move(
    at: str, move: PlannedMove, domains: Collection[str], seen: set[tuple[str, str, str]]
) -> None:
    if move.to not in domains:
        raise _refused(f"{at}.to", "a storage domain of federation.yaml", move.to)
    if not 1 <= len(move.sets) <= MOST_TOGETHER:
        raise _refused(f"{at}.sets", f"1 to {MOST_TOGETHER} data sets", len(move.sets))
    if len(move.why) > MOST_WHY or not move.why.isprintable():
        raise _refused(f"{at}.why", f"one line of at most {MOST_WHY} characters", "")
    for each in move.sets:
        if not is_data_name(each.name) or not is_data_version(each.version):
            raise _refused(f"{at}.sets", "names and versions of data sets", each.name)
        if not 0 <= each.size_bytes <= MAX_AMOUNT:
            raise _refused(f"{at}.sets", f"sizes from 0 to {MAX_AMOUNT}", each.size_bytes)
        key = each.name, each.version, move.to
        if key in seen:
            raise _refused(at, "each data set and storage domain once", each.name)
        seen.add(key)


def _check_homes(at: str, move: PlannedMove, homes: set[tuple[str, str]]) -> None:
    """A data set with two would move from one to the other for ever."""
    for each in move.sets:
        if (each.name, each.version) in homes:
            raise _refused(at, "one home of each data set", each.name)
        homes.add((each.name, each.version))


def _refused(where: str, expected: str, found: object) -> InvalidRequest:
    shown = f", found {str(found)[:_SHOWN]!r}" if found != "" else ""
    return InvalidRequest(f"data plan: {where}: expected {expected}{shown}")


# ---- shown ----


def shown_plan(
    caller: Caller, config: FederationConfig, ledger: Ledger, now_s: float
) -> DataPlanReply | ErrorReply:
    """The plan in force and how far it is, for those who see all data sets."""
    if not (caller.operator or caller.viewer):
        message = f"{caller.user} may not see the plan of all data sets; ask an operator"
        return ErrorReply(message=message, kind=ErrorKind.DENIED)
    moving, moves, catalogue = config.data.moving, ledger.data_moves, ledger.catalogue
    planned = moves.planned
    plan = None if planned is None or not planned.plan.holds(now_s) else planned.plan
    progress = [_progress(move, catalogue) for move in (() if plan is None else plan.moves)]
    return DataPlanReply(
        planning=moving.planning.value,
        plan=plan,
        progress=tuple(progress),
        quota_bytes=moving.quota_bytes,
        moved_bytes=moves.used_bytes(now_s),
        now_s=now_s,
    )


def _progress(move: PlannedMove, catalogue: Catalogue) -> tuple[int, int]:
    sets = (catalogue.find(each.name, each.version) for each in move.sets)
    replicas = (None if of is None else of.replica_in(move.to) for of in sets)
    states = Counter(replica.state for replica in replicas if replica is not None)
    return states[ReplicaState.READY], states[ReplicaState.COPYING]
