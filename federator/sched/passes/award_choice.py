"""Chooses the offer that a workload takes, of those that its tenant may have."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from federator.model.decision import OfferStanding, Preference
from federator.model.lending import LendingDecision
from federator.model.reason import ReasonCode, Refusal
from federator.model.workload import SiteName
from federator.sched.passes.auction import Award
from federator.sched.passes.decision import pick
from federator.sched.passes.elastic_sizes import is_enlarged
from federator.sched.passes.eviction import EvictionLimits, against
from federator.sched.passes.eviction_terms import EvictionTerms
from federator.sched.passes.limits import limit_refusal, wait
from federator.sched.passes.pass_budget import PassBudget
from federator.sched.passes.save_slots import saves_left
from federator.sched.passes.withheld import Withheld
from federator.sched.queue.ranked import Ranked
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules


def _preference(offer: Award, home: frozenset[SiteName], *, fits: bool) -> Preference:
    if not fits:
        return Preference.OVER
    evicts = bool(offer.bid.victims or offer.bid.shrinks)
    if home and (evicts or offer.site not in home):
        return Preference.GUEST
    return Preference.WITHIN


class Chosen(NamedTuple):
    """The offer that a workload takes."""

    award: Award
    within_quota: bool  # it is, there
    lending: LendingDecision | None  # the forecast on which it is taken
    standings: tuple[OfferStanding, ...]  # of the offers, as far as they were looked at


class AwardChoice:
    """The choice among a workload's offers, in one pass.

    Args:
        ledger: read for what has changed meanwhile.
        rules: see ``Rules``.
        terms: of whoever may be evicted, renewed for this pass; None: nobody may.
        withheld: the federation's own refusals.
        budget: that may be evicted for those who have no claim.

    Attributes:
        moves: workloads that may move for the claimant of the present round.
    """

    def __init__(
        self,
        ledger: Ledger,
        rules: Rules,
        terms: EvictionTerms | None,
        withheld: Withheld,
        budget: PassBudget,
    ) -> None:
        self._ledger = ledger
        self._rules = rules
        self._terms = terms
        self._withheld = withheld
        self._budget = budget
        self.moves = 0

    def best(
        self, offers: Sequence[Award], ranked: Ranked, now_s: float, claim_gpus: float | None
    ) -> Chosen | Refusal:
        """The best offer that the tenant may take, or why it may take none.

        One that keeps the workload within quota comes before a better one that does not: a plan
        may take more than was asked for (whole nodes), or GPUs of a type with a quota of its own.
        Where a tenant's quota has a home, a guest's place elsewhere comes before an eviction there.
        Of those, one where checkpoints of its last run could be read comes first.

        Args:
            offers: for one workload, best first; at least one.
            ranked: its standing.
            now_s: Unix time.
            claim_gpus: that may be evicted at once for its claim; None: it has none.
        """
        standings: list[OfferStanding] = []
        best_rank = (Preference.WITHIN if ranked.within_quota else Preference.OVER, True)
        for offer in offers:
            standings.append(self._standing(offer, ranked, now_s, claim_gpus))
            if standings[-1].refusal is None and standings[-1].rank == best_rank:
                break  # none can be better
        k = pick(standings)
        if k is None:
            return next(each.refusal for each in standings if each.refusal is not None)
        taken = standings[k]
        return Chosen(offers[k], taken.within_quota, taken.lending, tuple(standings))

    def _standing(
        self, offer: Award, ranked: Ranked, now_s: float, claim_gpus: float | None
    ) -> OfferStanding:
        entry = self._ledger.entries[ranked.id]
        tenancy = self._ledger.tenancy
        row = tenancy.row(entry.workload.tenant)
        charge = self._ledger.holdings.charge_for(row, offer.bid.jobs)
        fits = ranked.within_quota and self._ledger.holdings.keeps_quota(charge)
        within = fits and tenancy.is_home(row, offer.site)
        beyond = self._withheld.of_plan(entry.workload, charge, within=within)
        if ranked.within_quota and not fits and is_enlarged(entry.workload, offer.bid.jobs):
            beyond = wait(ReasonCode.NOT_TRIED)  # others had the quota; it is asked again
        lending = beyond if isinstance(beyond, LendingDecision) else None
        if beyond is lending and (offer.bid.victims or offer.bid.shrinks):
            beyond = self._spares(offer, ranked, now_s, claim_gpus, within_quota=within)
        if isinstance(beyond, Refusal):
            return OfferStanding(refusal=beyond)
        return OfferStanding(
            preference=_preference(offer, tenancy.home(row), fits=fits),
            within_quota=within,
            reads=self._reads(entry, offer),
            lending=lending,
        )

    def _reads(self, entry: WorkloadRecord, offer: Award) -> bool:
        """Tell whether checkpoints of its last run could be read where it is offered a place."""
        return not entry.ran_at or self._rules.reaches(offer.site, entry.ran_at)

    def _spares(
        self,
        offer: Award,
        ranked: Ranked,
        now_s: float,
        claim_gpus: float | None,
        *,
        within_quota: bool,
    ) -> Refusal | None:
        """The reason why an offer's victims may not go; None when they may.

        ``within_quota``: with what the plan really takes; what is beyond it displaces nobody.
        """
        if claim_gpus is None:
            claim_gpus = self._budget.gpus_for(ranked.priority)
        left = saves_left(self._ledger, self._rules, offer.site)
        gpus = claim_gpus if within_quota else 0.0
        return self._against(offer, ranked, gpus, now_s, saves_left=left, moves=self.moves)

    def _against(
        self,
        offer: Award,
        ranked: Ranked,
        budget_gpus: float,
        now_s: float,
        *,
        saves_left: float = inf,
        moves: int = 0,
    ) -> Refusal | None:
        limits = EvictionLimits(
            priority=ranked.priority,
            budget_gpus=budget_gpus,
            prices=self._budget.prices,
            terms=self._terms.by_id if self._terms is not None else {},
            now_s=now_s,
            saves_left=saves_left,
            moves=moves,
        )
        return against(offer, self._ledger, limits)

    def claimable(self, offers: Sequence[Award], ranked: Ranked, moves: int = 0) -> list[Award]:
        """Those of a claimant's offers that stay within quota, and whose victims may go in time.

        ``moves``: so many workloads may move for it.
        """
        holdings, tenancy = self._ledger.holdings, self._ledger.tenancy
        row = tenancy.row(self._ledger.entries[ranked.id].workload.tenant)
        charged = ((offer, holdings.charge_for(row, offer.bid.jobs)) for offer in offers)
        return [
            offer
            for offer, charge in charged
            if holdings.keeps_quota(charge)
            and tenancy.is_home(row, offer.site)
            and limit_refusal(holdings, row, charge.amounts) is None
            and self._against(offer, ranked, inf, inf, moves=moves) is None
        ]
