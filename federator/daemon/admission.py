"""Sends each site what its own admission rules need: what each tenant may have, and has.

Sites refuse early what the federation would refuse anyhow; nothing is decided by these figures.
They are told at once the first time, then when they have changed, but not more often than every
``EVERY_S``; and every ``AGAIN_S`` although nothing has, so that old ones at a site are known to be.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Final

from federator.model.site_mode import SiteMode
from federator.sched.state.ledger import Ledger
from federator.wire.agent_protocol import Admission, TenantCap

EVERY_S: Final = 60.0
AGAIN_S: Final = 600.0


def admission_of(ledger: Ledger) -> Admission:
    """The tenants in mode enforced, in the order of the configuration; others have no limit."""
    tenancy, holdings = ledger.tenancy, ledger.holdings
    caps = []
    for row, tenant in enumerate(tenancy.tenants):
        if tenancy.mode(row) is not SiteMode.ENFORCED:
            continue
        bounds = (tenancy.limits[r] for r in tenancy.limit_rows(row))
        limit = min((bound[0] for bound in bounds if bound is not None), default=inf)
        caps.append(
            TenantCap(
                name=tenant.name,
                limit_gpus=int(limit) if isfinite(limit) else None,
                used_gpus=holdings.used(row)[0],
            )
        )
    return Admission(tenants=tuple(caps))


class AdmissionUpdates:
    """Decides when sites are sent new figures; none has been sent yet.

    Args:
        ledger: whose tenants.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._sent: Admission | None = None
        self._sent_at_s = -inf
        self._version = (-1, -1)  # of what holdings were looked at last

    @property
    def next_s(self) -> float:
        """Before then there is nothing to tell; Unix time."""
        return self._sent_at_s + EVERY_S

    def due(self, now_s: float) -> Admission | None:
        """The figures to send to sites now; None: nothing."""
        again = now_s >= self._sent_at_s + AGAIN_S
        version = self._ledger.holdings.version, len(self._ledger.tenancy)
        if now_s < self.next_s or (version == self._version and not again):
            return None
        self._version = version
        found = admission_of(self._ledger)
        if found == self._sent and not again:
            return None
        self._sent, self._sent_at_s = found, now_s
        return found
