"""The waiting workloads, by tenant and shape, in lanes that differ only in submission time.

A shape is what a workload asks for, and what its credit depends on; the time limit is not part of
it, so that a lane stands for many.

The credit order inside a lane is the submission order and never changes: age grows alike, fair
share and what is taken off are the same. So quota and order are settled lane by lane, and what
depends on the number of waiting workloads is left to sorted arrays. With a nice or a demotion of
its own, or when it may not be evicted, a workload is in another lane; should all differ in what
they ask for, every lane holds one workload, and ranking costs what plain sorting costs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from math import inf
from typing import NamedTuple

from federator.model.data_use import DataUse
from federator.model.reason import Refusal
from federator.model.resources import Amounts
from federator.model.tenant import LOWEST_PRIORITY, Tenancy
from federator.model.workload import Job, TenantName, Workload

Place = tuple[float, int]
"""(submitted_at_s, or since when it could start, id): where a workload stands in its lane."""

_COMPACT_AT = 64  # taken workloads at the head of a lane before its arrays are cut
ASKED_KEPT = 8_192  # numbers of jobs, at least


_Asked = tuple[Job, ...] | tuple[tuple[Job, ...], tuple[DataUse, ...]]
"""The jobs of a workload; with its data sets, if it has any."""


class Shape(NamedTuple):
    """The properties by which lanes of one tenant differ."""

    request: Amounts
    asked_priority: int
    nice: int
    preemptible: bool = True
    number: int = 0  # of what it asks for; see ``Backlog.number_of``
    throttled: int = 0  # the array whose tasks may not all run at once; 0: none
    user: str = ""  # whose jobs may not all run at once; "": anybody's may


class Lane:
    """Waiting workloads of one tenant and one shape, in the order of their submission.

    ``within``: so many of the first are within quota; set by the quota scan. ``refusal``: why none
    of them may start at all now, as the last pass found; ``over_refusal``: none of those that are
    over quota; both volatile.
    """

    __slots__ = (
        "_head",
        "_ids",
        "_submitted",
        "data",
        "jobs",
        "over_refusal",
        "refusal",
        "row",
        "shape",
        "version",
        "within",
    )

    def __init__(
        self, row: int, shape: Shape, jobs: tuple[Job, ...] = (), data: tuple[DataUse, ...] = ()
    ) -> None:
        self.row = row
        self.jobs = jobs  # of one of them
        self.data = data  # that they need, the same of all: see ``Backlog.number_of``
        self.shape = shape
        self.within = 0
        self.refusal: Refusal | None = None
        self.over_refusal: Refusal | None = None
        self.version = 0  # changes whenever positions may have moved
        self._submitted = array("d")
        self._ids = array("q")
        self._head = 0  # those before it have been taken

    def __len__(self) -> int:
        return len(self._ids) - self._head

    def place(self, position: int) -> Place:
        k = self._head + position
        return self._submitted[k], self._ids[k]

    def after(self, place: Place) -> int:
        """The position of the first workload that stands behind ``place``."""
        return self._find(place, behind=True) - self._head

    def refusal_of(self, place: Place) -> Refusal | None:
        """Why the workload at this place may not start at all, as the last pass found."""
        if self.over_refusal is None or self.after(place) <= self.within:
            return self.refusal
        return self.refusal or self.over_refusal

    def add(self, place: Place) -> None:
        """Put a workload where its submission time belongs; usually at the end."""
        if not self._ids or place > self.place(len(self) - 1):
            self._submitted.append(place[0])
            self._ids.append(place[1])
            return
        k = self._find(place, behind=True)
        self._submitted.insert(k, place[0])
        self._ids.insert(k, place[1])
        self.version += 1

    def remove(self, place: Place) -> None:
        """Take a workload out.

        Raises:
            KeyError: it is not in this lane.
        """
        k = self._find(place, behind=False)
        if k >= len(self._ids) or self._ids[k] != place[1]:
            raise KeyError(place[1])
        self.version += 1
        if k - self._head < self.within:
            self.within -= 1
        if k > self._head:
            del self._submitted[k], self._ids[k]
            return
        self._head += 1
        if self._head >= _COMPACT_AT and self._head * 2 > len(self._ids):
            del self._submitted[: self._head], self._ids[: self._head]
            self._head = 0

    def append_to(self, submitted: array[float], ids: array[int]) -> int:
        """Write submission times and ids behind those of other lanes; how many there are."""
        head = self._head
        submitted.extend(self._submitted[head:] if head else self._submitted)
        ids.extend(self._ids[head:] if head else self._ids)
        return len(self._ids) - head

    def _find(self, place: Place, *, behind: bool) -> int:
        at_s, id_ = place
        low = bisect_left(self._submitted, at_s, self._head)
        high = bisect_right(self._submitted, at_s, low)
        return (bisect_right if behind else bisect_left)(self._ids, id_, low, high)


class Head(NamedTuple):
    """The first workload of a tenant, as the last scan left it."""

    priority: int
    place: Place
    lane: Lane


class Run(NamedTuple):
    """Neighbours of one lane that rank by credit alone."""

    priority: int
    within_quota: bool
    start: int  # position of the first
    stop: int  # position behind the last


class Backlog:
    """All waiting workloads.

    Args:
        tenancy: the tenants; one that is met for the first time gets a row.
    """

    def __init__(self, tenancy: Tenancy) -> None:
        self.tenancy = tenancy
        self.stale: set[int] = set()  # families whose quota scan no longer holds
        self.moving: set[int] = set()  # families whose order time alone may change
        self.heads: dict[int, Head] = {}  # by row; of tenants of all other families
        self._lanes: dict[int, dict[Shape, Lane]] = {}  # by row
        self._families: dict[int, set[int]] = {}  # rows with lanes, by family
        self._count = 0
        self._asked: dict[_Asked, tuple[int, Amounts]] = {}
        self._asked_most = ASKED_KEPT
        self._numbers = count(1)

    def __len__(self) -> int:
        return self._count

    @property
    def startable(self) -> int:
        """How many there are but for those of tenants for which nothing is started."""
        if self.tenancy.acts_for_all:
            return self._count
        lanes = (self._lanes[row] for row in self._lanes if self.tenancy.mode(row).acts)
        return sum(len(lane) for each in lanes for lane in each.values())

    def add(self, workload: Workload, since_s: float | None = None) -> None:
        """A workload waits from now on; one that comes back keeps its place.

        Args:
            workload: the workload.
            since_s: Unix time from which it gains age; None: since its submission.
        """
        row = self.tenancy.row(workload.tenant)
        lanes = self._lanes.get(row)
        if lanes is None:
            lanes = self._lanes[row] = {}
            self._families.setdefault(self.tenancy.family(row), set()).add(row)
        shape = self._shape(workload)
        lane = lanes.get(shape)
        if lane is None:
            lane = lanes[shape] = Lane(row, shape, workload.jobs, workload.needed_data)
        lane.add((workload.submitted_at_s if since_s is None else since_s, workload.id))
        self._count += 1
        self.touch(row)

    def remove(self, workload: Workload, since_s: float | None = None) -> None:
        """A workload waits no more; ``since_s`` as it was added with."""
        row = self.tenancy.row(workload.tenant)
        shape = self._shape(workload)
        lanes = self._lanes[row]
        place_s = workload.submitted_at_s if since_s is None else since_s
        lanes[shape].remove((place_s, workload.id))
        if not len(lanes[shape]):
            del lanes[shape]
            if not lanes:
                del self._lanes[row]
                self._families[self.tenancy.family(row)].discard(row)
        self._count -= 1
        self.touch(row)

    def touch(self, row: int) -> None:
        """Note that what the tenant holds, or has waiting, has changed."""
        self.stale.add(self.tenancy.family(row))
        self.heads.pop(row, None)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Undo what quota scans do inside: a question must not disturb a pass that is open."""
        families = self.stale | self.moving
        lanes = [x for f in families for row in self.rows_of(f) for x in self.lanes(row)]
        within = [(lane, lane.within) for lane in lanes]
        stale, moving, heads = set(self.stale), set(self.moving), dict(self.heads)
        try:
            yield
        finally:
            for lane, number in within:
                lane.within = number
            self.stale, self.moving, self.heads = stale, moving, heads

    def rows(self) -> Iterator[int]:
        """Tenants that have workloads waiting."""
        return iter(self._lanes)

    def lanes(self, row: int) -> list[Lane]:
        return list(self._lanes.get(row, {}).values())

    def with_data(self) -> Iterator[Lane]:
        """The lanes whose workloads name data sets, or write one."""
        return (lane for lanes in self._lanes.values() for lane in lanes.values() if lane.data)

    def lane_of(self, workload: Workload) -> Lane | None:
        """The lane that a waiting workload is in."""
        lanes = self._lanes.get(self.tenancy.row(workload.tenant), {})
        return lanes.get(self._shape(workload))

    def rows_of(self, family: int) -> tuple[int, ...]:
        """The tenants of a family that have workloads waiting."""
        return tuple(sorted(self._families.get(family, ())))

    def level(self, lane: Lane) -> int:
        """The priority of what is within quota in a lane: the tenant's, or lower as asked."""
        return max(self.tenancy.tenants[lane.row].priority, lane.shape.asked_priority)

    def runs(self, lane: Lane) -> Iterator[Run]:
        """The part of a lane that is within quota, and the part over it."""
        if lane.within:
            yield Run(self.level(lane), True, 0, lane.within)
        if lane.within < (stop := len(lane)):
            yield Run(LOWEST_PRIORITY, False, lane.within, stop)

    def number_of(self, workload: Workload) -> int:
        """The number of what a waiting workload asks for: its jobs and data sets.

        Of jobs that differ in names it is one.

        It means the same for as long as anything waits that asks for it; none is given twice.
        """
        return self._shape(workload).number

    def _shape(self, workload: Workload) -> Shape:
        jobs, array_ = workload.jobs, workload.array
        needed = workload.needed_data
        asked: _Asked = (jobs, needed) if needed else jobs
        known = self._asked.get(asked)
        if known is None:
            if len(self._asked) >= self._asked_most:
                self._forget_asked()
            known = self._asked[asked] = next(self._numbers), self.tenancy.resources.request(jobs)
        number, request = known
        throttled = array_.array_id if array_ is not None and array_.max_running else 0
        return Shape(
            request,
            workload.asked_priority,
            workload.nice,
            workload.preemptible,
            number,
            throttled,
            workload.user if self._limits_users(workload.tenant) else "",
        )

    def _limits_users(self, tenant: TenantName) -> bool:
        """Whether each user of a tenant may run so many jobs at once, and no more."""
        tenancy = self.tenancy
        if not tenancy.limits_jobs:
            return False
        return tenancy.jobs_per_user(tenancy.row(tenant)).running_per_user != inf

    def _forget_asked(self) -> None:
        """Keep what is asked for by something that waits."""
        waits = {shape.number for lanes in self._lanes.values() for shape in lanes}
        self._asked = {asked: known for asked, known in self._asked.items() if known[0] in waits}
        self._asked_most = max(ASKED_KEPT, 2 * len(self._asked))
