"""Shares the budget of evictions among claims, and says when each will start by it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from federator.model.event import Claimed
from federator.model.workload import WorkloadId
from federator.sched.passes.claim_victims import ClaimVictims
from federator.sched.passes.eviction import budget_gpus
from federator.sched.passes.transaction import Transaction
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules


def in_order(ledger: Ledger) -> list[Claimed]:
    """The claims, first to be served first."""
    return sorted(ledger.claims.values(), key=lambda c: (c.priority, c.since_s, c.workload))


class ClaimBudget:
    """The budget of evictions as claims have it: the oldest of the highest priority first.

    Args:
        ledger: which keeps the claims, and the evictions.
        rules: see ``Rules``.
        victims: of the claims.

    Attributes:
        whole_gpus: that may be evicted in a window, as of the last pass.
    """

    def __init__(self, ledger: Ledger, rules: Rules, victims: ClaimVictims) -> None:
        self._ledger = ledger
        self._rules = rules
        self._victims = victims
        self.whole_gpus = 0.0

    @property
    def largest_gpus(self) -> float:
        """The GPUs that one victim may hold: who holds more than the budget is never evicted."""
        return self.whole_gpus

    def begin_pass(self, turn: Transaction) -> None:
        """Count the fleet again."""
        self.whole_gpus = self._rules.preempt_gpus + self._rules.preempt_frac * turn.fleet_gpus

    def escrow_gpus(self, priority: int) -> int:
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
        before = 0
        for claim in in_order(self._ledger):
            if claim.workload == id_ or claim.priority > priority:
                break
            before += self._victims.wanted_gpus(claim)
        return max(0.0, self.tokens_gpus(turn) - before)

    def next_stage_s(self, now_s: float) -> float | None:
        """Unix time at which somebody more may go for a claim; None: none waits for that."""
        left = [
            each for claim in self._ledger.claims.values() for each in self._victims.left(claim)
        ]
        spared = [each.spared_until_s for each in left if each.spared_until_s > now_s]
        if len(spared) == len(left):
            return min(spared, default=None)
        return min([self._next_tokens_s(now_s), *spared])

    def _next_tokens_s(self, now_s: float) -> float:
        window_s = self._rules.preempt_window_s
        since_s = now_s - window_s
        evictions = reversed(self._ledger.evictions)
        spent = list(takewhile(lambda e: e.at_s > since_s, evictions))
        return spent[-1].at_s + window_s if spent else now_s + window_s

    def starts_by_s(self, turn: Transaction, claim: Claimed) -> float:
        """Unix time by which a claimant starts, if nobody of a higher priority comes before it.

        That is ``windows * preempt_window_s + grace_s`` from now, where in each window as many of
        those who must go, of its own claim and of those before it, are told as the budget has room
        for; or after the last who is spared for a while. Whoever ends by himself before makes it
        sooner.
        """
        order = [c for c in in_order(self._ledger) if c.workload != claim.workload]
        place = (claim.priority, claim.since_s, claim.workload)
        ahead = [c for c in order if (c.priority, c.since_s, c.workload) < place]
        rest = [each for c in (*ahead, claim) for each in self._victims.left(c)]
        windows = _windows([e.gpus for e in rest], self.tokens_gpus(turn), self.whole_gpus)
        starts_s = turn.now_s + windows * self._rules.preempt_window_s
        spared = [each for each in rest if each.spared_until_s > turn.now_s]
        if spared:  # by then the budget may just have been spent
            windows = _windows([each.gpus for each in spared], 0.0, self.whole_gpus)
            last_s = max(each.spared_until_s for each in spared)
            starts_s = max(starts_s, last_s + windows * self._rules.preempt_window_s)
        return starts_s + self._rules.grace_s


def _windows(sizes: Sequence[int], tokens_gpus: float, whole_gpus: float) -> int:
    """The windows until the last of these may be told to leave; 0: all of them now."""
    left, windows, rest = tokens_gpus, 0, list(sizes)
    while rest:
        kept = []
        for gpus in rest:
            if gpus <= left:
                left -= gpus
            else:
                kept.append(gpus)
        if len(kept) == len(rest) and left >= whole_gpus:
            return windows + len(rest)  # each alone is more than the budget
        rest = kept
        if rest:
            windows, left = windows + 1, whole_gpus
    return windows
