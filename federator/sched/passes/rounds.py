"""Runs the scheduling passes: asks the sites in rounds, and settles each when its answers are in.

What a pass decides is in ``cycle`` and ``auction``; here is what comes when, and what is recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Final

from federator.model.lifecycle import WorkloadState
from federator.model.message import Decided, SendTo, Wake
from federator.model.plan import BidRequest
from federator.model.reason import ReasonCode, Refusal
from federator.model.site_message import BidsMade
from federator.model.workload import SiteName, Workload, WorkloadId
from federator.sched.passes.auction import Award, auction, bids_for
from federator.sched.passes.availability import is_on_drained_nodes, sites_to_ask
from federator.sched.passes.bid_intake import BidIntake
from federator.sched.passes.cycle import SchedulingPass
from federator.sched.passes.data_moves import move_data
from federator.sched.passes.data_places import has_data
from federator.sched.passes.elastic_sizes import largest_first
from federator.sched.passes.eviction import budget_gpus, prices_of
from federator.sched.passes.guest_rules import GuestRules
from federator.sched.passes.held import Holding
from federator.sched.passes.pass_memory import PassMemory
from federator.sched.passes.pending_reconciliation import PendingReconciliation
from federator.sched.passes.round import PassSummary, Round, RoundSeries
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.staging import JobStaging
from federator.sched.passes.tariff import Tariff
from federator.sched.passes.timed_wishes import SwitchWaits, reservation_begins_s
from federator.sched.passes.transaction import Transaction
from federator.sched.passes.trials import Trials
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
        memory: what passes have learnt, under the present configuration.
        guests: the rules for work over quota.
        tariff: prices and tiers.
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
        self._intake = BidIntake(sites, holding, same_process=same_process)
        self._series = RoundSeries()
        self.memory = PassMemory(sites, ledger, rules, self._series)
        self.guests = self._guest_rules()
        self.tariff = Tariff(rules)
        self._pass: SchedulingPass | None = None
        self.last_pass: PassSummary | None = None
        self.recent_passes: deque[PassSummary] = deque(maxlen=PASSES_KEPT)
        self._trials = Trials(sites, ledger, self._series)
        self._due_s = 0.0
        self._switch_waits = SwitchWaits()

    def _guest_rules(self) -> GuestRules:
        terms, by_quota = self.memory.terms, self._policy.by_quota
        return GuestRules(self._sites, self._ledger, self._rules, terms, by_quota=by_quota)

    def reconfigure(
        self, turn: Transaction, policy: Policy, rules: Rules, gone: Collection[SiteName]
    ) -> None:
        """Drop the open pass and go on by other rules; ``gone``: sites that are left out."""
        self._policy, self._rules = policy, rules
        self._pass = None
        self.memory.close()
        self.memory = PassMemory(self._sites, self._ledger, rules, self._series)
        self.guests = self._guest_rules()
        self.tariff = Tariff(rules, self.tariff.factors)
        self.pending.leave_out(gone)
        for round_ in self._open_rounds():
            for site in gone:
                round_.drop(site)
        self.memory.end_claims(turn, lambda claim: claim.site not in self._sites)
        self.data_changed(turn)
        self._due_s = turn.now_s
        turn.commands.append(Wake(at_s=turn.now_s))
        self.conclude(turn)

    @property
    def is_open(self) -> bool:
        """Whether a pass is under way."""
        return self._pass is not None

    def is_due(self, turn: Transaction) -> None:
        """Queue or room has changed: the next pass is due now."""
        if self._due_s > turn.now_s or self._pass is not None:
            self._due_s = min(self._due_s, turn.now_s)
            turn.commands.append(Wake(at_s=turn.now_s))

    def open_if_due(self, turn: Transaction, *, anyway: bool) -> None:
        """Open a pass if one is due and none is open; ``anyway``: even if no site takes work."""
        if turn.now_s < self._due_s or self._pass is not None:
            return
        if anyway or sites_to_ask(self._sites, self._ledger):
            self._open_pass(turn)

    def heard(self, turn: Transaction, site: SiteName, freed: int) -> None:
        """A site says how often something came free there: if that is news, a pass is due."""
        if self.memory.known.heard(site, freed):
            self.is_due(turn)

    def drop(self, site: SiteName) -> None:
        """A site is gone: nobody waits for it, and another agent counts anew."""
        self.memory.known.forget(site)
        for round_ in self._open_rounds():
            round_.drop(site)

    def site_drained(self, turn: Transaction, site: SiteName) -> None:
        """A site takes no new work, or none on some nodes: its offers and claims hold no more."""
        self.drop(site)
        self.memory.end_claims(turn, lambda claim: is_on_drained_nodes(claim, self._ledger))

    def data_changed(self, turn: Transaction) -> None:
        """Data sets may be elsewhere now: whoever would not find its own has no claim there."""
        entries, ledger = self._ledger.entries, self._ledger
        self.memory.end_claims(
            turn,
            lambda claim: not has_data(ledger, entries[claim.workload].workload, claim.site),
            ReasonCode.DATA,
        )

    def _open_pass(self, turn: Transaction) -> None:
        """1. Rank; 2. ask. The rest follows when the answers are in (``conclude``)."""
        self._holding.try_again(turn)
        self._switch_waits.give_up(turn)
        self.memory.end_lost_claims(turn)
        self._due_s = turn.now_s + self._rules.pass_interval_s
        turn.commands.append(Wake(at_s=self._due_s))
        ranking = self._policy.rank(self._ledger, turn.now_s)
        budget = budget_gpus(self._ledger, self._rules, turn.fleet_gpus, turn.now_s)
        claims = self.memory.begin_pass(turn, budget)
        self.pending.lapse(turn.now_s, lambda site: self._sites[site].ready)
        self.last_pass = PassSummary(began_s=turn.now_s)
        self.recent_passes.append(self.last_pass)
        self._pass = SchedulingPass(
            ranking,
            self._ledger,
            self._rules,
            budget,
            prices=prices_of(self._ledger, self._rules, turn.fleet_gpus, turn.now_s),
            terms=self.memory.terms,
            guests=self.guests.now(turn, budget),
            known=self.memory.known,
            unsure=self.pending,
            claims=claims,
            ends=self.memory.ends,
            tariff=self.tariff,
            defragmentation=self.memory.defragmentation,
        )
        self._ask(turn, self._pass, again=())
        self.conclude(turn)

    def _ask(self, turn: Transaction, pass_: SchedulingPass, again: Collection[WorkloadId]) -> None:
        """One message to every site whose answer is not known; or the pass is over."""
        sites = sites_to_ask(self._sites, self._ledger)
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
            JobStaging(turn, self._sites, self._rules.staging, self.memory.starts).ask()
            move_data(turn)
            claim_s, wish_s = self.memory.next_claim_s(turn.now_s), self._switch_waits.next_s()
            self._due_s = min(self._due_s, claim_s, wish_s)
            turn.commands.append(Wake(at_s=self._due_s))
            return
        self.last_pass.rounds += 1
        pass_.round = round_ = self._series.begin(turn, window)
        for name in pass_.candidates.sites:
            requests = pass_.requests_for(name, window, self._sites, turn.now_s)
            if requests:
                round_.waiting_for.add(name)
                question = pass_.question(name, self._sites[name], requests, turn.now_s)
                turn.commands.append(SendTo(site=name, message=question))

    def bids_came(self, turn: Transaction, site: SiteName, came: BidsMade) -> None:
        """Take the answers of a site to the round that asked for them."""
        known = self.memory.known
        known.heard(site, came.freed)
        for round_ in self._open_rounds():
            if round_.pass_id == came.pass_id:
                self._intake.take(turn, round_, site, came, known.generation(site))

    def conclude(self, turn: Transaction) -> None:
        """Settle every round whose answers are in: auction, awards, next round."""
        self._trials.conclude(turn, lambda: self.guests.now(turn))
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
            self._switch_waits.note(entry, turn.now_s)
            begins_s = reservation_begins_s(entry, turn.now_s)
            spot_s = pass_.tariff.avoids_spot_until_s(entry, turn.now_s) or inf
            self._due_s = min(self._due_s, _retry_s(entry, turn.now_s), begins_s, spot_s)
            self._holding.hold_if_refused(turn, entry)
        refused = [w for w in outcome.refused if self._may_start(w)]
        again = {*pass_.keep_room(refused, list(self._sites)), *outcome.again}
        for id_ in outcome.refused:
            if id_ not in again:  # who is asked again has its place
                pass_.was_refused(self._ledger.entries[id_])
        self._ask(turn, pass_, again)

    def _settle_claim(self, turn: Transaction, pass_: SchedulingPass, ranked: Ranked) -> None:
        """Award a claimant, or let it have a claim, or keep or end the one that it has."""
        assert self.memory.claims is not None
        claims, id_ = self.memory.claims, ranked.id
        if self._may_start(id_):
            entry = self._ledger.entries[id_]
            pass_.remember(entry, self._sites, turn.now_s)
            bids = bids_for(id_, pass_.round.answers, list(self._sites))
            offers = pass_.claimable(bids)
            tokens_gpus = claims.budget.tokens_for(turn, id_, ranked.priority)
            at_once = [o for o in offers if claims.may_go_at_once(o, tokens_gpus)]
            claim = self._ledger.claims.get(id_)
            if at_once:
                pass_.claim_budget_gpus = tokens_gpus
                self._award(turn, pass_, at_once)
            elif offers := [o for o in offers if o.site in pass_.round.keeping_claims]:
                claims.set(turn, ranked, offers, answered=pass_.round.answers)
            elif claim is None and (worth := pass_.worth_moving(turn, bids)):
                self._award(turn, pass_, worth)
            elif claim is None:
                claims.vain.add(self._ledger.backlog.number_of(entry.workload), ranked)
            elif claim.site in pass_.round.answers:
                claims.end(turn, claim, ReasonCode.RESOURCES)
            if self._may_start(id_):
                pass_.was_refused(entry)
        self._ask(turn, pass_, ())

    def _award(
        self, turn: Transaction, pass_: SchedulingPass, offers: Sequence[Award]
    ) -> Award | None:
        """Record the best award that the tenant's limit admits; None when it admits none."""
        entry = self._ledger.entries[offers[0].id]
        pass_.remember(entry, self._sites, turn.now_s)
        offers = largest_first(entry.workload, offers)
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

    def try_out(self, turn: Transaction, client: int, workload: Workload) -> None:
        """Ask all sites about a workload that is not queued, for ``--test-only``."""
        self._trials.ask(turn, client, workload, self.tariff)
        self.conclude(turn)

    def _may_start(self, id_: WorkloadId) -> bool:
        entry = self._ledger.entries.get(id_)  # it may have ended, and be forgotten, meanwhile
        is_pending = entry is not None and entry.state is WorkloadState.PENDING
        return is_pending and id_ not in self.pending

    def _open_rounds(self) -> list[Round]:
        passes = [self._pass.round] if self._pass is not None else []
        return [*passes, *self._trials.rounds()]


_FOR_A_CLAIM = frozenset({ReasonCode.SAVES, ReasonCode.LOST_WORK})
"""Refusals of offers whose victims may leave by turns."""


def _retry_s(entry: WorkloadRecord, now_s: float) -> float:
    """Unix time at which a site or node that failed the workload is tried again; inf: none did."""
    ends_s = (*entry.avoid_until_s.values(), *entry.bad_nodes.ends_s())
    return min((t for t in ends_s if t > now_s), default=inf)
