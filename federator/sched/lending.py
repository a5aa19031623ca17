"""Who may have room that belongs to another's quota? Only who gives it back when told.

Idle quota is lent because its owner can have it back: whoever borrows is evicted for it. A
workload that may not be evicted therefore starts within its tenant's quota only. The rule holds
where quotas are enforced so: the policy ranks by quota, evictions are allowed, and there is a quota
to protect.

Source:
    Run:ai keeps non-preemptible workloads to their project's quota likewise (its documentation,
    "Workload Priority and Preemption"); MAST (OSDI'24) knows none.
"""

from __future__ import annotations

from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.tenant import Amounts, Tenancy
from federator.model.workload import TenantName
from federator.sched.holdings import Holdings, fits
from federator.sched.rules import Rules


def is_lent_to_preemptible_only(tenancy: Tenancy, rules: Rules, *, by_quota: bool) -> bool:
    """Tell whether the rule holds in this federation; see the module."""
    return by_quota and rules.evicts and any(q is not None for q in tenancy.quotas)


def not_lent(tenancy: Tenancy, tenant: TenantName, amounts: Amounts) -> Refusal:
    """Why a workload that may not be evicted does not start over quota.

    It is a reject where the quota would be too small even if nothing else were there.
    """
    fits_ever = tenant in tenancy and fits_whole_quota(tenancy, tenancy.row(tenant), amounts)
    kind = RefusalKind.WAIT if fits_ever else RefusalKind.REJECT
    return Refusal(kind=kind, reasons=(Reason(code=ReasonCode.NOT_LENT, detail=tenant),))


def fits_whole_quota(tenancy: Tenancy, row: int, amounts: Amounts) -> bool:
    """Tell whether this much would be within quota if nothing else were there."""
    rows = tenancy.quota_rows(row)
    nothing = [0] * len(amounts)
    return bool(rows) and all(fits(nothing, amounts, tenancy.quotas[at]) for at in rows)


def fits_quota_now(holdings: Holdings, row: int, amounts: Amounts) -> bool:
    """Tell whether this much is within quota beside what is held, whatever waits."""
    tenancy = holdings.tenancy
    rows = tenancy.quota_rows(row)
    return bool(rows) and all(
        fits(holdings.claimed(at) if at == row else holdings.within(at), amounts,
             tenancy.quotas[at])
        for at in rows
    )  # fmt: skip
