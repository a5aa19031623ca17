"""Makes a warehouse of the catalogue, of what workloads used, and of the GPUs of sites.

- A region is a storage domain that sites mount; those of the same sites are one. What has its home
  in an object store is not planned. The GPUs of a site count
  where its first domain is, as federation.yaml orders them.
- A table is a data set that a mover could copy: sealed, of known size, whole somewhere. Its home is
  that of the catalogue, or where a copy that becomes its home is on its way to.
- A job is a kind of workloads. It runs where all its data is, so it is a training job; without a
  common region all of its data would have to be brought to it.
- A kind that copies let run already, away from homes, is no job: its GPU hours are taken off
  the supply of the region where it runs. So is nothing planned for what is well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from federator.model.dataset import DataClass, DataSet, ReplicaState, home_of
from federator.planner.data_demand import ExpectedUse
from federator.planner.tetris_cost import HomePlacement, TetrisWeights
from federator.planner.warehouse import (
    F64,
    LEVELS,
    NONE,
    Bools,
    Index,
    PlannedJobs,
    Regions,
    Tables,
    Warehouse,
)
from federator.sched.passes.data_copies import COPYABLE, used_bytes
from federator.sched.state.catalogue import Catalogue

GIB: Final = 2**30
HOURS: Final = 24.0
_LEAST_GIB: Final = 1e-3
_GONE: Final = frozenset({ReplicaState.LOST, ReplicaState.RETIRED})

Gpus = Mapping[str, Mapping[str, int]]
"""GPUs by site and type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWarehouse:
    """A warehouse, and what its numbers mean in the catalogue.

    Attributes:
        warehouse: the problem.
        sets: (T,) data sets.
        domains: (R,) of each region its storage domains, the preferred ones first.
        there: (T, R) a whole replica is there, or on its way.
        weights: of the terms.
    """

    warehouse: Warehouse
    sets: Sequence[DataSet]
    domains: Sequence[Sequence[str]]
    there: Bools
    weights: TetrisWeights


def live_warehouse(
    catalogue: Catalogue, expected: Iterable[ExpectedUse], gpus: Gpus
) -> LiveWarehouse | None:
    """The warehouse of now; None: there is nothing to be planned."""
    domains = _regions_of(catalogue)
    region_of = {name: row for row, names in enumerate(domains) for name in names}
    types = sorted({kind for of_site in gpus.values() for kind, count in of_site.items() if count})
    supply = _supply(catalogue, region_of, types, gpus, len(domains))
    uses = [use for use in expected if use.runs > 0 and _are_planned(catalogue, use, region_of)]
    keys = sorted({(each.name, each.version) for use in uses for each in use.kind.sets})
    sets = [of for key in keys if (of := catalogue.find(*key)) is not None]
    if not domains or not sets:
        return None
    row_of = {(of.name, of.version): row for row, of in enumerate(sets)}
    home = np.array([region_of[_home(of)] for of in sets], dtype=np.intp)
    there = _there(sets, region_of, len(domains))
    there[np.arange(len(sets)), home] = True
    jobs = _Jobs(home, there, supply, types)
    for use in uses:
        jobs.add(use, sorted({row_of[each.name, each.version] for each in use.kind.sets}))
    if not jobs.kept:
        return None
    gib = np.array([of.size_bytes / GIB for of in sets])
    warehouse = Warehouse(
        regions=_regions(catalogue, domains, types, jobs.supply, (gib, home)),
        tables=Tables(
            names=tuple(of.label for of in sets),
            gib=gib,
            partitions=np.ones(len(sets), dtype=np.intp),
            home=home,
        ),
        jobs=jobs.planned(),
    ).checked()
    weights = _weights(warehouse)
    return LiveWarehouse(
        warehouse=warehouse, sets=sets, domains=domains, there=there, weights=weights
    )


def _regions_of(catalogue: Catalogue) -> list[list[str]]:
    by_sites: dict[frozenset[str], list[str]] = {}
    for name, domain in catalogue.domains.items():
        if not domain.mounts:
            continue
        by_sites.setdefault(frozenset(domain.mounts), []).append(name)
    return list(by_sites.values())


def _supply(
    catalogue: Catalogue,
    region_of: Mapping[str, int],
    types: Sequence[str],
    gpus: Gpus,
    regions: int,
) -> F64:
    """(R, G) GPU hours a day."""
    supply = np.zeros((regions, len(types)))
    seen: set[str] = set()
    for name, domain in catalogue.domains.items():
        for site in domain.mounts:
            if site in seen:
                continue
            seen.add(site)
            for kind, count in gpus.get(site, {}).items():
                if count > 0:
                    supply[region_of[name], types.index(kind)] += HOURS * count
    return supply


def _are_planned(catalogue: Catalogue, use: ExpectedUse, region_of: Mapping[str, int]) -> bool:
    """Whether it may have all its data sets, and the mover could copy them."""
    found = [(each, catalogue.find(each.name, each.version)) for each in use.kind.sets]
    return all(
        of is not None
        and each.may_have(of)
        and of.kind is not DataClass.SCRATCH
        and of.digest.startswith(COPYABLE)
        and of.size_bytes > 0
        and _home(of) in region_of
        for each, of in found
    )


def _home(of: DataSet) -> str:
    for replica in of.replicas:
        if replica.copy is not None and replica.copy.becomes_home:
            return replica.domain
    return home_of(of)


def _there(sets: Sequence[DataSet], region_of: Mapping[str, int], regions: int) -> Bools:
    there = np.zeros((len(sets), regions), dtype=np.bool_)
    for row, of in enumerate(sets):
        for replica in of.replicas:
            if replica.state not in _GONE and replica.domain in region_of:
                there[row, region_of[replica.domain]] = True
    return there


class _Jobs:
    """The kinds that are planned for, as they are added."""

    def __init__(self, home: Index, there: Bools, supply: F64, types: Sequence[str]) -> None:
        self._home, self._there, self._types = home, there, types
        self.supply = supply.copy()
        self._all = supply.sum(axis=0)
        self.kept: list[tuple[ExpectedUse, int, list[int]]] = []

    def add(self, use: ExpectedUse, rows: list[int]) -> None:
        """Take a kind in, unless copies let it run away from homes already."""
        kind = self._type_of(use)
        fits: Bools = np.logical_and.reduce(self._there[rows], axis=0)
        if kind != NONE:
            fits &= self.supply[:, kind] > 0
        homes = set(self._home[rows].tolist())
        at_home = len(homes) == 1 and bool(fits[next(iter(homes))])
        if fits.any() and not at_home:
            if kind != NONE:
                best = int(np.where(fits, self.supply[:, kind], -1.0).argmax())
                left = self.supply[best, kind] - use.gpu_h
                self.supply[best, kind] = max(float(left), HOURS)  # the type is there
            return
        self.kept.append((use, kind, rows))

    def _type_of(self, use: ExpectedUse) -> int:
        """The type to plan for: of those that it takes the one of which there is most."""
        if use.gpu_h <= 0 or not len(self._types):
            return NONE
        named = [self._types.index(name) for name in use.kind.gpu_types if name in self._types]
        if use.kind.gpu_types and not named:
            return NONE  # no site has any
        return max(named or range(len(self._types)), key=lambda kind: float(self._all[kind]))

    def planned(self) -> PlannedJobs:
        """All of them."""
        uses = [use for use, _, _ in self.kept]
        kinds = np.array([kind for _, kind, _ in self.kept], dtype=np.intp)
        count = len(uses)
        edges = [row for _, _, rows in self.kept for row in rows]
        return PlannedJobs(
            names=tuple(f"{use.kind.tenant}/{number}" for number, use in enumerate(uses)),
            tenants=tuple(use.kind.tenant for use in uses),
            training=np.ones(count, dtype=np.bool_),
            priority=np.array([min(max(u.kind.priority, 1), LEVELS) for u in uses], dtype=np.intp),
            gpu_type=kinds,
            gpu_h=np.where(kinds == NONE, 0.0, np.array([use.gpu_h for use in uses])),
            app=np.full(count, NONE, dtype=np.intp),
            cpu_h=np.zeros(count),
            runs=np.array([use.runs for use in uses]),
            weight=np.ones(count),
            first=np.cumsum([0, *(len(rows) for _, _, rows in self.kept)]).astype(np.intp),
            tables=np.array(edges, dtype=np.intp),
            reads=np.zeros(len(edges), dtype=np.intp),
        )


def _regions(
    catalogue: Catalogue,
    domains: Sequence[Sequence[str]],
    types: Sequence[str],
    supply: F64,
    homes: tuple[F64, Index],
) -> Regions:
    gib, home = homes
    everything = 2 * sum(of.size_bytes for of in catalogue) / GIB
    free = []
    for names in domains:
        rooms = [
            max(catalogue.domains[n].capacity_bytes - used_bytes(catalogue, n), 0) / GIB
            if catalogue.domains[n].capacity_bytes
            else everything
            for n in names
        ]
        free.append(sum(rooms))
    at_home = np.zeros(len(domains))
    np.add.at(at_home, home, gib)
    return Regions(
        names=tuple(names[0] for names in domains),
        gpu_types=tuple(types),
        gpu_h=supply,
        storage_gib=np.maximum(at_home + np.array(free), _LEAST_GIB),
        replica_gib=np.array(free),
    )


def _weights(warehouse: Warehouse) -> TetrisWeights:
    """100 is the cost of reading everything remotely; balance counts beside it."""
    job_gib = HomePlacement(warehouse, TetrisWeights()).job_gib
    reads = float((warehouse.job_weights() * job_gib).sum())
    supply = warehouse.regions.gpu_h
    unit = float(supply[supply > 0].mean()) if (supply > 0).any() else 1.0
    return TetrisWeights(
        remote=100 / max(reads, 1e-9),
        gpus=1.0,
        storage=1.0,
        overload_unit_gpu_h=max(unit, 1.0),
        needs_gpus=True,
    )
