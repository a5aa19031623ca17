"""The columns of ``federator usage``: one list, for its table, its CSV and its page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from federator.cli.text import printable
from federator.usage.rows import FLAG_NAMES, FREE_NAMES, HELD_NAMES, UsageReport, UsageRow

UNITS: Final[Mapping[str, int]] = {"hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
"""Milliseconds in a unit of ``--time-unit``."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
Figure = float | int | str | None


class UsageColumn(NamedTuple):
    """A figure of a line."""

    name: str  # in CSV; times have the unit behind it
    heading: str  # in the table; "": it is not in there
    value: Callable[[UsageRow], Figure]
    is_time: bool = False  # of milliseconds
    is_money: bool = False
    is_frac: bool = False
    always: bool = True  # False: the table has it if a line does


def _sum(name: str) -> Callable[[UsageRow], Figure]:
    return lambda row: row.sums.get(name, 0)


def _free(name: str) -> Callable[[UsageRow], Figure]:
    return lambda row: row.free.get(name) if row.free else None


def _has_supply(row: UsageRow) -> int | None:
    return row.supply_gpu_ms if row.free else None


def _flags(row: UsageRow) -> int:
    return sum(row.sums.get(f"{name}_flags", 0) for name in FLAG_NAMES)


def _time(
    name: str, heading: str, value: Callable[[UsageRow], Figure], *, always: bool = True
) -> UsageColumn:
    return UsageColumn(name, heading, value, is_time=True, always=always)


def _frac(name: str, heading: str, value: Callable[[UsageRow], Figure]) -> UsageColumn:
    return UsageColumn(name, heading, value, is_frac=True, always=False)


def _money(name: str, heading: str, value: Callable[[UsageRow], Figure]) -> UsageColumn:
    return UsageColumn(name, heading, value, is_money=True, always=False)


COLUMNS: Final = (
    _time("gpu", "GPU", lambda row: row.held_gpu_ms),
    _time("cpu", "CPU", _sum("cpu_ms")),
    _time("mem_gib", "MEM(GIB)", lambda row: row.sums.get("mem_mib_s", 0) * 1000 / 1024),
    _money("cost", "COST", lambda row: row.cost),
    _frac("allocated_frac", "ALLOC%", lambda row: row.allocated_frac),
    _frac("compute_frac", "COMPUTE%", lambda row: row.compute_frac),
    _frac("productive_frac", "PRODUCT%", lambda row: row.productive_frac),
    *(_time(f"{name}_gpu", "", _sum(f"{name}_gpu_ms")) for name in HELD_NAMES),
    _time("lost_gpu", "LOST", lambda row: row.lost_gpu_ms),
    _time("tax_paid_gpu", "TAXPAID", _sum("tax_paid_gpu_ms")),
    _time("tax_caused_gpu", "TAXCAUSED", _sum("tax_caused_gpu_ms")),
    _time("borrowed_gpu", "BORROWED", _sum("over_gpu_ms")),
    _time("lent_gpu", "LENT", lambda row: row.lent_gpu_ms, always=False),
    _time("supply_gpu", "SUPPLY", _has_supply, always=False),
    _time("idle_gpu", "IDLE", _free("idle"), always=False),
    _money("idle_cost", "IDLECOST", lambda row: row.idle_cost),
    _money("effective_gpu_h", "EFFECTIVE", lambda row: row.effective_gpu_h),
    *(_time(f"{name}_gpu", "", _free(name)) for name in FREE_NAMES if name != "idle"),
    _time("beyond_supply_gpu", "", lambda row: row.beyond_gpu_ms),
    _time("watched_gpu", "", _sum("watched_gpu_ms")),
    UsageColumn("attempts", "ATTEMPTS", _sum("attempts")),
    UsageColumn("flagged", "FLAGGED", _flags, always=False),
)


def table_columns(rows: Sequence[UsageRow]) -> list[UsageColumn]:
    """The columns of the table, without those that no line has anything in."""
    return [
        column
        for column in COLUMNS
        if column.heading and (column.always or any(column.value(row) for row in rows))
    ]


def text_of(column: UsageColumn, row: UsageRow, unit_ms: int) -> str:
    """A figure for people."""
    value = column.value(row)
    if value is None or isinstance(value, str):
        return value or "-"
    if column.is_time:
        return f"{value / unit_ms:.1f}"
    if column.is_frac:
        return f"{100 * value:.1f}"
    return f"{value:.2f}" if column.is_money else str(value)


def table_lines(report: UsageReport, unit_ms: int, *, header: bool) -> Iterator[str]:
    """The table, with the sum of all as its last line."""
    rows = [*report.rows, report.total]
    columns = table_columns(rows)
    cells = [_headings(report, columns)] if header else []
    for row in rows:
        texts = [text_of(column, row, unit_ms) for column in columns]
        cells.append([*_keys(report, row), *texts])
    keys = max(1, len(report.by))
    safe = [[printable(cell) for cell in line] for line in cells]
    widths = [max(map(len, column)) for column in zip(*safe, strict=True)]
    for line in safe:
        left = [text.ljust(width) for text, width in zip(line[:keys], widths, strict=False)]
        right = [text.rjust(width) for text, width in zip(line[keys:], widths[keys:], strict=True)]
        yield " ".join([*left, *right]).rstrip()


def delimited_lines(
    report: UsageReport, unit_ms: int, delimiter: str, *, header: bool, trailing: bool
) -> Iterator[str]:
    """The lines of the table with bars, as sreport's ``-P`` and ``-p``; without the sum."""
    end = delimiter if trailing else ""
    columns = table_columns([*report.rows, report.total])
    if header:
        yield delimiter.join(_headings(report, columns)) + end
    for row in report.rows:
        texts = [text_of(column, row, unit_ms) for column in columns]
        yield printable(delimiter.join([*_keys(report, row), *texts])) + end


def csv_rows(report: UsageReport, unit: str) -> Iterator[list[str]]:
    """Lines with every figure, the first with their names; for a charge-back."""
    suffix, unit_ms = unit[0], UNITS[unit]
    names = [f"{c.name}_{suffix}" if c.is_time else c.name for c in COLUMNS]
    yield [*(report.by or ("all",)), *names, "currency"]
    for row in report.rows:
        figures = [_csv_figure(column, row, unit_ms) for column in COLUMNS]
        keys = _keys(report, row) if report.by else ["all"]
        yield [*map(_no_formula, keys), *figures, _no_formula(report.currency)]


def _csv_figure(column: UsageColumn, row: UsageRow, unit_ms: int) -> str:
    value = column.value(row)
    if value is None or isinstance(value, str):
        return value or ""
    if column.is_time:
        return f"{value / unit_ms:.6f}"
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _no_formula(text: str) -> str:
    """Users name jobs and projects, and a spreadsheet would reckon with what begins like this."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _headings(report: UsageReport, columns: Iterable[UsageColumn]) -> list[str]:
    return [*(map(str.upper, report.by) if report.by else ["ALL"]), *(c.heading for c in columns)]


def _keys(report: UsageReport, row: UsageRow) -> list[str]:
    if row is report.total or not row.key:
        return ["TOTAL" if row is report.total else "-", *([""] * (max(1, len(report.by)) - 1))]
    return [text or "-" for text in row.key]


def json_of(report: UsageReport, federation: str) -> dict[str, object]:
    """The report as ``--json`` prints it, docs/formats.md."""
    return {
        "schema": 1,
        "federation": federation,
        "start_s": report.start_s,
        "end_s": report.end_s,
        "at_s": report.at_s,
        "by": report.by,
        "currency": report.currency,
        "uncounted_attempts": report.uncounted,
        "left_off": report.left_off,
        "flagged": report.flagged,
        "rows": [_json_row(row, report.by) for row in report.rows],
        "total": _json_row(report.total, ()),
    }


def _json_row(row: UsageRow, by: Sequence[str]) -> dict[str, object]:
    held = {name: row.sums.get(f"{name}_gpu_ms", 0) / 1000 for name in HELD_NAMES}
    free = {name: ms / 1000 for name, ms in row.free.items()}
    return {
        "key": dict(zip(by, row.key, strict=False)),
        "gpu_s": held | free,
        "held_gpu_s": row.held_gpu_ms / 1000,
        "supply_gpu_s": row.supply_gpu_ms / 1000 if row.free else None,
        "beyond_supply_gpu_s": row.beyond_gpu_ms / 1000,
        "cpu_s": row.sums.get("cpu_ms", 0) / 1000,
        "mem_mib_s": row.sums.get("mem_mib_s", 0),
        "watched_gpu_s": row.sums.get("watched_gpu_ms", 0) / 1000,
        "busy_gpu_s": row.sums.get("busy_gpu_ms", 0) / 1000,
        "borrowed_gpu_s": row.sums.get("over_gpu_ms", 0) / 1000,
        "lent_gpu_s": None if row.lent_gpu_ms is None else row.lent_gpu_ms / 1000,
        "tax_paid_gpu_s": row.sums.get("tax_paid_gpu_ms", 0) / 1000,
        "tax_caused_gpu_s": row.sums.get("tax_caused_gpu_ms", 0) / 1000,
        "allocated_frac": row.allocated_frac,
        "compute_frac": row.compute_frac,
        "productive_frac": row.productive_frac,
        "cost": row.cost,
        "idle_cost": row.idle_cost,
        "effective_gpu_h": row.effective_gpu_h,
        "attempts": row.sums.get("attempts", 0),
        "flags": {name: row.sums.get(f"{name}_flags", 0) for name in FLAG_NAMES},
    }
