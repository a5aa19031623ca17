"""Writes usage as Parquet, a file for each day, for programs that ask over years."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from federator.cli.out_file import out_file
from federator.cli.text import my_name, printable
from federator.errors import InvalidRequest
from federator.usage.rows import BY, FLAG_NAMES, FREE_NAMES, HELD_NAMES, UsageReport, UsageRow
from federator.wire.usage_messages import UsageCall, UsageReply

OPTION: Final = "--parquet"
_DAY_S: Final = 86_400
_KEYS: Final = tuple(name for name in dict.fromkeys(BY.values()) if name != "day")
_OF_SUPPLY: Final = ("site", "gpu_type")
_MEASURED: Final = (
    *(f"{name}_gpu_ms" for name in HELD_NAMES),
    *("cpu_ms", "mem_mib_s", "over_gpu_ms", "watched_gpu_ms", "busy_gpu_ms"),
    *("tax_paid_gpu_ms", "tax_caused_gpu_ms", "attempts"),
    *(f"{name}_flags" for name in FLAG_NAMES),
)
_SUMS: Final = ("held_gpu_ms", "lost_gpu_ms", *_MEASURED)
_HELD: Final = ("held_gpu_ms", "cpu_ms")
_FREE: Final = ("supply_gpu_ms", "beyond_supply_gpu_ms", *(f"{n}_gpu_ms" for n in FREE_NAMES))
_ABOUT: Final = b"federator.usage"  # what is the same of all files in a folder
_COMPLETE: Final = b"federator.complete"  # b"1": the day was over

Ask = Callable[[UsageCall], UsageReply]


class Exported(NamedTuple):
    """What became of the days that were asked for, as ``2026-11-25``."""

    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    kept: tuple[str, ...]  # of which the history has less than their files
    uncounted: int  # attempts of an earlier release that are in no sum yet


def check_parquet(folder: Path) -> None:
    """Make the folder, before anything is asked.

    Raises:
        InvalidRequest: it cannot be made, or pyarrow is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise InvalidRequest(
            f"{OPTION}: {folder}: Parquet needs pyarrow, which is not installed here; install "
            "federator[parquet]"
        )
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"{OPTION}: {folder}: cannot be made: {error.strerror}") from error


def export(folder: Path, question: UsageCall, ask: Ask) -> Exported:
    """Write a file for each day that is new, or of which the history knows other sums than it.

    Each file is replaced as a whole. A day without sums and supply has none. A day of which the
    history has less than its file keeps it: the history deletes old days, or has begun anew.

    Args:
        folder: of the files.
        question: the days, and whom it is about; what it is by does not matter.
        ask: answers a question.

    Raises:
        InvalidRequest: a file cannot be read or written, or is about others; or a day has more
            lines than an answer holds.
    """
    found: dict[str, list[str]] = {"written": [], "unchanged": [], "kept": []}
    uncounted, about = 0, dict[bytes, bytes]()
    for start_s in range(int(question.start_s), int(question.end_s), _DAY_S):
        asked = msgspec.structs.replace(question, start_s=start_s, end_s=start_s + _DAY_S)
        owned = ask(msgspec.structs.replace(asked, by=_KEYS))
        if owned.report.at_s <= start_s:
            break  # a day to come, as the history knows time
        there = ask(msgspec.structs.replace(asked, by=_OF_SUPPLY))
        day = time.strftime("%Y-%m-%d", time.gmtime(start_s))
        if owned.report.left_off or there.report.left_off:
            raise InvalidRequest(
                f"{OPTION}: {day} has more lines than the daemon tells at once; read the history "
                "with --config"
            )
        uncounted = owned.report.uncounted
        if not about:
            about[_ABOUT] = _about(owned, question)
            _check_folder(folder, about[_ABOUT])
        about[_COMPLETE] = b"0"
        if min(owned.report.at_s, there.report.at_s) >= start_s + _DAY_S:
            about[_COMPLETE] = b"1"
        table = _table(start_s // _DAY_S, owned.report, there.report, about)
        found[_write(folder / f"usage-{day}.parquet", table)].append(day)
    return Exported(**{name: tuple(days) for name, days in found.items()}, uncounted=uncounted)


def _about(reply: UsageReply, question: UsageCall) -> bytes:
    """What must be the same of all files in a folder."""
    about = {
        "schema": 1,
        "federation": reply.federation,
        "whole": reply.is_whole,
        "tenants": sorted(question.tenants),
        "users": sorted(question.users),
        "sites": sorted(question.sites),
    }
    if not reply.is_whole:
        about["asked_by"] = my_name()  # each member sees another part
    return json.dumps(about).encode()


def _table(day: int, owned: UsageReport, there: UsageReport, about: dict[bytes, bytes]) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - an extra, and slow to import

    columns: dict[str, Any] = {
        "day": pa.date32(),
        **dict.fromkeys(_KEYS, pa.string()),
        **dict.fromkeys((*_SUMS, *_FREE), pa.int64()),
        **dict.fromkeys(("cost", "idle_cost"), pa.float64()),
        "currency": pa.string(),
    }
    rows = [*_owners(owned), *_supply(there)]
    for row in rows:
        row |= {"day": day, "currency": owned.currency}
    rows.sort(key=lambda row: [row.get(name) or "" for name in _KEYS])
    schema = pa.schema(list(columns.items()), metadata=about)
    return pa.Table.from_pylist(rows, schema=schema)


def _owners(report: UsageReport) -> Iterator[dict[str, object]]:
    """Lines of what attempts held; of supply they have nothing."""
    for row in report.rows:
        sums = {name: row.sums.get(name, 0) for name in _MEASURED}
        sums |= {"held_gpu_ms": row.held_gpu_ms, "lost_gpu_ms": row.lost_gpu_ms}
        yield dict(zip(_KEYS, row.key, strict=True)) | sums | {"cost": row.cost}


def _supply(report: UsageReport) -> Iterator[dict[str, object]]:
    """Lines of what there was, which is nobody's; none for who sees a part."""
    for row in report.rows:
        if row.free:
            yield dict(zip(_OF_SUPPLY, row.key, strict=True)) | _free(row)


def _free(row: UsageRow) -> dict[str, object]:
    free = {f"{name}_gpu_ms": row.free.get(name, 0) for name in FREE_NAMES}
    of_supply = {"supply_gpu_ms": row.supply_gpu_ms, "beyond_supply_gpu_ms": row.beyond_gpu_ms}
    return free | of_supply | {"idle_cost": row.idle_cost}


def _write(path: Path, table: Any) -> str:
    """Write it if the file has other lines; says which of ``Exported`` became of it."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    older = _older(path, _said(table, _ABOUT))
    if older is None:
        if not table.num_rows:
            return "unchanged"
    elif older.equals(table) and _is_complete(older) == _is_complete(table):
        return "unchanged"
    elif _is_less(table, older):
        return "kept"
    with out_file(path, OPTION, binary=True) as file:
        pq.write_table(table, file)
    return "written"


def _check_folder(folder: Path, about: bytes) -> None:
    """Refuse a folder of others before a day of which they have no file is put among theirs.

    Raises:
        InvalidRequest: as ``_older``, of the first file.
    """
    first = min(folder.glob("usage-????-??-??.parquet"), default=None)
    if first is not None:
        _older(first, about.decode())


def _older(path: Path, wanted: str) -> Any:
    """What the file has, which is to be about this; None: there is none.

    Raises:
        InvalidRequest: it cannot be read, or is not about the same.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with path.open("rb") as file:
            older = pq.read_table(file)
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException) as error:
        said = printable(str(error).partition("\n")[0][:200])
        raise InvalidRequest(f"{OPTION}: {path}: cannot be read: {said}; move it away") from error
    about = _said(older, _ABOUT)
    if about != wanted:
        raise InvalidRequest(
            f"{OPTION}: {path}: is about {printable(about[:300]) or 'something else'}, and this "
            f"would be about {printable(wanted)}; name another folder"
        )
    return older


def _said(table: Any, key: bytes) -> str:
    found: bytes = (table.schema.metadata or {}).get(key, b"")
    return found.decode(errors="replace")


def _is_complete(table: Any) -> bool:
    return _said(table, _COMPLETE) == "1"


def _is_less(table: Any, older: Any) -> bool:
    """Whether the history has lost what the file has.

    Of a day that it has deleted it still tells the last supply before, and what attempts held that
    run until today, or ended a short while ago; but no attempt that ended on that day.
    """
    complete, ended = _is_complete(older), _sum(table, "attempts")
    if complete and ended < _sum(older, "attempts"):  # before, those count that still ran
        return True
    if not _has_owners(table):
        return complete or _has_owners(older)
    return not ended and any(_sum(table, name) < _sum(older, name) for name in _HELD)


def _sum(table: Any, name: str) -> int:
    """Of a column; 0 of one that is not there, or holds no whole numbers."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if name not in table.column_names or not pa.types.is_integer(table.schema.field(name).type):
        return 0
    return int(pc.sum(table.column(name)).as_py() or 0)


def _has_owners(table: Any) -> bool:
    """Whether there are lines of what attempts held."""
    if "tenant" not in table.column_names:
        return False
    tenants = table.column("tenant")
    return int(tenants.null_count) < len(tenants)
