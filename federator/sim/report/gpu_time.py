"""Adds up GPU time by day: held, and stranded, that is free while a job waited that it would hold.

A free GPU counts as stranded while some job waits, at any site, that asks for no more GPUs than are
free in all: it waits because of where they are, or because of an order that is not the
federation's.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

DAY_S: Final = 86_400.0


class Use(NamedTuple):
    """A job's GPUs, from one Unix time to another."""

    gpus: int
    begin_s: float
    end_s: float


@dataclass(slots=True)
class GpuTime:
    """GPU-seconds by day, numbered from 1970."""

    all_gpu_s: dict[int, float] = field(default_factory=dict)
    held_gpu_s: dict[int, float] = field(default_factory=dict)
    stranded_gpu_s: dict[int, float] = field(default_factory=dict)

    @property
    def allocation_frac(self) -> float:
        """Held, of all there was."""
        return _frac(self.held_gpu_s, self.all_gpu_s)

    @property
    def stranded_frac(self) -> float:
        """Stranded, of all there was."""
        return _frac(self.stranded_gpu_s, self.all_gpu_s)


def _frac(part: dict[int, float], whole: dict[int, float]) -> float:
    total = sum(whole.values())
    return sum(part.values()) / total if total else 0.0


def gpu_time(
    held: Iterable[Use], waiting: Iterable[Use], gpus: int, begin_s: float, end_s: float
) -> GpuTime:
    """Add it up between two Unix times.

    Args:
        held: by jobs that ran.
        waiting: GPUs that jobs asked for, while they waited.
        gpus: of all sites.
        begin_s: from.
        end_s: to.
    """
    steps: list[tuple[float, int, int]] = []  # time, GPUs held more, GPUs asked for (-: no more)
    for use in held:
        steps += ((use.begin_s, use.gpus, 0), (use.end_s, -use.gpus, 0))
    for use in waiting:
        steps += ((use.begin_s, 0, use.gpus), (use.end_s, 0, -use.gpus))
    first_midnight = int(begin_s // DAY_S) + 1
    steps += [(day * DAY_S, 0, 0) for day in range(first_midnight, int(end_s // DAY_S) + 1)]
    steps.append((end_s, 0, 0))
    steps.sort(key=lambda step: step[0])
    found, now_s, busy = GpuTime(), begin_s, 0
    asked: list[int] = []  # sorted
    for at_s, more, wants in steps:
        until_s = min(at_s, end_s)
        if until_s > now_s:
            _add(found, now_s, until_s - now_s, gpus, busy, asked)
            now_s = until_s
        busy += more
        if wants > 0:
            insort(asked, wants)
        elif wants < 0:
            del asked[bisect_left(asked, -wants)]
    return found


def _add(
    found: GpuTime, at_s: float, lasts_s: float, gpus: int, busy: int, asked: list[int]
) -> None:
    day, free = int(at_s // DAY_S), max(0, gpus - busy)
    strands = bool(asked) and asked[0] <= free
    for sums, amount in (
        (found.all_gpu_s, gpus),
        (found.held_gpu_s, min(busy, gpus)),
        (found.stranded_gpu_s, free if strands else 0),
    ):
        sums[day] = sums.get(day, 0.0) + amount * lasts_s
