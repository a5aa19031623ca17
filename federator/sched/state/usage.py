"""Averages each tenant's recent usage, over a window or with exponential decay.

Usage changes in steps, when workloads start and end. With decay the average of that is exact; the
window's is but for one bucket, see there. Size does not depend on how many workloads there were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from federator.model.event import SnapshotUsage, TenantUse
from federator.model.workload import TenantName
from federator.sched.state.credit import F64

BUCKETS: Final = 168  # of a window: one for each hour of a week
CHUNK: Final = 32  # tenants in one record of a snapshot
_ROUNDING: Final = 1e-6


class UsageAverage(Protocol):
    """Mean weighted GPUs in use of each tenant, by row."""

    def change(self, row: int, by_gpus: float, at_s: float) -> None:
        """A tenant uses more, or less (negative), from now on; time never runs back."""
        ...

    def averages(self, rows: int, now_s: float) -> F64:
        """(T,) averages of the first ``rows`` tenants at ``now_s``, >= 0.

        Asking changes nothing, not even a rounding error: answers depend on changes alone.
        """
        ...

    def saved(self, tenants: Sequence[TenantName], at_s: float) -> Iterator[SnapshotUsage]:
        """The part of it to keep, for tenants given by row; ``at_s`` is the snapshot's."""
        ...

    def restore(self, saved: SnapshotUsage, rows: Sequence[int]) -> None:
        """Go on from what was kept of tenants that have these rows now.

        Exactly, if it was kept of an average like this one; else as near as that can be told. A
        new window, a new half-life or another kind of average is the admin's wish, and history
        is kept in no other form.
        """
        ...

    def correct(self, row: int, gpus: float) -> None:
        """A tenant uses so much from now on; where it is the same but for rounding, no change."""
        ...


def _changed(rate: float, by: float) -> float:
    """Charges are added and taken off again: what is left must not drift below nothing."""
    return rate + by if rate + by > 1e-9 else 0.0


def _is_same(rate: float, other: float) -> bool:
    return abs(rate - other) <= _ROUNDING * max(1.0, abs(other))


def _chunks(number: int) -> Iterator[range]:
    for first in range(0, number, CHUNK):
        yield range(first, min(first + CHUNK, number))


def _history(saved: SnapshotUsage, use: TenantUse) -> Iterator[tuple[float, float]]:
    """Since when a tenant used how much, oldest first, until ``saved.since_s``.

    Of an average with decay no more is known than that it is as if use had always been that.
    """
    if not saved.window_s:
        yield 0.0, use.average
        return
    width_s, number = saved.window_s / BUCKETS, len(use.buckets)
    for bucket in range(max(0, saved.bucket - number + 1), saved.bucket + 1):
        from_s = bucket * width_s
        for_s = min(width_s, saved.since_s - from_s)
        if for_s > 0:
            yield from_s, use.buckets[bucket % number] / for_s


def _retell(average: UsageAverage, saved: SnapshotUsage, use: TenantUse) -> None:
    """Tell an empty average the history of one tenant, as its row 0."""
    rate = 0.0
    for at_s, gpus in (*_history(saved, use), (saved.since_s, use.gpus)):
        average.change(0, gpus - rate, at_s)
        rate = gpus


class WindowAverage:
    """The plain average over the last ``window_s`` seconds.

    Use is summed in buckets of 1/168 of the window. The bucket that the window's far end cuts
    counts in proportion: as if its use had been even. That errs by at most a quarter of the bucket
    at the greatest use in it, 1/672 of that use.

    Args:
        window_s: above 0.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._width_s = window_s / BUCKETS
        self._gpus: F64 = np.zeros(0)  # in use since ``_since_s``
        self._since_s = 0.0
        self._ring: F64 = np.zeros((0, BUCKETS + 1))  # GPU-seconds; column = bucket mod length
        self._bucket = 0  # that ``_since_s`` lies in
        self._later: WindowAverage | None = None  # as it is in a later bucket if nothing changes

    def change(self, row: int, by_gpus: float, at_s: float) -> None:
        self._grow(row + 1)
        self._advance(at_s)
        self._gpus[row] = _changed(float(self._gpus[row]), by_gpus)

    def _grow(self, rows: int) -> None:
        """Have a place for each row; to be called before every change."""
        self._later = None
        missing = rows - self._gpus.size
        if missing > 0:
            self._ring = np.vstack([self._ring, np.zeros((missing, BUCKETS + 1))])
            self._gpus = np.append(self._gpus, np.zeros(missing))

    def saved(self, tenants: Sequence[TenantName], at_s: float) -> Iterator[SnapshotUsage]:
        for rows in _chunks(self._gpus.size):
            uses = (
                TenantUse(
                    tenant=tenants[row],
                    gpus=float(self._gpus[row]),
                    buckets=tuple(self._ring[row].tolist()) if self._ring[row].any() else (),
                )
                for row in rows
            )
            yield SnapshotUsage(
                at_s=at_s,
                since_s=self._since_s,
                window_s=self._window_s,
                bucket=self._bucket,
                tenants=tuple(uses),
            )

    def restore(self, saved: SnapshotUsage, rows: Sequence[int]) -> None:
        alike = saved.window_s == self._window_s
        self._later = None
        self._since_s = saved.since_s
        self._bucket = saved.bucket if alike else int(saved.since_s // self._width_s)
        for row, use in zip(rows, saved.tenants, strict=True):
            self._grow(row + 1)
            if not alike:
                then = WindowAverage(self._window_s)
                _retell(then, saved, use)
                self._ring[row] = then._ring[0]
            elif len(use.buckets) == BUCKETS + 1:
                self._ring[row] = use.buckets
            self._gpus[row] = use.gpus

    def correct(self, row: int, gpus: float) -> None:
        if not _is_same(float(self._gpus[row]) if row < self._gpus.size else 0.0, gpus):
            self._grow(row + 1)
            self._gpus[row] = gpus

    def averages(self, rows: int, now_s: float) -> F64:
        """As of ``UsageAverage``; the buckets since the last change are booked once."""
        start, target = self, int(now_s // self._width_s)
        if target > self._bucket:
            if self._later is None or self._later._bucket > target:
                self._later = self._copy()
            self._later._enter(target)
            start = self._later
        then = start._copy()
        then._advance(now_s)
        return then._sum(rows)

    def _copy(self) -> WindowAverage:
        """The same, for ``averages``: what is in use is shared."""
        copy = WindowAverage(self._window_s)
        copy._gpus, copy._since_s = self._gpus, self._since_s
        copy._ring, copy._bucket = self._ring.copy(), self._bucket
        return copy

    def _sum(self, rows: int) -> F64:
        elapsed = min(max(self._since_s / self._width_s - self._bucket, 0.0), 1.0)
        oldest = self._ring[:, (self._bucket + 1) % (BUCKETS + 1)]  # cut by the window's far end
        used = self._ring.sum(axis=1) - elapsed * oldest
        averages = np.zeros(rows)
        averages[: used.size] = np.maximum(0.0, used / self._window_s)[:rows]
        return averages

    def _advance(self, to_s: float) -> None:
        """Book the use since the last call, bucket by bucket."""
        self._enter(int(to_s // self._width_s))
        self._book(to_s)

    def _enter(self, target: int) -> None:
        """Book the use until a bucket begins."""
        if target - self._bucket > BUCKETS + 1:  # all that was is beyond the window
            self._ring[:] = 0.0
            self._bucket = target - BUCKETS - 1
            self._since_s = self._bucket * self._width_s
        while self._bucket < target:
            self._book((self._bucket + 1) * self._width_s)
            self._bucket += 1
            self._ring[:, self._bucket % (BUCKETS + 1)] = 0.0

    def _book(self, to_s: float) -> None:
        if to_s > self._since_s:
            column = self._bucket % (BUCKETS + 1)
            self._ring[:, column] += self._gpus * (to_s - self._since_s)
            self._since_s = to_s


class DecayedAverage:
    """An average in which use counts half as much for every half-life that has passed.

    ``w/h * integral of use(t) * 2^(-(now - t)/h) dt`` with w = ln 2, so that constant use averages
    to itself; Slurm's PriorityDecayHalfLife decays in the same way.

    Args:
        half_life_s: above 0.
    """

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._gpus: F64 = np.zeros(0)  # in use since ``_since_s``
        self._since_s = 0.0
        self._average: F64 = np.zeros(0)  # at ``_since_s``

    def change(self, row: int, by_gpus: float, at_s: float) -> None:
        self._grow(row + 1)
        self._average = self._at(at_s)
        self._since_s = max(self._since_s, at_s)
        self._gpus[row] = _changed(float(self._gpus[row]), by_gpus)

    def _grow(self, rows: int) -> None:
        missing = rows - self._gpus.size
        if missing > 0:
            self._average = np.append(self._average, np.zeros(missing))
            self._gpus = np.append(self._gpus, np.zeros(missing))

    def saved(self, tenants: Sequence[TenantName], at_s: float) -> Iterator[SnapshotUsage]:
        for rows in _chunks(self._gpus.size):
            uses = (
                TenantUse(
                    tenant=tenants[row],
                    gpus=float(self._gpus[row]),
                    average=float(self._average[row]),
                )
                for row in rows
            )
            yield SnapshotUsage(
                at_s=at_s, since_s=self._since_s, half_life_s=self._half_life_s, tenants=tuple(uses)
            )

    def restore(self, saved: SnapshotUsage, rows: Sequence[int]) -> None:
        self._since_s = saved.since_s
        for row, use in zip(rows, saved.tenants, strict=True):
            self._grow(row + 1)
            if saved.window_s:
                then = DecayedAverage(self._half_life_s)
                _retell(then, saved, use)
                self._average[row] = then._average[0]
            else:  # an average is an average, of whatever half-life
                self._average[row] = use.average
            self._gpus[row] = use.gpus

    def correct(self, row: int, gpus: float) -> None:
        if not _is_same(float(self._gpus[row]) if row < self._gpus.size else 0.0, gpus):
            self._grow(row + 1)
            self._gpus[row] = gpus

    def averages(self, rows: int, now_s: float) -> F64:
        now = self._at(now_s)
        averages = np.zeros(rows)
        averages[: now.size] = now[:rows]
        return averages

    def _at(self, to_s: float) -> F64:
        passed_s = max(0.0, to_s - self._since_s)
        kept = 2.0 ** (-passed_s / self._half_life_s)
        decayed: F64 = self._average * kept + self._gpus * (1.0 - kept)
        return decayed


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageMemory:
    """Over which time use counts: a window, or with a half-life all of it, less and less."""

    usage_window_h: float = 168.0
    usage_half_life_h: float | None = None

    def average(self) -> UsageAverage:
        """One of this kind, empty."""
        if self.usage_half_life_h is not None:
            return DecayedAverage(self.usage_half_life_h * 3600.0)
        return WindowAverage(self.usage_window_h * 3600.0)
