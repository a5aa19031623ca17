"""Adds up the supply of sites, and puts the time that no attempt held into classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from federator.usage.classes import FREE, TimeClass, milliseconds
from federator.usage.days import DAY_MS

LOCAL_EVERY_S: Final = 300.0
SUPPLIED: Final = (
    "heard",
    "nodes",
    "gpus",
    "cpus",
    "mem_mib",
    "gpus_local",
    "gpus_drained",
    "gpus_down",
)


class SupplyRow(NamedTuple):
    """What a site had of one GPU type, from a time on until its next row.

    A site that is not in contact keeps what it last told, with ``heard`` 0. GPUs that are local,
    drained or down are among ``gpus``.
    """

    site: str
    gpu_type: str
    since_s: float  # Unix time
    heard: int
    nodes: int
    gpus: int
    cpus: int
    mem_mib: int
    gpus_local: int = 0  # held by jobs that are not the federation's
    gpus_drained: int = 0
    gpus_down: int = 0

    @property
    def amounts(self) -> tuple[int, ...]:
        """The fields that ``SUPPLIED`` names."""
        return self[3:]


class CellKey(NamedTuple):
    """A site's GPUs of one type on one day."""

    day: int
    site: str
    gpu_type: str


class Supplied(NamedTuple):
    """GPU-milliseconds that a site had."""

    gpu_ms: int = 0
    local_gpu_ms: int = 0
    drained_gpu_ms: int = 0
    down_gpu_ms: int = 0
    unheard_gpu_ms: int = 0

    def plus(self, other: Supplied) -> Supplied:
        """The sum of both."""
        return Supplied(*(a + b for a, b in zip(self, other, strict=True)))


class FreeTime(NamedTuple):
    """The classes of what no attempt held; with what attempts held they sum to the supply."""

    by_class: dict[TimeClass, int]
    beyond_gpu_ms: int  # held by attempts beyond the supply: some record must be wrong


def supplied(rows: Iterable[SupplyRow], from_ms: int, to_ms: int) -> dict[CellKey, Supplied]:
    """The supply of a window, by day.

    Args:
        rows: in any order; of two of one time the later one given counts.
        from_ms: Unix time in milliseconds, as ``to_ms``.
        to_ms: not in the window any more.
    """
    by_place: dict[tuple[str, str], dict[int, SupplyRow]] = {}
    for row in rows:
        by_place.setdefault((row.site, row.gpu_type), {})[milliseconds(row.since_s)] = row
    found: dict[CellKey, Supplied] = {}
    for (site, gpu_type), by_time in by_place.items():
        times = sorted(by_time)
        for at_ms, next_ms in zip(times, [*times[1:], to_ms], strict=True):
            for a, b in _days(max(at_ms, from_ms), min(next_ms, to_ms)):
                key = CellKey(a // DAY_MS, site, gpu_type)
                found[key] = found.get(key, Supplied()).plus(_part(by_time[at_ms], b - a))
    return found


def _part(row: SupplyRow, ms: int) -> Supplied:
    gpus = max(0, row.gpus)
    return Supplied(
        gpu_ms=gpus * ms,
        local_gpu_ms=min(gpus, max(0, row.gpus_local)) * ms,
        drained_gpu_ms=min(gpus, max(0, row.gpus_drained)) * ms,
        down_gpu_ms=min(gpus, max(0, row.gpus_down)) * ms,
        unheard_gpu_ms=0 if row.heard else gpus * ms,
    )


def _days(from_ms: int, to_ms: int) -> Iterator[tuple[int, int]]:
    while from_ms < to_ms:
        midnight_ms = (from_ms // DAY_MS + 1) * DAY_MS
        yield from_ms, min(to_ms, midnight_ms)
        from_ms = midnight_ms


def free_time(there: Supplied, held_gpu_ms: int, launching_gpu_ms: int) -> FreeTime:
    """Put what no attempt held into classes, each once.

    What attempts held is known best, so it comes first; then what is down, drained and local, as
    it was seen once a minute; each takes at most what is left.
    """
    left = there.gpu_ms - held_gpu_ms
    beyond, left = max(0, -left), max(0, left)
    found = dict.fromkeys(FREE, 0)
    for kind, ms in (
        (TimeClass.DOWN, there.down_gpu_ms),
        (TimeClass.DRAINED, there.drained_gpu_ms),
        (TimeClass.LOCAL, there.local_gpu_ms),
        (TimeClass.UNREACHABLE, there.unheard_gpu_ms),
        (TimeClass.LAUNCHING, launching_gpu_ms),
    ):
        found[kind] = min(left, max(0, ms))
        left -= found[kind]
    found[TimeClass.IDLE] = left
    return FreeTime(found, beyond)


def changes(seen: Sequence[SupplyRow], last: Iterable[SupplyRow], at_s: float) -> list[SupplyRow]:
    """The rows to keep of what is seen at a time: those that differ from the last ones kept.

    A type, or a site, that is not seen any more has nothing from now on.
    """
    before = {(row.site, row.gpu_type): row for row in last}
    now = {(row.site, row.gpu_type): row._replace(since_s=at_s) for row in seen}
    gone = {
        place: SupplyRow(*place, at_s, 1, 0, 0, 0, 0)
        for place, row in before.items()
        if place not in now and any(row.amounts[1:])
    }
    return [
        row
        for place, row in (now | gone).items()
        if place not in before or _differs(before[place], row)
    ]


def _differs(before: SupplyRow, row: SupplyRow) -> bool:
    """What local jobs hold changes all the time, and is noted now and then."""
    if before._replace(since_s=0.0, gpus_local=0) != row._replace(since_s=0.0, gpus_local=0):
        return True
    is_old = not before.since_s <= row.since_s < before.since_s + LOCAL_EVERY_S
    return before.gpus_local != row.gpus_local and is_old
