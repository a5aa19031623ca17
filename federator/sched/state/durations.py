"""Learns how long workloads run, and predicts how long one that runs will still do so.

A prediction comes from the latest workloads of the same kind that ran longer than this one has so
far (``recent_runs``), and is corrected so that nine of ten are over by then (``corrections``). A
promise counts as broken at its time, not when the run ends at last; else the long runs, which end
last, would be missing from what is learned.

Nothing is ended for a prediction: these are bounds for planning alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, NamedTuple

import msgspec

from federator.model.event import DurationCorrections
from federator.sched.state.corrections import AGES_S, QUANTILE, Corrections, age_of
from federator.sched.state.recent_runs import Kind, LongerRuns, RecentRuns, kinds_of
from federator.sched.state.save_times import Family

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


class Lasting(NamedTuple):
    """How long a run may go on: as those of its like did that ran longer than it has.

    Where none did its limit alone is known: it may end at any time until then, sooner rather than
    later (the logarithm of what is left is drawn evenly; chosen here).
    """

    longer: LongerRuns | None
    ran_s: float
    limit_s: float  # it ends by then at the latest, counted as ``ran_s`` is

    def left_s(self, frac: float) -> float:
        """Seconds > 0 that a fraction of them, from 0 to below 1, does not exceed."""
        if self.longer is None:
            return float(max(1.0, self.limit_s - self.ran_s) ** frac)
        return max(1.0, min(self.longer.at(frac), self.limit_s) - self.ran_s)


def _by_limit(ran_s: float, limit_s: float) -> Lasting | None:
    return None if limit_s == inf else Lasting(None, ran_s, limit_s)


class OpenRun(msgspec.Struct, gc=False):
    """A run that is followed: since when, and until when it is promised to be over.

    ``began_s`` lies before its start by as much as earlier attempts have done of its work.
    """

    kinds: tuple[Kind, ...]
    began_s: float
    next_age: int = 0  # index in ``AGES_S``
    promises: dict[int, Promise] = {}  # by age
    broken: dict[int, float] = {}  # the ages of those that seem to be; by which step they counted


class DurationModel:
    """The durations of the latest runs of each kind, and the runs that go on.

    It reads no clock: the same calls in the same order give the same predictions.

    Attributes:
        recent: the runs that have ended.
    """

    def __init__(self) -> None:
        self.recent = RecentRuns()
        self._corrections = Corrections()
        self._runs: dict[int, OpenRun] = {}
        self._due: list[tuple[float, int, int, bool]] = []  # a heap: when, run, age, a promise

    # ---- predictions ----

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

    def lasting(
        self, family: Family, gpus: int, ran_s: float = 0.0, limit_s: float = inf
    ) -> Lasting | None:
        """As ``remaining``, as all that is known to be drawn from."""
        return self._lasting(kinds_of(family, gpus), ran_s, limit_s)

    def lasting_of(self, run: int, now_s: float, limit_s: float = inf) -> Lasting | None:
        """As ``remaining_of``, as all that is known to be drawn from."""
        known = self._runs.get(run)
        if known is None:
            return _by_limit(0.0, max(0.0, limit_s))
        ran_s = max(0.0, now_s - known.began_s)
        return self._lasting(known.kinds, ran_s, ran_s + max(0.0, limit_s))

    def _lasting(self, kinds: tuple[Kind, ...], ran_s: float, limit_s: float) -> Lasting | None:
        longer = self.recent.longer(kinds, ran_s)
        if longer is None:
            return _by_limit(ran_s, limit_s)
        frozen = longer._replace(ascending=longer.ascending[:])  # others end meanwhile
        return Lasting(frozen, ran_s, limit_s)

    def _remaining(self, kinds: tuple[Kind, ...], ran_s: float, limit_s: float) -> Remaining | None:
        longer = self.recent.longer(kinds, ran_s)
        if longer is None:
            return None
        q90_s = min(self._q90_s(kinds, longer, ran_s), max(0.0, limit_s - ran_s))
        mean_s = longer.mean_s(limit_s if limit_s < self.recent.longest_s else inf)
        expected_s = max(0.0, min(mean_s, limit_s) - ran_s)
        return Remaining(expected_s, q90_s, _LEVELS[longer.level])

    def _q90_s(self, kinds: tuple[Kind, ...], longer: LongerRuns, ran_s: float) -> float:
        plain_s = longer.quantile_s(QUANTILE) - ran_s
        factor = self._corrections.factor(kinds, longer.level, age_of(ran_s))
        return min(plain_s * factor, max(plain_s, self.recent.longest_s))

    # ---- learning ----

    def observe(
        self, family: Family, gpus: int, duration_s: float, *, cut_off: bool = False
    ) -> None:
        """One of a family has ended.

        Args:
            family: tenant, user and name.
            gpus: in all.
            duration_s: for so long it ran, attempts whose work was kept taken together; >= 0.
            cut_off: not of its own, as by its time limit: it would have run longer.
        """
        self.recent.add(kinds_of(family, gpus), duration_s, cut_off=cut_off)

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
        known = OpenRun(kinds_of(family, gpus), began_at_s - ran_s, next_age=age_of(ran_s))
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
            self.recent.add(known.kinds, max(0.0, at_s - known.began_s), cut_off=cut_off)

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
                    step = self._corrections.broke(known.kinds, level, age)
                    known.broken = {**known.broken, age: step}
            elif known.next_age == age and known.began_s + AGES_S[age] == at_s:
                self._promise(run, known, AGES_S[age])
        if len(due) > 64 + 8 * len(self._runs):  # most are of runs that have ended
            self._make_heap()

    def _promise(self, run: int, known: OpenRun, ran_s: float) -> None:
        age = known.next_age
        longer = self.recent.longer(known.kinds, ran_s)
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
            took_back = known.broken.get(age)
            if over_at_s <= until_s:
                self._corrections.held(
                    known.kinds, level, age, took_back=took_back, counts=not cut_off
                )
            elif took_back is None:
                self._corrections.broke(known.kinds, level, age)

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

    def saved_runs(self) -> Iterator[tuple[int, OpenRun]]:
        """Every run that is followed, by its number, in the order in which they started."""
        return iter(self._runs.items())

    def saved_corrections(self) -> DurationCorrections:
        """All else that it knows."""
        parts, seen = self._corrections.saved()
        return DurationCorrections(parts, seen, self.recent.cut_offs, self.recent.longest_s)

    def restore_runs(self, runs: Iterable[tuple[int, OpenRun]]) -> None:
        """Follow these as well; they started later than those that are followed."""
        self._runs.update(runs)

    def restore_corrections(self, saved: DurationCorrections) -> None:
        """Correct as it did that ``saved_corrections`` was asked of; the last to be restored."""
        self._corrections.restore(saved.parts, saved.seen)
        self.recent.cut_offs, self.recent.longest_s = saved.cut_offs, saved.longest_s
        self._make_heap()
