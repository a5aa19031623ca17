"""Runs the scheduling passes: asks the sites in rounds, and settles each when its answers are in.

What a pass decides is in ``cycle`` and ``auction``; here is what comes when, and what is recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from federator.model.event import Claimed
from federator.model.lending import Lending
from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerTested, Decided, SendTo, Wake
from federator.model.plan import BidRequest
from federator.model.reason import ReasonCode, Refusal
from federator.model.site_message import Ask, BidsMade
from federator.model.workload import Job, SiteName, Workload, WorkloadId
from federator.sched.passes.auction import Award, auction, bids_for
from federator.sched.passes.availability import (
    drained_nodes,
    takes_work,
    unavailable,
    without_drained,
)
from federator.sched.passes.bid_validation import Validation, without_wishes
from federator.sched.passes.claim_budget import in_order
from federator.sched.passes.claims import Claims
from federator.sched.passes.cycle import SchedulingPass
from federator.sched.passes.eviction import budget_gpus, prices_of
from federator.sched.passes.eviction_terms import EvictionTerms
from federator.sched.passes.guest_rules import guest_rules
from federator.sched.passes.held import Holding
from federator.sched.passes.idle_gpus import idle_gpus
from federator.sched.passes.known_refusals import KnownRefusals
from federator.sched.passes.pending_reconciliation import PendingReconciliation
from federator.sched.passes.predicted_ends import PredictedEnds
from federator.sched.passes.round import PassSummary, Round, asked_of
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.timed_wishes import SwitchWaits, reservation_begins_s
from federator.sched.passes.transaction import Transaction
from federator.sched.passes.trial import Trial
from federator.sched.queue.borrowing import borrowers_must_be_preemptible
from federator.sched.queue.guests import Guests
from federator.sched.queue.policy import Policy
from federator.sched.queue.ranked import Ranked
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules

PASSES_KEPT: Final = 256  # in numbers, for people to look at


class Rounds:
    """The open pass and the trials of clients, each with the round that it waits for.

    Volatile: none is open after a restart, and the first pass comes soon.

    Args:
        sites: as they last were, in the order that breaks ties.
        policy: ranks the queue.
        rules: see ``Rules``.
        ledger: the queue.
        holding: hears what sites say of users and of plans.
        same_process: sites are asked in this process; see ``Validation``.

    Attributes:
        last_pass: the present one, or the last; None: none was made since the start.
        recent_passes: the last ones, oldest first.
        pending: attempts that may be at a site though their workload waits.
        tells_decisions: whether what each award was decided on is told.
    """

    def __init__(
        self,
        sites: Mapping[SiteName, SiteView],
        policy: Policy,
        rules: Rules,
        ledger: Ledger,
        holding: Holding,
        *,
        same_process: bool = False,
    ) -> None:
        self._sites = sites
        self._policy = policy
        self._rules = rules
        self._ledger = ledger
        self._holding = holding
        self.pending = PendingReconciliation()
        self.tells_decisions = False
        self._validation = Validation(same_process=same_process)
        self._terms: EvictionTerms | None = None
        self._claims: Claims | None = None
        self._ends: PredictedEnds | None = None
        self._begin_anew()
        self._pass: SchedulingPass | None = None
        self.last_pass: PassSummary | None = None
        self.recent_passes: deque[PassSummary] = deque(maxlen=PASSES_KEPT)
        self._trials: dict[int, Trial] = {}
        self._next_pass_id = 1
        self._due_s = 0.0
        self._switch_waits = SwitchWaits()

    def _begin_anew(self) -> None:
        """Know nothing of what earlier passes have learnt of sites, or of what runs there."""
        ledger, rules = self._ledger, self._rules
        for watching in (self._terms, self._ends):
            if watching is not None:
                watching.close()
        self._known = KnownRefusals(self._sites)
        self._terms = EvictionTerms(ledger, rules) if rules.evicts else None
        self._claims = None
        if self._terms is not None:
            self._claims = Claims(ledger, rules, self._known, self._terms)
        self._ends = PredictedEnds(ledger) if rules.forecast_ends else None

    def reconfigure(
        self, turn: Transaction, policy: Policy, rules: Rules, gone: Collection[SiteName]
    ) -> None:
        """Drop the open pass and go on by other rules; ``gone``: sites that are left out."""
        self._policy, self._rules = policy, rules
        self._pass = None
        self._begin_anew()
        self.pending.leave_out(gone)
        for round_ in self._open_rounds():
            for site in gone:
                round_.drop(site)
        for claim in list(self._ledger.claims.values()):
            if self._claims is not None and claim.site not in self._sites:
                self._claims.end(turn, claim, ReasonCode.DRAINED)
        self._due_s = turn.now_s
        turn.commands.append(Wake(at_s=turn.now_s))
        self.conclude(turn)

    @property
    def lends_to_preemptible_only(self) -> bool:
        """Whether what may not be evicted starts only within its quota, whatever is forecast."""
        return self._rules.lending is not Lending.ON and borrowers_must_be_preemptible(
            self._ledger.tenancy, self._rules, by_quota=self._policy.by_quota
        )

    @property
    def is_open(self) -> bool:
        """Whether a pass is under way."""
        return self._pass is not None

    def is_ready(self, site: SiteName) -> bool:
        return self._sites[site].ready

    def is_due(self, turn: Transaction) -> None:
        """Queue or room has changed: the next pass is due now."""
        if self._due_s > turn.now_s or self._pass is not None:
            self._due_s = min(self._due_s, turn.now_s)
            turn.commands.append(Wake(at_s=turn.now_s))

    def open_if_due(self, turn: Transaction, *, anyway: bool) -> None:
        """Open a pass if one is due and none is open; ``anyway``: even if no site takes work."""
        if turn.now_s >= self._due_s and self._pass is None and (anyway or self._sites_to_ask()):
            self._open_pass(turn)

    def heard(self, turn: Transaction, site: SiteName, freed: int) -> None:
        """A site says how often something came free there: if that is news, a pass is due."""
        if self._known.heard(site, freed):
            self.is_due(turn)

    def forget_refusals(self, site: SiteName) -> None:
        """Something came free at a site, which will say so only later."""
        self._known.forget(site)

    def refusals_of(self, entry: WorkloadRecord, now_s: float) -> Mapping[SiteName, Refusal]:
        """Why a workload waits: the federation's own reason under "", else that of each site."""
        claimed = self._claims is not None and entry.workload.id in self._ledger.claims
        if self._claims is not None and claimed:
            return self._claims.refusals(entry, now_s)
        lane = self._ledger.backlog.lane_of(entry.workload)
        if lane is None or self._next_pass_id == 1:  # no pass was made yet
            return entry.refusals
        own = lane.refusal_of((entry.queued_since_s, entry.workload.id))
        if own is not None:
            return {SiteName(""): own}
        jobs, number = entry.workload.jobs, lane.shape.number
        away = unavailable(self._sites, self._ledger)
        found = {
            site: away.get(site) or self._known.refusal(site, number, jobs, now_s)
            for site in self._sites
        }
        said = {site: refusal for site, refusal in found.items() if refusal is not None}
        before = {} if said and len(said) == len(found) else entry.refusals
        return {**before, **said, **_own_reasons(entry)}

    def claims(self) -> list[tuple[Claimed, int]]:
        """The claims in their order, each with the GPUs that are still to be evicted for it."""
        known = self._claims
        return (
            []
            if known is None
            else [(c, known.victims.needed_gpus(c)) for c in in_order(self._ledger)]
        )

    def drop(self, site: SiteName) -> None:
        """A site is gone: nobody waits for it, and another agent counts anew."""
        self._known.forget(site)
        for round_ in self._open_rounds():
            round_.drop(site)

    def site_drained(self, turn: Transaction, site: SiteName) -> None:
        """A site takes no new work, or none on some nodes: its offers and claims hold no more."""
        self.drop(site)
        for claim in list(self._ledger.claims.values()) if self._claims is not None else ():
            nodes = [name for plan in claim.jobs for name in plan.nodes]
            gone = claim.site in self._ledger.drains.written_off
            if self._claims is not None and (gone or self._is_drained(claim.site, nodes)):
                self._claims.end(turn, claim, ReasonCode.DRAINED)

    def _is_drained(self, site: SiteName, nodes: Sequence[str]) -> bool:
        return self._ledger.drains.of(site, nodes) is not None

    def _open_pass(self, turn: Transaction) -> None:
        """1. Rank; 2. ask. The rest follows when the answers are in (``conclude``)."""
        self._holding.try_again(turn)
        self._switch_waits.give_up(turn)
        self._due_s = turn.now_s + self._rules.pass_interval_s
        turn.commands.append(Wake(at_s=self._due_s))
        ranking = self._policy.rank(self._ledger, turn.now_s)
        budget = budget_gpus(self._ledger, self._rules, turn.fleet_gpus, turn.now_s)
        if self._claims is not None:
            self._claims.take_in_changes()
        may_claim = budget or self._ledger.claims or self._ledger.tenancy.has_objectives
        claims = self._claims if may_claim else None
        if claims is not None and self._terms is not None:
            self._terms.renew(turn.now_s)
            claims.begin_pass(turn)
        if self._ends is not None:
            self._ends.renew(turn.now_s)
        self.pending.lapse(turn.now_s, self.is_ready)
        self._known.begin_pass()
        self.last_pass = PassSummary(began_s=turn.now_s)
        self.recent_passes.append(self.last_pass)
        self._pass = SchedulingPass(
            ranking,
            self._ledger,
            self._rules,
            budget,
            prices=prices_of(self._ledger, self._rules, turn.fleet_gpus, turn.now_s),
            terms=self._terms,
            guests=self._guests(turn, budget),
            known=self._known,
            unsure=self.pending,
            claims=claims,
            ends=self._ends,
        )
        self._ask(turn, self._pass, again=())
        self.conclude(turn)

    def _ask(self, turn: Transaction, pass_: SchedulingPass, again: Collection[WorkloadId]) -> None:
        """One message to every site whose answer is not known; or the pass is over."""
        sites = self._sites_to_ask()
        request = pass_.next_claim(turn, sites)
        window: tuple[BidRequest, ...] = () if request is None else (request,)
        if not window:
            pass_.renew_budget(turn)
            window = pass_.next_window(again, self._rules.window, sites, turn.now_s)
        if not window and (request := pass_.new_claim(turn, sites)) is not None:
            window = (request,)
        assert self.last_pass is not None
        if not window:
            self._pass, self.last_pass.ended_s = None, turn.now_s
            self._wake_for_claims(turn)
            turn.commands.append(Wake(at_s=self._due_s))
            return
        self.last_pass.rounds += 1
        pass_.round = round_ = self._new_round(turn, window)
        for name in pass_.candidates.sites:
            requests = pass_.requests_for(name, window, turn.now_s)
            if requests:
                round_.waiting_for.add(name)
                question = pass_.question(name, requests, turn.now_s)
                turn.commands.append(SendTo(site=name, message=question))

    def _new_round(self, turn: Transaction, requests: Sequence[BidRequest]) -> Round:
        deadline_s = turn.now_s + self._rules.bid_timeout_s
        by_id = {r.id: r for r in requests}
        number = self._next_pass_id
        round_ = Round(pass_id=number, requests=by_id, waiting_for=set(), deadline_s=deadline_s)
        self._next_pass_id += 1
        turn.commands.append(Wake(at_s=deadline_s))
        return round_

    def bids_came(self, turn: Transaction, site: SiteName, came: BidsMade) -> None:
        """Take the answers of a site to the round that asked for them."""
        self._known.heard(site, came.freed)
        for round_ in self._open_rounds():
            if round_.pass_id == came.pass_id:
                asked = partial(self._jobs_asked, turn, round_, site)
                validated = self._validation.validated(came.answers, asked)
                if not came.keeps_wishes:
                    validated = without_wishes(validated, asked)
                answers = without_drained(validated, self._ledger, site)
                round_.take(site, answers, self._known.generation(site))
                if came.keeps_claims:
                    round_.keeping_claims.add(site)
                self._holding.answered(turn, site, round_.requests, answers)

    def _jobs_asked(
        self, turn: Transaction, round_: Round, site: SiteName, id_: WorkloadId
    ) -> Sequence[Job]:
        """The jobs a site was asked for; nothing for a workload that it was not asked about."""
        request = round_.requests.get(id_)
        if request is None:
            return ()
        return asked_of(request, site, self._ledger.entries.get(id_), turn.now_s).jobs

    def conclude(self, turn: Transaction) -> None:
        """Settle every round whose answers are in: auction, awards, next round."""
        for pass_id, trial in list(self._trials.items()):
            if trial.round.over(turn.now_s):
                del self._trials[pass_id]
                self._answer_trial(turn, trial)
        while (pass_ := self._pass) is not None and pass_.round.over(turn.now_s):
            self._settle(turn, pass_)

    def _settle(self, turn: Transaction, pass_: SchedulingPass) -> None:
        round_ = pass_.round
        pass_.silent |= round_.waiting_for
        if pass_.claimant is not None:
            self._settle_claim(turn, pass_, pass_.claimant)
            return
        outcome = auction(
            list(round_.requests),
            round_.answers,
            list(self._sites),
            lambda o: self._award(turn, pass_, o),
            may_start=self._may_start,  # some were cancelled meanwhile
            must_wait=pass_.candidates.must_wait,
            settled=pass_.learn,
        )
        for id_ in outcome.refused:
            entry = self._ledger.entries[id_]
            pass_.remember(entry, self._sites, turn.now_s)
            pass_.candidates.blocked(id_)
            self._wake_to_retry(turn, entry)
            self._holding.hold_if_refused(turn, entry)
        refused = [w for w in outcome.refused if self._may_start(w)]
        again = {*pass_.keep_room(refused, list(self._sites)), *outcome.again}
        for id_ in outcome.refused:
            if id_ not in again:  # who is asked again has its place
                pass_.was_refused(self._ledger.entries[id_])
        self._ask(turn, pass_, again)

    def _settle_claim(self, turn: Transaction, pass_: SchedulingPass, ranked: Ranked) -> None:
        """Award a claimant, or let it have a claim, or keep or end the one that it has."""
        assert self._claims is not None
        claims, id_ = self._claims, ranked.id
        if self._may_start(id_):
            entry = self._ledger.entries[id_]
            pass_.remember(entry, self._sites, turn.now_s)
            offers = bids_for(id_, pass_.round.answers, list(self._sites))
            offers = pass_.claimable(offers)
            tokens_gpus = claims.budget.tokens_for(turn, id_, ranked.priority)
            at_once = [o for o in offers if claims.may_go_at_once(o, tokens_gpus)]
            claim = self._ledger.claims.get(id_)
            if at_once:
                pass_.claim_budget_gpus = tokens_gpus
                self._award(turn, pass_, at_once)
            elif offers := [o for o in offers if o.site in pass_.round.keeping_claims]:
                claims.set(turn, ranked, offers, answered=pass_.round.answers)
            elif claim is None:
                claims.in_vain(self._ledger.backlog.number_of(entry.workload), ranked)
            elif claim.site in pass_.round.answers:
                claims.end(turn, claim, ReasonCode.RESOURCES)
            if self._may_start(id_):
                pass_.was_refused(entry)
        self._ask(turn, pass_, ())

    def _wake_for_claims(self, turn: Transaction) -> None:
        """The next pass comes when the budget has more for a claim."""
        at_s = None if self._claims is None else self._claims.budget.next_stage_s(turn.now_s)
        if at_s is not None:
            self._due_s = min(self._due_s, at_s)

    def _award(
        self, turn: Transaction, pass_: SchedulingPass, offers: Sequence[Award]
    ) -> Award | None:
        """Record the best award that the tenant's limit admits; None when it admits none."""
        entry = self._ledger.entries[offers[0].id]
        pass_.remember(entry, self._sites, turn.now_s)
        chosen = pass_.choose(offers, turn.now_s)
        if isinstance(chosen, Refusal):
            entry.refusals = {SiteName(""): chosen, **entry.refusals}
            if chosen.reasons[0].code in _FOR_A_CLAIM:
                pass_.candidates.blocked(entry.workload.id)
            return None
        award, event, standings = chosen
        pass_.awarded(award, event)
        turn.record(event, entry)
        if self.tells_decisions:
            seen = pass_.seen(offers, event, standings, tuple(self._sites))
            turn.commands.append(Decided(seen=seen))
        if self.last_pass is not None:
            self.last_pass.awarded += 1
        return award

    def _wake_to_retry(self, turn: Transaction, entry: WorkloadRecord) -> None:
        """Site or node that failed the workload is tried again in a while, not at the next pass.

        So is one that gives up its wish for few switches, and one whose reservation begins.
        """
        wished_s = self._switch_waits.note(entry, turn.now_s)
        self._due_s = min(self._due_s, wished_s, reservation_begins_s(entry, turn.now_s))
        if not entry.avoid_until_s and not entry.bad_nodes:
            return
        ends_s = (*entry.avoid_until_s.values(), *entry.bad_nodes.ends_s())
        later = [t for t in ends_s if t > turn.now_s]
        if later:
            self._due_s = min(self._due_s, *later)

    def try_out(self, turn: Transaction, client: int, workload: Workload) -> None:
        """Ask all sites about a workload that is not queued, for ``--test-only``."""
        request = BidRequest.of(workload, self._ledger.tenancy.level(workload))
        round_ = self._new_round(turn, (request,))
        round_.waiting_for.update(self._sites_to_ask())
        for name in self._sites_to_ask():
            drained = drained_nodes(self._ledger, name)
            here = asked_of(request, name, None, turn.now_s)
            question = Ask(pass_id=round_.pass_id, requests=(here,), claims=drained)
            turn.commands.append(SendTo(site=name, message=question))
        self._trials[round_.pass_id] = Trial(client=client, workload=workload, round=round_)
        self.conclude(turn)

    def _answer_trial(self, turn: Transaction, trial: Trial) -> None:
        budget = budget_gpus(self._ledger, self._rules, turn.fleet_gpus, turn.now_s)
        answers, winner = trial.answers(self._ledger, self._sites, self._guests(turn, budget))
        turn.commands.append(AnswerTested(client=trial.client, answers=answers, winner=winner))

    def lendable_gpus(self, turn: Transaction) -> list[float]:
        """By window of the lending plan; empty where none is in force, or nobody asks."""
        budget = budget_gpus(self._ledger, self._rules, turn.fleet_gpus, turn.now_s)
        return self._guests(turn, budget).lendable_gpus()

    def _guests(self, turn: Transaction, budget: float) -> Guests:
        terms = self._terms.by_id if self._terms is not None else {}
        idle = partial(idle_gpus, self._sites, self._ledger, terms, budget, turn.now_s)
        by_quota = self._policy.by_quota
        return guest_rules(self._ledger, self._rules, idle, by_quota=by_quota, now_s=turn.now_s)

    def _may_start(self, id_: WorkloadId) -> bool:
        entry = self._ledger.entries.get(id_)  # it may have ended, and be forgotten, meanwhile
        is_pending = entry is not None and entry.state is WorkloadState.PENDING
        return is_pending and id_ not in self.pending

    def _sites_to_ask(self) -> list[SiteName]:
        """The sites that may be asked."""
        return [n for n, view in self._sites.items() if takes_work(n, view, self._ledger)]

    def _open_rounds(self) -> list[Round]:
        passes = [self._pass.round] if self._pass is not None else []
        return [*passes, *(trial.round for trial in self._trials.values())]


_FOR_A_CLAIM = frozenset({ReasonCode.SAVES, ReasonCode.LOST_WORK})
"""Refusals of offers whose victims may leave by turns."""


def _own_reasons(entry: WorkloadRecord) -> dict[SiteName, Refusal]:
    """The refusals of this workload alone: a site failed it, or its checkpoint is elsewhere."""
    return {
        site: refusal
        for site, refusal in entry.refusals.items()
        if site in entry.avoid_until_s or refusal.reasons[0].code is ReasonCode.CHECKPOINT
    }
