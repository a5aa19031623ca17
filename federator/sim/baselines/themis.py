"""``themis``: leases free GPUs to whoever suffers most from sharing, one lease at a time.

One counter of the GPUs of all pools. A job's finish-time fairness if it runs from now on to its end
is rho = (now - submission + what is left to run) / duration: its time shared over its time alone.
At each arrival and each end, what is free is given to waiting jobs by largest rho, skipping those
that do not fit (ties: earlier submission, then order of the file). Leases of 20 minutes end all
together, at whole multiples after the first submission; then, if anyone waits, all GPUs are given
anew so, to running and waiting jobs alike. Who ran and gets nothing is preempted, at no cost, and
goes on later where it stopped. At one instant ends come before arrivals, then GPUs are given once.

Source:
    Themis (NSDI'20) sec. 2-5, as the fleet chapter has it (shared/spec/fleet.md). There an app has
    many jobs, bids a table for subsets of what is offered, and only a fraction of the apps, those
    with the worst rho, is offered it. Here an app is one job, a gang that takes its GPUs or none,
    and the offer goes to the worst-off one by one. SIA's Themis* (sec. 6.1), which never preempts,
    is ``ThemisReplay(lease_s=None)``. Time alone is the recorded duration.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from federator.sim.fifo_engine import report
from federator.sim.node_pool import Held, counter
from federator.sim.trace import ReplayOptions, Timetable, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ThemisReplay:
    """Finish-time fairness, over all pools.

    Attributes:
        lease_s: how long GPUs are given for; None: until the job's end.
    """

    lease_s: int | None = 1200

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        return _Leases(trace, self.lease_s, options).replay()


class _Leases:
    """One replay. A job is its position in the order of submission."""

    def __init__(self, trace: Trace, lease_s: int | None, options: ReplayOptions) -> None:
        self.rows = trace.in_order()
        self.lease_s, self.options = lease_s, options
        self.submit_s = [trace.submit_s[row] for row in self.rows]
        self.duration_s = [trace.duration_s[row] for row in self.rows]
        self.gpus = [trace.gpus[row] for row in self.rows]
        self.left_s = self.duration_s[:]
        self.least = min(self.gpus, default=0)
        self.timetable = Timetable.of(trace, shared=True)
        self.space, self.size = counter(trace.capacity, options), trace.capacity
        self.free = self.size
        self.waiting: set[int] = set()
        self.running: dict[int, tuple[int, Held]] = {}  # by job: since when, and what it holds
        self.ends: list[tuple[int, int, int]] = []  # time, job, start of the attempt that ends

    def replay(self) -> Timetable:
        position, count, now_s = 0, len(self.rows), self.submit_s[0] if self.rows else 0
        while position < count or self.waiting or self.running:
            now_s = self._next(now_s, self.submit_s[position] if position < count else None)
            self._end(now_s)
            while position < count and self.submit_s[position] <= now_s:
                self.waiting.add(position)
                position += 1
                report(position, self.options)
            if self.waiting and self._lease_ends(now_s):
                self._give_all(now_s)
            elif self.free >= self.least:
                self._give_free(now_s)
        return self.timetable

    def _next(self, now_s: int, arrives_s: int | None) -> int:
        """The next instant at which anything may change."""
        self._drop_stale()
        times = [] if arrives_s is None else [arrives_s]
        if self.ends:
            times.append(self.ends[0][0])
        if self.lease_s and self.waiting and self.running:
            times.append(now_s + self.lease_s - (now_s - self.submit_s[0]) % self.lease_s)
        return min(times)

    def _drop_stale(self) -> None:
        """Forget ends of attempts that were preempted."""
        while self.ends:
            _, job, since_s = self.ends[0]
            if job in self.running and self.running[job][0] == since_s:
                return
            heappop(self.ends)

    def _lease_ends(self, now_s: int) -> bool:
        return self.lease_s is not None and not (now_s - self.submit_s[0]) % self.lease_s

    def _end(self, now_s: int) -> None:
        self._drop_stale()
        while self.ends and self.ends[0][0] <= now_s:
            job = heappop(self.ends)[1]
            self._stop(job, now_s)
            self.timetable.end_s[self.rows[job]] = now_s
            self._drop_stale()

    def _stop(self, job: int, now_s: int) -> None:
        since_s, held = self.running.pop(job)
        self.left_s[job] -= now_s - since_s
        self.space.give(held)
        self.free += self.gpus[job]

    def _start(self, job: int, now_s: int) -> None:
        held = self.space.take(self.gpus[job])
        assert held is not None
        self.free -= self.gpus[job]
        self.waiting.remove(job)
        self.running[job] = (now_s, held)
        self.timetable.start_s[self.rows[job]] = now_s
        heappush(self.ends, (now_s + self.left_s[job], job, now_s))

    def _worst_off(self, jobs: list[tuple[int, int]], now_s: int) -> list[int]:
        """Jobs, given with what each has left, by largest rho."""
        return [
            job
            for _, job in sorted(
                (-(now_s - self.submit_s[job] + left_s) / self.duration_s[job], job)
                for job, left_s in jobs
            )
        ]

    def _give_free(self, now_s: int) -> None:
        fitting = [(j, self.left_s[j]) for j in self.waiting if self.gpus[j] <= self.free]
        for job in self._worst_off(fitting, now_s):
            if self.gpus[job] <= self.free:
                self._start(job, now_s)

    def _give_all(self, now_s: int) -> None:
        jobs = [(j, self.left_s[j]) for j in self.waiting]
        jobs += [(j, self.left_s[j] - now_s + since) for j, (since, _) in self.running.items()]
        left, chosen = self.size, set[int]()
        for job in self._worst_off(jobs, now_s):
            if self.gpus[job] <= left:
                chosen.add(job)
                left -= self.gpus[job]
        for job in sorted(self.running.keys() - chosen):
            self._stop(job, now_s)
            self.waiting.add(job)
            self.timetable.preemptions[self.rows[job]] += 1
        for job in sorted(chosen & self.waiting):
            self._start(job, now_s)
