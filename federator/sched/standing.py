"""Is a workload within its tenant's quota, and if not, what is in the way? For people, and for
whoever looks for victims."""

from __future__ import annotations

from dataclasses import dataclass

from federator.model.lifecycle import AT_SITE
from federator.model.tenant import LOWEST_PRIORITY, Amounts
from federator.model.workload import TenantName, Workload, WorkloadId
from federator.sched.holdings import fits
from federator.sched.ledger import Entry, Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Of a workload at a site, as things are now."""

    priority: int
    within_quota: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """Why a waiting workload is over quota: ``held + promised + asked > quota``.

    ``tenant`` owns the quota, which may be an ancestor's; it is "" when there is none at all.
    """

    tenant: TenantName = TenantName("")
    unit: str = ""
    held: int = 0  # at sites
    promised: int = 0  # to workloads that come before it
    asked: int = 0
    quota: int = 0


def standings(ledger: Ledger) -> dict[WorkloadId, Standing]:
    """The present standing of every workload at a site.

    They are counted against the quotas in the order of their awards, those awarded within quota
    first; one that no longer exceeds any quota is within quota. So what was borrowed becomes the
    tenant's own as its quota comes free, and nothing is taken from what was awarded within quota
    unless an admin lowers the quota.

    Source:
        MAST sec. 4.2 is silent on workloads that run already; what is chosen here agrees with its
        scan, which counts all that runs against the quota.
    """
    tenancy = ledger.tenancy
    used = [[0] * len(tenancy.resources) for _ in range(len(tenancy))]
    found: dict[WorkloadId, Standing] = {}
    for entry in sorted(ledger.in_state(*AT_SITE), key=_award_order):
        charge = entry.charge
        if charge is None:
            continue
        bounds = tenancy.quota_rows(charge.row)
        within = bool(bounds) and all(
            fits(used[row], charge.amounts, tenancy.quotas[row]) for row in bounds
        )
        for row in bounds:
            used[row] = [u + a for u, a in zip(used[row], charge.amounts, strict=True)]
        level = tenancy.level(entry.workload) if within else LOWEST_PRIORITY
        found[entry.workload.id] = Standing(priority=level, within_quota=within)
    return found


def _award_order(entry: Entry) -> tuple[bool, float, int]:
    award = entry.award
    if award is None:
        return (True, 0.0, entry.workload.id)
    return (not award.within_quota, award.at_s, entry.workload.id)


class QuotaReport:
    """Explains over-quota workloads; valid until the queue changes, and after a quota scan only.

    Args:
        ledger: with every lane's ``within`` as the scan left it.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._promised: dict[int, list[int]] = {}

    def shortfall(self, workload: Workload) -> Shortfall:
        """What keeps a waiting workload over quota."""
        tenancy = self._ledger.tenancy
        row = tenancy.row(workload.tenant)
        asked = tenancy.request(workload.jobs)
        for at in tenancy.quota_rows(row):
            quota = tenancy.quotas[at] or ()
            held, promised = self._ledger.holdings.used(at), self.promised(at)
            for k, bound in enumerate(quota):
                if held[k] + promised[k] + asked[k] > bound:
                    return Shortfall(
                        tenant=tenancy.tenants[at].name, unit=tenancy.unit(k), held=held[k],
                        promised=promised[k], asked=asked[k], quota=int(bound),
                    )  # fmt: skip
        return Shortfall()

    def promised(self, row: int) -> list[int]:
        """What the scan gave to waiting workloads of a tenant and its descendants."""
        if row not in self._promised:
            backlog = self._ledger.backlog
            tenancy = self._ledger.tenancy
            total = [0] * len(tenancy.resources)
            for lane in (lane for r in backlog.rows() for lane in backlog.lanes(r)):
                if row in tenancy.chain(lane.row):
                    _add(total, lane.shape.request, lane.within)
            self._promised[row] = total
        return self._promised[row]


def _add(total: list[int], amounts: Amounts, times: int) -> None:
    for k, amount in enumerate(amounts):
        total[k] += times * amount
