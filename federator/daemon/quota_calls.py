"""Reads operators' calls about unused quotas, and shows how these stand."""

from __future__ import annotations

from typing import Final

from federator.errors import InvalidRequest
from federator.model.message import QuotaAsked
from federator.model.quota_loan import LoanStep
from federator.model.tenant import Tenancy
from federator.model.workload import TenantName
from federator.sched.state.ledger import Ledger
from federator.wire.quota_messages import QuotaCall
from federator.wire.status_rows import LoanRow

MOST_AHEAD_S: Final = 366 * 86_400.0  # that a quota is kept


def quota_asked(
    call: QuotaCall, user: str, client: int, tenancy: Tenancy, now_s: float
) -> QuotaAsked:
    """Make the observation of an operator's call.

    Args:
        call: as it came.
        user: the operator.
        client: whom to answer.
        tenancy: the tenants.
        now_s: Unix time.

    Raises:
        InvalidRequest: there is no such tenant, it has no quota, or the time makes no sense.
    """
    name = TenantName(call.tenant)
    if not tenancy.is_configured(name):
        raise InvalidRequest(f"unknown tenant {call.tenant[:64]!r}")
    if tenancy.quotas[tenancy.row(name)] is None:
        raise InvalidRequest(f"tenant {name} has no quota of its own")
    if call.until_s and not now_s < call.until_s <= now_s + MOST_AHEAD_S:
        raise InvalidRequest("expected a time within a year from now")
    until_s = call.until_s if call.keep else 0.0
    return QuotaAsked(client=client, tenant=name, keep=call.keep, until_s=until_s, by=user)


def loan_rows(ledger: Ledger) -> tuple[LoanRow, ...]:
    """The last step of each quota that is found unused, or kept; none of one that is in use."""
    shown = (
        last
        for last in ledger.loans.by_tenant.values()
        if last.step not in (LoanStep.USED, LoanStep.ENDED)
    )
    return tuple(
        LoanRow(
            tenant=last.tenant,
            step=last.step.value,
            since_s=last.at_s,
            used_frac=last.used_frac,
            days=last.days,
            lends_at_s=last.lends_at_s,
            until_s=last.until_s,
            by=last.by,
        )
        for last in shown
    )
