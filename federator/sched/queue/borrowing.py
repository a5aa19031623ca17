"""Decides who may borrow from another's quota: only preemptible work.

Idle quota is lent because its owner can have it back: whoever borrows is evicted for it. A
workload that may not be evicted therefore starts only while all such work of its tenant fits into
the tenant's quota, whatever else the tenant runs. The rule holds
where quotas are enforced so: the policy ranks by quota, evictions are allowed, and there is a quota
to protect.

Source:
    Run:ai keeps non-preemptible workloads to their project's quota likewise (its documentation,
    "Workload Priority and Preemption"); MAST (OSDI'24) knows none.
"""

from __future__ import annotations

from federator.model.lifecycle import AT_SITE
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.resources import Amounts
from federator.model.tenant import Tenancy
from federator.model.workload import TenantName
from federator.sched.state.holdings import fits
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules


def borrowers_must_be_preemptible(tenancy: Tenancy, rules: Rules, *, by_quota: bool) -> bool:
    """Tell whether the rule holds in this federation; see the module."""
    return by_quota and rules.evicts and any(q is not None for q in tenancy.quotas)


def not_lent(tenancy: Tenancy, tenant: TenantName, amounts: Amounts) -> Refusal:
    """The refusal of a workload that may not be evicted and does not start over quota.

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


class FirmWork:
    """The amounts that work which may not be evicted holds at sites, against each quota.

    A tenant's other work does not stand in its way: it is what was borrowed then, and goes for
    whoever owns the room (``quota_status.quota_statuses``). Else a stream of small workloads,
    which start wherever a little quota is free, would keep a large one waiting for ever.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._tenancy = ledger.tenancy
        self._ledger = ledger
        self._held: dict[int, list[int]] | None = None  # counted when first asked for

    def add(self, row: int, amounts: Amounts) -> None:
        """A tenant has started some more."""
        self._add(self._all(), row, amounts)

    def _all(self) -> dict[int, list[int]]:
        if self._held is None:
            self._held = {}
            for entry in self._ledger.in_state(*AT_SITE):
                charge = entry.charge
                if charge is not None and not (entry.workload.preemptible or charge.lent):
                    self._add(self._held, charge.row, charge.amounts)
        return self._held

    def _add(self, held: dict[int, list[int]], row: int, amounts: Amounts) -> None:
        for at in self._tenancy.quota_rows(row):
            before = held.get(at, [0] * len(amounts))
            held[at] = [h + a for h, a in zip(before, amounts, strict=True)]

    def has_room(self, row: int, amounts: Amounts) -> bool:
        """Tell whether a tenant may start this much more of it."""
        rows = self._tenancy.quota_rows(row)
        nothing, held = [0] * len(amounts), self._all()
        return bool(rows) and all(
            fits(held.get(at, nothing), amounts, self._tenancy.quotas[at]) for at in rows
        )
