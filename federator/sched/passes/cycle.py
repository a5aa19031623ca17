"""The scheduling pass: rank, ask, auction, award, in rounds, until every workload is settled.

A pass lives across several observations, since the sites' answers take time; it is volatile and
never logged. What it decides is logged as ``Awarded`` before any site is told.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from msgspec.structs import replace

from federator.model.decision import OfferStanding, SeenDecision, SeenOffer
from federator.model.event import Awarded
from federator.model.node_names import jobs_at, names_nodes
from federator.model.plan import BidRequest
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site import VictimTerms
from federator.model.site_message import Ask
from federator.model.tenant import LOWEST_PRIORITY
from federator.model.workload import AttemptId, Job, SiteName, WorkloadId
from federator.sched.passes.auction import Award, offers_for
from federator.sched.passes.availability import drained_nodes
from federator.sched.passes.award_choice import AwardChoice
from federator.sched.passes.candidates import Candidates
from federator.sched.passes.claims import Claims
from federator.sched.passes.data_places import data_refusals
from federator.sched.passes.defragmentation import Defragmentation
from federator.sched.passes.eviction import checkpoint_in_reach, prices_of
from federator.sched.passes.eviction_prices import EvictionPrices
from federator.sched.passes.eviction_terms import EvictionTerms
from federator.sched.passes.job_outputs import places_of
from federator.sched.passes.kept_off import NO_SLOW_NODES, KeptOff
from federator.sched.passes.kept_room import KeptRoom
from federator.sched.passes.known_refusals import KnownRefusals
from federator.sched.passes.pass_budget import PassBudget
from federator.sched.passes.predicted_ends import PredictedEnds
from federator.sched.passes.round import Round, asked_of, for_site
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.spot_rule import SpotRule
from federator.sched.passes.tariff import Tariff
from federator.sched.passes.transaction import Transaction
from federator.sched.passes.withheld import Withheld
from federator.sched.queue.guests import Guests
from federator.sched.queue.policy import Ranking
from federator.sched.queue.ranked import Ranked
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules


class SchedulingPass:
    """One pass: what is left of the ranking, and what the present round has of it.

    Args:
        ranking: of the moment the pass began; standing and credit hold for the whole pass.
        ledger: read for what has changed meanwhile.
        rules: see ``Rules``.
        budget_gpus: that may be evicted by the awards of this pass.
        prices: what evictions take of that.
        terms: of whoever may be evicted, renewed for this pass; None: nobody may.
        guests: which work over quota may start; by default any.
        known: refusals that still hold; it learns those of this pass.
        unsure: workloads that may be at a site though they wait.
        claims: nodes that come free for some; None: nobody is evicted.
        ends: that are predicted; None: nothing is planned by predictions.
        tariff: prices and tiers; by default those of the rules.
        defragmentation: None: nobody moves.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that decides
        self,
        ranking: Ranking,
        ledger: Ledger,
        rules: Rules | None = None,
        budget_gpus: float = 0.0,
        *,
        prices: EvictionPrices | None = None,
        terms: EvictionTerms | None = None,
        guests: Guests | None = None,
        known: KnownRefusals | None = None,
        unsure: Container[WorkloadId] = (),
        claims: Claims | None = None,
        ends: PredictedEnds | None = None,
        tariff: Tariff | None = None,
        defragmentation: Defragmentation | None = None,
    ) -> None:
        self._ends = ends
        self._defragmentation = defragmentation
        self._rules = Rules() if rules is None else rules
        self.tariff = Tariff(self._rules) if tariff is None else tariff
        if prices is None:
            prices = prices_of(ledger, self._rules, 0, 0.0)
        self._budget = PassBudget(budget_gpus, prices, claims)
        self.guests = Guests(ledger) if guests is None else guests
        self._withheld = Withheld(ledger, unsure, self.guests, self._rules.licenses)
        self._spot = SpotRule(self.tariff, ledger, self._rules, self.guests)
        self.claims = claims
        self.claimant: Ranked | None = None  # of the present round, if that is for a claim
        self.claim_budget_gpus = 0.0  # that may be evicted at once for it
        self._served: set[WorkloadId] = set()  # claimants that had their turn in this pass
        self._terms = terms if budget_gpus or claims is not None else None
        self.round = Round(pass_id=0, requests={}, waiting_for=set(), deadline_s=0.0)
        self._ledger = ledger
        self._known = KnownRefusals(()) if known is None else known
        self.candidates = Candidates(
            ranking.walk(), ledger, self._known, self._withheld, self._budget, claims
        )
        self._choice = AwardChoice(ledger, self._rules, self._terms, self._withheld, self._budget)
        self._kept = KeptRoom()
        self.silent: set[SiteName] = set()  # they did not answer in this pass

    def next_window(
        self,
        again: Collection[WorkloadId],
        size: int,
        sites: Sequence[SiteName] = (),
        now_s: float = 0.0,
    ) -> tuple[BidRequest, ...]:
        """The workloads to ask about next, in rank order; those of the last round once more.

        What may not be tried now, for a limit of its tenant or its array or because it is not
        lent room, is told why and left out; so is what all of these sites are known to refuse.
        """
        self.claimant = None
        self._choice.moves = 0
        self._spot.begin_round()
        self.candidates.sites = [site for site in sites if site not in self.silent]
        self.candidates.kept = self._kept.at
        self.candidates.predicts = self._rules.forecast_ends
        return self.candidates.next_window(again, size, now_s)

    def renew_budget(self, turn: Transaction) -> None:
        """Count again how much may be evicted, when claims have had their share."""
        if self.claims is not None and self._served:
            self._budget.gpus = self.claims.budget.tokens_gpus(turn)

    def next_claim(self, turn: Transaction, sites: Sequence[SiteName]) -> BidRequest | None:
        """The claimant whose next stage is due, in a round of its own; None when none is."""
        if self.claims is None:
            return None
        claim = self.claims.due(turn)
        if claim is None or claim.workload in self._served:
            return None
        ranked = Ranked(claim.workload, claim.priority, within_quota=True)
        workload = self._ledger.entries[claim.workload].workload
        self.claims.was_asked(claim)
        return self._ask_for_claim(ranked, self._ledger.backlog.number_of(workload), turn, sites)

    def new_claim(self, turn: Transaction, sites: Sequence[SiteName]) -> BidRequest | None:
        """The first in rank that may claim, in a round of its own; None when there is none."""
        found = self.candidates.next_claimant()
        return None if found is None else self._ask_for_claim(*found, turn, sites)

    def _ask_for_claim(
        self, ranked: Ranked, number: int, turn: Transaction, sites: Sequence[SiteName]
    ) -> BidRequest:
        assert self.claims is not None
        self.claimant = ranked
        self._served.add(ranked.id)
        self.candidates.sites = [site for site in sites if site not in self.silent]
        claim = self._ledger.claims.get(ranked.id)
        if claim is not None and claim.moved_for is not None:
            self.candidates.sites = [site for site in self.candidates.sites if site == claim.site]
        moves = 0 if self._defragmentation is None else self._defragmentation.moves_left(turn)
        self._choice.moves = 0
        self._spot.begin_round()
        request = self.claims.request(ranked.id, ranked.priority, turn.fleet_gpus, moves)
        self.candidates.ask_for_claim(ranked, number, request)
        return request

    def requests_for(
        self,
        site: SiteName,
        window: Sequence[BidRequest],
        sites: Mapping[SiteName, SiteView],
        now_s: float,
    ) -> tuple[BidRequest, ...]:
        """Those of a window that a site is to be asked about now."""
        requests = self.candidates.requests_for(site, window)
        kept_off = KeptOff.at(site, sites[site], self._ledger.drains)
        if kept_off is not NO_SLOW_NODES:
            self.round.kept_off[site] = kept_off
        if not requests:
            return requests
        entries = [self._ledger.entries[request.id] for request in requests]
        if kept_off is NO_SLOW_NODES and not any(map(_is_asked_apart, entries)):
            return requests
        self.round.avoiding.update(e.workload.id for e in entries if e.bad_nodes)
        requests = for_site(requests, site, self._ledger, self._rules, now_s, kept_off)
        return tuple(self._without_spot(requests, site, sites, now_s))

    def _without_spot(
        self,
        requests: Iterable[BidRequest],
        site: SiteName,
        sites: Mapping[SiteName, SiteView],
        now_s: float,
    ) -> Iterator[BidRequest]:
        """The requests as they are asked: who was interrupted too often takes no spot."""
        for request in requests:
            entry = self._ledger.entries[request.id]
            jobs: tuple[Job, ...] | None = request.jobs
            if entry.interruptions:
                jobs = self._spot.jobs_at(entry, request.jobs, site, sites, now_s)
            if jobs is not request.jobs:  # what is refused so proves nothing for others
                self.round.avoiding.add(request.id)
            if jobs is not None:
                yield request if jobs is request.jobs else replace(request, jobs=jobs)

    def question(
        self, site: SiteName, view: SiteView, requests: tuple[BidRequest, ...], now_s: float
    ) -> Ask:
        """What a site is asked in the present round: also to keep room as it did before."""
        prices = self.tariff.at(site, view, now_s)
        if prices:
            self.round.prices[site] = prices
        kept = self._kept.at.get(site)
        kept_off = self.round.kept_off.get(site, NO_SLOW_NODES)
        if kept is not None and self.claimant is not None:
            kept = kept if kept.priority <= self.claimant.priority else None
        predicts = self._rules.forecast_ends or any(request.moves for request in requests)
        return Ask(
            pass_id=self.round.pass_id,
            requests=requests,
            reserve=kept
            and asked_of(kept, site, self._ledger.entries.get(kept.id), now_s, kept_off),
            reserving=True,
            victims=self.victims_at(site),
            claims=(
                *drained_nodes(self._ledger, site),
                *(self.claims.at(site) if self.claims is not None else ()),
            ),
            predicted_ends=self._ends.at(site) if self._ends is not None and predicts else {},
            prices=prices,
            cells=self._rules.cells,
        )

    def learn(self, id_: WorkloadId) -> None:
        """Remember what the sites have refused a workload; who avoids nodes proves nothing.

        Nor does an answer from before something came free.
        """
        if id_ in self.round.avoiding or self._ledger.entries[id_].bad_nodes:
            return
        generations = self.round.generations
        refusals = {
            site: answer.refusal
            for site, by_id in self.round.answers.items()
            if (answer := by_id.get(id_)) is not None
            and answer.refusal is not None
            and generations.get(site) == self._known.generation(site)
        }
        request = self.round.requests[id_]
        avoiding: dict[SiteName, tuple[Job, ...]] = {}
        for site in refusals.keys() & self.round.kept_off.keys():
            kept_off, here = self.round.kept_off[site], jobs_at(request.jobs, site)
            jobs = kept_off.jobs(here, sizes=request.sizes)
            if jobs != kept_off.jobs(here):
                del refusals[site]  # one of the same jobs that cannot grow may have more nodes
            elif jobs is not here:
                avoiding[site] = jobs
        self.candidates.learn(request, refusals, avoiding)

    def keep_room(
        self, refused: Sequence[WorkloadId], sites: Sequence[SiteName]
    ) -> list[WorkloadId]:
        """Let each blocked workload have room kept at the site where it could start first.

        Args:
            refused: those that found no room in this round, in rank order.
            sites: in the order that breaks ties.

        Returns:
            Those refused for the sake of one that has its room elsewhere: to be asked again. Once
            in a pass is enough, whatever sites say: so the rounds come to an end.
        """
        refused = [id_ for id_ in refused if id_ not in self._ledger.claims]
        self._add_predictions(refused)
        return self._kept.assign(refused, sites, self.round)

    def _add_predictions(self, refused: Sequence[WorkloadId]) -> None:
        """What sites that were not asked have said before of when these could start."""
        sites = self.candidates.sites
        if not self._known.may_be_predicted(self._known.bits(sites)):
            return
        for id_ in refused:
            for site in sites:
                answered = id_ in self.round.answers.get(site, {})
                refusal = None if answered else self.candidates.prediction(site, id_)
                if refusal is not None:
                    self.round.until_later.setdefault(site, {})[id_] = refusal

    def was_refused(self, entry: WorkloadRecord) -> None:
        """No site takes it now: another of its array, user or tenant may have its place."""
        self._withheld.was_not_awarded(entry.workload)

    def choose(
        self, offers: Sequence[Award], now_s: float
    ) -> tuple[Award, Awarded, tuple[OfferStanding, ...]] | Refusal:
        """The best offer that the tenant may take, or why it may take none.

        With what was made of the offers, as far as they were looked at.

        Args:
            offers: for one workload, best first; at least one.
            now_s: Unix time.
        """
        entry, ranked = self._ledger.entries[offers[0].id], self.candidates.ranked[offers[0].id]
        claim_gpus = None if self.claimant is None else self.claim_budget_gpus
        chosen = self._choice.best(offers, ranked, now_s, claim_gpus)
        if isinstance(chosen, Refusal):
            self._withheld.was_not_awarded(entry.workload)
            return chosen
        award, kept, lending, standings = chosen
        places = places_of(self._ledger, entry.workload, award.site)
        if places is None:  # its last replica there went while sites were asked
            self._withheld.was_not_awarded(entry.workload)
            needed = entry.workload.needed_data
            return data_refusals(self._ledger, needed, (award.site,))[award.site]
        data, output = places
        awarded = Awarded(
            at_s=now_s,
            attempt=AttemptId(workload=award.id, attempt=entry.attempt + 1),
            site=award.site,
            jobs=award.bid.jobs,
            priority=ranked.priority if kept == ranked.within_quota else LOWEST_PRIORITY,
            within_quota=kept,
            credit=ranked.credit,
            offers=offers_for(award.id, self.round.answers),
            victims=tuple(map(WorkloadId, award.bid.victims)),
            shrinks=award.bid.shrinks,
            moves=award.bid.moves,
            waits_s=award.bid.waits_s if award.bid.moves else 0.0,
            lending=lending,
            data=data,
            output=output,
        )
        return award, awarded, standings

    def seen(
        self,
        offers: Sequence[Award],
        awarded: Awarded,
        standings: Sequence[OfferStanding],
        sites: Sequence[SiteName],
    ) -> SeenDecision:
        """All that an award was decided on, so that it can be made again.

        Args:
            offers: best first.
            awarded: what came of them.
            standings: as of ``choose``.
            sites: in the order that breaks ties.
        """
        id_ = offers[0].id
        ranked, answers = self.candidates.ranked[id_], self.round.answers
        said = {site: by_id[id_] for site, by_id in answers.items() if id_ in by_id}
        victims = {WorkloadId(v) for offer in offers for v in offer.bid.victims}
        terms = self._terms.by_id if self._terms is not None else {}
        return SeenDecision(
            at_s=awarded.at_s,
            attempt=awarded.attempt,
            pass_id=self.round.pass_id,
            sites=tuple(sites),
            answered=tuple(map(SiteName, awarded.offers)),
            priority=ranked.priority,
            within_quota=ranked.within_quota,
            credit=ranked.credit,
            offers=tuple(
                SeenOffer(site=offer.site, bid=offer.bid, standing=standing)
                for offer, standing in zip_longest(offers, standings)
            ),
            refusals={site: a.refusal for site, a in said.items() if a.refusal is not None},
            terms={victim: terms[victim] for victim in victims if victim in terms},
            chosen=SiteName(awarded.site),
            data=awarded.data,
            output=awarded.output,
        )

    def claimable(self, offers: Sequence[Award]) -> list[Award]:
        """Those of a claimant's offers that stay within quota, and whose victims may go in time."""
        assert self.claimant is not None
        return self._choice.claimable(offers, self.claimant)

    def worth_moving(self, turn: Transaction, offers: Sequence[Award]) -> list[Award]:
        """Those of a claimant's offers for which others move, that are worth it and may be had."""
        assert self.claimant is not None
        if self._defragmentation is None or self.claims is None:
            return []
        tokens_gpus = self.claims.budget.tokens_for(turn, self.claimant.id, self.claimant.priority)
        self.claim_budget_gpus = tokens_gpus
        self._choice.moves = moves = self._defragmentation.moves_left(turn)
        allowed = self._choice.claimable(offers, self.claimant, moves)
        worth = self._defragmentation.worth(turn, allowed)
        return [offer for offer in worth if self.claims.may_go_at_once(offer, tokens_gpus)]

    def remember(
        self, entry: WorkloadRecord, sites: Mapping[SiteName, SiteView], now_s: float
    ) -> None:
        """Keep each site's reason with the workload, for ``fsqueue --why``."""
        refusals = {**self.round.away(sites, self._ledger)}
        for site, until_s in entry.avoid_until_s.items():
            if until_s > now_s and site not in refusals:
                refusals[site] = Refusal(kind=RefusalKind.WAIT, reasons=(entry.setbacks[site],))
        for site in sites if entry.saved_at else ():
            if site not in refusals and not checkpoint_in_reach(entry, site, self._rules):
                elsewhere = Reason(code=ReasonCode.CHECKPOINT, detail=entry.saved_at)
                refusals[site] = Refusal(kind=RefusalKind.WAIT, reasons=(elsewhere,))
        for site in sites if entry.interruptions else ():
            avoided = self._spot.jobs_at(entry, entry.workload.jobs, site, sites, now_s)
            if site not in refusals and avoided is None:
                until_s = self.tariff.avoids_spot_until_s(entry, now_s)
                reason = Reason(code=ReasonCode.SPOT, until_s=until_s)
                refusals[site] = Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
        for site, by_id in self.round.answers.items():
            answer = by_id.get(entry.workload.id)
            if answer is not None and answer.refusal is not None:
                refusals[site] = answer.refusal
        if needed := entry.workload.needed_data:  # behind the others: the main reason is of those
            lacking = data_refusals(self._ledger, needed, sites)
            refusals |= {site: why for site, why in lacking.items() if site not in refusals}
        entry.refusals = refusals

    def victims_at(self, site: SiteName) -> Mapping[WorkloadId, VictimTerms]:
        """Who may be evicted at a site, and has not left it since the pass began."""
        entries = self._ledger.entries
        terms = {} if self._terms is None else self._terms.at(site)
        if all(entries[id_].site == site for id_ in terms):
            return terms
        return {id_: each for id_, each in terms.items() if entries[id_].site == site}

    def awarded(self, award: Award, event: Awarded) -> None:
        """Note an award: no room is kept for it, and its victims leave less to evict."""
        self._known.forget_predictions(award.site)
        self._kept.was_awarded(award.id)
        self._budget.gpus -= self._budget.prices.of_bid(award.bid)
        workload = self._ledger.entries[award.id].workload
        row = self._ledger.tenancy.row(workload.tenant)
        self.guests.started(
            workload,
            row,
            self._ledger.holdings.charge_for(row, award.bid.jobs).amounts,
            event.lending,
            within=event.within_quota,
        )


def _is_asked_apart(entry: WorkloadRecord) -> bool:
    """Whether a site may be asked about a workload otherwise than all sites are, or not at all."""
    return bool(
        entry.bad_nodes
        or entry.avoid_until_s
        or entry.saved_at
        or entry.interruptions
        or names_nodes(entry.workload.jobs)
    )
