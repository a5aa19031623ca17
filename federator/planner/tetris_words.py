"""Tells moves, copies and certificates in words, with their numbers."""

from __future__ import annotations

from math import inf

from federator.planner.tetris_bound import Certificate
from federator.planner.tetris_climb import LoadChange, TableMove
from federator.planner.tetris_replicas import PlannedReplica, ReplicaReason
from federator.planner.warehouse import Warehouse

_UNITS = ("MB", "GB", "TB", "PB", "EB")
_NAMED = 3
_PLAIN = 0.05  # of the load; less is left out


def size_text(gib: float) -> str:
    """412 GB: three digits, in powers of 1000."""
    amount = abs(gib) * 1.073741824e3
    unit = 0
    while amount >= 999.5 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    digits = 0 if amount >= 99.5 else 1
    return f"{amount:.{digits}f} {_UNITS[unit]}"


def move_text(move: TableMove, warehouse: Warehouse) -> str:
    """One line: what goes where, why, and what it costs."""
    names, regions = warehouse.tables.names, warehouse.regions.names
    what = ", ".join(names[t] for t in move.tables[:_NAMED])
    if (more := len(move.tables) - _NAMED) > 0:
        what += f" and {more} more"
    origins = "/".join(dict.fromkeys(regions[r] for r in move.origins))
    reasons = [*_reads(move), *_loads(move, warehouse), *_storage(move)]
    why = "; ".join(reasons) or _room(move)
    return f"{what}: {origins} -> {regions[move.to]}: {why}; {size_text(move.gib)} to move"


def _reads(move: TableMove) -> list[str]:
    better = [(name, gib) for name, gib in move.saved if gib > 0]
    worse = [(name, -gib) for name, gib in reversed(move.saved) if gib < 0]
    texts = []
    for word, found in (("saves", better), ("adds", worse)):
        for name, _ in found[:1]:
            also = f" and {len(found) - 1} others" if len(found) > 1 else ""
            total = sum(amount for _, amount in found)
            texts.append(f"{word} {size_text(total)}/day of remote reads for {name}{also}")
    return texts


def _loads(move: TableMove, warehouse: Warehouse) -> list[str]:
    named = [load for load in move.loads if abs(load.before - load.after) >= _PLAIN]
    return [_load(load, warehouse) for load in named[:2]]


def _load(load: LoadChange, warehouse: Warehouse) -> str:
    kind, region = warehouse.regions.gpu_types[load.gpu_type], warehouse.regions.names[load.region]
    if inf in (load.before, load.after):
        return (
            f"demand for {kind} {'comes to' if load.after else 'leaves'} {region}, which has none"
        )
    return f"{kind} demand of {region} {load.before:.2f} -> {load.after:.2f} of supply"


def _storage(move: TableMove) -> list[str]:
    gain = move.gain
    if gain.storage > 0 and gain.storage >= 0.5 * gain.total > 0:
        return ["storage is filled more evenly"]
    return []


def _room(move: TableMove) -> str:
    if move.gain.total > 0:
        return f"lowers the cost by {move.gain.total:.3g}"
    return "makes room for other moves"


def replica_text(copy: PlannedReplica, warehouse: Warehouse) -> str:
    """One line: which copy, why, and what it costs."""
    tables, jobs = warehouse.tables, warehouse.jobs
    whole = int(tables.partitions[copy.table])
    part = "" if copy.partitions == whole else f" (newest {copy.partitions} of {whole} partitions)"
    if copy.reason is ReplicaReason.NOWHERE:
        why = f"{jobs.names[copy.job]} of {jobs.tenants[copy.job]} can run nowhere without it"
    elif copy.reason is ReplicaReason.HOT:
        why = f"{copy.runs:.3g} runs/day on {warehouse.regions.gpu_types[copy.gpu_type]} read it"
    else:
        why = "a copy outside its home, for a disaster"
    where = warehouse.regions.names[copy.region]
    return f"{tables.names[copy.table]}{part} -> {where}: {why}; {size_text(copy.gib)} to copy"


def certificate_text(found: Certificate) -> str:
    """97.3 % of the best possible, and how that is known."""
    return (
        f"{100 * found.of_best_frac:.1f} % of the best possible: cost {found.base:.4g} -> "
        f"{found.plan:.4g}, and no placement within the quota is below {found.bound:.4g}"
    )
