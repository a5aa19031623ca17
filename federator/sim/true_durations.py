"""Run times as if every user had told them: what a federation would do that need not learn them."""

from __future__ import annotations

from collections.abc import Callable

from federator.model.workload import Workload, WorkloadId
from federator.sched.state.durations import KnownFrom, Remaining
from federator.sched.state.learned_durations import LearnedDurations
from federator.sched.state.workload_record import WorkloadRecord


class TrueDurations(LearnedDurations):
    """Predictions that come true; start-up and saves of simulated sites come on top.

    Args:
        left_s: the useful work that a workload has still to do when an attempt starts, in seconds.
    """

    def __init__(self, left_s: Callable[[WorkloadId], float]) -> None:
        super().__init__()
        self._left_s = left_s

    def remaining(self, entry: WorkloadRecord, now_s: float) -> Remaining | None:
        if not entry.started_at_s:
            return None
        left_s = max(0.0, entry.started_at_s + self._left_s(entry.workload.id) - now_s)
        return Remaining(left_s, left_s, KnownFrom.NAME)

    def expected(self, workload: Workload) -> Remaining | None:
        left_s = self._left_s(workload.id)
        return Remaining(left_s, left_s, KnownFrom.NAME)
