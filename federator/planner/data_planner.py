"""Plans where data sets should be, from the log: the catalogue, and which workloads used what.

It reads no clock and moves nothing; the daemon may make its moves, or only show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from msgspec.structs import replace as replace_fields

from federator.errors import InvalidRequest
from federator.model.data_placement import (
    MOST_MOVES,
    MOST_SETS,
    MOST_TOGETHER,
    DataPlacement,
    MovedSet,
    PlannedMove,
)
from federator.model.dataset import StorageDomain
from federator.model.event import DataRecord, DataSetKept, LogRecord, SnapshotData, SnapshotDone
from federator.planner.data_demand import DataDemand
from federator.planner.live_warehouse import GIB, Gpus, LiveWarehouse, live_warehouse
from federator.planner.tetris_bound import Certificate, certificate
from federator.planner.tetris_climb import Climb, TableMove
from federator.planner.tetris_cost import HomePlacement
from federator.planner.tetris_replicas import ReplicaPlan, ReplicaRules, plan_replicas
from federator.planner.tetris_search import plan_homes
from federator.planner.tetris_words import move_text, replica_text
from federator.sched.passes.data_copies import used_bytes
from federator.sched.state.catalogue import Catalogue
from federator.sched.state.data_moves import DataMoves

LASTS_S: Final = 3 * 3600.0  # a plan, until it expires
KICKS: Final = 2_000  # trials beyond hill climbing
STEPS: Final = 1_500  # of the prices of a certificate
HOT_FRAC: Final = 0.1  # of free room, for hot data sets
RULES: Final = ReplicaRules(recovery=False, hot_frac=HOT_FRAC)


class DataPlanner:
    """One planner; it follows the log.

    Args:
        domains: as configured; the first of two at one site is preferred.
        quota_bytes: that may be begun to be copied in any 24 hours.
        effort: trials and steps of a plan, as a part of the usual number.
    """

    def __init__(
        self, domains: Mapping[str, StorageDomain], quota_bytes: int, effort: float = 1.0
    ) -> None:
        self.catalogue = Catalogue()
        self.catalogue.domains = domains
        self._quota_bytes, self._effort = quota_bytes, effort
        self._demand = DataDemand()
        self._moves = DataMoves()

    def take(self, record: LogRecord) -> None:
        """Take the next record of the log in."""
        self._demand.take(record)
        if isinstance(record, DataRecord):
            self.catalogue.apply(record)
            if isinstance(record, DataSetKept):
                self._moves.apply(record)
        elif isinstance(record, SnapshotData):
            self.catalogue.restore(record.sets)
        elif isinstance(record, SnapshotDone):
            self._moves.restore(None, record.moves_begun)

    def plan(self, now_s: float, gpus: Gpus, lasts_s: float = LASTS_S) -> DataPlacement:
        """The plan of now; all that happened until now has been told.

        Args:
            now_s: Unix time.
            gpus: of each site, by type.
            lasts_s: until it expires.
        """
        nothing = DataPlacement(made_at_s=now_s, expires_at_s=now_s + lasts_s)
        live = live_warehouse(self.catalogue, self._demand.expected(now_s), gpus)
        if live is None:
            return nothing
        left_bytes = max(self._quota_bytes - self._moves.used_bytes(now_s), 0)
        quota_gib = left_bytes / GIB
        placement = HomePlacement(live.warehouse, live.weights)
        climb = plan_homes(placement, quota_gib, round(self._effort * KICKS), seed=0)
        proof = _certificate(live, placement, quota_gib, round(self._effort * STEPS))
        copies = self._copies(live, placement)
        moves = [self._home_move(live, move) for move in climb.moves]
        moves += self._further(live, copies)
        plan = replace_fields(
            nothing, moves=_within(moves, left_bytes), nowhere=len(copies.nowhere)
        )
        return _with_costs(plan, climb, proof, live)

    def _copies(self, live: LiveWarehouse, placement: HomePlacement) -> ReplicaPlan:
        """Further copies, in the room that the homes leave."""
        came = np.zeros(len(live.domains))
        moved = np.flatnonzero(placement.home != live.warehouse.tables.home)
        np.add.at(came, placement.home[moved], placement.gib[moved])
        regions = live.warehouse.regions
        room = np.maximum(regions.replica_gib - came, 0.0)
        warehouse = replace(live.warehouse, regions=replace(regions, replica_gib=room))
        then = HomePlacement(warehouse, live.weights)
        then.home = placement.home.copy()
        then.refresh()
        return plan_replicas(then, RULES, live.there)

    def _home_move(self, live: LiveWarehouse, move: TableMove) -> PlannedMove:
        return PlannedMove(
            sets=tuple(self._set(live, table, move.to) for table in move.tables),
            to=self._domain(live, move.tables, move.to),
            home=True,
            why=move_text(move, live.warehouse),
        )

    def _further(self, live: LiveWarehouse, copies: ReplicaPlan) -> list[PlannedMove]:
        return [
            PlannedMove(
                sets=(self._set(live, copy.table, copy.region),),
                to=self._domain(live, (copy.table,), copy.region),
                why=replica_text(copy, live.warehouse),
            )
            for copy in copies.replicas
        ]

    def _set(self, live: LiveWarehouse, table: int, region: int) -> MovedSet:
        of = live.sets[table]
        return MovedSet(of.name, of.version, 0 if live.there[table, region] else of.size_bytes)

    def _domain(self, live: LiveWarehouse, tables: tuple[int, ...], region: int) -> str:
        """The first of a region that has the data sets, or room for them; else the first."""
        names = live.domains[region]
        sets = [live.sets[table] for table in tables]
        for name in names:
            new = sum(of.size_bytes for of in sets if of.replica_in(name) is None)
            capacity = self.catalogue.domains[name].capacity_bytes
            if not new or not capacity or used_bytes(self.catalogue, name) + new <= capacity:
                return name
        return names[0]


def _within(moves: list[PlannedMove], left_bytes: int) -> tuple[PlannedMove, ...]:
    """As many of the first as one plan holds, and of these what fits what is left of the quota."""
    kept: list[PlannedMove] = []
    sets = 0
    for move in moves:
        sets += len(move.sets)
        if len(kept) >= MOST_MOVES or sets > MOST_SETS:
            break
        if move.size_bytes <= left_bytes and len(move.sets) <= MOST_TOGETHER:
            left_bytes -= move.size_bytes
            kept.append(move)
    return tuple(kept)


def _certificate(
    live: LiveWarehouse, plan: HomePlacement, quota_gib: float, steps: int
) -> Certificate:
    base = HomePlacement(live.warehouse, live.weights)
    try:
        return certificate(base, plan, quota_gib, steps=steps)
    except InvalidRequest:  # HiGHS is not installed: the prices alone are the proof
        return certificate(base, plan, quota_gib, steps=steps, lp=False)


def _with_costs(
    plan: DataPlacement, climb: Climb, proof: Certificate, live: LiveWarehouse
) -> DataPlacement:
    names = [each[0] for each in live.domains]
    prices = zip(names, proof.storage_price, strict=True)
    return replace_fields(
        plan,
        data_sets=len(live.sets),
        jobs=len(live.warehouse.jobs.names),
        cost_before=climb.before.total,
        cost_after=climb.after.total,
        bound=max(float(proof.bound), 0.0),
        waiting=climb.waiting,
        move_price=proof.move_price,
        storage_price={name: price for name, price in prices if price > 0},
    )
