"""Finds who is still to be told to leave for a claim, and whether those who were told are gone."""

from __future__ import annotations

from dataclasses import dataclass

from federator.model.event import Claimed
from federator.model.lifecycle import WorkloadState
from federator.model.workload import WorkloadId
from federator.sched.passes.eviction import prices_of
from federator.sched.passes.eviction_terms import EvictionTerms
from federator.sched.state.evictions import charged_gpus
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules


@dataclass(frozen=True, slots=True)
class Going:
    """A workload, or optional jobs of one, that is still to be evicted for a claim."""

    entry: WorkloadRecord
    component: int | None
    gpus: int  # as the budget counts them
    cost_gpus: float  # of the budget of a window
    spared_until_s: float


class ClaimVictims:
    """The victims of claims, as things are now.

    Args:
        ledger: which keeps the claims.
        terms: of whoever may be evicted, as of the last pass.

    Attributes:
        prices: what evictions take of the budget, as of the pass.
    """

    def __init__(self, ledger: Ledger, terms: EvictionTerms) -> None:
        self._ledger = ledger
        self._terms = terms
        self.prices = prices_of(ledger, Rules(), 0, 0.0)

    def going(self, claim: Claimed) -> list[Going]:
        """Who may be told to leave for a claim now, in order."""
        return [each for each in self.left(claim) if each.spared_until_s <= self.prices.now_s]

    def left(self, claim: Claimed) -> list[Going]:
        """Who is still to be told to leave for a claim, in order; some are spared for a while."""
        found = []
        named = [(id_, None) for id_ in claim.victims]
        for id_, k in (*named, *((WorkloadId(other), k) for other, k in claim.shrinks)):
            entry = self._ledger.entries.get(id_)
            if entry is not None and self._may_go(entry, claim, k or 0):
                gpus = self.prices.counted_gpus(entry, None if k is None else (k,))
                until_s = self._terms.by_id[id_].spared_until_s
                cost_gpus = charged_gpus(gpus, self.prices.whole_gpus)
                found.append(Going(entry, k, gpus, cost_gpus, until_s))
        return found

    def _may_go(self, entry: WorkloadRecord, claim: Claimed, component: int) -> bool:
        """Tell whether one that a claim names may be evicted in time, as if it were named now.

        It is there still, and nobody else's; and its terms still allow it: since the claim was
        made it may have come within its quota.
        """
        runs = entry.state is WorkloadState.RUNNING and entry.site == claim.site
        terms = self._terms.by_id.get(entry.workload.id)
        if not runs or terms is None or entry.promised_to is not None or entry.promised_jobs:
            return False
        if component and component not in terms.optional_jobs:
            return False
        return terms.priority > claim.priority

    def is_clearing(self, claim: Claimed) -> bool:
        """Tell whether somebody has been told to leave for a claim and is not gone yet."""
        entries = self._ledger.entries
        victims = (entries.get(id_) for id_ in claim.victims)
        shrunk = ((entries.get(WorkloadId(id_)), k) for id_, k in claim.shrinks)
        return any(
            v is not None
            and v.state is WorkloadState.PREEMPTING
            and v.promised_to == claim.workload
            for v in victims
        ) or any(e is not None and e.leaving_jobs.get(k) == claim.workload for e, k in shrunk)

    def needed_gpus(self, claim: Claimed) -> int:
        """The GPUs that are still to be evicted for a claim."""
        return sum(each.gpus for each in self.left(claim))

    def wanted_gpus(self, claim: Claimed) -> float:
        """The budget that a claim could use now."""
        return sum(each.cost_gpus for each in self.going(claim))
