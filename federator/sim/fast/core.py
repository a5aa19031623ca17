"""Replays a trace under ``mast`` from event to event, on flat numbers.

The same timetable as that of ``federator.sim.fleet``, to the last job.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from math import inf
from typing import Final

from federator.errors import FederatorError
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from federator.sched.state.usage import UsageAverage, UsageMemory
from federator.sim.fast.accounting import Books
from federator.sim.fast.flat_pass import FlatPasses, Launch
from federator.sim.fast.flat_site import FlatPlan, FlatSite
from federator.sim.fast.lanes import WaitingJobs
from federator.sim.fast.request_shape import shapes_of
from federator.sim.fast.shared_mix import SharedMix
from federator.sim.trace import ReplayOptions, Timetable, Trace

_BEGIN_S: Final = 1_000_000.0  # of the federation's time; the trace's clock begins here
_REPORT_EVERY: Final = 1024  # jobs
_EXACT_BELOW_S: Final = 2.0**52


class FlatFleet:
    """A federation and its sites, and the trace that they get.

    Args:
        trace: pools and jobs.
        policy: whose weights the credit has.
        rules: of the federation.
        options: of the replay.
        usage: empty; by default as the daemon's.
    """

    def __init__(
        self,
        trace: Trace,
        policy: Mast,
        rules: Rules,
        options: ReplayOptions,
        usage: UsageAverage | None = None,
    ) -> None:
        self._trace = trace
        self._options = options
        self._interval_s = rules.pass_interval_s
        self._timetable = Timetable.of(trace)
        self._rows = trace.in_order()
        by_row = shapes_of(trace)
        shapes = [by_row[row] for row in self._rows]
        mix = SharedMix()
        self._sites = [FlatSite(pool, rank, mix) for rank, pool in enumerate(trace.pools)]
        usage = UsageMemory().average() if usage is None else usage
        self._waiting = WaitingJobs(trace, self._rows, shapes, _BEGIN_S, policy.weights, usage)
        self._passes = FlatPasses(self._waiting, shapes, self._sites, mix, rules.window)
        self._books = Books(trace) if options.audit else None
        self._ends: list[tuple[int, int, int, FlatSite, FlatPlan]] = []  # time, row, job
        self._started = 0

    def run(self) -> Timetable:
        """Replay the whole trace.

        Raises:
            FederatorError: jobs wait and nothing is to come; that would be a fault of ours.
            AssertionError: a GPU is used twice; only with ``ReplayOptions.audit``.
        """
        trace, rows, ends = self._trace, self._rows, self._ends
        arrives_s = [*(trace.submit_s[row] for row in rows), inf]
        passes = self._passes
        at, count, due_s, now_s = 0, len(rows), inf, -inf
        while at < count or ends:
            next_s = min(arrives_s[at], ends[0][0] if ends else inf)
            if passes.unnoted:  # else a pass without news changes nothing
                next_s = min(next_s, due_s)
            now_s = max(now_s, next_s)
            freed = self._end_by(now_s)
            came = range(at, bisect_right(arrives_s, now_s, at, count))
            for job in came:
                self._waiting.add(job)
            at = came.stop
            self._launch(passes.run(_BEGIN_S + now_s, came, freed), now_s)
            due_s = now_s + self._interval_s
        if self._waiting.jobs:
            raise FederatorError(f"{len(self._waiting.jobs)} jobs of the trace never ran")
        if self._books is not None:
            self._books.close()
        return self._timetable

    def _end_by(self, now_s: float) -> set[FlatSite]:
        """End what ends by now; the sites where something came free."""
        freed: set[FlatSite] = set()
        while self._ends and self._ends[0][0] <= now_s:
            _, row, job, site, plan = heappop(self._ends)
            site.give_back(plan)
            self._waiting.end(job, _BEGIN_S + now_s)
            freed.add(site)
            if self._books is not None:
                self._books.end(row, int(now_s))
        return freed

    def _launch(self, launches: list[Launch], now_s: float) -> None:
        trace, table = self._trace, self._timetable
        for job, site, plan in launches:
            row, start_s = self._rows[job], int(now_s)
            end_s = start_s + trace.duration_s[row]
            table.start_s[row], table.end_s[row] = start_s, end_s
            table.site[row] = trace.pools[site.rank].name
            heappush(self._ends, (end_s, row, job, site, plan))
            if self._books is not None:
                self._books.start(row, site.rank, plan, start_s)
            self._started += 1
            if not self._started % _REPORT_EVERY:
                self._options.progress(_REPORT_EVERY)


def applies(trace: Trace) -> bool:
    """Tell whether all times of a replay are exact numbers as floats."""
    longest_s = max(trace.submit_s, default=0) + sum(trace.duration_s) + _BEGIN_S
    return min(trace.submit_s, default=0) >= 0 and longest_s < _EXACT_BELOW_S
