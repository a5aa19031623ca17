"""Guest rules: those for work over quota, as they hold in one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from federator.model.lending import Lending
from federator.model.workload import SiteName
from federator.sched.passes.eviction import budget_gpus
from federator.sched.passes.eviction_terms import EvictionTerms
from federator.sched.passes.idle_gpus import idle_gpus
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.transaction import Transaction
from federator.sched.queue.borrowing import FirmWork, borrowers_must_be_preemptible
from federator.sched.queue.guests import Guests
from federator.sched.queue.lending import Idle, LendingRoom
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules


class GuestRules:
    """The rules under one configuration, by what sites and ledger say at the time.

    Args:
        sites: as they last were.
        ledger: scanned for quota.
        rules: see ``Rules``.
        terms: on which whoever runs may be evicted; None: nobody may.
        by_quota: whether the policy ranks by quota.
    """

    def __init__(
        self,
        sites: Mapping[SiteName, SiteView],
        ledger: Ledger,
        rules: Rules,
        terms: EvictionTerms | None,
        *,
        by_quota: bool,
    ) -> None:
        self._sites = sites
        self._ledger = ledger
        self._rules = rules
        self._terms = terms
        self._by_quota = by_quota

    def now(self, turn: Transaction, budget: float | None = None) -> Guests:
        """The rules of now; ``budget``: the GPUs that may be evicted, where they are known."""
        if budget is None:
            budget = budget_gpus(self._ledger, self._rules, turn.fleet_gpus, turn.now_s)
        terms = self._terms.by_id if self._terms is not None else {}
        idle = partial(idle_gpus, self._sites, self._ledger, terms, budget, turn.now_s)
        by_quota = self._by_quota
        return Guests(
            self._ledger,
            firm=FirmWork(self._ledger) if self._must_be_preemptible else None,
            room=lending_room(self._ledger, self._rules, idle, by_quota=by_quota, now_s=turn.now_s),
            lending=self._rules.lending,
            evicts=self._rules.evicts,
        )

    @property
    def lends_to_preemptible_only(self) -> bool:
        """Whether what may not be evicted starts only within its quota, whatever is forecast."""
        return self._rules.lending is not Lending.ON and self._must_be_preemptible

    @property
    def _must_be_preemptible(self) -> bool:
        return borrowers_must_be_preemptible(
            self._ledger.tenancy, self._rules, by_quota=self._by_quota
        )


def lending_room(
    ledger: Ledger, rules: Rules, idle: Callable[[], Idle], *, by_quota: bool, now_s: float
) -> LendingRoom | None:
    """The GPUs that may be lent; None where nobody asks: lending is off, or there is no quota."""
    if rules.lending is Lending.OFF or not by_quota:
        return None
    if all(quota is None for quota in ledger.tenancy.quotas):
        return None
    plan = None if ledger.planned is None else ledger.planned.plan
    in_force = plan if plan is not None and plan.holds(now_s) else None
    return LendingRoom(ledger, in_force, idle, now_s)
