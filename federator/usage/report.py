"""Makes a report of usage from sums by day, the supply and the prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from federator.model.prices import PriceList, Rates
from federator.usage.classes import FREE, HELD, TimeClass
from federator.usage.days import DAY_MS, MEASURES
from federator.usage.prices import cost
from federator.usage.rows import FLAG_NAMES, TIER, UsageReport, UsageRow
from federator.usage.supply import CellKey, Supplied, free_time

OF_SUPPLY: Final = frozenset({"day", "site", "gpu_type"})
"""What idle time can be told by: nobody owns it."""
_PRICED: Final = ("site", "partition", "gpu_type")
_HELD_AT: Final = tuple(MEASURES.index(f"{each.value}_gpu_ms") for each in HELD)
_LAUNCHING_AT: Final = MEASURES.index("launching_gpu_ms")
_STEPS_AT: Final = MEASURES.index("productive_gpu_ms")
_UNKNOWN_AT: Final = MEASURES.index("unknown_gpu_ms")
_FLAGS_AT: Final = {name: MEASURES.index(f"{name}_flags") for name in FLAG_NAMES}
_COST_AT: Final = (MEASURES.index("cpu_ms"), MEASURES.index("mem_mib_s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFound:
    """What the history has of a time.

    ``columns`` names the parts of the keys of ``sums``; they hold ``site``, ``partition`` and
    ``gpu_type`` for the prices, and ``day`` where those change.
    """

    columns: tuple[str, ...]
    sums: Mapping[tuple[str | int, ...], Sequence[int]]
    supply: Mapping[CellKey, Supplied]
    held: Mapping[CellKey, tuple[int, int]]  # by everybody: held, launching
    start_s: float
    end_s: float
    at_s: float
    uncounted: int = 0


class Quota(NamedTuple):
    """GPUs that a tenant is guaranteed, with all who share them."""

    tenant: str
    gpus: float
    tenants: frozenset[str]


def with_prices(columns: Sequence[str], *, dated: bool = False) -> tuple[str, ...]:
    """The columns that sums are wanted by, so that each can be priced.

    ``dated``: the prices are not the same on all days that are asked for.
    """
    days = ("day",) if dated else ()
    return tuple(name for name in dict.fromkeys((*columns, *_PRICED, *days)) if name != TIER)


def report(
    found: UsageFound,
    by: tuple[str, ...],
    prices: PriceList,
    quotas: Sequence[Quota] = (),
    *,
    most: int = 1 << 30,
    shows_supply: bool = True,
) -> UsageReport:
    """Make the lines.

    Args:
        found: in the history.
        by: columns, see ``columns_of``.
        prices: of hours.
        quotas: by which what is lent is told, of lines by tenant.
        most: lines.
        shows_supply: False for who sees a part of the workloads only.
    """
    rows: dict[tuple[str, ...], UsageRow] = {}
    total = UsageRow()
    first_day = round(found.start_s * 1000) // DAY_MS
    for key, values in found.sums.items():
        at = dict(zip(found.columns, key, strict=True))
        site, partition, gpu_type = (str(at[name]) for name in _PRICED)
        day = int(at.get("day", first_day))
        rates = prices.rates(site, partition, gpu_type, day)
        if TIER in by:
            at[TIER] = prices.tier(site, partition, gpu_type, day)
        for row in (_row(rows, tuple(_word(name, at[name]) for name in by)), total):
            _add(row, values, rates)
    if shows_supply:
        _add_supply(found, by, prices, rows, total)
    if by == ("tenant",):
        _add_lent(rows, quotas, found)
    ordered = sorted(rows.values(), key=_order)
    if "day" in by:
        ordered.sort(key=lambda row: row.key[by.index("day")])
    return UsageReport(
        by=by,
        start_s=found.start_s,
        end_s=found.end_s,
        at_s=found.at_s,
        rows=tuple(ordered[:most]),
        total=total,
        currency=prices.currency,
        uncounted=found.uncounted,
        left_off=max(0, len(ordered) - most),
        flagged=_flagged(found),
    )


def _flagged(found: UsageFound) -> dict[str, dict[str, int]]:
    """Attempts with a flag, by site and flag."""
    at, counts = found.columns.index("site"), dict[str, dict[str, int]]()
    for key, values in sorted(found.sums.items(), key=lambda item: str(item[0][at])):
        for name, k in _FLAGS_AT.items():
            if values[k]:
                of_site = counts.setdefault(str(key[at]), {})
                of_site[name] = of_site.get(name, 0) + int(values[k])
    return counts


def _add(row: UsageRow, values: Sequence[int], rates: Rates) -> None:
    for name, value in zip(MEASURES, values, strict=True):
        row.sums[name] = row.sums.get(name, 0) + int(value)
    held = sum(values[k] for k in _HELD_AT)
    row.cost = _plus(row.cost, cost(rates, held, *(values[k] for k in _COST_AT)))
    known = cost(Rates(gpu_h=rates.gpu_h), held - values[_UNKNOWN_AT], 0, 0)
    row.known_cost = _plus(row.known_cost, known)
    if rates.gpu_h is not None:
        row.priced_steps_gpu_ms = (row.priced_steps_gpu_ms or 0) + int(values[_STEPS_AT])


def _plus(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else a + b


def _row(rows: dict[tuple[str, ...], UsageRow], key: tuple[str, ...]) -> UsageRow:
    found = rows.get(key)
    if found is None:
        found = rows[key] = UsageRow(key=key)
    return found


def _word(column: str, value: str | int) -> str:
    return day_word(int(value)) if column == "day" else str(value)


def day_word(day: int) -> str:
    """A day as it is written: ``2026-11-25``."""
    return datetime.fromtimestamp(day * DAY_MS / 1000, UTC).strftime("%Y-%m-%d")


def _add_supply(
    found: UsageFound,
    by: tuple[str, ...],
    prices: PriceList,
    rows: dict[tuple[str, ...], UsageRow],
    total: UsageRow,
) -> None:
    """Idle time and the like; each site, type and day by itself, so that none hides another's."""
    per_row = OF_SUPPLY.issuperset(by)
    for cell in sorted({*found.supply, *found.held}):
        there = found.supply.get(cell, Supplied())
        held, launching = found.held.get(cell, (0, 0))
        free = free_time(there, held, launching)
        gpu_h = prices.rates(cell.site, "", cell.gpu_type, cell.day).gpu_h
        idle_cost = None if gpu_h is None else free.by_class[TimeClass.IDLE] / 3.6e6 * gpu_h
        key = tuple(_word(name, getattr(cell, name)) for name in by) if per_row else ()
        for row in (total, _row(rows, key)) if per_row else (total,):
            for kind in FREE:
                row.free[kind.value] = row.free.get(kind.value, 0) + free.by_class[kind]
            row.supply_gpu_ms += there.gpu_ms
            row.beyond_gpu_ms += free.beyond_gpu_ms
            row.idle_cost = _plus(row.idle_cost, idle_cost)


def _add_lent(
    rows: dict[tuple[str, ...], UsageRow], quotas: Sequence[Quota], found: UsageFound
) -> None:
    """Share out what was borrowed among the quotas that were not used, as each had unused.

    An estimate over the whole time, by the quotas that are configured now.
    """
    length_ms = round((found.end_s - found.start_s) * 1000)
    borrowed = sum(row.sums.get("over_gpu_ms", 0) for row in rows.values())
    unused: dict[str, float] = {}
    for quota in quotas:
        mine = [rows[(name,)] for name in quota.tenants if (name,) in rows]
        within = sum(row.held_gpu_ms - row.sums.get("over_gpu_ms", 0) for row in mine)
        unused[quota.tenant] = max(0.0, quota.gpus * length_ms - within)
    there = sum(unused.values())
    for name, amount in unused.items():
        lent = min(1.0, borrowed / there) * amount if there else 0.0
        _row(rows, (name,)).lent_gpu_ms = round(lent)


def _order(row: UsageRow) -> tuple[int, int, tuple[str, ...]]:
    """The greatest first."""
    return -row.held_gpu_ms, -row.supply_gpu_ms, row.key
