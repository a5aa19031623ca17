"""Says why a workload is not tried: a limit of its tenant, user or array, or of licences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from math import inf
from typing import Final, NamedTuple

from federator.model.lifecycle import AT_SITE
from federator.model.mappings import NOTHING
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.resources import Amounts
from federator.model.workload import TenantName, Workload, WorkloadId
from federator.sched.state.fleet_licenses import Pools, asked_of_pools, lack
from federator.sched.state.holdings import Holdings
from federator.sched.state.job_counts import Member
from federator.sched.state.ledger import Ledger


def wait(code: ReasonCode, needed: int = 0) -> Refusal:
    return Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=code, needed=needed),))


def limit_refusal(holdings: Holdings, row: int, amounts: Amounts) -> Refusal | None:
    """The refusal of a tenant that may not have this much more now; None: no limit is reached."""
    beyond = holdings.beyond_limit(row, amounts)
    if beyond is None:
        return None
    at, resource = beyond
    tenancy = holdings.tenancy
    limit = tenancy.limits[at]
    assert limit is not None
    never = amounts[resource] > limit[resource]
    reason = Reason(
        code=ReasonCode.LIMIT,
        needed=amounts[resource],
        free=max(0, int(limit[resource]) - holdings.used(at)[resource]),
        unit=tenancy.resources.unit(resource),
        detail=tenancy.tenants[at].name,
    )
    kind = RefusalKind.REJECT if never else RefusalKind.WAIT
    return Refusal(kind=kind, reasons=(reason,))


class LimitRefusals:
    """Answers ``limit_refusal`` from memory: many of one tenant ask for the same in a pass.

    Args:
        holdings: what tenants hold; everything is forgotten when that changes.
    """

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._known: dict[tuple[int, Amounts], Refusal | None] = {}
        self._as_of = -1

    def refusal(self, row: int, amounts: Amounts) -> Refusal | None:
        """As ``limit_refusal``."""
        if self._as_of != self._holdings.version:
            self._known.clear()
            self._as_of = self._holdings.version
        if (row, amounts) not in self._known:
            self._known[row, amounts] = limit_refusal(self._holdings, row, amounts)
        return self._known[row, amounts]


def submit_refusal(
    ledger: Ledger,
    tenant: TenantName,
    user: str,
    jobs: int,
    *,
    others: int = 0,
    leaves: TenantName | None = None,
) -> Refusal | None:
    """The refusal of so many more jobs of a user, which would be too many; None: they may come.

    As slurmctld does it asks the user's own limit first, then those of the tenants above.

    Args:
        ledger: the queue.
        tenant: where they are to count.
        user: whose they are.
        jobs: how many.
        others: of other users, that come at the same time.
        leaves: the tenant where they count now, if they live; what is above both has them already.
    """
    tenancy, counts = ledger.tenancy, ledger.counts
    if not tenancy.limits_jobs or tenant not in tenancy:  # a question gives nobody a row
        return None
    row = tenancy.row(tenant)
    most = tenancy.jobs_per_user(row).submit_per_user
    if most != inf and (live := counts.live[tenant, user]) + jobs > most:
        return _too_many(ReasonCode.USER_SUBMIT, jobs, live, most, tenant)
    for at in tenancy.chain(row):
        most = tenancy.tenants[at].jobs.submit
        if most == inf:
            continue
        below = set(tenancy.below(at))
        live = sum(counts.live_of[name] for name in below)
        if leaves not in below and live + others + jobs > most:
            name = tenancy.tenants[at].name
            return _too_many(ReasonCode.TENANT_SUBMIT, jobs, live + others, most, name)
    return None


def _too_many(code: ReasonCode, jobs: int, live: int, most: float, tenant: TenantName) -> Refusal:
    reason = Reason(
        code=code, needed=jobs, free=max(0, int(most) - live), unit="jobs", detail=tenant
    )
    kind = RefusalKind.REJECT if jobs > most else RefusalKind.WAIT
    return Refusal(kind=kind, reasons=(reason,))


OF_A_LANE: Final = frozenset(
    {
        ReasonCode.ARRAY_LIMIT,
        ReasonCode.USER_JOBS,
        ReasonCode.TENANT_JOBS,
        ReasonCode.LICENSES,
    }
)
"""Refusals of one job that are those of all in its lane: see ``Shape``."""


class Place(NamedTuple):
    """What a job takes some of, of which there are only so many."""

    key: tuple[ReasonCode, Hashable]
    most: float
    amount: int = 1


class Places:
    """The jobs that arrays with a throttle, users and tenants may still start in one pass.

    The same of jobs with licences that all sites share. A claim has its place: its victims leave
    for it, and it is awarded when they have.

    Args:
        ledger: counted when the first job with a limit is asked about.
        pools: the licences that all sites share.
    """

    def __init__(self, ledger: Ledger, pools: Pools = NOTHING) -> None:
        self._ledger = ledger
        self._pools = pools
        self._arrays: dict[WorkloadId, int] | None = None  # tasks that have a place
        self._taken: Counter[tuple[ReasonCode, Hashable]] = Counter()  # of users, tenants and pools
        self._placed: dict[WorkloadId, tuple[Place, ...]] = {}  # of them, and not at a site
        self._known: dict[Member, tuple[Place, ...]] = {}

    def take(self, workload: Workload) -> Refusal | None:
        """Give a job its places, as often as it is asked about; or the refusal when one lacks."""
        array = workload.array
        throttle = array.max_running if array is not None else 0
        places = self._places(workload)
        if workload.id in self._placed or not (throttle or places):
            return None
        tasks = self._counted()
        if workload.id in self._placed:
            return None
        if array is not None and throttle and tasks.get(array.array_id, 0) >= throttle:
            return wait(ReasonCode.ARRAY_LIMIT, throttle)
        for place in places:
            if self._taken[place.key] + place.amount > place.most:
                return self._full(place)
        self._place(workload, places)
        return None

    def full(self, row: int) -> Refusal | None:
        """The refusal of all of a tenant's jobs, where so many are at sites as may be."""
        tenancy = self._ledger.tenancy
        if not tenancy.limits_jobs:
            return None
        for at in tenancy.chain(row):
            most = tenancy.tenants[at].jobs.running
            if most != inf and _at_sites(self._ledger, at) >= most:
                return self._full(Place((ReasonCode.TENANT_JOBS, tenancy.tenants[at].name), most))
        return None

    def give_back(self, workload: Workload) -> None:
        """A job that has places does not start in this pass; harmless for others."""
        if workload.id in self._placed and workload.id not in self._ledger.claims:
            for place in self._placed.pop(workload.id):
                self._taken[place.key] -= place.amount
            if workload.array is not None:
                self._counted()[workload.array.array_id] -= 1

    def _place(self, workload: Workload, places: tuple[Place, ...]) -> None:
        self._placed[workload.id] = places
        for place in places:
            self._taken[place.key] += place.amount
        if workload.array is not None:
            tasks, array_id = self._counted(), workload.array.array_id
            tasks[array_id] = tasks.get(array_id, 0) + 1

    def _full(self, place: Place) -> Refusal:
        code, of = place.key
        if code is ReasonCode.LICENSES:
            return lack(str(of), place.amount, int(place.most) - self._taken[place.key])
        tenant = str(of[0] if isinstance(of, tuple) else of)
        reason = Reason(code=code, needed=int(place.most), unit="jobs", detail=tenant)
        return Refusal(kind=RefusalKind.WAIT, reasons=(reason,))

    def _places(self, workload: Workload) -> tuple[Place, ...]:
        """The limits of its user and of its tenants that it counts against, and its licences."""
        tenancy, licenses = self._ledger.tenancy, asked_of_pools(workload.jobs)
        if licenses:
            pools = tuple(self._pool(name, amount) for name, amount in licenses)
            return (*self._of_member(workload), *pools) if tenancy.limits_jobs else pools
        return self._of_member(workload) if tenancy.limits_jobs else ()

    def _pool(self, name: str, amount: int) -> Place:
        place = Place((ReasonCode.LICENSES, name), self._pools.get(name, 0), amount)
        if place.key not in self._taken:  # by what was at sites when the pass began
            self._taken[place.key] = self._ledger.counts.licenses[name]
        return place

    def _of_member(self, workload: Workload) -> tuple[Place, ...]:
        member = workload.tenant, workload.user
        if member not in self._known:
            self._known[member] = tuple(self._new_places(member))
        return self._known[member]

    def _new_places(self, member: Member) -> Iterator[Place]:
        """As they are at the start of the pass: what starts in it has its place already."""
        tenancy, counts = self._ledger.tenancy, self._ledger.counts
        row = tenancy.row(member[0])
        most = tenancy.jobs_per_user(row).running_per_user
        if most != inf:
            place = Place((ReasonCode.USER_JOBS, member), most)
            self._taken[place.key] += counts.at_sites[member]
            yield place
        for at in tenancy.chain(row):
            most = tenancy.tenants[at].jobs.running
            if most != inf:
                place = Place((ReasonCode.TENANT_JOBS, tenancy.tenants[at].name), most)
                if place.key not in self._taken:
                    self._taken[place.key] = _at_sites(self._ledger, at)
                yield place

    def _counted(self) -> dict[WorkloadId, int]:
        """The tasks of each array that are at sites or have a place."""
        if self._arrays is None:
            self._arrays = {}
            for entry in self._ledger.in_state(*AT_SITE):
                array = entry.workload.array
                if array is not None:
                    self._arrays[array.array_id] = self._arrays.get(array.array_id, 0) + 1
            for id_ in self._ledger.claims:
                workload = self._ledger.entries[id_].workload
                self._place(workload, self._places(workload))
        return self._arrays


def _at_sites(ledger: Ledger, row: int) -> int:
    return sum(ledger.counts.at_sites_of[name] for name in ledger.tenancy.below(row))
