"""``sia-vc``: shares idle GPUs with all arrivals and durations known, so that none loses.

One counter of the GPUs of all pools. A job's virtual start is its start if its pool shared nothing:
strict order of submission, the pool a counter, so that of ``pool-fifo-count``. All jobs that have
not started, those to come included, are reserved from their virtual start for their duration. At
each arrival and each end the waiting jobs are visited by virtual start (ties: submission, then
order of the file); one starts at once if at every instant until it ends it fits beside what runs
and what is reserved for the others. Nothing is preempted. No job starts after its virtual start.

Source:
    SIA sec. 5.1, Figure 6 and Theorem 1. The figure starts from the first job again after each
    start, and looks only at reservations of jobs before it in the order. Both come out the same
    here, in one walk and with all reservations kept from event to event: a job that moves ahead
    leaves its own reservation, so it can hinder only before that, where jobs after it in the order
    have nothing; and it takes, before it, from those visited earlier, who could not start anyway.
    The paper computes virtual starts anew at each event "beginning with the current state of each
    pool"; here they are those of the base line throughout. A pool whose job runs on borrowed GPUs
    would otherwise look full, its other jobs would be put off, and the theorem would not hold.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappush

from federator.planner.resource_plan import ResourcePlan
from federator.sim.baselines.fifo import FifoReplay
from federator.sim.fifo_engine import Running, free_ended, next_event, report
from federator.sim.node_pool import counter
from federator.sim.trace import ReplayOptions, Timetable, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class SiaVcReplay:
    """Anticipatory sharing by virtual clocks."""

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        return _VirtualClock(trace, options).replay()


class _VirtualClock:
    """One replay: who waits, by virtual start; what is reserved for whom."""

    def __init__(self, trace: Trace, options: ReplayOptions) -> None:
        self.trace, self.options = trace, options
        self.timetable = Timetable.of(trace, shared=True)
        self.space, self.capacity = counter(trace.capacity, options), trace.capacity
        self.virtual_s = FifoReplay(placed=False).replay(trace, ReplayOptions()).start_s
        self.rank = [0] * len(trace)  # order of visits
        self.row_at = sorted(trace.in_order(), key=self.virtual_s.__getitem__)
        self.waiting: list[int] = []  # ranks, sorted
        self.running: Running = []
        for rank, row in enumerate(self.row_at):
            self.rank[row] = rank
        self.plan = ResourcePlan(
            (start_s, start_s + lasts_s, gpus)
            for start_s, lasts_s, gpus in zip(
                self.virtual_s, trace.duration_s, trace.gpus, strict=True
            )
        )

    def replay(self) -> Timetable:
        trace, rows = self.trace, self.trace.in_order()
        position = 0
        while position < len(rows) or self.waiting:
            arrives_s = trace.submit_s[rows[position]] if position < len(rows) else None
            now_s = next_event(arrives_s, self.running if self.waiting else ())
            free_ended(self.running, self.space, now_s)
            while position < len(rows) and trace.submit_s[rows[position]] <= now_s:
                insort(self.waiting, self.rank[rows[position]])
                position += 1
                report(position, self.options)
            self.plan.forget(now_s)
            self.waiting = list(self._start_who_may(now_s))
        return self.timetable

    def _start_who_may(self, now_s: int) -> Iterator[int]:
        """Those that may not, in order."""
        free_until_s: dict[int, int] = {}  # by GPUs
        last_s = self.virtual_s[self.row_at[self.waiting[-1]]] if self.waiting else now_s
        for rank in self.waiting:
            row = self.row_at[rank]
            gpus, ends_s = self.trace.gpus[row], now_s + self.trace.duration_s[row]
            if gpus not in free_until_s:
                free_until_s[gpus] = self.plan.first_above(now_s, last_s, self.capacity - gpus)
            # From its virtual start on it has room of its own, until later than it would now end.
            if min(ends_s, self.virtual_s[row]) > free_until_s[gpus]:
                yield rank
                continue
            self._start(row, now_s, ends_s)
            free_until_s.clear()

    def _start(self, row: int, now_s: int, ends_s: int) -> None:
        gpus, virtual_s = self.trace.gpus[row], self.virtual_s[row]
        held = self.space.take(gpus)
        assert held is not None, "more was started than reserved"
        assert now_s <= virtual_s, "a job waits longer than without sharing"
        if now_s < virtual_s:
            self.plan.release(virtual_s, virtual_s + ends_s - now_s, gpus)
            self.plan.reserve(now_s, ends_s, gpus)
        self.timetable.start_s[row], self.timetable.end_s[row] = now_s, ends_s
        heappush(self.running, (ends_s, row, held))
