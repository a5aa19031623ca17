"""Adds up attempts by day (UTC) and by whom, where and on what; all sums are whole numbers.

A day's sums do not depend on the order in which records came, or on how often: what a workload adds
is a function of its records alone, so that a changed record is taken off and added anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from federator.usage.classes import (
    HELD,
    AttemptTimes,
    RecordFlag,
    Split,
    TimeClass,
    amounts,
    milliseconds,
    split_all,
)

DAY_MS: Final = 86_400_000
MAX_FAMILY: Final = 64  # characters
MAX_DIGITS: Final = 18  # of a number of GPUs
_DIGITS: Final = re.compile(r"[0-9]+")


class Key(NamedTuple):
    """The owner, the place and the kind of what is added up. ``day``: since 1970, UTC."""

    day: int
    site: str
    partition: str
    gpu_type: str  # "" of CPUs alone, and where nodes have no type
    tenant: str
    user: str
    project: str
    family: str


DIMENSIONS: Final = Key._fields[1:]

MEASURES: Final = (
    *(f"{each.value}_gpu_ms" for each in (*HELD, TimeClass.LAUNCHING)),
    "cpu_ms",
    "mem_mib_s",
    "over_gpu_ms",  # of attempts that were awarded over quota
    "watched_gpu_ms",  # whose compute utilisation is known
    "busy_gpu_ms",  # of that, times the utilisation
    "tax_paid_gpu_ms",  # that evictions have destroyed of it
    "tax_caused_gpu_ms",  # that evictions for it have destroyed of others
    "attempts",  # that held nodes, on the day when they ended
    "clock_flags",
    "overlap_flags",
    "missing_flags",
    "job_id_flags",
)
"""The sums, in the order of a ``Sums``."""
_AT: Final = {name: k for k, name in enumerate(MEASURES)}
_CLASS_AT: Final = {each: _AT[f"{each.value}_gpu_ms"] for each in (*HELD, TimeClass.LAUNCHING)}
_FLAG_AT: Final = {each: _AT[f"{each.value}_flags"] for each in RecordFlag}
HELD_AT: Final = tuple(_CLASS_AT[each] for each in HELD)

Sums = dict[Key, list[int]]


class Evictor(NamedTuple):
    """Whose workload an attempt had to leave for."""

    tenant: str = ""
    user: str = ""
    project: str = ""
    family: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptUse:
    """An attempt with who had it, and what it held. Amounts count all nodes together."""

    times: AttemptTimes
    site: str
    partition: str = ""
    gpus: int = 0
    gpu_types: str = ""  # "a100=8,h100=4"
    cpus: int = 0
    mem_mib: int = 0
    tenant: str = ""
    user: str = ""
    project: str = ""
    family: str = ""
    over_quota: bool = False
    evictor: Evictor = Evictor()
    busy_frac: float | None = None  # of its GPUs; None: not known


def family_name(workload_name: str) -> str:
    """The family that a workload is reported under: its name, with ``#`` for numbers."""
    return _DIGITS.sub("#", workload_name)[:MAX_FAMILY]


def gpus_by_type(gpus: int, gpu_types: str) -> dict[str, int]:
    """GPUs by type: those of no known type under "", so that they sum to ``gpus``.

    A workload without GPUs has an entry as well: it holds CPUs.
    """
    found: dict[str, int] = {}
    left = max(0, gpus)
    for word in filter(None, gpu_types.split(",")):
        name, _, count = word.rpartition("=")
        some = min(left, int(count)) if count.isdecimal() and len(count) <= MAX_DIGITS else 0
        if some:
            found[name] = found.get(name, 0) + some
            left -= some
    if left or not found:
        found[""] = found.get("", 0) + left
    return found


def add_up(
    sums: Sums, attempts: Iterable[AttemptUse], from_ms: int = 0, to_ms: int = 1 << 62
) -> None:
    """Add all attempts of one workload, as far as they lie in a window, to the sums.

    Args:
        sums: by key; changed.
        attempts: all that are known of the workload, in any order.
        from_ms: Unix time in milliseconds, as ``to_ms``.
        to_ms: not in the window any more.
    """
    by_number = {use.times.attempt: use for use in attempts}
    uses = [by_number[number] for number in sorted(by_number)]
    for use, found in zip(uses, split_all([use.times for use in uses]), strict=True):
        _add_attempt(sums, use, found, (from_ms, to_ms))


def _add_attempt(sums: Sums, use: AttemptUse, found: Split, window: tuple[int, int]) -> None:
    types = gpus_by_type(use.gpus, use.gpu_types)
    main = max(types, key=lambda name: (types[name], name))
    for from_ms, to_ms in _days(found, window):
        here = amounts(found.spans, from_ms, to_ms)
        held_ms = sum(here.get(kind, 0) for kind in HELD)
        tax_ms = _tax_ms(use, found, from_ms, to_ms)
        for name, gpus in types.items():
            values = _row(sums, _key(use, from_ms, name))
            for kind, ms in here.items():
                values[_CLASS_AT[kind]] += gpus * ms
            _add_use(values, use, gpus * held_ms)
            if name == main:
                values[_AT["cpu_ms"]] += use.cpus * held_ms
                values[_AT["mem_mib_s"]] += use.mem_mib * held_ms // 1000
            if tax_ms and gpus:
                values[_AT["tax_paid_gpu_ms"]] += gpus * tax_ms
                caused = _row(sums, _key(use, from_ms, name)._replace(**use.evictor._asdict()))
                caused[_AT["tax_caused_gpu_ms"]] += gpus * tax_ms
    _add_end(sums, use, found, window, main)


def _add_use(values: list[int], use: AttemptUse, held_gpu_ms: int) -> None:
    if use.over_quota:
        values[_AT["over_gpu_ms"]] += held_gpu_ms
    if use.busy_frac is not None:
        values[_AT["watched_gpu_ms"]] += held_gpu_ms
        values[_AT["busy_gpu_ms"]] += round(held_gpu_ms * min(1.0, max(0.0, use.busy_frac)))


def _add_end(sums: Sums, use: AttemptUse, found: Split, window: tuple[int, int], main: str) -> None:
    """Counts, on the day of its end; an attempt whose end is not known is flagged on day 0."""
    ran = any(span.kind in HELD for span in found.spans)
    at_ms = found.end_ms or milliseconds(use.times.known_at_s)
    if not window[0] <= max(0, at_ms - 1) < window[1] or not (ran or found.flags):
        return
    values = _row(sums, _key(use, max(0, at_ms - 1), main))
    values[_AT["attempts"]] += ran
    for flag in found.flags:
        values[_FLAG_AT[flag]] += 1


def _tax_ms(use: AttemptUse, found: Split, from_ms: int, to_ms: int) -> int:
    if not use.evictor.tenant or not use.times.evicted or use.times.state != "PREEMPTED":
        return 0
    return max(0, min(found.end_ms, to_ms) - max(found.useful_until_ms, from_ms))


def _days(found: Split, window: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The parts of the window that the attempt touches, cut at midnights."""
    if not found.spans:
        return
    at_ms, to_ms = max(window[0], found.spans[0].start_ms), min(window[1], found.end_ms)
    while at_ms < to_ms:
        midnight_ms = (at_ms // DAY_MS + 1) * DAY_MS
        yield at_ms, min(to_ms, midnight_ms)
        at_ms = midnight_ms


def _key(use: AttemptUse, at_ms: int, gpu_type: str) -> Key:
    return Key(
        at_ms // DAY_MS,
        use.site,
        use.partition,
        gpu_type,
        use.tenant,
        use.user,
        use.project,
        use.family,
    )


def _row(sums: Sums, key: Key) -> list[int]:
    found = sums.get(key)
    if found is None:
        found = sums[key] = [0] * len(MEASURES)
    return found


def difference(after: Sums, before: Sums) -> Sums:
    """The sums that change the one into the other; what stays the same is left out."""
    found = {key: list(values) for key, values in after.items()}
    for key, values in before.items():
        mine = _row(found, key)
        for k, value in enumerate(values):
            mine[k] -= value
    return {key: values for key, values in found.items() if any(values)}


def named(values: Sequence[int]) -> Mapping[str, int]:
    """Sums by the names of ``MEASURES``."""
    return dict(zip(MEASURES, values, strict=True))
