"""Keeps how long the latest runs of each kind took, and finds those that took longer than a time.

Kinds are tried from the most specific to the broadest: same tenant, user, name pattern and size;
same user and size; same tenant and size; same size. The first with enough of them counts.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import ceil, inf, sqrt
from typing import Final, NamedTuple

import msgspec

from federator.model.event import SavedKind
from federator.sched.state.save_times import Family

KINDS_KEPT: Final = 100_000
RUNS_KEPT: Final = (32, 32, 64, 256)  # of a kind, the latest; by level, the most specific first
_ENOUGH: Final = (8, 8, 8, 1)  # that ran longer; by level
_MEANT: Final = 32  # at most so many are averaged, evenly spread over all
_NAME_CHARS: Final = 64
_KINDS_SHARED: Final = 10_000  # by the runs that are followed: the latest that were asked for
_SPREAD: Final = (sqrt(5) - 1) / 2  # its multiples spread evenly over [0, 1)

_STEP_FRAC: Final = 0.07
_EDGES_S: Final = tuple((1 + _STEP_FRAC) ** k for k in range(256))  # 1 s to 359 days
_MIDDLES_S: Final = (0.5, *(edge_s / sqrt(1 + _STEP_FRAC) for edge_s in _EDGES_S[1:]))
_DIGITS: Final = re.compile(r"[0-9]+")

Kind = tuple[int, str, str, str, int]
"""Level, tenant, user, name pattern and size; "" for what the level does not tell apart."""


class _KindRuns(msgspec.Struct, gc=False):
    """Durations of the latest runs of a kind, one byte for each: the number of its bucket.

    Buckets are 7 % wide, far less than such durations differ. So a hundred thousand kinds take
    some 50 MB, and a run is added, or looked up, without a look at the others.
    """

    latest: bytearray  # in the order in which they ended
    ascending: bytearray

    def add(self, bucket: int, most: int) -> None:
        if len(self.latest) >= most:
            gone = self.latest.pop(0)
            del self.ascending[bisect_left(self.ascending, gone)]
        self.latest.append(bucket)
        insort(self.ascending, bucket)


class LongerRuns(NamedTuple):
    """The runs of a kind that took longer than some time: buckets from ``first`` on."""

    level: int
    ascending: bytearray
    first: int
    runs: int  # at least 1

    def quantile_s(self, frac: float) -> float:
        """Seconds that a fraction of them does not exceed, as for one more of the kind."""
        rank = min(self.runs, ceil(frac * (self.runs + 1)))
        return _EDGES_S[self.ascending[self.first + rank - 1]]

    def mean_s(self, limit_s: float) -> float:
        """The mean of at most ``_MEANT`` of them, evenly spread; none counts more than a limit."""
        step = -(-self.runs // _MEANT)
        some = self.ascending[self.first + step // 2 :: step]
        if limit_s == inf:
            return sum(map(_MIDDLES_S.__getitem__, some)) / len(some)
        return sum(min(_MIDDLES_S[bucket], limit_s) for bucket in some) / len(some)

    def at(self, frac: float) -> float:
        """The middle of the bucket at this fraction, from 0 to below 1, of them in order."""
        return _MIDDLES_S[self.ascending[self.first + int(frac * self.runs)]]


def name_pattern(name: str) -> str:
    """A job's name without its numbers: ``train-17`` and ``train-2`` are of one pattern."""
    return _DIGITS.sub("#", name[:_NAME_CHARS])


def size_class(gpus: int) -> int:
    """0 without GPUs, else 1 for one, 2 for two, 3 up to four, 4 up to eight and so on."""
    return (gpus - 1).bit_length() + 1 if gpus > 0 else 0


def kinds_of(family: Family, gpus: int) -> tuple[Kind, ...]:
    """The kinds that a workload is of, the most specific first."""
    return kinds_of_pattern(family[0], family[1], name_pattern(family[2]), size_class(gpus))


@lru_cache(maxsize=_KINDS_SHARED)
def kinds_of_pattern(tenant: str, user: str, pattern: str, size: int) -> tuple[Kind, ...]:
    """As ``kinds_of``, by the pattern of the name and the class of the size."""
    return (
        (0, tenant, user, pattern, size),
        (1, "", user, "", size),
        (2, tenant, "", "", size),
        (3, "", "", "", size),
    )


def _bucket(duration_s: float) -> int:
    return min(len(_EDGES_S) - 1, bisect_left(_EDGES_S, duration_s))


class RecentRuns:
    """The durations of the latest runs of each kind.

    Attributes:
        longest_s: of all that were ever added.
        cut_offs: that were counted as one of those that ran longer.
    """

    def __init__(self) -> None:
        self._of_kind: OrderedDict[Kind, _KindRuns] = OrderedDict()  # latest kind last
        self.cut_offs = 0
        self.longest_s = 0.0

    def count(self, gpus: int) -> int:
        """The number of runs of a size class that are kept, at most 256."""
        recent = self._of_kind.get((3, "", "", "", size_class(gpus)))
        return len(recent.latest) if recent is not None else 0

    def longer(self, kinds: tuple[Kind, ...], ran_s: float) -> LongerRuns | None:
        """Those of the most specific kind of which enough ran longer; else the most there are."""
        least = _bucket(ran_s) + 1 if ran_s > 0 else 0
        most: LongerRuns | None = None
        for level, kind in enumerate(kinds):
            recent = self._of_kind.get(kind)
            if recent is None:
                continue
            ascending = recent.ascending
            first = bisect_left(ascending, least)
            runs = len(ascending) - first
            if runs >= _ENOUGH[level]:
                return LongerRuns(level, ascending, first, runs)
            if runs > (most.runs if most is not None else 0):
                most = LongerRuns(level, ascending, first, runs)
        return most

    def add(self, kinds: tuple[Kind, ...], duration_s: float, *, cut_off: bool) -> None:
        """One of these kinds has ended.

        Args:
            kinds: as of ``kinds_of``.
            duration_s: for so long it ran, >= 0.
            cut_off: not of its own: it would have run longer. It counts as one of those that did,
                a different one each time, and as itself where none did.
        """
        self.longest_s = max(self.longest_s, min(duration_s, _EDGES_S[-1]))
        bucket = _bucket(duration_s)
        longer = self.longer(kinds, duration_s) if cut_off else None
        if longer is not None:
            self.cut_offs += 1
            nth = int(self.cut_offs * _SPREAD % 1 * longer.runs)
            bucket = longer.ascending[longer.first + nth]
        for level, kind in enumerate(kinds):
            recent = self._of_kind.get(kind)
            if recent is None:
                recent = self._of_kind[kind] = _KindRuns(bytearray(), bytearray())
            recent.add(bucket, RUNS_KEPT[level])
            self._of_kind.move_to_end(kind)
        while len(self._of_kind) > KINDS_KEPT:
            self._of_kind.popitem(last=False)

    def saved(self) -> Iterator[SavedKind]:
        """Every kind with the buckets of its durations, the one that ended last at the end."""
        return ((*kind, bytes(recent.latest)) for kind, recent in self._of_kind.items())

    def restore(self, kinds: Iterable[SavedKind]) -> None:
        """Know these as well; they ended later than those that are known."""
        for level, tenant, user, pattern, size, buckets in kinds:
            latest = bytearray(buckets)
            recent = _KindRuns(latest, bytearray(sorted(latest)))
            self._of_kind[level, tenant, user, pattern, size] = recent
