"""Shares the budget of evictions among claims, and says when each will start by it."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf

from federator.model.event import Claimed
from federator.model.workload import WorkloadId
from federator.sched.passes.claim_victims import ClaimVictims, Going
from federator.sched.passes.eviction import budget_gpus, prices_of
from federator.sched.passes.save_slots import saves_left
from federator.sched.passes.transaction import Transaction
from federator.sched.state.evictions import Eviction, charged, since
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules


def in_order(ledger: Ledger) -> list[Claimed]:
    """The claims, first to be served first; of one moment, in the order in which they were made.

    Whoever came before was promised a start without those after it.
    """
    return sorted(ledger.claims.values(), key=_place)  # stable; they are kept in that order


class ClaimBudget:
    """The budget of evictions as claims have it: the oldest of the highest priority first.

    A claim of a tenant with a start objective (``start_within_s``) goes beyond it by as much as
    it takes to start in time, as far as ``Rules.beyond_budget_frac`` goes. What goes beyond the
    budget takes nothing from it: no claim of a higher priority waits longer for that.

    Args:
        ledger: which keeps the claims, and the evictions.
        rules: see ``Rules``.
        victims: of the claims.

    Attributes:
        whole_gpus: that may be evicted in a window, as of the last pass.
        most_beyond_gpus: that may be evicted in one beyond that, likewise.
    """

    def __init__(self, ledger: Ledger, rules: Rules, victims: ClaimVictims) -> None:
        self._ledger = ledger
        self._rules = rules
        self._victims = victims
        self.whole_gpus = self.most_beyond_gpus = 0.0

    def begin_pass(self, turn: Transaction) -> None:
        """Count the fleet again."""
        prices = prices_of(self._ledger, self._rules, turn.fleet_gpus, turn.now_s)
        self._victims.prices, self.whole_gpus = prices, prices.whole_gpus
        self.most_beyond_gpus = self._rules.beyond_budget_frac * turn.fleet_gpus

    def escrow_gpus(self, priority: int) -> float:
        """The budget that is kept for claims of this priority or a higher one."""
        return sum(
            self._victims.wanted_gpus(claim)
            for claim in in_order(self._ledger)
            if claim.priority <= priority
        )

    def tokens_gpus(self, turn: Transaction) -> float:
        """The GPUs that may be evicted now."""
        return budget_gpus(self._ledger, self._rules, turn.fleet_gpus, turn.now_s)

    def tokens_for(self, turn: Transaction, id_: WorkloadId, priority: int) -> float:
        """The GPUs that may be evicted now for one claimant: what those before it leave."""
        before = 0.0
        for claim in in_order(self._ledger):
            if claim.workload == id_ or claim.priority > priority:
                break
            before += self._victims.wanted_gpus(claim)
        return max(0.0, self.tokens_gpus(turn) - before)

    # ---- start objectives ----

    def _within_s(self, id_: WorkloadId) -> float:
        """The start objective of a claimant's tenant; 0: it has none."""
        tenancy = self._ledger.tenancy
        return tenancy.start_within_s(tenancy.row(self._ledger.entries[id_].workload.tenant))

    def leave_by_s(self, claim: Claimed) -> float:
        """Unix time by which victims must be told, for the claimant to start in time; or inf."""
        within_s = self._within_s(claim.workload)
        return claim.since_s + within_s - self._rules.grace_s if within_s else inf

    def beyond_gpus(self, turn: Transaction, claim: Claimed) -> float:
        """The GPUs that are to be evicted now beyond the budget, for a start objective.

        That is what the budget of the windows until ``leave_by_s`` lacks. Who is predicted to end
        by then is not counted, and is told only when the prediction has failed.
        """
        leave_by_s = self.leave_by_s(claim)
        if leave_by_s == inf:
            return 0.0
        ahead = sum(self._victims.needed_gpus(before) for before in self._ahead_of(claim))
        windows = max(0, int((leave_by_s - turn.now_s) // self._rules.preempt_window_s))
        by_then = self.tokens_gpus(turn) + windows * self.whole_gpus - ahead
        left = self._victims.left(claim)
        stay = sum(e.gpus for e in left if not self.ends_by(e, leave_by_s, turn.now_s))
        return min(stay - max(0.0, by_then), self.beyond_left_gpus(turn.now_s))

    def beyond_left_gpus(self, now_s: float) -> float:
        """The GPUs that may be evicted now beyond the budget, for all start objectives."""
        spent = since(self._ledger.evictions.beyond, now_s - self._rules.preempt_window_s)
        return self.most_beyond_gpus - sum(e.gpus for e in spent)

    def ends_by(self, going: Going, by_s: float, now_s: float) -> bool:
        """Tell whether a victim is predicted to have left by itself, with 90 % probability."""
        if by_s <= now_s:
            return False
        found = self._ledger.durations.remaining(going.entry, now_s)
        return found is not None and now_s + found.q90_s <= by_s

    def in_turn(self, turn: Transaction, claim: Claimed) -> list[Going]:
        """Who may be told to leave for a claim now: last those who are predicted to end before."""
        by_s = min(self.leave_by_s(claim), claim.starts_by_s - self._rules.grace_s)
        going = self._victims.going(claim)
        return sorted(
            going,
            key=lambda each: (self.ends_by(each, by_s, turn.now_s), each.gpus > self.whole_gpus),
        )

    # ---- when ----

    def next_stage_s(self, now_s: float) -> float | None:
        """Unix time at which somebody more may go for a claim; None: none waits for that."""
        left = [
            each for claim in self._ledger.claims.values() for each in self._victims.left(claim)
        ]
        spared = [each.spared_until_s for each in left if each.spared_until_s > now_s]
        if len(spared) == len(left):
            return min(spared, default=None)
        leave_by = [self.leave_by_s(claim) for claim in self._ledger.claims.values()]
        return min([self._next_tokens_s(now_s), *spared, *(s for s in leave_by if s > now_s)])

    def _next_tokens_s(self, now_s: float) -> float:
        window_s = self._rules.preempt_window_s
        until = [until_s for _, until_s in self._charged(now_s)]
        return min(until, default=now_s + window_s)

    def _charged(self, now_s: float) -> list[tuple[Eviction, float]]:
        within, window_s = self._ledger.evictions.within, self._rules.preempt_window_s
        return charged(within, self.whole_gpus, window_s, now_s)

    def starts_by_s(self, turn: Transaction, claim: Claimed) -> float:
        """Unix time by which a claimant starts, if nobody of a higher priority comes before it.

        That is ``windows * preempt_window_s + grace_s`` from now, where in each window as many of
        those who must go, of its own claim and of those before it, are told as the budget has room
        for; or after the last who is spared for a while. Whoever ends by himself before makes it
        sooner.
        """
        by_claim = [self._victims.left(each) for each in (*self._ahead_of(claim), claim)]
        rest = [each for left in by_claim for each in left]
        windows = _windows(by_claim, self.tokens_gpus(turn), self.whole_gpus)
        window_s = self._rules.preempt_window_s
        starts_s = turn.now_s + windows * window_s
        if windows:  # all of the budget is there again when what was evicted last is paid for
            paid_s = max((until_s for _, until_s in self._charged(turn.now_s)), default=0.0)
            starts_s += max(0.0, paid_s - turn.now_s - window_s)
        spared = [each for each in rest if each.spared_until_s > turn.now_s]
        if spared:  # by then the budget may just have been spent
            windows = _windows([spared], 0.0, self.whole_gpus)
            last_s = max(each.spared_until_s for each in spared)
            starts_s = max(starts_s, last_s + windows * self._rules.preempt_window_s)
        starts_s += self._rules.grace_s * self._batches(claim, rest)
        return starts_s if self.leave_by_s(claim) == inf else self._in_time_s(turn, claim, starts_s)

    def _batches(self, claim: Claimed, rest: Sequence[Going]) -> int:
        """In how many parts these save, if those of a region may not all save at a time."""
        most = self._rules.max_saves_per_region
        if not most:
            return 1
        free = saves_left(self._ledger, self._rules, claim.site)
        return max(1, ceil((len(rest) + most - free) / most))

    def _in_time_s(self, turn: Transaction, claim: Claimed, starts_s: float) -> float:
        """When one with a start objective starts that would start later within the budget."""
        left, leave_by_s = self._victims.left(claim), self.leave_by_s(claim)
        if self.beyond_left_gpus(turn.now_s) < sum(each.gpus for each in left):
            return starts_s
        last_s = max([turn.now_s, leave_by_s, *(each.spared_until_s for each in left)])
        return min(starts_s, last_s + self._rules.grace_s * self._batches(claim, left))

    def _ahead_of(self, claim: Claimed) -> list[Claimed]:
        """The claims that are served before one, which may be new."""
        place, is_before = _place(claim), True
        ahead = []
        for each in in_order(self._ledger):
            if each.workload == claim.workload:
                is_before = False
            elif _place(each) < place or (_place(each) == place and is_before):
                ahead.append(each)
        return ahead


def _place(claim: Claimed) -> tuple[int, float]:
    return claim.priority, claim.since_s


def _windows(by_claim: Sequence[Sequence[Going]], tokens_gpus: float, whole_gpus: float) -> int:
    """The windows until the last of these may be told to leave; 0: all of them now.

    A claim has nothing of a window before all of those before it have been served.
    """
    left, windows, paid_in = tokens_gpus, 0, 1
    for of_claim in by_claim:
        rest = sorted(of_claim, key=lambda each: each.gpus > whole_gpus)  # stable
        while rest and whole_gpus:
            kept = []
            for each in rest:
                if each.cost_gpus <= left:
                    left -= each.cost_gpus
                    paid_in = max(paid_in, ceil(each.gpus / whole_gpus))
                else:
                    kept.append(each)
            rest = kept
            if rest:
                windows, left, paid_in = windows + paid_in, whole_gpus, 1
    return windows
