"""Says whom a workload may evict in a pass: what the budget still has, less what claims need."""

from __future__ import annotations

from federator.model.workload import SiteName
from federator.sched.bid.negative_cache import NOBODY, Rights
from federator.sched.passes.claims import Claims
from federator.sched.passes.eviction_prices import EvictionPrices


class PassBudget:
    """The GPUs that a pass may still evict.

    Args:
        gpus: see above.
        prices: what evictions take of it.
        claims: for which a part of the budget is kept; None: nobody is evicted.

    Attributes:
        gpus: for workloads within quota; less with each award that evicts.
    """

    def __init__(self, gpus: float, prices: EvictionPrices, claims: Claims | None) -> None:
        self.gpus = gpus
        self.prices = prices
        self._claims = claims
        self._escrow_gpus: dict[int, float] = {}  # by priority

    def begin_round(self) -> None:
        """What is kept for claims may be another."""
        self._escrow_gpus = {}

    def gpus_for(self, priority: int) -> float:
        """The GPUs that may be evicted for one who has no claim: what is not kept for claims."""
        if self._claims is None:
            return self.gpus
        if priority not in self._escrow_gpus:
            self._escrow_gpus[priority] = float(self._claims.budget.escrow_gpus(priority))
        return max(0.0, self.gpus - self._escrow_gpus[priority])

    def rights(
        self, number: int, priority: int, home: frozenset[SiteName], *, within: bool
    ) -> Rights:
        """Whom one may evict: only work within quota displaces others, and claims come first.

        Args:
            number: of what it asks for.
            priority: of the workload.
            home: of its tenant.
            within: whether it is within quota.
        """
        if not within or not self.gpus:
            return NOBODY
        left = self.gpus_for(priority)
        if not left or (self._claims and self._claims.vain.has(number, priority, home)):
            return NOBODY
        return Rights(priority, left, home)
