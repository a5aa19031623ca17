"""Quota status: whether a workload is within its tenant's quota, and what keeps it out of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from federator.model.lifecycle import AT_SITE
from federator.model.resources import Amounts
from federator.model.tenant import LOWEST_PRIORITY, Tenancy
from federator.model.workload import TenantName, Workload, WorkloadId
from federator.sched.state.backlog import Backlog
from federator.sched.state.holdings import Holdings, fits
from federator.sched.state.ledger import Ledger, WorkloadRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaStatus:
    """Of a workload at a site, as things are now."""

    priority: int
    within_quota: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The reason why a waiting workload is over quota: ``held + promised + asked > quota``.

    ``held`` is what counts against that quota at sites (``Holdings.counted``, or what relatives
    hold within quota); ``held`` and ``promised`` are 0 where the rest says it all.

    ``tenant`` owns the quota, which may be an ancestor's; it is "" when there is none at all.
    """

    tenant: TenantName = TenantName("")
    unit: str = ""
    held: int = 0  # at sites
    promised: int = 0  # to waiting workloads: those before it, and smaller ones that still fit
    asked: int = 0
    quota: int = 0


def quota_statuses(ledger: Ledger) -> dict[WorkloadId, QuotaStatus]:
    """The present standing of every workload at a site.

    They are counted against the quotas in the order of their awards, those that may not be evicted
    first, then those awarded within quota; one that no longer exceeds any quota is within quota.
    So what was borrowed becomes the tenant's own as its quota comes free, and nothing is taken
    from what was awarded within quota unless an admin lowers the quota, or the tenant itself
    starts work that may not be evicted. Away from its tenant's home a workload is never within
    quota, and counts nevertheless: it is what the tenant borrowed for work of its own.
    Work that was lent its GPUs by a forecast never is within quota, and does not count.

    Source:
        MAST sec. 4.2 is silent on workloads that run already; what is chosen here agrees with its
        scan, which counts all that runs against the quota.
    """
    return statuses_of(ledger.in_state(*AT_SITE), ledger.tenancy)


def statuses_of(
    entries: Iterable[WorkloadRecord], tenancy: Tenancy
) -> dict[WorkloadId, QuotaStatus]:
    """As ``quota_statuses``, of some: all of every family that one of them is of."""
    used: dict[int, list[int]] = {}
    found: dict[WorkloadId, QuotaStatus] = {}
    for entry in sorted(entries, key=_award_order):
        charge = entry.charge
        if charge is None:
            continue
        if charge.lent:
            found[entry.workload.id] = QuotaStatus(priority=LOWEST_PRIORITY, within_quota=False)
            continue
        bounds = tenancy.quota_rows(charge.row)
        for row in bounds:
            if row not in used:
                used[row] = [0] * len(tenancy.resources)
        within = (
            bool(bounds)
            and all(fits(used[row], charge.amounts, tenancy.quotas[row]) for row in bounds)
            and tenancy.is_home(charge.row, entry.site)
        )
        for row in bounds:
            used[row] = [u + a for u, a in zip(used[row], charge.amounts, strict=True)]
        level = tenancy.level(entry.workload) if within else LOWEST_PRIORITY
        found[entry.workload.id] = QuotaStatus(priority=level, within_quota=within)
    return found


def _award_order(entry: WorkloadRecord) -> tuple[bool, bool, float, int]:
    award = entry.award
    if award is None:
        return (True, True, 0.0, entry.workload.id)
    return (entry.workload.preemptible, not award.within_quota, award.at_s, entry.workload.id)


class QuotaReport:
    """Explains over-quota workloads; valid until the queue changes, and after a quota scan only.

    Args:
        holdings: what tenants hold.
        backlog: what waits, with every lane's ``within`` as the scan left it.
    """

    def __init__(self, holdings: Holdings, backlog: Backlog) -> None:
        self._holdings = holdings
        self._backlog = backlog
        self._promised: dict[int, list[int]] | None = None  # by row

    def shortfall(self, workload: Workload) -> Shortfall:
        """The shortfall that keeps a waiting workload over quota."""
        tenancy = self._backlog.tenancy
        asked = tenancy.resources.request(workload.jobs)
        return self.shortfall_of(tenancy.row(workload.tenant), asked)

    def shortfall_of(self, row: int, asked: Amounts) -> Shortfall:
        """The shortfall that keeps a tenant's workloads over quota that ask for this much.

        The plainest reason first: more than the whole quota; more than is left of it; more than is
        left once others have what they were promised.
        """
        found = [*self._shortfalls(row, asked)]
        for short in found:
            if short.asked > short.quota:
                return replace(short, held=0, promised=0)
        for short in found:
            if short.held + short.asked > short.quota:
                return replace(short, promised=0)
        return found[0] if found else Shortfall()

    def _shortfalls(self, row: int, asked: Amounts) -> Iterator[Shortfall]:
        tenancy = self._backlog.tenancy
        for at in tenancy.quota_rows(row):
            quota = tenancy.quotas[at] or ()
            holdings, promised = self._holdings, self.promised(at)
            held = holdings.counted(at) if at == row else holdings.within(at)
            for k, bound in enumerate(quota):
                if held[k] + promised[k] + asked[k] > bound and (asked[k] or k < 2):
                    yield Shortfall(
                        tenant=tenancy.tenants[at].name,
                        unit=tenancy.resources.unit(k),
                        held=held[k],
                        promised=promised[k],
                        asked=asked[k],
                        quota=int(bound),
                    )

    def promised(self, row: int) -> list[int]:
        """The amounts that the scan gave to waiting workloads of a tenant and its descendants."""
        if self._promised is None:
            self._promised = self._sum()
        return self._promised.get(row) or self._nothing()

    def _sum(self) -> dict[int, list[int]]:
        sums: dict[int, list[int]] = {}
        backlog = self._backlog
        for lane in (lane for row in backlog.rows() for lane in backlog.lanes(row) if lane.within):
            for at in backlog.tenancy.chain(lane.row):
                _add(sums.setdefault(at, self._nothing()), lane.shape.request, lane.within)
        return sums

    def _nothing(self) -> list[int]:
        return [0] * len(self._backlog.tenancy.resources)


def _add(total: list[int], amounts: Amounts, times: int) -> None:
    for k, amount in enumerate(amounts):
        total[k] += times * amount
