"""Pass memory: what passes learn of sites, and of what runs there, kept from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from federator.model.data_use import DataUse
from federator.model.defragment import Defragment
from federator.model.event import Claimed, ClaimEnded
from federator.model.mappings import NOTHING
from federator.model.reason import Reason, ReasonCode, Refusal
from federator.model.workload import Job, SiteName, WorkloadId
from federator.sched.passes.availability import (
    is_of_a_watched_tenant,
    sites_to_ask,
    unavailable,
)
from federator.sched.passes.claim_budget import in_order
from federator.sched.passes.claims import Claims
from federator.sched.passes.data_places import (
    data_nowhere,
    data_refusals,
    staging_words,
    with_staging,
)
from federator.sched.passes.defragmentation import Defragmentation
from federator.sched.passes.eviction_terms import EvictionTerms
from federator.sched.passes.known_refusals import KnownRefusals
from federator.sched.passes.predicted_ends import PredictedEnds
from federator.sched.passes.round import RoundSeries
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.spoken import OfData, OfShape, Spoken
from federator.sched.passes.transaction import Transaction
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules


class PassMemory:
    """What is known under one configuration; another one begins with a new memory.

    Args:
        sites: as they last were.
        ledger: watched for changes, until ``close``.
        rules: see ``Rules``.
        series: tells whether there has been a round.

    Attributes:
        known: what sites have refused.
        terms: on which whoever runs may be evicted; None: nobody may.
        claims: None where nobody may be evicted.
        ends: that are predicted; None: nothing is planned by predictions.
        starts: as of ``StartsEstimated``; none right after a change of configuration.
        defragmentation: None: nobody moves.
    """

    def __init__(
        self,
        sites: Mapping[SiteName, SiteView],
        ledger: Ledger,
        rules: Rules,
        series: RoundSeries,
    ) -> None:
        self._sites = sites
        self._ledger = ledger
        self._series = series
        self.known = KnownRefusals(sites)
        self.terms = EvictionTerms(ledger, rules) if rules.evicts else None
        self.claims: Claims | None = None
        if self.terms is not None:
            self.claims = Claims(ledger, rules, self.known, self.terms)
        self.starts: Mapping[WorkloadId, float] = NOTHING
        self.defragmentation: Defragmentation | None = None
        if self.claims is not None and rules.defragment is not Defragment.OFF:
            self.defragmentation = Defragmentation(sites, ledger, rules)
        predicts = rules.forecast_ends or self.defragmentation is not None
        self.ends = PredictedEnds(ledger) if predicts else None

    def close(self) -> None:
        """Watch the ledger no more."""
        for watching in (self.terms, self.ends):
            if watching is not None:
                watching.close()

    def begin_pass(self, turn: Transaction, budget: float) -> Claims | None:
        """Take in what has changed since the last pass; the claims, if this one may have any.

        ``budget``: the GPUs that may be evicted now.
        """
        claims = self.claims
        if claims is not None:
            claims.take_in_changes()
            claims.vain.begin_pass(turn.now_s)  # else a time that is over would be due for ever
        if not (budget or self._ledger.claims or self._ledger.tenancy.has_objectives):
            claims = None
        if claims is not None and self.terms is not None:
            self.terms.renew(turn.now_s)
            claims.begin_pass(turn)
        if self.ends is not None:
            self.ends.renew(turn.now_s)
        if self.defragmentation is not None:
            self.defragmentation.begin_pass(turn.now_s)
        self.known.begin_pass()
        return claims

    def end_claims(
        self,
        turn: Transaction,
        is_lost: Callable[[Claimed], bool],
        reason: ReasonCode = ReasonCode.DRAINED,
    ) -> None:
        """Give up the claims that lead nowhere: their nodes take no new work any more, say.

        Where nobody may be evicted any more none leads anywhere.
        """
        for claim in list(self._ledger.claims.values()):
            if self.claims is None:
                why = Reason(code=ReasonCode.PREEMPT_BUDGET)
                turn.record(ClaimEnded(at_s=turn.now_s, workload=claim.workload, reason=why))
            elif is_lost(claim):
                self.claims.end(turn, claim, reason)

    def end_lost_claims(self, turn: Transaction) -> None:
        """Give up the claims that no pass can serve.

        Those at sites that are no more, or of tenants for whom nothing is started; and the place of
        one that has moved where no work is taken now.
        """
        if not self._ledger.claims:
            return
        taking = set(sites_to_ask(self._sites, self._ledger))
        self.end_claims(
            turn,
            lambda claim: claim.site not in (self._sites if claim.moved_for is None else taking),
        )
        self.end_claims(
            turn, lambda claim: is_of_a_watched_tenant(claim, self._ledger), ReasonCode.TENANT_MODE
        )

    def next_claim_s(self, now_s: float) -> float:
        """Unix time at which the budget has more for a claim, or one may be had; inf: never."""
        if self.claims is None:
            return inf
        at_s = self.claims.budget.next_stage_s(now_s), self.claims.vain.next_try_s()
        return min((s for s in at_s if s is not None), default=inf)

    # ---- for people ----

    def refusals_of(
        self, entry: WorkloadRecord, now_s: float, spoken: Spoken | None = None
    ) -> Mapping[SiteName, Refusal]:
        """Why a workload waits: the federation's own reason under "", else that of each site.

        With ``spoken`` sites' refusals may be in the names of other jobs; see there.
        """
        if self.claims is not None and entry.workload.id in self._ledger.claims:
            return self.claims.refusals(entry, now_s)
        nowhere = data_nowhere(self._ledger, entry.workload.needed_data)
        if nowhere is not None:
            return {SiteName(""): nowhere}
        lane = self._ledger.backlog.lane_of(entry.workload)
        if lane is None:
            return entry.refusals
        advice = self._advice(entry)
        own = advice or lane.refusal_of((entry.ranks_since_s, entry.workload.id))
        if own is not None:
            return {SiteName(""): own}
        if not (self._series.begun or entry.workload.needed_data):
            return entry.refusals
        return self._of_sites(entry, lane.shape.number, now_s, spoken or Spoken())

    def _advice(self, entry: WorkloadRecord) -> Refusal | None:
        """The moves that would let a workload that waits start, as far as they are advised."""
        known = self.defragmentation
        return None if known is None else known.advice(entry.workload.id)

    def _of_sites(
        self, entry: WorkloadRecord, number: int, now_s: float, spoken: Spoken
    ) -> Mapping[SiteName, Refusal]:
        jobs, uses = entry.workload.jobs, entry.workload.needed_data
        said, is_all = spoken.of(number, jobs, lambda: self._of_shape(number, jobs, now_s))
        own = _own_reasons(entry) if entry.refusals else NOTHING
        if is_all and not own and not uses:
            return said
        before = {} if is_all else entry.refusals
        lacking: Mapping[SiteName, Refusal] = NOTHING
        if uses:
            of_data = spoken.of_data(uses, lambda: self._of_data(uses, codes=spoken.codes))
            start_s = self.starts.get(entry.workload.id, 0.0)
            home_s = start_s - now_s if start_s > now_s else None
            lacking = with_staging(of_data.lacking, of_data.staging, home_s)
        return {**before, **said, **lacking, **own}

    def _of_data(self, uses: tuple[DataUse, ...], *, codes: bool) -> OfData:
        lacking = data_refusals(self._ledger, uses, self._sites)
        if lacking:
            away = unavailable(self._sites, self._ledger)
            lacking = {site: why for site, why in lacking.items() if site not in away}
        return OfData(lacking, NOTHING if codes else staging_words(self._ledger, uses, lacking))

    def _of_shape(self, number: int, jobs: tuple[Job, ...], now_s: float) -> OfShape:
        away = unavailable(self._sites, self._ledger)
        said = {
            site: refusal
            for site in self._sites
            if (refusal := away.get(site) or self.known.refusal(site, number, jobs, now_s))
        }
        return OfShape(said, is_all=bool(said) and len(said) == len(self._sites))

    def needed_gpus(self) -> list[tuple[Claimed, int]]:
        """The claims in their order, each with the GPUs that are still to be evicted for it."""
        if self.claims is None:
            return []
        return [(c, self.claims.victims.needed_gpus(c)) for c in in_order(self._ledger)]


def _own_reasons(entry: WorkloadRecord) -> Mapping[SiteName, Refusal]:
    """The refusals of this workload alone: a site failed it, or its checkpoint is elsewhere."""
    return {
        site: refusal
        for site, refusal in entry.refusals.items()
        if site in entry.avoid_until_s or refusal.reasons[0].code is ReasonCode.CHECKPOINT
    }
