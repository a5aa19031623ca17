"""Plays the queue forward many times, a play at a time, and takes quantiles of the starts."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

import numpy as np

from federator.model.workload import WorkloadId
from federator.sched.starts.arrivals import Arrivals
from federator.sched.starts.calibration import Wait
from federator.sched.starts.playout import Coming, Play, PlayedRun, PlayShape
from federator.sched.starts.queue_view import LEAVES_IN_S, PlayedQueue
from federator.sched.state.durations import Lasting

PLAYS: Final = 20
HORIZON_S: Final = 12 * 3600.0
_LOW: Final = 0.05
_HIGH: Final = 0.95
_TOO_MANY: Final = PLAYS - int(_HIGH * PLAYS)  # that do not start: the upper quantile does not


class Plays:
    """The plays of one view of the queue.

    Args:
        view: as it is now.
        arrivals: read by each play.
        seed: the same seed draws the same.
    """

    def __init__(self, view: PlayedQueue, arrivals: Arrivals, seed: int = 0) -> None:
        self.view = view
        self._arrivals = arrivals
        self._known: dict[WorkloadId, tuple[PlayShape, Lasting | None] | None] = {}
        self._draw = _uniform(seed).__next__
        self._starts_s: list[list[float]] = []  # of each play
        self._beyond = [0] * len(view.queued)  # plays in which each did not start
        self._hopeless: set[int] = set()  # the end of whose interval lies beyond the horizon

    @property
    def over(self) -> bool:
        """Whether all are done."""
        return len(self._starts_s) >= PLAYS or not self.view.queued

    def play(self) -> None:
        """One more."""
        view, draw = self.view, self._draw
        running = [
            PlayedRun(
                o.pool,
                o.hold,
                LEAVES_IN_S if o.leaving else _left_s(o.lasting, draw()),
                o.licenses,
            )
            for o in view.occupied
        ]
        waiting = [Coming(0.0, q.shape, _left_s(q.lasting, draw())) for q in view.queued]
        pools = [pool.copy() for pool in view.pools]
        coming = self._coming() if self._arrivals.foretell(view.at_s) else None
        play = Play(pools, running, waiting, coming, self._hopeless, view.closures)
        starts_s = play.run(HORIZON_S, view.places.licenses_free)
        self._starts_s.append(starts_s)
        self._give_up(starts_s)

    def _give_up(self, starts_s: list[float]) -> None:
        """Do not wait in further plays for those whose interval is known to have no end.

        Else each play would last to the horizon for the sake of one gang that starves.
        """
        for k, start_s in enumerate(starts_s):
            if start_s == inf:
                self._beyond[k] += 1
                if self._beyond[k] >= _TOO_MANY:
                    self._hopeless.add(k)

    def _coming(self) -> Iterator[Coming]:
        draw, known = self._draw, self._known
        play = len(self._starts_s)
        for at_s, workload in self._arrivals.coming(self.view.at_s, play, draw()):
            if workload.id not in known:
                known[workload.id] = self.view.like(workload)
            like = known[workload.id]
            if like is not None:
                yield Coming(at_s, like[0], _left_s(like[1], draw()))

    def waits(self) -> dict[WorkloadId, Wait]:
        """The quantiles for each that waits; inf where they lie beyond the horizon."""
        found = {}
        for k, queued in enumerate(self.view.queued):
            ascending = sorted(starts_s[k] for starts_s in self._starts_s)
            found[queued.id] = Wait(*(quantile(ascending, q) for q in (_LOW, 0.5, _HIGH)))
        return found


def _uniform(seed: int) -> Iterator[float]:
    """Numbers from 0 to below 1, the same for the same seed."""
    generator = np.random.default_rng(seed)
    while True:
        yield from generator.random(1024).tolist()


def quantile(ascending: list[float], frac: float) -> float:
    """Of sorted numbers, at least one."""
    return ascending[min(len(ascending) - 1, int(frac * len(ascending)))]


def _left_s(lasting: Lasting | None, frac: float) -> float:
    return inf if lasting is None else lasting.left_s(frac)
