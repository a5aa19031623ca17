"""Compares how long the steps of trainings of one kind take on different nodes.

A gang is as fast as its slowest node or link. So a run whose steps take longer than those of runs
of its kind on *other* nodes is on a slow one, wherever in it that is. Runs that share a node with
it are not compared: they would be slow, too.

Source:
    The task is that of Wu et al., "Greyhound: Hunting Fail-Slows in Hybrid-Parallel Training at
    Scale" (2025), who find in one job that its steps have become longer. Here jobs are compared
    with others of their kind, so that a node that was slow from the start is found as well.
    Statistic, thresholds and priors are chosen here; figures: docs/results.md.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from math import exp, log, sqrt
from typing import Final, NamedTuple

import msgspec

from federator.model.site import StepWindow
from federator.model.workload import AttemptId, SiteName
from federator.sched.state.recent_runs import Kind

SLOW: Final = 1.18
"""Steps that take so many times as long as elsewhere are slow, at least."""
NORMAL: Final = 1.07
"""Steps that take at most so many times as long as elsewhere prove that the nodes are sound."""
LEAST_OTHERS: Final = 3  # runs on other nodes to compare with
LEAST_WINDOWS: Final = 5  # of a run, before it is judged or compared with
WINDOWS: Final = 9  # the latest, whose median counts
LEAST_STEPS: Final = 3  # of a window that counts
_DEVIATIONS: Final = 3.0  # that a slow run is beyond the others at least
_SPREAD: Final = 0.03  # of the logarithms of runs of a kind, before any were seen
_WEIGHT: Final = 8.0  # runs that this counts as
_TO_DEVIATION: Final = 1.4826  # the median of absolute deviations, of a normal distribution
MOST_STEP_S: Final = 1e6  # of one step that is believed
RUNS_KEPT: Final = 32  # of a kind, on whatever nodes
KINDS_KEPT: Final = 4096


class Speed(Enum):
    """How fast a run is, beside those of its kind on other nodes."""

    NORMAL = "normal"
    UNSURE = "unsure"
    SLOW = "slow"


class Judged(NamedTuple):
    """A run beside those of its kind on other nodes; ``factor``: its steps take so many times."""

    speed: Speed
    factor: float
    others: int  # it was compared with so many runs


class RunShape(NamedTuple):
    """What runs must have in common to be compared: kind, and on how many nodes of what sort."""

    kind: Kind
    site: SiteName
    partition: str
    gpu_types: tuple[str, ...]
    nodes: int


class StepRun(msgspec.Struct, gc=False):
    """The steps of one attempt."""

    nodes: frozenset[str]
    window: int = 0  # the last that was taken in
    step_s: float = 0.0  # of its latest windows the middle one; 0: it has told of too few
    slow: bool = False  # when it was judged last
    steps_s: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=WINDOWS))

    def add(self, window: StepWindow) -> None:
        """One window more."""
        self.window = window.number
        self.steps_s.append(window.median_s)
        if len(self.steps_s) >= LEAST_WINDOWS:
            self.step_s = _median(self.steps_s)


def judged(step_s: float, others_s: Sequence[float]) -> Judged | None:
    """Judge a run by the runs of its kind on other nodes.

    Args:
        step_s: how long its steps take, seconds > 0.
        others_s: the same of the others, each > 0.

    Returns:
        None: the others are too few.
    """
    if len(others_s) < LEAST_OTHERS:
        return None
    logs = [log(s) for s in others_s]
    middle, n = _median(logs), len(logs)
    seen = _TO_DEVIATION * _median([abs(x - middle) for x in logs])
    spread = sqrt((_WEIGHT * _SPREAD**2 + n * seen**2) / (_WEIGHT + n))
    beyond = log(step_s) - middle
    speed = Speed.UNSURE
    if beyond >= max(log(SLOW), _DEVIATIONS * spread):
        speed = Speed.SLOW
    elif beyond <= log(NORMAL):
        speed = Speed.NORMAL
    return Judged(speed, exp(beyond), n)


class StepTimes:
    """The latest runs of each kind. It reads no clock, and a run costs a look at a few others.

    Args:
        is_live: tells whether an attempt still runs. Its run is never dropped for another.
    """

    def __init__(self, is_live: Callable[[AttemptId], bool]) -> None:
        self._is_live = is_live
        self._runs: OrderedDict[RunShape, OrderedDict[AttemptId, StepRun]] = OrderedDict()

    def take_in(
        self, shape: RunShape, attempt: AttemptId, nodes: Iterable[str], window: StepWindow
    ) -> bool:
        """Take in a window of a run; tell whether it is new, and enough are known of the run.

        While as many runs of its kind are live as are kept, one more is not taken in.
        """
        runs = self._runs.setdefault(shape, OrderedDict())
        self._runs.move_to_end(shape)
        run = runs.get(attempt)
        if run is None:
            if len(runs) >= RUNS_KEPT and not self._drops_one(runs, attempt):
                return False
            run = runs[attempt] = StepRun(frozenset(nodes))
        runs.move_to_end(attempt)
        if len(self._runs) > KINDS_KEPT:
            self._runs.popitem(last=False)
        sound = 0 < window.median_s < MOST_STEP_S and window.steps >= LEAST_STEPS  # nor is NaN
        if window.number == run.window or not sound:
            return False
        run.add(window)
        return run.step_s > 0

    def _drops_one(self, runs: OrderedDict[AttemptId, StepRun], attempt: AttemptId) -> bool:
        """Drop the ended run that told least lately, of its own workload last; if there is one."""
        ended = [other for other in runs if not self._is_live(other)]
        if not ended:
            return False
        del runs[next((a for a in ended if a.workload != attempt.workload), ended[0])]
        return True

    def judge(self, shape: RunShape, attempt: AttemptId) -> Judged | None:
        """Judge a run of which enough is known by those on other nodes that were not slow.

        None: it is not known, or too few of those are.
        """
        runs = self._of(shape)
        run = runs.get(attempt)
        if run is None or not run.step_s:
            return None
        sound = [r for r in runs.values() if r.step_s and not r.slow]
        found = judged(run.step_s, [r.step_s for r in sound if run.nodes.isdisjoint(r.nodes)])
        run.slow = found is not None and found.speed is Speed.SLOW
        return found

    def slow_itself(self, shape: RunShape, attempt: AttemptId) -> bool:
        """Whether an earlier attempt of the same workload was as slow, on other nodes.

        Then it does more in a step than others of its kind, and its nodes are not to blame.
        """
        runs = self._of(shape)
        run = runs.get(attempt)
        if run is None or not run.step_s:
            return False
        return any(
            earlier.step_s > 0
            and earlier.nodes.isdisjoint(run.nodes)
            and run.step_s <= NORMAL * earlier.step_s
            for other, earlier in runs.items()
            if other.workload == attempt.workload and other != attempt
        )

    def _of(self, shape: RunShape) -> Mapping[AttemptId, StepRun]:
        return self._runs.get(shape, {})


def _median(values: Iterable[float]) -> float:
    """Of an even number the lower of the two in the middle."""
    ascending = sorted(values)
    return ascending[(len(ascending) - 1) // 2]
