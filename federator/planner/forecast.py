"""Forecasts how much each pool will be asked for, and how long a job will run.

Two questions, each with predictors behind a protocol: will any job come within a window
(``ArrivalForecast``), and how long will this job run (``DurationForecast``)? ``Forecaster`` puts
them together. Nothing here looks ahead: a caller tells what happened, in order of time, and a
forecast for now rests on what it was told.

Source:
    SIA sec. 5.4. TotalNewLoad is NewLoadEstimate where WillJobsArrive, else 0. Chosen where the
    paper is silent: NewLoadEstimate looks back over ``QUANTA`` lengths of the window ("the recent
    few"). A job's duration is expected to be the median of those of the last ``_RECALLED`` jobs
    that ended of the same user, pool and size, if there were ``_ENOUGH`` of them (the paper has a
    tag of the experiment in place of the user); else of the same pool and size; else of the same
    pool; else nothing is known, and it counts as longer than all windows. Sizes are similar if they
    have equally many binary digits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from federator.planner.anticipation import WINDOWS_S, length_class
from federator.planner.history import PoolHistory

QUANTA: Final = 6
_RECALLED: Final = 100  # jobs of a kind
_ENOUGH: Final = 5

Said = NDArray[np.bool_]


class ArrivalForecast(Protocol):
    """WillJobsArrive."""

    def says(self, history: PoolHistory, window: int) -> Said:
        """Will any job come in the window after the last closed step? By pool."""
        ...


class LatelyForecast:
    """Jobs come if jobs came in the window before: what is known before anything was learnt."""

    def says(self, history: PoolHistory, window: int) -> Said:
        return history.came_lately(window)


class CoinForecast:
    """Yes or no at random, one half each: the straw man of SIA sec. 6.3."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)

    def says(self, history: PoolHistory, window: int) -> Said:
        return self._draw.random(len(history.came_lately(window))) < 0.5


class DurationForecast(Protocol):
    """JobDuration."""

    def expect_s(self, user: str, pool: int, gpus: int) -> float:
        """The expected run time of a job that comes now; ``inf``: no idea."""
        ...

    def ended(self, user: str, pool: int, gpus: int, duration_s: float) -> None:
        """A job has ended, and ran so long."""
        ...


class SimilarJobs:
    """A job runs as long as half of those like it did, at most."""

    def __init__(self) -> None:
        self._seen: dict[tuple[object, ...], deque[float]] = {}

    def expect_s(self, user: str, pool: int, gpus: int) -> float:
        keys = self._keys(user, pool, gpus)
        for key, enough in zip(keys, (_ENOUGH, _ENOUGH, 1), strict=True):
            seen = self._seen.get(key, ())
            if len(seen) >= enough:
                ranked = sorted(seen)
                return ranked[len(ranked) // 2]
        return inf

    def ended(self, user: str, pool: int, gpus: int, duration_s: float) -> None:
        for key in self._keys(user, pool, gpus):
            self._seen.setdefault(key, deque(maxlen=_RECALLED)).append(duration_s)

    def _keys(self, user: str, pool: int, gpus: int) -> tuple[tuple[object, ...], ...]:
        size = gpus.bit_length()
        return (user, pool, size), (pool, size), (pool,)


class CoinDurations:
    """One of the classes at random: the other straw man of SIA sec. 6.3.

    Args:
        seed: of what is drawn.
        windows_s: the bounds of the classes.
    """

    def __init__(self, seed: int, windows_s: Sequence[int] = WINDOWS_S) -> None:
        self._draw = np.random.default_rng(seed)
        self._expected_s = (*windows_s, inf)

    def expect_s(self, user: str, pool: int, gpus: int) -> float:  # noqa: ARG002
        return self._expected_s[self._draw.integers(len(self._expected_s))]

    def ended(self, user: str, pool: int, gpus: int, duration_s: float) -> None:
        """It does not learn."""


class Forecaster:
    """The forecasts that a planner needs. Time never goes back.

    Args:
        pools: how many there are.
        begin_s: of the time that it sees.
        arrivals: whether jobs come.
        durations: how long they run.
        windows_s: horizons.

    Attributes:
        history: of what it was told; only a forecaster adds to it.
    """

    def __init__(
        self,
        pools: int,
        begin_s: int,
        arrivals: ArrivalForecast,
        durations: DurationForecast,
        windows_s: Sequence[int] = WINDOWS_S,
    ) -> None:
        self.history = PoolHistory(pools, windows_s, begin_s)
        self._arrivals, self._durations, self._windows_s = arrivals, durations, windows_s
        self._jobs: dict[int, tuple[str, int, int, float]] = {}  # user, pool, GPUs, expected_s
        self._started_s: dict[int, int] = {}
        self._said: dict[int, Sequence[int]] = {}  # by window, at this step
        self._said_at = 0

    def arrived(self, key: int, now_s: int, user: str, pool: int, gpus: int) -> int:
        """A job comes; the class of its length."""
        self.history.close(now_s - 1)
        self.history.arrived(pool, gpus)
        expected_s = self._durations.expect_s(user, pool, gpus)
        self._jobs[key] = user, pool, gpus, expected_s
        return length_class(expected_s, self._windows_s)

    def started(self, key: int, now_s: int) -> None:
        _, pool, _, expected_s = self._jobs[key]
        self._started_s[key] = now_s
        self.history.started(key, pool, now_s + expected_s)

    def ended(self, key: int, now_s: int) -> None:
        self.history.close(now_s - 1)
        self.history.ended(key)
        user, pool, gpus, _ = self._jobs.pop(key)
        self._durations.ended(user, pool, gpus, now_s - self._started_s.pop(key))

    def left(self, key: int) -> None:
        """A job is gone that had not started."""
        del self._jobs[key]

    def new_load(self, now_s: int, window: int) -> Sequence[int]:
        """TotalNewLoad, by pool, as of the last step; all that happens until now has been told."""
        self.history.close(now_s)
        if self._said_at != self.history.steps:
            self._said_at = self.history.steps
            self._said.clear()
        if window not in self._said:
            will = self._arrivals.says(self.history, window)
            load = self.history.most_load(window, QUANTA)
            self._said[window] = np.where(will, load, 0).tolist()
        return self._said[window]
