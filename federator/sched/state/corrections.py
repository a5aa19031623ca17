"""Corrects predicted ends so that nine of ten runs are over by then, whatever the load does.

Each run is promised an end as it starts, and again when it reaches each of ``AGES_S``. A promise
that is broken makes later ones like it longer, one that is kept makes them a little shorter. A
correction has three parts, which are added as logarithms: of all runs, of the size, of the level of
the kind. Parts are kept for each age apart.

Source:
    Adaptive conformal inference as quantile tracking: Gibbs and Candes, NeurIPS 2021;
    Angelopoulos, Candes and Tibshirani, NeurIPS 2023. Its step and the three parts are chosen here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from math import exp
from typing import Final

from federator.sched.state.recent_runs import Kind

QUANTILE: Final = 0.9
AGES_S: Final = (0.0, 600.0, 3600.0, 21_600.0)
"""A run gets a promise when it is so old; corrections are kept for each age apart."""

_LEAST_STEP: Final = 0.02  # of each part of a correction, as a logarithm
_FIRST_STEP: Final = 0.1
_SLOWING: Final = 0.1  # from the first step to the least
_MOST_OFFSET: Final = 6.0  # of a part: some 400 times longer, or shorter
_BROKEN: Final = QUANTILE  # what a promise adds to the offset, in steps
_KEPT: Final = QUANTILE - 1
_OF_ALL: Final = -1  # the part of a correction that all runs share


def age_of(ran_s: float) -> int:
    """The index in ``AGES_S`` of the age that a run has reached."""
    return max(0, bisect_right(AGES_S, ran_s) - 1)


def _part_keys(kinds: tuple[Kind, ...], level: int, age: int) -> tuple[tuple[int, int], ...]:
    """The parts of a correction: that of all runs, of the size, and of the level."""
    return (_OF_ALL, age), (kinds[0][-1], age), (_OF_ALL - 1 - level, age)


class Corrections:
    """By how much promised ends were too early or too late.

    A promise is known by the kinds of its run, the level of the kind that it was made from, and the
    age of the run.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int], float] = {}  # as logarithms
        self._seen = [0] * len(AGES_S)  # promises that were kept or broken

    def factor(self, kinds: tuple[Kind, ...], level: int, age: int) -> float:
        """How many times longer a promise has to be than what is known says."""
        return exp(sum(self._parts.get(key, 0.0) for key in _part_keys(kinds, level, age)))

    def broke(self, kinds: tuple[Kind, ...], level: int, age: int) -> float:
        """A promise was broken; returns the step by which that counted."""
        step = self._step(age)
        self._correct(kinds, level, age, step * _BROKEN)
        return step

    def held(
        self,
        kinds: tuple[Kind, ...],
        level: int,
        age: int,
        *,
        took_back: float | None,
        counts: bool,
    ) -> None:
        """A promise was not broken.

        Args:
            kinds, level, age: of the promise.
            took_back: the step by which it counted as broken; None: it did not.
            counts: whether it was kept; else it is not known how long the run would have been.
        """
        by = -_BROKEN * took_back if took_back is not None else 0.0
        if counts:
            by += _KEPT * self._step(age)
        if by:
            self._correct(kinds, level, age, by)

    def _step(self, age: int) -> float:
        """How far the next promise of this age moves its corrections; the first ones do most."""
        self._seen[age] += 1
        return max(_LEAST_STEP, _FIRST_STEP / (1 + _SLOWING * self._seen[age]))

    def _correct(self, kinds: tuple[Kind, ...], level: int, age: int, by: float) -> None:
        for key in _part_keys(kinds, level, age):
            part = self._parts.get(key, 0.0) + by
            self._parts[key] = min(_MOST_OFFSET, max(-_MOST_OFFSET, part))

    def saved(self) -> tuple[tuple[tuple[int, int, float], ...], tuple[int, ...]]:
        """The parts, as part, age and offset; and how many promises of each age were judged."""
        return tuple((*key, part) for key, part in self._parts.items()), tuple(self._seen)

    def restore(self, parts: Iterable[tuple[int, int, float]], seen: tuple[int, ...]) -> None:
        """Correct as the one that ``saved`` was asked of."""
        self._parts = {(part, age): offset for part, age, offset in parts}
        self._seen = [*seen, *self._seen[len(seen) :]]
