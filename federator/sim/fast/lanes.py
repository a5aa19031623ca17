"""The waiting jobs and their order: as ``Backlog``, ``GmsScan`` and ``CreditRanking``.

Plain traces make that simple: each tenant is bounded by its own quota of GPUs alone, all have one
priority, and nobody lowered anything. A job is its position in the order of submission, which is
also the order of ids.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace

from federator.sched.state.credit import CreditWeights, fair_share_terms
from federator.sched.state.usage import UsageAverage
from federator.sim.fast.request_shape import AskedShape
from federator.sim.trace import Trace

RankKey = tuple[bool, float, int]
"""Over quota, credit with its sign turned, position: the least goes first."""


class TenantLanes:
    """Waiting jobs of one tenant, by shape, and which of them are within quota.

    Args:
        quota_gpus: of the tenant.
    """

    __slots__ = ("_left_gpus", "_within", "lanes")

    def __init__(self, quota_gpus: int) -> None:
        self._left_gpus = quota_gpus  # less all that it holds, borrowed or not
        self.lanes: dict[AskedShape, list[int]] = {}
        self._within: dict[AskedShape, int] | None = None  # so many of the first of each lane

    def charge(self, gpus: int) -> None:
        """It holds more from now on, or less (negative)."""
        self._left_gpus -= gpus
        self._within = None

    def add(self, job: int, shape: AskedShape) -> list[int]:
        """Put a job at the end of its lane, which is returned."""
        lane = self.lanes.setdefault(shape, [])
        lane.append(job)
        self._within = None
        return lane

    def remove(self, job: int, shape: AskedShape) -> list[int]:
        """Take a job out of its lane, which is returned."""
        lane = self.lanes[shape]
        del lane[bisect_left(lane, job)]
        if not lane:
            del self.lanes[shape]
        self._within = None
        return lane

    def within(self, shape: AskedShape) -> int:
        """So many of the first of a lane are within quota now."""
        if self._within is None:
            self._within = self._scan()
        return self._within.get(shape, 0)

    def is_within(self, job: int, shape: AskedShape) -> bool:
        """Tell whether a waiting job is within quota now."""
        number = self.within(shape)
        return number > 0 and job <= self.lanes[shape][number - 1]

    def _scan(self) -> dict[AskedShape, int]:
        """In order of submission each job takes its GPUs from what the quota has left.

        The first of a lane that does not fit settles it: what is left only shrinks.
        """
        left = self._left_gpus
        if left < 0:
            return {}
        if sum([shape.gpus * len(lane) for shape, lane in self.lanes.items()]) <= left:
            return {shape: len(lane) for shape, lane in self.lanes.items()}
        within = {shape: 0 for shape in self.lanes if shape.gpus}
        heap = [(self.lanes[shape][0], shape) for shape in within if shape.gpus <= left]
        heapify(heap)
        while heap:
            _, shape = heap[0]
            if shape.gpus > left:
                heappop(heap)
                continue
            left -= shape.gpus
            within[shape] += 1
            lane = self.lanes[shape]
            if within[shape] < len(lane):
                heapreplace(heap, (lane[within[shape]], shape))
            else:
                heappop(heap)
        return within | {shape: len(lane) for shape, lane in self.lanes.items() if not shape.gpus}


class WaitingJobs:
    """All tenants' lanes.

    Args:
        trace: the jobs.
        order: its rows by position.
        shapes: by position.
        begin_s: what the trace's clock shows as 0, in the federation's time.
        weights: of the credit.
        usage: empty.
    """

    def __init__(
        self,
        trace: Trace,
        order: Sequence[int],
        shapes: Sequence[AskedShape],
        begin_s: float,
        weights: CreditWeights,
        usage: UsageAverage,
    ) -> None:
        self.by_shape: dict[AskedShape, dict[int, list[int]]] = {}  # lanes by tenant
        self.jobs: dict[int, None] = {}  # all that wait
        self._shapes = shapes
        self._tenant = [trace.pool[row] for row in order]
        self._submitted_s = [begin_s + trace.submit_s[row] for row in order]
        self._tenants = [TenantLanes(pool.gpus) for pool in trace.pools]
        self._usage = usage
        self._changes: list[tuple[float, int, int]] = []  # of usage, not told yet
        self._weights = weights

    def __len__(self) -> int:
        return len(self.jobs)

    def add(self, job: int) -> None:
        shape = self._shapes[job]
        self.jobs[job] = None
        tenant = self._tenant[job]
        lane = self._tenants[tenant].add(job, shape)
        self.by_shape.setdefault(shape, {})[tenant] = lane

    def start(self, job: int, now_s: float) -> None:
        """A waiting job holds its GPUs from now on."""
        shape = self._shapes[job]
        del self.jobs[job]
        tenant = self._tenant[job]
        if not self._tenants[tenant].remove(job, shape):
            lanes = self.by_shape[shape]
            del lanes[tenant]
            if not lanes:
                del self.by_shape[shape]
        self._charge(tenant, shape.gpus, now_s)

    def end(self, job: int, now_s: float) -> None:
        """A job that held its GPUs has given them back."""
        self._charge(self._tenant[job], -self._shapes[job].gpus, now_s)

    def first_of(self, shape: AskedShape, count: int) -> list[int]:
        """Waiting jobs of a shape, among them the first ``count`` of its ranking."""
        found: list[int] = []
        for tenant, lane in self.by_shape[shape].items():
            if len(lane) <= count:
                found += lane
                continue
            within = self._tenants[tenant].within(shape)
            found += lane[: min(within, count)]
            found += lane[within : within + count]
        return found

    def ranked(self, jobs: Iterable[int], now_s: float) -> list[int]:
        """Some of the waiting jobs, first to try first: within quota, credit, submission."""
        age_term, fair_share = self._weights.age_term, self._fair_share(now_s)
        nice = self._weights.nice_term(0)
        submitted_s, tenants, shapes = self._submitted_s, self._tenants, self._shapes
        found: list[RankKey] = []
        for job in jobs:
            tenant = self._tenant[job]
            credit = age_term(now_s - submitted_s[job]) + fair_share[tenant] - nice
            over = not tenants[tenant].is_within(job, shapes[job])
            found.append((over, -credit, job))
        found.sort()
        return [job for _, _, job in found]

    def _fair_share(self, now_s: float) -> list[float]:
        """By tenant; usage is told of its changes only when somebody asks."""
        for at_s, tenant, gpus in self._changes:
            self._usage.change(tenant, float(gpus), at_s)
        self._changes.clear()
        averages = self._usage.averages(len(self._tenants), now_s)
        terms: list[float] = fair_share_terms(averages, self._weights).tolist()
        return terms

    def _charge(self, tenant: int, gpus: int, now_s: float) -> None:
        self._tenants[tenant].charge(gpus)
        self._changes.append((now_s, tenant, gpus))
