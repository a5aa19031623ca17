"""Plans further copies of tables: for disasters, for jobs that fit nowhere, and of hot tables.

Source:
    MAST (OSDI'24) sec. 3.5. Chosen where the paper is silent: room for copies is apart from that
    for homes. A disaster's copy goes where the readers' types of GPU are, then where most room is
    left. Jobs that fit nowhere come by priority, then by GPU hours; of the regions with their type
    those with the most supply are tried first. Hotness is runs a day. ``hot_frac`` of what room is
    left is for hot tables, split by the supply of each type.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from federator.planner.tetris_cost import HomePlacement
from federator.planner.warehouse import LEVELS, NONE, Bools, Index


class ReplicaReason(Enum):
    RECOVERY = "copy for a disaster"
    NOWHERE = "for a job that fits nowhere"
    HOT = "hot"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRules:
    """Attributes: which copies are made; ``partly``: only the partitions that jobs read."""

    recovery: bool = True
    nowhere: bool = True
    hot_frac: float = 0.5
    partly: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReplica:
    """A copy to make.

    Attributes:
        partitions: the newest ones; as many as the table has: all.
        job: for which it is made, else ``NONE``.
        gpu_type: for which it is hot, else ``NONE``.
        runs: a day, of the jobs that it is hot for.
    """

    table: int
    region: int
    partitions: int
    gib: float
    reason: ReplicaReason
    job: int = NONE
    gpu_type: int = NONE
    runs: float = 0.0


@dataclass(slots=True, kw_only=True)
class ReplicaPlan:
    """Attributes: copies in the order to make them; (T, R) newest partitions that are there then;
    jobs that still fit nowhere."""

    replicas: list[PlannedReplica]
    held: Index
    nowhere: list[int]

    @property
    def gib(self) -> float:
        return sum(replica.gib for replica in self.replicas)


def runnable(placement: HomePlacement, held: Index) -> Bools:
    """(J, R): that region has all partitions that the job reads, and its type of GPU.

    Args:
        placement: of the jobs.
        held: (T, R) newest partitions of each table in each region.
    """
    jobs, need = placement.warehouse.jobs, _need(placement)
    there = held[jobs.tables] >= need[:, None]
    found: Bools = np.logical_and.reduceat(there, jobs.first[:-1], axis=0)
    users = np.flatnonzero(jobs.gpu_type != NONE)
    found[users] &= placement.warehouse.regions.gpu_h[:, jobs.gpu_type[users]].T > 0
    return found


def _need(placement: HomePlacement) -> Index:
    """(E,) partitions that each job reads of each table."""
    jobs = placement.warehouse.jobs
    whole = placement.warehouse.tables.partitions[jobs.tables]
    need: Index = np.where(jobs.reads == 0, whole, np.minimum(jobs.reads, whole))
    return need


def homes_held(placement: HomePlacement) -> Index:
    """(T, R) partitions, with homes alone."""
    tables = placement.warehouse.tables
    held = np.zeros((len(tables.gib), len(placement.stored_gib)), dtype=np.intp)
    held[np.arange(len(held)), placement.home] = tables.partitions
    return held


def plan_replicas(
    placement: HomePlacement, rules: ReplicaRules, there: Bools | None = None
) -> ReplicaPlan:
    """Copies for homes as they are placed; what is needed by high priority first.

    Args:
        placement: the homes.
        rules: which copies are made.
        there: (T, R) the whole table is there anyhow, as a copy; None: only homes are.
    """
    replicas = _Replicas(placement, rules)
    if there is not None:
        whole = placement.warehouse.tables.partitions[:, None]
        replicas.held = np.maximum(replicas.held, np.where(there, whole, 0))
    if rules.recovery:
        replicas.recovery()
    if rules.nowhere:
        replicas.nowhere()
    replicas.hot(rules.hot_frac)
    fits = runnable(placement, replicas.held).any(axis=1)
    rest = np.flatnonzero(placement.warehouse.jobs.training & ~fits)
    return ReplicaPlan(
        replicas=replicas.ordered(), held=replicas.held, nowhere=[int(job) for job in rest]
    )


class _Replicas:
    def __init__(self, placement: HomePlacement, rules: ReplicaRules) -> None:
        self._at, self._rules = placement, rules
        self._tables, self._jobs = placement.warehouse.tables, placement.warehouse.jobs
        self.supply = placement.warehouse.regions.gpu_h
        self.room = placement.warehouse.regions.replica_gib.copy()
        self.held = homes_held(placement)
        self._made: list[PlannedReplica] = []
        self._need = _need(placement)
        jobs = placement.warehouse.edge_jobs()
        n_types = self.supply.shape[1]
        self._runs = np.zeros((len(self.held), n_types))  # of jobs of a type that read a table
        self._parts = np.zeros((len(self.held), n_types), dtype=np.intp)
        users = np.flatnonzero(self._jobs.gpu_type[jobs] != NONE)
        pairs = (self._jobs.tables[users], self._jobs.gpu_type[jobs[users]])
        np.add.at(self._runs, pairs, self._jobs.runs[jobs[users]])
        np.maximum.at(self._parts, pairs, self._need[users])

    def _gib(self, table: int, partitions: int, region: int) -> float:
        """To copy so that so many of the newest partitions are there."""
        more = max(partitions - int(self.held[table, region]), 0)
        return float(self._tables.gib[table]) * more / int(self._tables.partitions[table])

    def _make(self, copy: PlannedReplica) -> None:
        self._made.append(copy)
        self.held[copy.table, copy.region] = copy.partitions
        self.room[copy.region] -= copy.gib

    def recovery(self) -> None:
        """A whole copy of each table outside its home; the most used tables first."""
        uses = self._runs > 0
        fits = uses.astype(float) @ (self.supply > 0).T.astype(float)  # (T, R)
        size = self._at.warehouse.regions.replica_gib
        for table in np.argsort(-self._runs.sum(axis=1), kind="stable").tolist():
            gib = float(self._tables.gib[table])
            open_to = (self.room >= gib) & (np.arange(len(size)) != self._at.home[table])
            if open_to.any():
                worth = fits[table] + self.room / np.maximum(size, 1e-12)
                region = int(np.where(open_to, worth, -1.0).argmax())
                self._make(
                    PlannedReplica(
                        table=table,
                        region=region,
                        partitions=int(self._tables.partitions[table]),
                        gib=gib,
                        reason=ReplicaReason.RECOVERY,
                    )
                )

    def nowhere(self) -> None:
        """What a job lacks in the first region that has its type of GPU, and the room."""
        jobs = self._jobs
        rows = np.flatnonzero(jobs.training & ~runnable(self._at, self.held).any(axis=1))
        order = np.lexsort((-jobs.gpu_h[rows], jobs.priority[rows]))
        for job in rows[order].tolist():
            for region in self._regions_of(job):
                copies = self._lacking(job, region)
                if sum(copy.gib for copy in copies) <= self.room[region]:
                    for copy in copies:
                        self._make(copy)
                    break

    def _regions_of(self, job: int) -> list[int]:
        kind = int(self._jobs.gpu_type[job])
        supply = self.supply.sum(axis=1) if kind == NONE else self.supply[:, kind]
        order = np.argsort(-supply, kind="stable")
        return [int(region) for region in order if kind == NONE or supply[region] > 0]

    def _lacking(self, job: int, region: int) -> list[PlannedReplica]:
        copies = []
        for edge in range(int(self._jobs.first[job]), int(self._jobs.first[job + 1])):
            table, need = int(self._jobs.tables[edge]), int(self._need[edge])
            if not self._rules.partly:
                need = int(self._tables.partitions[table])
            if self.held[table, region] < need:
                copies.append(
                    PlannedReplica(
                        table=table,
                        region=region,
                        partitions=need,
                        gib=self._gib(table, need, region),
                        reason=ReplicaReason.NOWHERE,
                        job=job,
                    )
                )
        return copies

    def hot(self, frac: float) -> None:
        """The hottest tables of each type in each region, up to the type's share of its room."""
        total = np.maximum(self.supply.sum(axis=1), 1e-12)
        quota = frac * self.room[:, None] * self.supply / total[:, None]
        for kind in range(self.supply.shape[1]):
            order = np.argsort(-self._runs[:, kind], kind="stable")
            hot = order[self._runs[order, kind] > 0].tolist()
            for region in np.flatnonzero(quota[:, kind] > 0).tolist():
                self._fill(hot, kind, region, float(quota[region, kind]))

    def _fill(self, hot: list[int], kind: int, region: int, left_gib: float) -> None:
        for table in hot:
            whole = int(self._tables.partitions[table])
            need = int(self._parts[table, kind]) if self._rules.partly else whole
            gib = self._gib(table, need, region)
            if gib > left_gib:
                return  # as far as the quota goes
            if gib > 0:
                left_gib -= gib
                self._make(
                    PlannedReplica(
                        table=table,
                        region=region,
                        partitions=need,
                        gib=gib,
                        reason=ReplicaReason.HOT,
                        gpu_type=kind,
                        runs=float(self._runs[table, kind]),
                    )
                )

    def ordered(self) -> list[PlannedReplica]:
        """By the highest priority that reads the table; jobs that fit nowhere first."""
        level = np.full(len(self.held), LEVELS + 1)
        np.minimum.at(level, self._jobs.tables, self._jobs.priority[self._at.warehouse.edge_jobs()])
        last = {ReplicaReason.NOWHERE: 0, ReplicaReason.HOT: 1, ReplicaReason.RECOVERY: 1}
        return sorted(self._made, key=lambda copy: (last[copy.reason], level[copy.table]))
