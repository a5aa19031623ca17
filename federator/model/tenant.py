"""The tenants that share the fleet: priority, guaranteed quota, limit and parent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Final

from federator.errors import InvalidRequest
from federator.model.lending import Lending
from federator.model.resources import Bound, Resources
from federator.model.site_mode import SiteMode
from federator.model.workload import SiteName, TenantName, Workload

HIGHEST_PRIORITY: Final = 1
LOWEST_PRIORITY: Final = 7
"""Over-quota workloads rank here, whatever their tenant (MAST sec. 4.2 has seven levels)."""

EVERYWHERE: Final[frozenset[SiteName]] = frozenset()
"""The home of a tenant whose quota is guaranteed at every site alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The most of each resource in use at once; ``inf``: as much as there is."""

    gpus: float = inf
    cpus: float = inf
    gpu_types: Mapping[str, float] = field(default_factory=dict)  # GPUs of one type, of ``gpus``

    def __post_init__(self) -> None:
        for amount in (self.gpus, self.cpus, *self.gpu_types.values()):
            if not amount >= 0:  # NaN fails too
                raise InvalidRequest(f"an allowance cannot be negative or no number, got {self}")


UNLIMITED: Final = Allowance()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """The most jobs, tasks of arrays counted one by one; ``inf``: there is no limit.

    ``submit`` and ``running`` are of a tenant with all below it, as Slurm's ``GrpSubmitJobs`` and
    ``GrpJobs``; the others of each user in it, and in tenants below it that have none of their own,
    as ``MaxSubmitJobs`` and ``MaxJobs``.
    """

    submit: float = inf
    running: float = inf
    submit_per_user: float = inf
    running_per_user: float = inf

    @property
    def is_none(self) -> bool:
        return self == NO_JOB_LIMITS


NO_JOB_LIMITS: Final = JobLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A Slurm account of the federation.

    ``quota`` is guaranteed; None guarantees nothing of its own. What a tenant and all below it use
    within quota also fits into the quota of every ancestor that has one. ``limit`` (burst) is
    never exceeded, by borrowing neither; an ancestor's holds for the sum as well.

    ``home``: the sites at which the quotas of a tenant and of those below it are guaranteed; at
    others it is a guest, whatever its quota. Empty: where its parent's are, or at every site.

    ``start_within_s``: how long work within quota may wait for guests to leave before their
    eviction goes beyond the budget; 0: as its parent, or never.

    ``jobs``: how many jobs there may be, whatever their size.

    ``unused_quota``: whether its quota is lent fully while it is hardly used.

    ``mode``: how far the federation acts for it; a lower one above it holds for it, too.
    """

    name: TenantName
    priority: int = LOWEST_PRIORITY
    quota: Allowance | None = None
    limit: Allowance = UNLIMITED
    parent: TenantName | None = None
    home: tuple[SiteName, ...] = ()
    start_within_s: float = 0.0
    jobs: JobLimits = NO_JOB_LIMITS
    unused_quota: Lending = Lending.OFF
    mode: SiteMode = SiteMode.ENFORCED

    def __post_init__(self) -> None:
        if not HIGHEST_PRIORITY <= self.priority <= LOWEST_PRIORITY:
            raise InvalidRequest(
                f"tenant {self.name[:64]!r}: priority {self.priority}; expected 1 to 7"
            )
        if not 0 <= self.start_within_s < inf:  # NaN fails too
            raise InvalidRequest(
                f"tenant {self.name[:64]!r}: start_within_s {self.start_within_s}; expected seconds"
            )


class Tenancy:
    """All tenants as rows, and the resources that any quota or limit counts.

    A tenant that the configuration does not name (any more) gets a row when it is first met: no
    quota, no limit, lowest priority. Its workloads run on what is left over.

    Args:
        tenants: in the order of the configuration.
        gpu_weights: what an hour of a GPU of each type counts in usage; 1 for types not named.
        cpu_weight: what an hour of a CPU counts in usage, where that is more; 0: none does.
        mem_gib_weight: what an hour of a GiB of memory counts, likewise.

    Raises:
        InvalidRequest: a name given twice, an unknown parent, parents that form a circle, or a
            weight that is negative or no number.
    """

    def __init__(
        self,
        tenants: Iterable[Tenant] = (),
        gpu_weights: Mapping[str, float] = MappingProxyType({}),
        cpu_weight: float = 0.0,
        mem_gib_weight: float = 0.0,
    ) -> None:
        self.tenants: list[Tenant] = []
        self._row_of: dict[TenantName, int] = {}
        self._chains: list[tuple[int, ...]] = []
        self._family: list[int] = []
        for tenant in tenants:
            if tenant.name in self._row_of:
                raise InvalidRequest(f"tenant {tenant.name[:64]!r} is given twice")
            self._row_of[tenant.name] = len(self.tenants)
            self.tenants.append(tenant)
        bounded = [b for t in self.tenants for b in (t.quota, t.limit) if b is not None]
        types = (name for bound in bounded for name in bound.gpu_types)
        self.resources = Resources(types, gpu_weights, cpu_weight, mem_gib_weight)
        self._n_configured = len(self.tenants)
        for row in range(len(self.tenants)):
            self._chains.append(tuple(_chain_of(row, self.tenants, self._row_of)))
        above = [[self.tenants[at] for at in chain] for chain in self._chains]
        self._homes = [_nearest_home(chain) for chain in above]
        self.has_objectives = any(tenant.start_within_s for tenant in self.tenants)
        self._modes = [SiteMode.lowest(tenant.mode for tenant in chain) for chain in above]
        self.acts_for_all = all(mode.acts for mode in self._modes)
        self._per_user = [_nearest_jobs(chain) for chain in above]
        self.limits_jobs = not all(tenant.jobs.is_none for tenant in self.tenants)
        for row, chain in enumerate(self._chains):  # the highest with a quota, which all share
            bounded_rows = [at for at in chain if self.tenants[at].quota is not None]
            self._family.append(bounded_rows[-1] if bounded_rows else row)
        self.quotas = [None if t.quota is None else self._vector(t.quota) for t in self.tenants]
        self.limits = [self._limit(t) for t in self.tenants]
        rows = range(len(self.tenants))
        self._quota_rows = [self._bounding(row, self.quotas) for row in rows]
        self._limit_rows = [self._bounding(row, self.limits) for row in rows]

    def __len__(self) -> int:
        return len(self.tenants)

    def __contains__(self, name: TenantName) -> bool:
        return name in self._row_of

    def is_configured(self, name: TenantName) -> bool:
        """Whether the configuration names it; others have rows too once they are met."""
        return self._row_of.get(name, self._n_configured) < self._n_configured

    def row(self, name: TenantName) -> int:
        """The row of a tenant; a new one for a name never met."""
        row = self._row_of.get(name)
        if row is None:
            row = self._row_of[name] = len(self.tenants)
            self.tenants.append(Tenant(name=name))
            self._chains.append((row,))
            self._family.append(row)
            self._homes.append(EVERYWHERE)
            self.quotas.append(None)
            self.limits.append(None)
            self._quota_rows.append(())
            self._limit_rows.append(())
        return row

    def chain(self, row: int) -> tuple[int, ...]:
        """The tenant and its ancestors, nearest first."""
        return self._chains[row]

    def quota_rows(self, row: int) -> tuple[int, ...]:
        """Those of the chain whose quota bounds the tenant; empty: nothing is guaranteed."""
        return self._quota_rows[row]

    def home(self, row: int) -> frozenset[SiteName]:
        """The sites at which the quotas above a tenant are guaranteed; empty: all."""
        return self._homes[row]

    def is_home(self, row: int, site: SiteName) -> bool:
        """Tell whether the quotas above a tenant are guaranteed at a site."""
        home = self._homes[row]
        return not home or site in home

    def start_within_s(self, row: int) -> float:
        """The start objective of a tenant, or of the nearest above it; 0: there is none."""
        chain = (self.tenants[at].start_within_s for at in self._chains[row])
        return next((within_s for within_s in chain if within_s), 0.0)

    def mode(self, row: int) -> SiteMode:
        """How far the federation acts for a tenant: the lowest of its mode and those above it."""
        return self._modes[row] if row < len(self._modes) else SiteMode.ENFORCED

    def jobs_per_user(self, row: int) -> JobLimits:
        """The limits of each user in a tenant: its own, or those of the nearest above it."""
        return self._per_user[row] if row < len(self._per_user) else NO_JOB_LIMITS

    def below(self, row: int) -> Iterator[TenantName]:
        """A tenant and all below it."""
        for at, chain in enumerate(self._chains):
            if row in chain:
                yield self.tenants[at].name

    def priority_of(self, name: TenantName) -> int:
        """The priority of a tenant; the lowest of one that is not known."""
        row = self._row_of.get(name)  # a question gives nobody a row
        return LOWEST_PRIORITY if row is None else self.tenants[row].priority

    def limit_rows(self, row: int) -> tuple[int, ...]:
        """Those of the chain whose limit bounds the tenant."""
        return self._limit_rows[row]

    def family(self, row: int) -> int:
        """The row that stands for all tenants whose quotas depend on one another."""
        return self._family[row]

    def level(self, workload: Workload) -> int:
        """The priority of a workload within quota: its tenant's, or lower as its user asked."""
        return max(self.priority_of(workload.tenant), workload.asked_priority)

    def _vector(self, allowance: Allowance) -> Bound:
        return self.resources.bound(allowance.gpus, allowance.cpus, allowance.gpu_types)

    def _limit(self, tenant: Tenant) -> Bound | None:
        vector = self._vector(tenant.limit)
        return None if set(vector) == {inf} else vector

    def _bounding(self, row: int, bounds: Sequence[Bound | None]) -> tuple[int, ...]:
        return tuple(r for r in self._chains[row] if bounds[r] is not None)


def _chain_of(row: int, tenants: Sequence[Tenant], row_of: Mapping[TenantName, int]) -> list[int]:
    """The rows of a tenant and its ancestors, nearest first."""
    chain = [row]
    while (parent := tenants[chain[-1]].parent) is not None:
        at = row_of.get(parent)
        if at is None:
            child = tenants[chain[-1]].name
            raise InvalidRequest(f"tenant {child[:64]!r}: unknown parent {parent[:64]!r}")
        if at in chain:
            raise InvalidRequest(f"tenant {parent[:64]!r} is its own ancestor")
        chain.append(at)
    return chain


def _nearest_jobs(chain: Sequence[Tenant]) -> JobLimits:
    submit = (t.jobs.submit_per_user for t in chain if t.jobs.submit_per_user != inf)
    running = (t.jobs.running_per_user for t in chain if t.jobs.running_per_user != inf)
    return JobLimits(submit_per_user=next(submit, inf), running_per_user=next(running, inf))


def _nearest_home(chain: Sequence[Tenant]) -> frozenset[SiteName]:
    return next((frozenset(tenant.home) for tenant in chain if tenant.home), EVERYWHERE)
