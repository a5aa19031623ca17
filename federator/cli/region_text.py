"""Regions of workloads with data sets, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from federator.cli.rank_text import duration
from federator.cli.text import size_shown
from federator.wire.queue_rows import RegionRow


def region_lines(rows: Sequence[RegionRow]) -> Iterator[tuple[str, str]]:
    """A label and a text for each region that could run a workload, or has run it."""
    for row in rows:
        yield f"Region {row.name or '-'}", _region(row)


def _region(row: RegionRow) -> str:
    ran = ["it has run there"] if row.ran else []
    return "; ".join([*_nearness(row), *ran])


def _nearness(row: RegionRow) -> list[str]:
    sites = f" ({', '.join(row.sites)})" if row.sites else ""
    copy = f"{size_shown(row.bytes_to_move)} to copy, about {duration(row.staging_s)}"
    match row.data:
        case "there":
            return [f"candidate: its data is there{sites}"]
        case "copy":
            return [f"candidate: {copy if row.bytes_to_move else 'its data can be copied'}{sites}"]
        case "ask":
            how = f": {copy}" if row.bytes_to_move else ""
            return [f"it would fit{sites}, if somebody has its data copied there{how}"]
        case "none":
            return [f"it would fit{sites}, and its data cannot be had there"]
        case _:
            return []
