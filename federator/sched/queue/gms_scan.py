"""The quota scan of MAST's GMS-scan pass: finds the waiting workloads that are within quota.

In credit order each workload that fits what its tenant's quota has left is within quota and takes
its request from it; one that does not fit is over quota, and what comes later may still fit.

Room only shrinks during a scan. So the first workload of a lane that does not fit settles the lane:
all behind it ask for the same. The scan therefore costs what fits, not what waits, and its result
is one number per lane.

Source:
    MAST (OSDI'24) sec. 4.2. ``used`` begins with all that the tenant's workloads hold at sites,
    over quota or not, as the paper says: what a tenant borrowed counts against its own quota as
    soon as that has room. Beyond the paper: a quota of an ancestor bounds the sum, in which a
    relative's borrowing does not count; a workload whose user lowered its priority is scanned
    after those that were not lowered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import chain
from math import inf
from operator import le, sub
from typing import Final

from federator.model.resources import Amounts
from federator.model.tenant import LOWEST_PRIORITY
from federator.sched.state.backlog import Backlog, Head, Lane
from federator.sched.state.credit import CreditWeights
from federator.sched.state.holdings import Holdings

Key = tuple[float, ...]
"""What decides who is scanned first; ends with the id, so no two are equal."""


Rooms = list[list[float]]
"""What is left of each quota that bounds a workload, by resource."""

_Candidate = tuple[Key, Lane, Rooms]
_UNBOUNDED: Final = 2**62


class GmsScan:
    """One scan at one instant.

    Tenants on their own are scanned again only when something of theirs has changed: their order
    is that of submission at any time. Where tenants share an ancestor's quota, or a tenant's
    workloads differ in nice or in whether they may be evicted, credits decide, and those move with
    time: scanned always.

    Args:
        backlog: what waits; its lanes' ``within`` is set.
        holdings: what tenants hold.
        weights: of the credit.
        fair_share: by row, the term of the credit that a tenant's workloads share.
        now_s: Unix time.
    """

    def __init__(
        self,
        backlog: Backlog,
        holdings: Holdings,
        weights: CreditWeights,
        fair_share: Sequence[float],
        now_s: float,
    ) -> None:
        self._backlog = backlog
        self._holdings = holdings
        self._weights = weights
        self._fair_share = fair_share
        self._now_s = now_s
        self._own: dict[int, list[float]] = {}  # of the family being scanned, by row
        self._ancestral: dict[int, list[float]] = {}
        self._alone = True

    def run(self) -> None:
        """Bring every lane's ``within`` up to date."""
        backlog = self._backlog
        for family in backlog.stale | backlog.moving:
            rows = backlog.rows_of(family)
            if not rows:
                backlog.moving.discard(family)
                continue
            lanes = [lane for row in rows for lane in backlog.lanes(row)]
            timeless = len(rows) == 1 and self._are_lowered_alike(lanes)
            self._scan(lanes, rows, timeless)
            if timeless:
                backlog.heads[rows[0]] = self._head(lanes)
                backlog.moving.discard(family)
            else:
                for row in rows:
                    backlog.heads.pop(row, None)
                backlog.moving.add(family)
        backlog.stale.clear()

    def _are_lowered_alike(self, lanes: Sequence[Lane]) -> bool:
        """Whether the same amount is taken off all their credits."""
        weights = self._weights
        kinds = {(shape.nice, shape.preemptible) for shape in [lane.shape for lane in lanes]}
        return len(kinds) == 1 or (
            len({(weights.nice_term(n), weights.non_preemptible_term(p)) for n, p in kinds}) == 1
        )

    def credit(self, lane: Lane, submitted_at_s: float) -> float:
        weights, shape = self._weights, lane.shape
        gained = weights.age_term(self._now_s - submitted_at_s) + self._fair_share[lane.row]
        modest = gained - weights.nice_term(shape.nice)
        return modest - weights.non_preemptible_term(shape.preemptible)

    def _scan(self, lanes: Sequence[Lane], rows: Sequence[int], timeless: bool) -> None:
        rooms_of = self._rooms(rows)
        if timeless and self._acts_for(rows[0]) and _all_fit(lanes, rooms_of[rows[0]]):
            for lane in lanes:
                lane.within = len(lane)
            return
        heap = self._fitting(lanes, rooms_of, timeless)
        heapify(heap)
        while heap:
            _, lane, rooms = heap[0]
            request = lane.shape.request
            if len(heap) == 1:  # nobody else is in the way
                lane.within = min(lane.within + _most(request, rooms), len(lane))
                return
            if _fits(request, rooms):
                for left in rooms if self._alone else self._shared(lane.row):
                    left[:] = map(sub, left, request)
                lane.within += 1
                if lane.within < len(lane):
                    heapreplace(heap, (self._key(lane, timeless), lane, rooms))
                    continue
            heappop(heap)

    def _acts_for(self, row: int) -> bool:
        """Whether work of a tenant is started at all; else it takes no quota from its relatives."""
        return self._backlog.tenancy.mode(row).acts

    def _fitting(
        self,
        lanes: Sequence[Lane],
        rooms_of: dict[int, Rooms],
        timeless: bool,
    ) -> list[_Candidate]:
        """The lanes whose first workload fits; the others are over quota, all of them."""
        found: list[_Candidate] = []
        for lane in lanes:
            lane.within = 0
            rooms = rooms_of[lane.row]
            if rooms and self._acts_for(lane.row) and _fits(lane.shape.request, rooms):
                found.append((self._key(lane, timeless), lane, rooms))
        return found

    def _rooms(self, rows: Sequence[int]) -> dict[int, Rooms]:
        """The amounts that each quota above a tenant has left for it, nearest quota first.

        Of an ancestor's quota that is what relatives have not been given; tenants that share it
        share the list. Of the tenant's own it is less, when the tenant has borrowed.
        """
        tenancy, holdings = self._backlog.tenancy, self._holdings
        self._own, self._ancestral = {}, {}
        self._alone = len(rows) == 1
        for row in rows:
            for at in tenancy.quota_rows(row):
                quota = tenancy.quotas[at]
                if quota is not None and at not in self._ancestral:
                    self._own[at] = _left(quota, holdings.counted(at))
                    self._ancestral[at] = _left(quota, holdings.within(at))
        return {
            row: [
                self._own[at] if at == row else self._ancestral[at]
                for at in tenancy.quota_rows(row)
            ]
            for row in rows
        }

    def _shared(self, row: int) -> Iterator[list[float]]:
        """All lists from which something is taken when a tenant's workload is within quota.

        Of a tenant on its own nobody looks at any but its rooms.
        """
        bounds = self._backlog.tenancy.quota_rows(row)
        return chain((self._own[at] for at in bounds), (self._ancestral[at] for at in bounds))

    def _key(self, lane: Lane, timeless: bool) -> Key:
        """The key of the first workload of a lane that is not within quota yet."""
        place = lane.place(lane.within)
        lowered = lane.shape.asked_priority - self._backlog.tenancy.tenants[lane.row].priority
        lowered = lowered if lowered > 0 else 0
        return (lowered, *place) if timeless else (lowered, -self.credit(lane, place[0]), *place)

    def _head(self, lanes: Sequence[Lane]) -> Head:
        level = self._backlog.level
        firsts = [
            (level(lane) if lane.within else LOWEST_PRIORITY, lane.place(0), lane) for lane in lanes
        ]
        return Head(*min(firsts))  # no two places are equal


def _left(quota: Sequence[float], used: Sequence[int]) -> list[float]:
    """The amounts left; below 0 when overdrawn, of a GPU type 0: that bars only who asks for it."""
    left = list(map(sub, quota, used))
    return [*left[:2], *(max(0, room) for room in left[2:])]


def _fits(request: Amounts, rooms: Rooms) -> bool:
    """Tell whether a request fits into what is left everywhere.

    GPUs or CPUs that are overdrawn fit nobody, whoever asks for none of them: adding the request
    would exceed the quota, as the paper has it.
    """
    gpus, cpus = request[:2]
    for left in rooms:
        if gpus > left[0] or cpus > left[1]:  # for each lane, and most have no more than these
            return False
        if len(left) > 2 and not all(map(le, request, left)):
            return False
    return True


def _most(request: Amounts, rooms: Rooms) -> int:
    """The number of such requests, one after the other, that fit into what is left everywhere."""
    if not _fits(request, rooms):
        return 0
    each = (
        room // amount
        for left in rooms
        for amount, room in zip(request, left, strict=True)
        if amount and room < inf
    )
    return int(min(each, default=_UNBOUNDED))


def _all_fit(lanes: Sequence[Lane], rooms: Rooms) -> bool:
    """Tell whether everything fits at once, in whatever order; the lanes share these rooms."""
    if not rooms:
        return False
    gpus_left, cpus_left = min(left[0] for left in rooms), min(left[1] for left in rooms)
    totals = [0] * len(lanes[0].shape.request)
    for lane in lanes:
        number = len(lane)
        for k, amount in enumerate(lane.shape.request):
            totals[k] += number * amount
        if totals[0] > gpus_left or totals[1] > cpus_left:
            return False
    return _fits(tuple(totals), rooms)
