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

import numpy as np

from federator.model.resources import Amounts
from federator.model.tenant import LOWEST_PRIORITY
from federator.sched.state.backlog import Backlog, Head, Lane
from federator.sched.state.credit import CreditWeights, age_terms
from federator.sched.state.holdings import Holdings

Key = tuple[float, ...]
"""What decides who is scanned first; ends with the id, so no two are equal."""


Rooms = list[list[float]]
"""What is left of each quota that bounds a workload, by resource."""

_Queue = list[tuple[Key, Lane]]
"""A heap of lanes of one tenant that ask for the same, by their first that is not within quota."""

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
        weights, first = self._weights, lanes[0].shape
        nice, preemptible = first.nice, first.preemptible
        terms = weights.nice_term(nice), weights.non_preemptible_term(preemptible)
        for lane in lanes:
            shape = lane.shape
            if shape.nice == nice and shape.preemptible == preemptible:
                continue
            if terms != (
                weights.nice_term(shape.nice),
                weights.non_preemptible_term(shape.preemptible),
            ):
                return False
        return True

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
        found = self._fitting(rows, rooms_of, timeless)
        firsts = [(queue[0][0], queue, rooms) for queue, rooms in found]
        heapify(firsts)
        while firsts:
            _, queue, rooms = firsts[0]
            lane = queue[0][1]
            request = lane.shape.request
            if len(firsts) == len(queue) == 1:  # nobody else is in the way
                lane.within = min(lane.within + _most(request, rooms), len(lane))
                return
            if not _fits(request, rooms):  # nor does any that asks for the same
                heappop(firsts)
                continue
            for left in rooms if self._alone else self._shared(lane.row):
                left[:] = map(sub, left, request)
            lane.within += 1
            if lane.within < len(lane):
                heapreplace(queue, (self._key(lane, timeless), lane))
            else:
                heappop(queue)
            if queue:
                heapreplace(firsts, (queue[0][0], queue, rooms))
            else:
                heappop(firsts)

    def _acts_for(self, row: int) -> bool:
        """Whether work of a tenant is started at all; else it takes no quota from its relatives."""
        return self._backlog.tenancy.mode(row).acts

    def _fitting(
        self, rows: Sequence[int], rooms_of: dict[int, Rooms], timeless: bool
    ) -> Iterator[tuple[_Queue, Rooms]]:
        """The lanes whose first workload fits, and its rooms; all of the others is over quota."""
        for row in rows:
            rooms = rooms_of[row]
            may_fit = bool(rooms) and self._acts_for(row)
            queues: dict[Amounts, _Queue | None] = {}
            fitting: list[Lane] = []
            theirs: list[_Queue] = []
            for lane in self._backlog.lanes(row):
                lane.within = 0
                request = lane.shape.request
                if request not in queues:
                    queues[request] = [] if may_fit and _fits(request, rooms) else None
                queue = queues[request]
                if queue is not None:
                    fitting.append(lane)
                    theirs.append(queue)
            keys = self._first_keys(row, fitting, timeless)
            for key, lane, queue in zip(keys, fitting, theirs, strict=True):
                queue.append((key, lane))
            for queue in filter(None, queues.values()):
                heapify(queue)
                yield queue, rooms

    def _first_keys(self, row: int, lanes: Sequence[Lane], timeless: bool) -> Iterator[Key]:
        """The keys of the first workloads of lanes of one tenant, all at once: see ``_key``."""
        weights, own = self._weights, self._backlog.tenancy.tenants[row].priority
        shapes = [lane.shape for lane in lanes]
        lowered = [low if (low := shape.asked_priority - own) > 0 else 0 for shape in shapes]
        places = [lane.place(0) for lane in lanes]
        ids = [place[1] for place in places]
        if timeless:
            return zip(lowered, [place[0] for place in places], ids, strict=True)
        submitted = np.array([place[0] for place in places])
        credit = age_terms(self._now_s - submitted, weights) + self._fair_share[row]
        credit -= np.array([weights.nice_term(shape.nice) for shape in shapes])
        credit -= np.array([weights.non_preemptible_term(shape.preemptible) for shape in shapes])
        return zip(lowered, (-credit).tolist(), submitted.tolist(), ids, strict=True)

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
        """The first of one tenant."""
        level = self._backlog.level
        within = [(level(lane), lane.place(0), lane) for lane in lanes if lane.within]
        if within and (first := min(within))[0] < LOWEST_PRIORITY:
            return Head(*first)  # no two places are equal
        return Head(LOWEST_PRIORITY, *min([(lane.place(0), lane) for lane in lanes]))


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
