"""Claims: nodes of one site that come free, bit by bit, for a gang that is within its quota.

A workload within quota that starts nowhere, and whose victims are more than the budget allows at
once, gets a claim at the site where that is fewest. What comes free on the claimed nodes stays free
for it. Its victims are told to leave in stages, as the budget of each window allows: the oldest
claim of the highest priority first, and nobody of its priority or below evicts for himself as long
as it needs the budget (escrow). When what is left to evict fits the budget, or nothing is, the
claimant is awarded like any other.

A claim holds nothing in Slurm: it is in the log, and comes to its site with each question.

Source:
    Design, "Claims". MAST (OSDI'24) evicts at once and has no budget. Stages and a share per round
    are those of YARN's capacity scheduler; that the budget is kept for the oldest is added here.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from federator.model.event import Claimed, ClaimEnded
from federator.model.lifecycle import WorkloadEvent
from federator.model.plan import BidRequest, JobPlan
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site import NodeShare
from federator.model.site_message import SiteClaim
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.auction import Award
from federator.sched.passes.claim_budget import ClaimBudget, in_order
from federator.sched.passes.claim_victims import ClaimVictims, Going
from federator.sched.passes.eviction_terms import EvictionTerms
from federator.sched.passes.known_refusals import KnownRefusals
from federator.sched.passes.save_slots import saves_left
from federator.sched.passes.transaction import Transaction
from federator.sched.passes.vain_claims import VainClaims
from federator.sched.queue.ranked import Ranked
from federator.sched.state.holdings import fits
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules

MOST_CLAIMS: Final = 16  # at once; who comes later waits in the queue until one has ended
AGAIN_S: Final = 60.0  # after this time a site is asked again about a claim


class Claims:
    """All claims, across passes.

    Args:
        ledger: which keeps them.
        rules: see ``Rules``.
        known: forgets what a site has refused when its claims change.
        terms: of whoever may be evicted, as of the last pass.
    """

    def __init__(
        self, ledger: Ledger, rules: Rules, known: KnownRefusals, terms: EvictionTerms
    ) -> None:
        self._ledger = ledger
        self._rules = rules
        self._known = known
        self._terms = terms
        self.victims = ClaimVictims(ledger, terms)
        self.budget = ClaimBudget(ledger, rules, self.victims)
        self._at: dict[SiteName, tuple[SiteClaim, ...]] = {}  # as of ``_as_of``
        self._as_of: tuple[Claimed, ...] = ()
        self._asked: dict[WorkloadId, tuple[int, float]] = {}  # as of which news, and when
        self.vain = VainClaims(ledger, terms)
        self._now_s = 0.0

    # ---- what there is ----

    def at(self, site: SiteName) -> tuple[SiteClaim, ...]:
        """The claims of a site, as it is told of them; the same object while none changes."""
        self.take_in_changes()
        return self._at.get(site, ())

    def take_in_changes(self) -> None:
        """Take in what has changed; a site whose claims are others may refuse no more."""
        places = tuple(self._ledger.moves.places.values())
        claims = (*self._ledger.claims.values(), *places)
        if claims == self._as_of:
            return
        self._as_of = claims
        found: dict[SiteName, list[SiteClaim]] = {}
        for claim in (*in_order(self._ledger), *places):
            found.setdefault(claim.site, []).append(_for_site(claim))
        for name in sorted(self._at.keys() | found.keys()):
            claimed = tuple(found.get(name, ()))
            if claimed != self._at.get(name, ()):
                self._known.forget(name)
                self._at[name] = claimed

    # ---- a pass ----

    def begin_pass(self, turn: Transaction) -> None:
        """End the claims that nobody is entitled to any more, and drop what has lapsed."""
        self._now_s = turn.now_s
        self.budget.begin_pass(turn)
        for claim in list(self._ledger.claims.values()):
            if not self._is_within_quota(claim):
                self.end(turn, claim, ReasonCode.LIMIT)
        self.take_in_changes()
        self._asked = {id_: g for id_, g in self._asked.items() if id_ in self._ledger.claims}

    def claimants(self) -> Iterator[tuple[tuple[int, float, float, int], Ranked]]:
        """Those who have a claim, before all others of their priority, with their rank's key."""
        for place, claim in enumerate(in_order(self._ledger)):
            key = (claim.priority, float("-inf"), claim.since_s, place)
            yield key, Ranked(claim.workload, claim.priority, within_quota=True)

    def is_worth_asking(self, claim: Claimed) -> bool:
        """Tell whether its site may answer otherwise than when the claimant was last asked about.

        That is when something came free there; and after a while, since others may have come to
        be evictable, or not to be.
        """
        generation, asked_at_s = self._asked.get(claim.workload, (-1, 0.0))
        changed = generation != self._known.generation(claim.site)
        return changed or self._now_s >= asked_at_s + AGAIN_S

    def was_asked(self, claim: Claimed) -> None:
        self._asked[claim.workload] = self._known.generation(claim.site), self._now_s

    def due(self, turn: Transaction) -> Claimed | None:
        """The claim whose next stage is due, and whose plan is to be looked at again before.

        Where its victims are leaving, others of its plan are told to go without a new look: the
        site would take those who leave for somebody else's.
        """
        tokens, is_kept = self.budget.tokens_gpus(turn), False
        for claim in in_order(self._ledger):
            going = self.victims.going(claim)
            if not going:
                is_clear = not self.victims.is_clearing(claim)
                is_clear = is_clear and (not is_kept or claim.moved_for is not None)
                if is_clear and self.is_worth_asking(claim):
                    return claim
                continue
            beyond = self.budget.beyond_gpus(turn, claim)
            has_tokens = tokens >= min(each.cost_gpus for each in going) or beyond > 0
            saves = saves_left(self._ledger, self._rules, claim.site)
            if not has_tokens:
                tokens, is_kept = 0.0, True
            elif saves < 1 and all(each.component is None for each in going):
                # Its part of the budget is kept; claims in other regions may have the rest.
                tokens, is_kept = max(0.0, tokens - self.victims.wanted_gpus(claim)), True
            elif not self.victims.is_clearing(claim):
                return claim
            else:
                tokens -= self.evict(turn, claim, tokens)
                if self.victims.going(claim):
                    tokens, is_kept = 0.0, True
        return None

    def request(self, id_: WorkloadId, priority: int, fleet_gpus: int, moves: int) -> BidRequest:
        """A claimant as sites are asked about it: with as many victims as it takes.

        One that moves has its place, and nobody leaves for it. ``moves``: so many may for others.
        """
        claim = self._ledger.claims.get(id_)
        workload = self._ledger.entries[id_].workload
        if claim is not None and claim.moved_for is not None:
            return BidRequest.of(workload, priority)
        asked = BidRequest.of(workload, priority, preempt_gpus=float(fleet_gpus), in_time=True)
        return asked if claim is not None else replace(asked, moves=moves)

    # ---- what sites have answered ----

    def set(
        self,
        turn: Transaction,
        ranked: Ranked,
        offers: Sequence[Award],
        answered: Container[SiteName],
    ) -> None:
        """Claim what the best of these offers needs, or keep the claim that there is.

        Args:
            turn: see ``Transaction``.
            ranked: the claimant.
            offers: whose victims are more than the budget allows now; at least one.
            answered: the sites that have answered; a claim at another one moves.
        """
        before = self._ledger.claims.get(ranked.id)
        found = [self._claim_of(turn, ranked, offer, before) for offer in offers]
        best = min(found, key=lambda claim: (claim.starts_by_s, self.victims.needed_gpus(claim)))
        if before is None or before.site not in answered or self._is_better(best, before, turn):
            turn.record(best)
            self.take_in_changes()
        claim = self._ledger.claims[ranked.id]
        self.evict(turn, claim, self.budget.tokens_for(turn, claim.workload, claim.priority))

    def may_go_at_once(self, offer: Award, tokens_gpus: float) -> bool:
        """Tell whether all whom an offer evicts may be told now: nobody is spared for a while."""
        if self.victims.prices.of_bid(offer.bid) > tokens_gpus:
            return False
        if len(offer.bid.victims) > saves_left(self._ledger, self._rules, offer.site):
            return False
        ids = {*offer.bid.victims, *(id_ for id_, _ in offer.bid.shrinks)}
        terms = [self._terms.by_id.get(WorkloadId(id_)) for id_ in ids]
        return all(each is not None and each.spared_until_s <= self._now_s for each in terms)

    def end(self, turn: Transaction, claim: Claimed, code: ReasonCode) -> None:
        """Give a claim up: its nodes are free for all."""
        turn.record(ClaimEnded(at_s=turn.now_s, workload=claim.workload, reason=Reason(code=code)))
        self.take_in_changes()

    def evict(self, turn: Transaction, claim: Claimed, tokens_gpus: float) -> float:
        """Tell as many of a claim's victims to leave as the budget allows; what they cost of it.

        Those last who are predicted to end before it starts; and some beyond the budget, if the
        claimant's tenant has a start objective that would be missed without.
        """
        beyond = self.budget.beyond_gpus(turn, claim)
        most = self.budget.beyond_left_gpus(turn.now_s)
        spent, spent_beyond = 0.0, 0
        slots = saves_left(self._ledger, self._rules, claim.site)
        for each in self.budget.in_turn(turn, claim):
            if each.component is None and slots < 1:
                continue
            if spent + each.cost_gpus <= tokens_gpus:
                spent += each.cost_gpus
                slots -= self._tell(turn, each, claim.workload, beyond_budget=False)
            elif spent_beyond < beyond and spent_beyond + each.gpus <= most:
                spent_beyond += each.gpus
                slots -= self._tell(turn, each, claim.workload, beyond_budget=True)
        return spent

    def _tell(self, turn: Transaction, each: Going, to: WorkloadId, *, beyond_budget: bool) -> bool:
        """Tell one to leave, or to give up one of its jobs; whether it saves before."""
        whole = each.component is None
        code = ReasonCode.PREEMPTED if whole else ReasonCode.SHRUNK
        turn.change(
            each.entry,
            WorkloadEvent.EVICTED if whole else WorkloadEvent.SHRUNK,
            components=() if each.component is None else (each.component,),
            reason=Reason(code=code, detail=str(to)),
            winner=to,
            beyond_budget=beyond_budget,
        )
        return whole

    def refusals(self, entry: WorkloadRecord, now_s: float) -> dict[SiteName, Refusal]:
        """How a claim stands, for those who ask why its workload waits; and the sites' words."""
        claim = self._ledger.claims[entry.workload.id]
        if claim.moved_for is not None:
            moved = Reason(code=ReasonCode.MOVED, detail=str(claim.moved_for))
            waits = Refusal(kind=RefusalKind.WAIT, reasons=(moved,), starts_in_s=0.0)
            return {SiteName(""): waits, **entry.refusals}
        reason = Reason(
            code=ReasonCode.CLAIM,
            needed=sum(s.gpus for plan in claim.jobs for s in plan.nodes.values()),
            free=self.victims.needed_gpus(claim),
            unit="GPUs",
            detail=claim.site,
        )
        starts_in_s = max(0.0, claim.starts_by_s - now_s)
        waits = Refusal(kind=RefusalKind.WAIT, reasons=(reason,), starts_in_s=starts_in_s)
        return {SiteName(""): waits, **entry.refusals}

    # ---- when it will start ----

    def _claim_of(
        self, turn: Transaction, ranked: Ranked, offer: Award, before: Claimed | None
    ) -> Claimed:
        claim = Claimed(
            at_s=turn.now_s,
            workload=offer.id,
            site=offer.site,
            jobs=offer.bid.jobs,
            priority=ranked.priority,
            since_s=turn.now_s if before is None else before.since_s,
            promised_by_s=0.0 if before is None else before.promised_by_s,
            starts_by_s=0.0,
            victims=tuple(map(WorkloadId, offer.bid.victims)),
            shrinks=offer.bid.shrinks,
        )
        starts_by_s = self.budget.starts_by_s(turn, claim)
        promised_by_s = claim.promised_by_s or starts_by_s
        return replace(claim, starts_by_s=starts_by_s, promised_by_s=promised_by_s)

    def _is_better(self, offered: Claimed, claim: Claimed, turn: Transaction) -> bool:
        """Tell whether a claim is to be changed for another plan: also to another site.

        At its site, if fewer must go. To another only if it starts there sooner by more than the
        windows in which room was made here. Where nothing is left to evict, and the claimant does
        not fit, the plan has become impossible, and any is better.
        """
        needed = self.victims.needed_gpus(claim)
        if not needed:
            return True
        if offered.site == claim.site:
            return self.victims.needed_gpus(offered) < needed
        gone = sum(s.gpus for plan in claim.jobs for s in plan.nodes.values()) - needed
        window_s = self._rules.preempt_window_s
        whole_gpus = self.budget.whole_gpus
        cost_s = gone / whole_gpus * window_s if whole_gpus else 0.0
        return offered.starts_by_s + max(0.0, cost_s) < self.budget.starts_by_s(turn, claim)

    def _is_within_quota(self, claim: Claimed) -> bool:
        """Tell whether the quotas above a claimant have room for it, beside what was given."""
        ledger = self._ledger
        tenancy = ledger.tenancy
        workload = ledger.entries[claim.workload].workload
        row = tenancy.row(workload.tenant)
        request, rows = tenancy.resources.request(workload.jobs), tenancy.quota_rows(row)
        return bool(rows) and all(
            fits(ledger.holdings.within(at), request, tenancy.quotas[at]) for at in rows
        )


def _for_site(claim: Claimed) -> SiteClaim:
    victims = (*claim.victims, *(id_ for id_, _ in claim.shrinks))
    return SiteClaim(
        id=claim.workload,
        priority=claim.priority,
        nodes=_shares(claim.jobs),
        victims=tuple(dict.fromkeys(int(v) for v in victims)),
    )


def _shares(jobs: Sequence[JobPlan]) -> Mapping[str, NodeShare]:
    found: dict[str, NodeShare] = {}
    for plan in jobs:
        for name, share in plan.nodes.items():
            found[name] = found[name] + share if name in found else share
    return found
