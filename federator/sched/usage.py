"""How much has each tenant used lately? Averages over a window, or with exponential decay.

Usage changes in steps, when workloads start and end. With decay the average of that is exact; the
window's is but for one bucket, see there. Size does not depend on how many workloads there were.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np

from federator.sched.credit import F64

BUCKETS: Final = 168  # of a window: one for each hour of a week


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


def _changed(rate: float, by: float) -> float:
    """Charges are added and taken off again: what is left must not drift below nothing."""
    return rate + by if rate + by > 1e-9 else 0.0


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

    def change(self, row: int, by_gpus: float, at_s: float) -> None:
        missing = row + 1 - self._gpus.size
        if missing > 0:
            self._ring = np.vstack([self._ring, np.zeros((missing, BUCKETS + 1))])
            self._gpus = np.append(self._gpus, np.zeros(missing))
        self._advance(at_s)
        self._gpus[row] = _changed(float(self._gpus[row]), by_gpus)

    def averages(self, rows: int, now_s: float) -> F64:
        then = WindowAverage(self._window_s)
        then._gpus, then._since_s = self._gpus, self._since_s
        then._ring, then._bucket = self._ring.copy(), self._bucket
        then._advance(now_s)
        return then._sum(rows)

    def _sum(self, rows: int) -> F64:
        elapsed = min(max(self._since_s / self._width_s - self._bucket, 0.0), 1.0)
        oldest = self._ring[:, (self._bucket + 1) % (BUCKETS + 1)]  # cut by the window's far end
        used = self._ring.sum(axis=1) - elapsed * oldest
        averages = np.zeros(rows)
        averages[: used.size] = np.maximum(0.0, used / self._window_s)[:rows]
        return averages

    def _advance(self, to_s: float) -> None:
        """Book the use since the last call, bucket by bucket."""
        target = int(to_s // self._width_s)
        if target - self._bucket > BUCKETS + 1:  # all that was is beyond the window
            self._ring[:] = 0.0
            self._bucket = target - BUCKETS - 1
            self._since_s = self._bucket * self._width_s
        while self._bucket < target:
            self._book((self._bucket + 1) * self._width_s)
            self._bucket += 1
            self._ring[:, self._bucket % (BUCKETS + 1)] = 0.0
        self._book(to_s)

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
        missing = row + 1 - self._gpus.size
        if missing > 0:
            self._average = np.append(self._average, np.zeros(missing))
            self._gpus = np.append(self._gpus, np.zeros(missing))
        self._average = self._at(at_s)
        self._since_s = max(self._since_s, at_s)
        self._gpus[row] = _changed(float(self._gpus[row]), by_gpus)

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
