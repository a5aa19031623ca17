"""Who may be evicted for whom, and how much more of it is allowed now?

A bid names its victims. They are told to leave only when the bid has won and its site has accepted
the job; until then the ledger keeps them promised to one winner.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from federator.model.lifecycle import WorkloadState
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.tenant import LOWEST_PRIORITY
from federator.model.workload import SiteName, WorkloadId
from federator.sched.ledger import Entry, Ledger
from federator.sched.rules import Rules


def budget_gpus(ledger: Ledger, rules: Rules, now_s: float) -> float:
    """How many more GPUs may be evicted now, in the whole federation."""
    if not rules.preempt_gpus:
        return 0.0
    since_s = now_s - rules.preempt_window_s
    spent = sum(e.gpus for e in takewhile(lambda e: e.at_s > since_s, reversed(ledger.evictions)))
    promised = sum(
        ledger.entries[id_].held_gpus
        for entry in ledger.in_state(WorkloadState.AWARDED)
        for id_ in entry.victims
    )
    return max(0.0, rules.preempt_gpus - spent - promised)


def against(
    victims: Sequence[WorkloadId], ledger: Ledger, site: SiteName, priority: int, budget: float
) -> Refusal | None:
    """Why these may not be evicted for a workload of this priority; None when they may.

    A site names them, so nothing about them is believed: they run at that site, for somebody of
    lower priority, are promised to nobody else, and are within the budget.
    """
    for id_ in victims:
        entry = ledger.entries.get(id_)
        if entry is None or not _may_go(entry, site, priority):
            reason = Reason(code=ReasonCode.BAD_BID, detail=f"{id_} may not be evicted for it")
            return Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
    gpus = sum(ledger.entries[id_].held_gpus for id_ in victims)
    if gpus > budget:
        reason = Reason(code=ReasonCode.PREEMPT_BUDGET, needed=gpus, free=int(budget), unit="GPUs")
        return Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
    return None


def _may_go(entry: Entry, site: SiteName, priority: int) -> bool:
    return (
        entry.state is WorkloadState.RUNNING
        and entry.site == site
        and entry.workload.requeue
        and priority_of(entry) > priority
        and entry.promised_to is None
    )


def priority_of(entry: Entry) -> int:
    """At which it was awarded, as long as it is at a site: what it must yield to is above it."""
    award = entry.award
    return award.priority if award is not None and award.priority else LOWEST_PRIORITY


def spared_until_s(entry: Entry, rules: Rules, now_s: float) -> float:
    """Before when a workload launched now should not be chosen as a victim."""
    cooldown_ends_s = entry.evicted_at_s + rules.cooldown_s if entry.preemptions else 0.0
    return max(cooldown_ends_s, now_s + rules.min_run_s if rules.min_run_s else 0.0)
