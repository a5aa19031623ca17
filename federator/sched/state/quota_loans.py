"""The last step of each quota that was found unused; part of the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from federator.model.event import QuotaLoan
from federator.model.quota_loan import OPEN_STEPS, LoanStep
from federator.model.workload import TenantName


@dataclass(slots=True)
class QuotaLoans:
    """Loans of whole quotas, and what came before and after them.

    Changed only by ``Ledger.apply``.

    Attributes:
        by_tenant: the last step of each.
    """

    by_tenant: dict[TenantName, QuotaLoan] = field(default_factory=dict)

    def apply(self, event: QuotaLoan) -> None:
        """Take a step in."""
        if event.step is LoanStep.RELEASED:
            self.by_tenant.pop(event.tenant, None)
        else:
            self.by_tenant[event.tenant] = event

    def is_lent(self, tenant: TenantName) -> bool:
        """Tell whether nothing of a tenant's quota is held back for a forecast."""
        last = self.by_tenant.get(tenant)
        return last is not None and last.step is LoanStep.LENT

    def open(self) -> list[QuotaLoan]:
        """Those from which use leads back."""
        return [last for last in self.by_tenant.values() if last.step in OPEN_STEPS]

    def restore(self, saved: Iterable[QuotaLoan]) -> None:
        """Know them as a snapshot has them."""
        self.by_tenant = {last.tenant: last for last in saved}
