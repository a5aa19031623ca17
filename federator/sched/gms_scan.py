"""Which waiting workloads are within quota? The quota scan of MAST's GMS-scan pass.

In credit order each workload that fits what its tenant's quota has left is within quota and takes
its request from it; one that does not fit is over quota, and what comes later may still fit.

Room only shrinks during a scan. So the first workload of a lane that does not fit settles the lane:
all behind it ask for the same. The scan therefore costs what fits, not what waits, and its result
is one number per lane.

Source:
    MAST (OSDI'24) sec. 4.2. ``used`` begins with all that the tenant's workloads hold at sites,
    over quota or not, as the paper says: what a tenant borrowed counts against its own quota as
    soon as that has room. Beyond the paper: a quota of an ancestor bounds the sum; a workload
    whose user lowered its priority is scanned after those that were not lowered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from math import inf
from operator import le, sub
from typing import Final

from federator.model.tenant import Amounts
from federator.sched.backlog import Backlog, Head, Lane
from federator.sched.credit import CreditWeights
from federator.sched.holdings import Holdings

Key = tuple[float, ...]
"""What decides who is scanned first; ends with the id, so no two are equal."""


Rooms = list[list[float]]
"""What is left of each quota that bounds a workload, by resource."""

_UNBOUNDED: Final = 2**62


class GmsScan:
    """One scan at one instant.

    Tenants on their own are scanned again only when something of theirs has changed: their order
    is that of submission at any time. Where tenants share an ancestor's quota, or a tenant's
    workloads differ in nice, credits decide, and those move with time: scanned always.

    Args:
        backlog: what waits; its lanes' ``within`` is set.
        holdings: what tenants hold.
        weights: of the credit.
        fair_share: by row, the term of the credit that a tenant's workloads share.
        now_s: Unix time.
    """

    def __init__(
        self, backlog: Backlog, holdings: Holdings, weights: CreditWeights,
        fair_share: Sequence[float], now_s: float,
    ) -> None:  # fmt: skip
        self._backlog = backlog
        self._holdings = holdings
        self._weights = weights
        self._fair_share = fair_share
        self._now_s = now_s

    def run(self) -> None:
        """Bring every lane's ``within`` up to date."""
        backlog = self._backlog
        for family in backlog.stale | backlog.moving:
            rows = backlog.rows_of(family)
            lanes = [lane for row in rows for lane in backlog.lanes(row)]
            timeless = len(rows) == 1 and len({lane.shape.nice for lane in lanes}) == 1
            self._scan(lanes, timeless)
            if timeless:
                backlog.heads[rows[0]] = self._head(lanes)
                backlog.moving.discard(family)
            else:
                for row in rows:
                    backlog.heads.pop(row, None)
                backlog.moving.add(family)
        backlog.stale.clear()

    def credit(self, lane: Lane, submitted_at_s: float) -> float:
        age_term = self._weights.age_term(self._now_s - submitted_at_s)
        fair_share = self._fair_share[lane.row]
        return age_term + fair_share - self._weights.nice_term(lane.shape.nice)

    def _scan(self, lanes: Sequence[Lane], timeless: bool) -> None:
        heap: list[tuple[Key, Lane, Iterator[Key], Rooms]] = []
        rooms_of = self._rooms(lanes)
        for lane in lanes:
            lane.within = 0
            rooms = rooms_of[lane.row]
            fit = _fit(lane.shape.request, rooms)
            if fit:
                keys = self._keys(lane, min(fit, len(lane)), timeless)
                heap.append((next(keys), lane, keys, rooms))
        heapify(heap)
        while heap:
            _, lane, keys, rooms = heap[0]
            request = lane.shape.request
            if len(heap) == 1:  # nobody else is in the way
                lane.within = min(lane.within + _fit(request, rooms), len(lane))
                return
            if all(all(map(le, request, left)) for left in rooms):
                for left in rooms:
                    left[:] = map(sub, left, request)
                lane.within += 1
                following = next(keys, None)
                if following is not None:
                    heapreplace(heap, (following, lane, keys, rooms))
                    continue
            heappop(heap)

    def _rooms(self, lanes: Sequence[Lane]) -> dict[int, Rooms]:
        """What each quota that bounds a tenant has left; tenants under one quota share it."""
        tenancy = self._backlog.tenancy
        left: dict[int, list[float]] = {}
        rooms: dict[int, Rooms] = {}
        for row in {lane.row for lane in lanes}:
            for at in tenancy.quota_rows(row):
                quota = tenancy.quotas[at]
                if at not in left and quota is not None:
                    left[at] = list(map(sub, quota, self._holdings.used(at)))
            rooms[row] = [left[at] for at in tenancy.quota_rows(row)]
        return rooms

    def _keys(self, lane: Lane, stop: int, timeless: bool) -> Iterator[Key]:
        """The keys of the first ``stop`` workloads of a lane; more can never fit."""
        own = self._backlog.tenancy.tenants[lane.row].priority
        lowered = max(0, lane.shape.asked_priority - own)
        if timeless:
            return ((lowered, *place) for place in lane.places(stop))
        return ((lowered, -self.credit(lane, place[0]), *place) for place in lane.places(stop))

    def _head(self, lanes: Sequence[Lane]) -> Head:
        firsts = ((next(self._backlog.runs(lane)), lane) for lane in lanes)  # the best of each
        return min(Head(run.priority, lane.place(run.start)) for run, lane in firsts)


def _fit(request: Amounts, rooms: Rooms) -> int:
    """How many such requests fit into what is left everywhere; none where no quota is.

    A resource that is overdrawn fits nobody, whoever asks for none of it: adding the request would
    exceed the quota, as the paper has it.
    """
    most = inf if rooms else 0
    for left in rooms:
        for amount, room in zip(request, left, strict=True):
            if room < amount:
                return 0
            if amount and room < inf:
                most = min(most, room // amount)
    return _UNBOUNDED if most == inf else int(most)
