"""``sia``: shares idle GPUs by a forecast that knows only what was seen so far.

One counter of the GPUs of all pools. A job starts dedicated, in order of submission within its
pool's own GPUs, or spare, out of order, on what the pools' forecasts leave over; see
``federator.planner.anticipation``. Decided at each arrival, each end, and, while jobs wait, at each
step of 5 minutes from the first submission, when the forecasts change. Nothing is preempted.

What is forecast, and from what: ``federator.planner.forecast``. ``knowledge`` gives the other
columns of the paper's comparison, too:

- ``learnt``: boosted trees, and durations of similar jobs;
- ``durations``: boosted trees, and each job's own duration, as the paper does on Helios;
- ``perfect``: the GPUs that will come in [now, now + window), and the true class of each duration;
- ``random-arrivals``: whether jobs will come is drawn; durations of similar jobs;
- ``random``: the class of each duration is drawn as well.

Source:
    SIA sec. 5.3 and 5.4; sec. 6.3 for the variants. With perfect coarse forecasts no job starts
    later than in its own pool alone, in order, as a counter (``pool-fifo-count``): what is reserved
    is idle, until the last spare job that it was checked for has ended, and a pool's dedicated jobs
    are those of its queue less some, so none of them is later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from itertools import accumulate
from typing import Final, Protocol

from federator.errors import InvalidRequest
from federator.planner.anticipation import (
    WINDOWS_S,
    PlannedStart,
    PoolQueue,
    length_class,
    plan_starts,
)
from federator.planner.boosted import BoostedForecast
from federator.planner.forecast import (
    CoinDurations,
    CoinForecast,
    DurationForecast,
    Forecaster,
    SimilarJobs,
)
from federator.planner.history import STEP_S
from federator.sim.fifo_engine import report
from federator.sim.node_pool import Held, counter
from federator.sim.trace import ReplayOptions, Timetable, Trace

MAX_SPAN_S: Final = (
    5 * 366 * 86_400
)  # from the first submission; each 5 minutes cost time and memory


class Knowledge(Enum):
    """Of what is to come."""

    LEARNT = "learnt"
    DURATIONS = "durations"
    PERFECT = "perfect"
    RANDOM_ARRIVALS = "random-arrivals"
    RANDOM = "random"


class Foresight(Protocol):
    """A forecaster, told of all that happens in the order of time."""

    def arrived(self, key: int, now_s: int, user: str, pool: int, gpus: int) -> int: ...
    def started(self, key: int, now_s: int) -> None: ...
    def ended(self, key: int, now_s: int) -> None: ...
    def new_load(self, now_s: int, window: int) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SiaReplay:
    """Anticipatory sharing by coarse forecasts.

    Attributes:
        knowledge: of what is to come.
        windows_s: horizons of the forecasts, and bounds of the classes of durations; ascending.
    """

    knowledge: Knowledge = Knowledge.LEARNT
    windows_s: tuple[int, ...] = WINDOWS_S

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        """Replay the whole trace.

        Raises:
            InvalidRequest: it lasts longer than ``MAX_SPAN_S``.
        """
        begin_s = min(trace.submit_s, default=0)
        ends_s = (a + b for a, b in zip(trace.submit_s, trace.duration_s, strict=True))
        _check_span(max(ends_s, default=begin_s) - begin_s)
        return _Anticipation(
            trace, options, self.foresight(trace, options.seed), len(self.windows_s)
        ).replay()

    def foresight(self, trace: Trace, seed: int) -> Foresight:
        """Who tells a replay of this trace what is to come."""
        if self.knowledge is Knowledge.PERFECT:
            return PerfectForesight(trace, self.windows_s)
        learnt = self.knowledge in (Knowledge.LEARNT, Knowledge.DURATIONS)
        arrivals = BoostedForecast() if learnt else CoinForecast(seed)
        begin_s = min(trace.submit_s, default=0)
        durations = self._durations(trace, seed)
        return Forecaster(len(trace.pools), begin_s, arrivals, durations, self.windows_s)

    def _durations(self, trace: Trace, seed: int) -> DurationForecast:
        match self.knowledge:
            case Knowledge.DURATIONS:
                return KnownDurations(trace)
            case Knowledge.RANDOM:
                return CoinDurations(seed + 1, self.windows_s)
            case _:
                return SimilarJobs()


def _check_span(span_s: int) -> None:
    if span_s > MAX_SPAN_S:
        raise InvalidRequest(
            f"sia: the trace lasts more than {MAX_SPAN_S // 86_400} days from its first submission "
            "and forecasts change every 5 minutes; replay a shorter part of it"
        )


class KnownDurations:
    """The trace's own; asked once for each job, in the order in which they come."""

    def __init__(self, trace: Trace) -> None:
        self._left_s = iter([trace.duration_s[row] for row in trace.in_order()])

    def expect_s(self, user: str, pool: int, gpus: int) -> float:  # noqa: ARG002
        return next(self._left_s)

    def ended(self, user: str, pool: int, gpus: int, duration_s: float) -> None:
        """It knew."""


class PerfectForesight:
    """Knows the trace, as coarsely as a forecaster would tell it. Keys are rows."""

    def __init__(self, trace: Trace, windows_s: Sequence[int]) -> None:
        self.pools, self._windows_s = trace.pools, windows_s
        self._durations_s = trace.duration_s
        rows = trace.by_pool()
        self._submit_s = [[trace.submit_s[row] for row in own] for own in rows]
        self._load = [list(accumulate((trace.gpus[r] for r in own), initial=0)) for own in rows]

    def arrived(self, key: int, now_s: int, user: str, pool: int, gpus: int) -> int:  # noqa: ARG002
        return length_class(self._durations_s[key], self._windows_s)

    def started(self, key: int, now_s: int) -> None:
        """It knew."""

    def ended(self, key: int, now_s: int) -> None:
        """It knew."""

    def new_load(self, now_s: int, window: int) -> Sequence[int]:
        """All that came by now waits or runs, so [now, now + window) is what comes after now."""
        until_s = now_s + self._windows_s[window]
        return [
            load[bisect_left(submit_s, until_s)] - load[bisect_left(submit_s, now_s + 1)]
            for submit_s, load in zip(self._submit_s, self._load, strict=True)
        ]


class _Anticipation:
    """One replay: the queues, who runs, and what is idle."""

    def __init__(
        self, trace: Trace, options: ReplayOptions, foresight: Foresight, windows: int
    ) -> None:
        self.trace, self.options, self.foresight = trace, options, foresight
        self.windows = windows
        self.timetable = Timetable.of(trace, shared=True)
        self.space, self.idle = counter(trace.capacity, options), trace.capacity
        self.queues = [PoolQueue(pool.gpus) for pool in trace.pools]
        self.rows = trace.in_order()
        self.running: list[tuple[int, int, bool, Held]] = []  # a heap: end, row, dedicated
        self.left = len(trace)  # that have not started

    def replay(self) -> Timetable:
        trace, rows, position = self.trace, self.rows, 0
        now_s = trace.submit_s[rows[0]] if rows else 0
        while self.left:
            arrives_s = trace.submit_s[rows[position]] if position < len(rows) else None
            now_s = self._next(now_s, arrives_s)
            _check_span(now_s - trace.submit_s[rows[0]])
            self._end(now_s)
            while position < len(rows) and trace.submit_s[rows[position]] <= now_s:
                self._arrive(position)
                position += 1
                report(position, self.options)
            self._plan(now_s)
        return self.timetable

    def _next(self, now_s: int, arrives_s: int | None) -> int:
        """The next arrival; while jobs wait, an end or a step if that is earlier."""
        times_s = [] if arrives_s is None else [arrives_s]
        if any(queue.waits for queue in self.queues):
            begin_s = self.trace.submit_s[self.rows[0]]
            times_s.append(now_s + STEP_S - (now_s - begin_s) % STEP_S)
            times_s += [end[0] for end in self.running[:1]]
        return min(times_s)

    def _end(self, now_s: int) -> None:
        while self.running and self.running[0][0] <= now_s:
            ends_s, row, dedicated, held = heappop(self.running)
            gpus = self.trace.gpus[row]
            self.space.give(held)
            self.idle += gpus
            self.queues[self.trace.pool[row]].end(gpus, dedicated)
            self.foresight.ended(row, ends_s)

    def _arrive(self, position: int) -> None:
        trace, row = self.trace, self.rows[position]
        gpus, pool = trace.gpus[row], trace.pool[row]
        length = self.foresight.arrived(row, trace.submit_s[row], trace.user[row], pool, gpus)
        self.queues[pool].add(position, gpus, length)

    def _plan(self, now_s: int) -> None:
        for start in plan_starts(
            self.queues, self.idle, lambda k: self.foresight.new_load(now_s, k), self.windows
        ):
            self._start(start, now_s)

    def _start(self, start: PlannedStart, now_s: int) -> None:
        row = self.rows[start.number]
        held = self.space.take(start.gpus)
        assert held is not None, "more was started than is idle"
        self.idle -= start.gpus
        self.left -= 1
        self.timetable.start_s[row] = now_s
        self.timetable.end_s[row] = ends_s = now_s + self.trace.duration_s[row]
        heappush(self.running, (ends_s, row, start.dedicated, held))
        self.foresight.started(row, now_s)
