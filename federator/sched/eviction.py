"""Who may be evicted for whom, and how much more of it is allowed now?

A bid names its victims. They are told to leave only when the bid has won and its site has accepted
the job; until then the ledger keeps them promised to one winner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

from federator.model.lifecycle import WorkloadState
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site import VictimTerms
from federator.model.workload import SiteName, WorkloadId
from federator.sched.auction import Award
from federator.sched.ledger import Entry, Ledger
from federator.sched.rules import Rules
from federator.sched.saves import family_of
from federator.sched.standing import standings


def budget_gpus(ledger: Ledger, rules: Rules, fleet_gpus: int, now_s: float) -> float:
    """How many more GPUs may be evicted now, in the whole federation of so many GPUs.

    What awards were promised counts as if it had gone; not for ever, as the site of an award may
    be cut off.
    """
    whole = rules.preempt_gpus + rules.preempt_frac * fleet_gpus
    if not whole:
        return 0.0
    since_s = now_s - rules.preempt_window_s
    spent = sum(e.gpus for e in takewhile(lambda e: e.at_s > since_s, reversed(ledger.evictions)))
    promised = sum(
        victim.held_gpus
        for entry in ledger.in_state(WorkloadState.AWARDED, WorkloadState.LAUNCHING)
        if entry.victims and entry.award is not None and entry.award.at_s > since_s
        for victim in spared_yet(entry, ledger)
    )
    return max(0.0, whole - spent - promised)


def spared_yet(winner: Entry, ledger: Ledger) -> list[Entry]:
    """The victims that are promised to a winner and have not been told to leave."""
    victims = (ledger.entries[id_] for id_ in winner.victims)
    return [
        v for v in victims
        if v.promised_to == winner.workload.id and v.state is WorkloadState.RUNNING
    ]  # fmt: skip


def clearing(winner: Entry, ledger: Ledger) -> bool:
    """Tell whether victims have been told to leave for it, and some are not gone yet."""
    victims = (ledger.entries[id_] for id_ in winner.victims)
    return any(
        v.state is WorkloadState.PREEMPTING and v.promised_to == winner.workload.id for v in victims
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a workload may evict: strictly lower priority, so much in all.

    ``terms``: of whoever may be evicted at all, see ``victim_terms``.
    """

    priority: int
    budget_gpus: float
    terms: Mapping[WorkloadId, VictimTerms]
    now_s: float


def against(offer: Award, ledger: Ledger, claims: Claims) -> Refusal | None:
    """Why the victims of an offer may not be evicted; None when they may.

    A site names them, so nothing about them is believed: they run at that site on nodes of the
    plan, at a lower priority, may be requeued, are promised to nobody else, and fit the budget.
    """
    victims = tuple(map(WorkloadId, offer.bid.victims))
    wrong = "a victim is named twice" if len(set(victims)) < len(victims) else ""
    for id_ in victims:
        wrong = wrong or _wrong_about(id_, offer, ledger, claims)
    if wrong:
        return _wait(Reason(code=ReasonCode.BAD_BID, detail=wrong))
    entries = [ledger.entries[id_] for id_ in victims]
    for entry in entries:
        if entry.state is not WorkloadState.RUNNING or entry.promised_to is not None:
            leaving = f"{entry.workload.id} is on its way out"
            return _wait(Reason(code=ReasonCode.RESOURCES, detail=leaving))
    gpus = sum(entry.held_gpus for entry in entries)
    if gpus <= claims.budget_gpus:
        return None
    free = int(claims.budget_gpus)
    return _wait(Reason(code=ReasonCode.PREEMPT_BUDGET, needed=gpus, free=free, unit="GPUs"))


def _wrong_about(id_: WorkloadId, offer: Award, ledger: Ledger, claims: Claims) -> str:
    entry = ledger.entries.get(id_)
    terms = claims.terms.get(id_)
    if entry is None or entry.site != offer.site or terms is None:
        return f"{id_} may not be evicted"
    if terms.priority <= claims.priority:
        return f"{id_} is not of lower priority"
    if terms.spared_until_s > claims.now_s:
        return f"{id_} began, or was evicted, not long ago"
    nodes = {name for plan in offer.bid.jobs for name in plan.nodes}
    if not any(name in nodes for plan in entry.plan for name in plan.nodes):
        return f"{id_} is on none of the nodes"
    return ""


def _wait(reason: Reason) -> Refusal:
    return Refusal(kind=RefusalKind.WAIT, reasons=(reason,))


def victim_terms(ledger: Ledger, rules: Rules) -> dict[WorkloadId, VictimTerms]:
    """On which terms each running workload may be evicted now; who may not be is left out."""
    found = standings(ledger)
    return {
        entry.workload.id: VictimTerms(
            priority=found[entry.workload.id].priority,
            spared_until_s=spared_until_s(entry, rules),
            saves_in_time=ledger.saves.in_time(family_of(entry.workload), rules.grace_s),
        )
        for entry in ledger.in_state(WorkloadState.RUNNING)
        if entry.workload.preemptible and entry.workload.id in found
    }


def spared_until_s(entry: Entry, rules: Rules) -> float:
    """Before when a running workload should not be chosen as a victim."""
    cooldown_ends_s = entry.evicted_at_s + rules.cooldown_s if entry.preemptions else 0.0
    return max(cooldown_ends_s, entry.started_at_s + rules.min_run_s if rules.min_run_s else 0.0)


def checkpoint_in_reach(entry: Entry, site: SiteName, rules: Rules) -> bool:
    """Tell whether a workload could go on at a site; one without a checkpoint can anywhere."""
    return not entry.saved_at or rules.reaches(site, entry.saved_at)
