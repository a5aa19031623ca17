"""Learns how long workloads run, and predicts how long one that runs will still do so.

A prediction comes from the latest workloads of the same kind that ran longer than this one has so
far. Kinds are tried from the most specific to the broadest: same tenant, user, name pattern and
size; same user and size; same tenant and size; same size. The first with enough of them counts.

The 90 % quantile is corrected so that nine of ten are over by then, whatever the load does: each
run is promised an end as it starts, and again after 10 min, 1 h and 6 h. A promise that is broken
makes later ones like it longer, one that is kept makes them a little shorter. A promise counts as
broken at its time, not when the run ends at last; else the long runs, which end last, would be
missing from what is learned.

Nothing is ended for a prediction: these are bounds for planning alone.

Source:
    The correction is adaptive conformal inference as quantile tracking: Gibbs and Candes, NeurIPS
    2021; Angelopoulos, Candes and Tibshirani, NeurIPS 2023. Its step and the three parts of a
    correction (of all runs, of the size, of the level) are chosen here.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from heapq import heapify, heappop, heappush
from math import ceil, exp, inf, sqrt
from typing import Final, NamedTuple

import msgspec

from federator.model.event import DurationCorrections, SavedKind
from federator.sched.state.save_times import Family

QUANTILE: Final = 0.9
AGES_S: Final = (0.0, 600.0, 3600.0, 21_600.0)
"""A run gets a promise when it is so old; corrections are kept for each age apart."""

KINDS_KEPT: Final = 100_000
RUNS_KEPT: Final = (32, 32, 64, 256)  # of a kind, the latest; by level, the most specific first
_ENOUGH: Final = (8, 8, 8, 1)  # that ran longer; by level
_MEANT: Final = 32  # at most so many are averaged, evenly spread over all
_NAME_CHARS: Final = 64
_KINDS_SHARED: Final = 10_000  # by the runs that are followed: the latest that were asked for

_LEAST_STEP: Final = 0.02  # of each part of a correction, as a logarithm
_FIRST_STEP: Final = 0.1
_SLOWING: Final = 0.1  # from the first step to the least
_MOST_OFFSET: Final = 6.0  # of a part: some 400 times longer, or shorter
_BROKEN: Final = QUANTILE  # what a promise adds to the offset, in steps
_KEPT: Final = QUANTILE - 1
_SPREAD: Final = (sqrt(5) - 1) / 2  # its multiples spread evenly over [0, 1)

_STEP_FRAC: Final = 0.07
_EDGES_S: Final = tuple((1 + _STEP_FRAC) ** k for k in range(256))  # 1 s to 359 days
_MIDDLES_S: Final = (0.5, *(edge_s / sqrt(1 + _STEP_FRAC) for edge_s in _EDGES_S[1:]))
_OF_ALL: Final = -1  # the part of a correction that all runs share
_DIGITS: Final = re.compile(r"[0-9]+")

Kind = tuple[int, str, str, str, int]
"""Level, tenant, user, name pattern and size; "" for what the level does not tell apart."""

Promise = tuple[float, int]
"""Until when, as Unix time, and the level of the kind that it was made from."""


class KnownFrom(Enum):
    """Whose runs a prediction was made from."""

    NAME = "runs of this user, account, name and size"
    USER = "runs of this user and size"
    TENANT = "runs of this account and size"
    SIZE = "all runs of this size"


_LEVELS: Final = tuple(KnownFrom)


class Remaining(NamedTuple):
    """How long a workload is predicted to run on, in seconds >= 0.

    ``expected_s`` is the mean. Where a few run very long it may be above ``q90_s``, by which nine
    of ten are over.
    """

    expected_s: float
    q90_s: float
    known_from: KnownFrom


class OpenRun(msgspec.Struct, gc=False):
    """A run that is followed: since when, and until when it is promised to be over.

    ``began_s`` lies before its start by as much as earlier attempts have done of its work.
    """

    kinds: tuple[Kind, ...]
    began_s: float
    next_age: int = 0  # index in ``AGES_S``
    promises: dict[int, Promise] = {}  # by age
    broken: dict[int, float] = {}  # the ages of those that seem to be; by which step they counted


class _RecentRuns(msgspec.Struct, gc=False):
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


class _Longer(NamedTuple):
    """The runs of a kind that took longer than some time: buckets from ``first`` on."""

    level: int
    ascending: bytearray
    first: int
    runs: int  # at least 1

    def bucket(self, frac: float) -> int:
        """The bucket that a fraction of them does not exceed, as for one more of the kind."""
        rank = min(self.runs, ceil(frac * (self.runs + 1)))
        return self.ascending[self.first + rank - 1]

    def sample(self) -> bytearray:
        """At most ``_MEANT`` of them, evenly spread."""
        step = -(-self.runs // _MEANT)
        return self.ascending[self.first + step // 2 :: step]


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


def _age(ran_s: float) -> int:
    return max(0, bisect_right(AGES_S, ran_s) - 1)


def _part_keys(kinds: tuple[Kind, ...], level: int, age: int) -> tuple[tuple[int, int], ...]:
    """The parts of a correction: that of all runs, of the size, and of the level."""
    return (_OF_ALL, age), (kinds[0][-1], age), (_OF_ALL - 1 - level, age)


class DurationModel:
    """The durations of the latest runs of each kind, and the runs that go on.

    It reads no clock: the same calls in the same order give the same predictions.
    """

    def __init__(self) -> None:
        self._recent: OrderedDict[Kind, _RecentRuns] = OrderedDict()  # latest kind last
        self._parts: dict[tuple[int, int], float] = {}  # of corrections, as logarithms
        self._seen = [0] * len(AGES_S)  # promises that were kept or broken
        self._runs: dict[int, OpenRun] = {}
        self._due: list[tuple[float, int, int, bool]] = []  # a heap: when, run, age, a promise
        self._cut_offs = 0
        self._longest_s = 0.0

    # ---- predictions ----

    def known_runs(self, gpus: int) -> int:
        """The number of runs of a size class that predictions are made from, at most 256."""
        recent = self._recent.get((3, "", "", "", size_class(gpus)))
        return len(recent.latest) if recent is not None else 0

    def remaining(
        self, family: Family, gpus: int, ran_s: float = 0.0, limit_s: float = inf
    ) -> Remaining | None:
        """How long one of a family will run on.

        Args:
            family: tenant, user and name.
            gpus: in all, >= 0.
            ran_s: for so long it has run, earlier attempts whose work is kept included; >= 0.
            limit_s: it ends by then at the latest, counted as ``ran_s`` is.

        Returns:
            None: nothing that ran longer is known of any kind that it is of.
        """
        return self._remaining(kinds_of(family, gpus), ran_s, limit_s)

    def remaining_of(self, run: int, now_s: float, limit_s: float = inf) -> Remaining | None:
        """The same of a run that is followed; None for one that is not.

        Args:
            run: its number.
            now_s: Unix time.
            limit_s: so much its time limit leaves it at most, from now on.
        """
        known = self._runs.get(run)
        if known is None:
            return None
        ran_s = max(0.0, now_s - known.began_s)
        return self._remaining(known.kinds, ran_s, ran_s + max(0.0, limit_s))

    def _remaining(self, kinds: tuple[Kind, ...], ran_s: float, limit_s: float) -> Remaining | None:
        longer = self._longer(kinds, ran_s)
        if longer is None:
            return None
        q90_s = min(self._q90_s(kinds, longer, ran_s), max(0.0, limit_s - ran_s))
        some = longer.sample()
        if limit_s < self._longest_s:
            total_s = sum(min(_MIDDLES_S[bucket], limit_s) for bucket in some)
        else:
            total_s = sum(map(_MIDDLES_S.__getitem__, some))
        expected_s = max(0.0, min(total_s / len(some), limit_s) - ran_s)
        return Remaining(expected_s, q90_s, _LEVELS[longer.level])

    def _longer(self, kinds: tuple[Kind, ...], ran_s: float) -> _Longer | None:
        """Those of the most specific kind of which enough ran longer; else the most there are."""
        least = _bucket(ran_s) + 1 if ran_s > 0 else 0
        most: _Longer | None = None
        for level, kind in enumerate(kinds):
            recent = self._recent.get(kind)
            if recent is None:
                continue
            ascending = recent.ascending
            first = bisect_left(ascending, least)
            runs = len(ascending) - first
            if runs >= _ENOUGH[level]:
                return _Longer(level, ascending, first, runs)
            if runs > (most.runs if most is not None else 0):
                most = _Longer(level, ascending, first, runs)
        return most

    def _q90_s(self, kinds: tuple[Kind, ...], longer: _Longer, ran_s: float) -> float:
        plain_s = _EDGES_S[longer.bucket(QUANTILE)] - ran_s
        keys = _part_keys(kinds, longer.level, _age(ran_s))
        offset = sum(self._parts.get(key, 0.0) for key in keys)
        return min(plain_s * exp(offset), max(plain_s, self._longest_s))

    # ---- learning ----

    def observe(
        self, family: Family, gpus: int, duration_s: float, *, cut_off: bool = False
    ) -> None:
        """One of a family has ended.

        Args:
            family: tenant, user and name.
            gpus: in all.
            duration_s: for so long it ran, attempts whose work was kept taken together; >= 0.
            cut_off: not of its own, as by its time limit: it would have run longer. It counts as
                one of those that did, a different one each time, and as itself where none did.
        """
        self._learn(kinds_of(family, gpus), duration_s, cut_off=cut_off)

    def _learn(self, kinds: tuple[Kind, ...], duration_s: float, *, cut_off: bool) -> None:
        self._longest_s = max(self._longest_s, min(duration_s, _EDGES_S[-1]))
        bucket = _bucket(duration_s)
        longer = self._longer(kinds, duration_s) if cut_off else None
        if longer is not None:
            self._cut_offs += 1
            nth = int(self._cut_offs * _SPREAD % 1 * longer.runs)
            bucket = longer.ascending[longer.first + nth]
        for level, kind in enumerate(kinds):
            recent = self._recent.get(kind)
            if recent is None:
                recent = self._recent[kind] = _RecentRuns(bytearray(), bytearray())
            recent.add(bucket, RUNS_KEPT[level])
            self._recent.move_to_end(kind)
        while len(self._recent) > KINDS_KEPT:
            self._recent.popitem(last=False)

    # ---- runs that go on ----

    def started(
        self, run: int, family: Family, gpus: int, began_at_s: float, ran_s: float = 0.0
    ) -> None:
        """A run has begun.

        Args:
            run: its number; what was known of a run of that number is forgotten.
            family: tenant, user and name.
            gpus: in all.
            began_at_s: Unix time.
            ran_s: the time of earlier attempts whose work is kept.
        """
        known = OpenRun(kinds_of(family, gpus), began_at_s - ran_s, next_age=_age(ran_s))
        self._runs[run] = known
        self._promise(run, known, ran_s)

    def stopped(self, run: int, at_s: float) -> float:
        """A run has stopped, to go on or to begin again: its length is not known.

        Returns:
            Seconds that it ran, with those of earlier attempts; 0 for one that is not followed.
        """
        known = self._runs.pop(run, None)
        if known is None:
            return 0.0
        self._settle(known, at_s, cut_off=True)
        return max(0.0, at_s - known.began_s)

    def ended(self, run: int, at_s: float, *, cut_off: bool = False) -> None:
        """A run is over for good; one that is not followed teaches nothing.

        Args:
            run: its number.
            at_s: Unix time; it may have become known later.
            cut_off: as of ``observe``.
        """
        known = self._runs.pop(run, None)
        if known is not None:
            self._settle(known, at_s, cut_off=cut_off)
            self._learn(known.kinds, max(0.0, at_s - known.began_s), cut_off=cut_off)

    def advance(self, now_s: float) -> None:
        """It is so late: promises up to now are broken, and runs come of age."""
        due = self._due
        while due and due[0][0] < now_s:
            at_s, run, age, is_promise = heappop(due)
            known = self._runs.get(run)
            if known is None:
                continue
            if is_promise:
                until_s, level = known.promises.get(age, (inf, 0))
                if until_s == at_s and age not in known.broken:
                    step = self._step(age)
                    known.broken = {**known.broken, age: step}
                    self._correct(known.kinds, level, age, step * _BROKEN)
            elif known.next_age == age and known.began_s + AGES_S[age] == at_s:
                self._promise(run, known, AGES_S[age])
        if len(due) > 64 + 8 * len(self._runs):  # most are of runs that have ended
            self._make_heap()

    def _promise(self, run: int, known: OpenRun, ran_s: float) -> None:
        age = known.next_age
        longer = self._longer(known.kinds, ran_s)
        if longer is not None:
            until_s = known.began_s + ran_s + self._q90_s(known.kinds, longer, ran_s)
            known.promises = {**known.promises, age: (until_s, longer.level)}
            heappush(self._due, (until_s, run, age, True))
        known.next_age += 1
        if known.next_age < len(AGES_S):
            at_s = known.began_s + AGES_S[known.next_age]
            heappush(self._due, (at_s, run, known.next_age, False))

    def _settle(self, known: OpenRun, over_at_s: float, *, cut_off: bool) -> None:
        """Count what it was promised, as far as that is known.

        Its end may become known long after, as when its site was out of reach. A promise that
        seemed broken meanwhile is then taken for what it was.
        """
        for age, (until_s, level) in known.promises.items():
            by = -_BROKEN * known.broken[age] if age in known.broken else 0.0
            if over_at_s > until_s:
                by = 0.0 if age in known.broken else _BROKEN * self._step(age)
            elif not cut_off:
                by += _KEPT * self._step(age)
            if by:
                self._correct(known.kinds, level, age, by)

    def _step(self, age: int) -> float:
        """How far the next promise of this age moves its corrections; the first ones do most."""
        self._seen[age] += 1
        return max(_LEAST_STEP, _FIRST_STEP / (1 + _SLOWING * self._seen[age]))

    def _correct(self, kinds: tuple[Kind, ...], level: int, age: int, by: float) -> None:
        for key in _part_keys(kinds, level, age):
            part = self._parts.get(key, 0.0) + by
            self._parts[key] = min(_MOST_OFFSET, max(-_MOST_OFFSET, part))

    def _make_heap(self) -> None:
        self._due = [
            (until_s, run, age, True)
            for run, known in self._runs.items()
            for age, (until_s, _) in known.promises.items()
            if age not in known.broken
        ]
        self._due += [
            (known.began_s + AGES_S[known.next_age], run, known.next_age, False)
            for run, known in self._runs.items()
            if known.next_age < len(AGES_S)
        ]
        heapify(self._due)

    # ---- snapshots ----

    def saved_kinds(self) -> Iterator[SavedKind]:
        """Every kind with the buckets of its durations, the one that ended last at the end."""
        return ((*kind, bytes(recent.latest)) for kind, recent in self._recent.items())

    def saved_runs(self) -> Iterator[tuple[int, OpenRun]]:
        """Every run that is followed, by its number, in the order in which they started."""
        return iter(self._runs.items())

    def saved_corrections(self) -> DurationCorrections:
        """All else that it knows."""
        parts = tuple((*key, part) for key, part in self._parts.items())
        return DurationCorrections(parts, tuple(self._seen), self._cut_offs, self._longest_s)

    def restore_kinds(self, kinds: Iterable[SavedKind]) -> None:
        """Know these as well; they ended later than those that are known."""
        for level, tenant, user, pattern, size, buckets in kinds:
            latest = bytearray(buckets)
            recent = _RecentRuns(latest, bytearray(sorted(latest)))
            self._recent[level, tenant, user, pattern, size] = recent

    def restore_runs(self, runs: Iterable[tuple[int, OpenRun]]) -> None:
        """Follow these as well; they started later than those that are followed."""
        self._runs.update(runs)

    def restore_corrections(self, saved: DurationCorrections) -> None:
        """Correct as it did that ``saved_corrections`` was asked of; the last to be restored."""
        self._parts = {(part, age): offset for part, age, offset in saved.parts}
        self._seen = [*saved.seen, *self._seen[len(saved.seen) :]]
        self._cut_offs, self._longest_s = saved.cut_offs, saved.longest_s
        self._make_heap()
