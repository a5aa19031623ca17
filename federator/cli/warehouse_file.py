"""Reads a warehouse from JSON (docs/formats.md): regions, tables, and the jobs that read them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct

from federator.cli.json_file import brief, read_json
from federator.errors import InvalidRequest
from federator.planner.tetris_cost import TetrisWeights
from federator.planner.warehouse import LEVELS, NONE, PlannedJobs, Regions, Tables, Warehouse

_MOST: Final = 1_000_000  # of anything in one file


class RegionInFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A region, with hours a day."""

    name: str
    storage_gib: float
    replica_gib: float = 0.0
    gpu_h: dict[str, float] = {}
    cpu_h: dict[str, float] = {}


class TableInFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A table."""

    name: str
    gib: float
    home: str
    partitions: int = 1


class JobInFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A recurring job; ``tables``: with the newest partitions that it reads, 0 for all."""

    name: str
    tables: dict[str, int]
    tenant: str = ""
    training: bool = True
    priority: int = LEVELS
    gpu_type: str = ""
    gpu_h: float = 0.0
    app: str = ""
    cpu_h: float = 0.0
    runs: float = 1.0
    weight: float = 1.0


class WeightsInFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The administrator's weights; by default a cost counts GiB a day that are read remotely."""

    remote: float = 1.0
    gpus: float = 1.0
    storage: float = 1.0
    levels: tuple[float, ...] = (1.0,) * LEVELS
    overload: bool = True
    overload_unit_gpu_h: float = 1.0
    high_priority: int = 2
    home_gpu_h: float = 0.0


class WarehouseFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    regions: list[RegionInFile]
    tables: list[TableInFile]
    jobs: list[JobInFile]
    weights: WeightsInFile = WeightsInFile()


def read_warehouse(path: Path) -> tuple[Warehouse, TetrisWeights]:
    """The warehouse of a file, and its weights.

    Raises:
        InvalidRequest: one line with the file, and what was expected.
    """
    kinds: dict[str, type[Struct]] = {
        "": WarehouseFile,
        "regions": RegionInFile,
        "tables": TableInFile,
        "jobs": JobInFile,
        "weights": WeightsInFile,
    }
    found = read_json(path, WarehouseFile, kinds)
    try:
        return _warehouse(found), _weights(found.weights)
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}: {error}") from error


def _weights(given: WeightsInFile) -> TetrisWeights:
    amounts = (given.remote, given.gpus, given.storage, given.home_gpu_h, *given.levels)
    if len(given.levels) != LEVELS or not all(0 <= amount < inf for amount in amounts):
        raise InvalidRequest(f"weights: expected numbers from 0, and {LEVELS} of them in levels")
    if not 0 < given.overload_unit_gpu_h < inf:
        raise InvalidRequest("weights: overload_unit_gpu_h: expected a number above 0")
    return TetrisWeights(**{name: getattr(given, name) for name in given.__struct_fields__})


def _warehouse(found: WarehouseFile) -> Warehouse:
    regions = _numbers([region.name for region in found.regions], "regions")
    tables = _numbers([table.name for table in found.tables], "tables")
    _numbers([job.name for job in found.jobs], "jobs")
    types = _numbers(sorted({t for r in found.regions for t in r.gpu_h}), "gpu_h")
    apps = _numbers(sorted({a for r in found.regions for a in r.cpu_h}), "cpu_h")
    return Warehouse(
        regions=_regions(found.regions, types, apps),
        tables=Tables(
            names=tuple(tables),
            gib=np.array([table.gib for table in found.tables]),
            partitions=_index([table.partitions for table in found.tables], "partitions"),
            home=_index([_of(regions, t.home, t.name, "region") for t in found.tables], "home"),
        ),
        jobs=_jobs(found.jobs, tables, types, apps),
    ).checked()


def _index(numbers: Sequence[int], what: str) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    if any(abs(number) >= 2**31 for number in numbers):
        raise InvalidRequest(f"{what}: expected smaller numbers")
    return np.array(numbers, dtype=np.intp)


def _regions(given: list[RegionInFile], types: dict[str, int], apps: dict[str, int]) -> Regions:
    return Regions(
        names=tuple(region.name for region in given),
        gpu_types=tuple(types),
        gpu_h=np.array([[r.gpu_h.get(kind, 0.0) for kind in types] for r in given]).reshape(
            len(given), len(types)
        ),
        storage_gib=np.array([region.storage_gib for region in given]),
        replica_gib=np.array([region.replica_gib for region in given]),
        apps=tuple(apps),
        cpu_h=np.array([[r.cpu_h.get(app, inf) for r in given] for app in apps]).reshape(
            len(apps), len(given)
        ),
    )


def _jobs(
    given: list[JobInFile], tables: dict[str, int], types: dict[str, int], apps: dict[str, int]
) -> PlannedJobs:
    read = [[_of(tables, t, job.name, "table") for t in job.tables] for job in given]
    return PlannedJobs(
        names=tuple(job.name for job in given),
        tenants=tuple(job.tenant for job in given),
        training=np.array([job.training for job in given], dtype=bool),
        priority=_index([job.priority for job in given], "priority"),
        gpu_type=_index([_or_none(types, j.gpu_type, j.name, "gpu_type") for j in given], ""),
        gpu_h=np.array([job.gpu_h for job in given]),
        app=_index([_or_none(apps, job.app, job.name, "app") for job in given], "app"),
        cpu_h=np.array([job.cpu_h for job in given]),
        runs=np.array([job.runs for job in given]),
        weight=np.array([job.weight for job in given]),
        first=np.cumsum([0, *map(len, read)]).astype(np.intp),
        tables=_index([table for own in read for table in own], "tables"),
        reads=_index([count for job in given for count in job.tables.values()], "reads"),
    )


def _numbers(names: list[str], what: str) -> dict[str, int]:
    """Names with their numbers, each once and fit for a terminal."""
    if len(names) > _MOST:
        raise InvalidRequest(f"{what}: {len(names)}, more than {_MOST}")
    found = {name: number for number, name in enumerate(names)}
    for name in names:
        if not name or len(name) > 255 or not name.isprintable():
            raise InvalidRequest(f"{what}: {brief(name)!r} is no name")
    if len(found) < len(names):
        twice = next(name for number, name in enumerate(names) if found[name] != number)
        raise InvalidRequest(f"{what}: {brief(twice)!r} is there twice")
    return found


def _of(known: dict[str, int], name: str, whose: str, what: str) -> int:
    if name not in known:
        raise InvalidRequest(f"{brief(whose)!r}: no {what} {brief(name)!r} is in the file")
    return known[name]


def _or_none(known: dict[str, int], name: str, whose: str, what: str) -> int:
    return _of(known, name, whose, what) if name else NONE
