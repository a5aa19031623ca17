"""Decides who may be evicted for whom, and how much more of it is allowed now.

A bid names its victims. They are told to leave only when the bid has won and its site has accepted
the job; until then the ledger keeps them promised to one winner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf

from federator.model.defragment import Defragment
from federator.model.lifecycle import WorkloadState
from federator.model.plan import Bid
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site import START_UP_S, VictimTerms
from federator.model.tenant import LOWEST_PRIORITY
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.auction import Award
from federator.sched.passes.continuation import is_near_its_limit
from federator.sched.passes.eviction_prices import EvictionPrices
from federator.sched.queue.quota_status import quota_statuses
from federator.sched.state.evictions import spent_gpus
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules
from federator.sched.state.save_times import family_of
from federator.sched.state.shrink import nodes_of


def whole_budget_gpus(rules: Rules, fleet_gpus: int) -> float:
    """The GPUs that may be evicted in a window, in the whole federation of so many GPUs."""
    return rules.preempt_gpus + rules.preempt_frac * fleet_gpus


def prices_of(ledger: Ledger, rules: Rules, fleet_gpus: int, now_s: float) -> EvictionPrices:
    """What evictions take of the budget of a federation of so many GPUs."""
    whole_gpus = whole_budget_gpus(rules, fleet_gpus)
    return EvictionPrices(ledger=ledger, rules=rules, whole_gpus=whole_gpus, now_s=now_s)


def budget_gpus(ledger: Ledger, rules: Rules, fleet_gpus: int, now_s: float) -> float:
    """The GPUs that may still be evicted now, in the whole federation of so many GPUs.

    What awards were promised counts as if it had gone; not for ever, as the site of an award may
    be cut off.
    """
    prices = prices_of(ledger, rules, fleet_gpus, now_s)
    whole = prices.whole_gpus
    if not whole:
        return 0.0
    since_s = now_s - rules.preempt_window_s
    spent = spent_gpus(ledger.evictions.within, whole, rules.preempt_window_s, now_s)
    promised = sum(
        _promised_gpus(entry, prices)
        for entry in ledger.in_state(WorkloadState.AWARDED, WorkloadState.LAUNCHING)
        if entry.displaces and entry.award is not None and entry.award.at_s > since_s
    )
    return max(0.0, whole - spent - promised)


def exceeds_budget(
    winner: WorkloadRecord, ledger: Ledger, rules: Rules, fleet_gpus: int, now_s: float
) -> bool:
    """Tell whether a winner whose promises have left the window comes too late for the budget."""
    award = winner.award
    if award is None or award.at_s > now_s - rules.preempt_window_s:
        return False
    due = _promised_gpus(winner, prices_of(ledger, rules, fleet_gpus, now_s))
    return due > 0 and due > budget_gpus(ledger, rules, fleet_gpus, now_s)


def _promised_gpus(winner: WorkloadRecord, prices: EvictionPrices) -> float:
    """What victims that were promised to a winner and have not been notified take of the budget."""
    ledger = prices.ledger
    wholes = (prices.charged_gpus(victim) for victim in spared_yet(winner, ledger))
    parts = (prices.charged_gpus(other, jobs) for other, jobs in spared_jobs_yet(winner, ledger))
    return sum((*wholes, *parts))


def spared_yet(winner: WorkloadRecord, ledger: Ledger) -> list[WorkloadRecord]:
    """The victims that are promised to a winner and have not been told to leave."""
    victims = (ledger.entries[id_] for id_ in winner.victims)
    return [
        v
        for v in victims
        if v.promised_to == winner.workload.id and v.state is WorkloadState.RUNNING
    ]


def spared_jobs_yet(
    winner: WorkloadRecord, ledger: Ledger
) -> list[tuple[WorkloadRecord, tuple[int, ...]]]:
    """The optional jobs that are promised to a winner and have not been taken."""
    found = []
    for id_ in dict.fromkeys(shrink.workload for shrink in winner.shrinks):
        entry = ledger.entries[WorkloadId(id_)]
        jobs = tuple(k for k, to in entry.promised_jobs.items() if to == winner.workload.id)
        if jobs and entry.state is WorkloadState.RUNNING:
            found.append((entry, jobs))
    return found


def clearing(winner: WorkloadRecord, ledger: Ledger) -> bool:
    """Tell whether others have been told to leave for it, and some are not gone yet."""
    id_ = winner.workload.id
    victims = (ledger.entries[victim] for victim in winner.victims)
    return any(
        v.state is WorkloadState.PREEMPTING and v.promised_to == id_ for v in victims
    ) or any(
        ledger.entries[WorkloadId(other)].leaving_jobs.get(k) == id_ for other, k in winner.shrinks
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionLimits:
    """The evictions that a workload may ask for: strictly lower priority, so much in all.

    ``terms``: of whoever may be evicted at all, see ``victim_terms``.
    """

    priority: int
    budget_gpus: float
    prices: EvictionPrices
    terms: Mapping[WorkloadId, VictimTerms]
    now_s: float
    saves_left: float = inf  # of the region
    moves: int = 0  # workloads that may move for it; also of its own priority


def against(offer: Award, ledger: Ledger, limits: EvictionLimits) -> Refusal | None:
    """The reason why the victims of an offer may not be evicted; None when they may.

    A site names them, so nothing about them is believed: they run at that site on nodes of the
    plan, at a lower priority, may be requeued, are promised to nobody else, and fit the budget. Of
    a workload that stays only what it declared optional may be taken, and only once.
    """
    bid = offer.bid
    wrong = _named_twice(bid) or _wrong_moves(offer, ledger, limits)
    going: list[tuple[int, int | None]] = [*bid.shrinks, *((id_, None) for id_ in bid.victims)]
    for each in going:
        wrong = wrong or _wrong_about(each, offer, ledger, limits)
    if wrong:
        return _wait(Reason(code=ReasonCode.BAD_BID, detail=wrong))
    for id_ in bid.victims:
        entry = ledger.entries[WorkloadId(id_)]
        if _is_leaving(entry) or entry.promised_jobs:
            return _on_its_way(id_)
    for id_, k in bid.shrinks:
        entry = ledger.entries[WorkloadId(id_)]
        if _is_leaving(entry) or k in entry.promised_jobs or k in entry.taken_jobs:
            return _on_its_way(id_)
    return _beyond(bid, limits)


def _beyond(bid: Bid, limits: EvictionLimits) -> Refusal | None:
    """The reason why so much may not be evicted now; None when it may."""
    if len(bid.victims) > limits.saves_left:
        saves, free = len(bid.victims), int(limits.saves_left)
        return _wait(Reason(code=ReasonCode.SAVES, needed=saves, free=free, unit="saves"))
    gpus = limits.prices.of_bid(bid)
    if gpus <= limits.budget_gpus and limits.budget_gpus:
        return None
    if limits.budget_gpus and limits.prices.of_gpus(bid) <= limits.budget_gpus:
        return _wait(Reason(code=ReasonCode.LOST_WORK))
    free = int(limits.budget_gpus)
    return _wait(Reason(code=ReasonCode.PREEMPT_BUDGET, needed=ceil(gpus), free=free, unit="GPUs"))


def _named_twice(bid: Bid) -> str:
    going = len(set(bid.victims)) + len(set(bid.shrinks))
    if going < len(bid.victims) + len(bid.shrinks):
        return "a victim is named twice"
    both = {shrink.workload for shrink in bid.shrinks} & set(bid.victims)
    return f"{min(both)} is to go as a whole and in part" if both else ""


def _is_leaving(entry: WorkloadRecord) -> bool:
    return entry.state is not WorkloadState.RUNNING or entry.promised_to is not None


def _on_its_way(id_: int) -> Refusal:
    return _wait(Reason(code=ReasonCode.RESOURCES, detail=f"{id_} is on its way out"))


def _wrong_about(
    going: tuple[int, int | None], offer: Award, ledger: Ledger, limits: EvictionLimits
) -> str:
    """The reason against taking one job of a workload, or against evicting all of it (None)."""
    id_, component = WorkloadId(going[0]), going[1]
    entry = ledger.entries.get(id_)
    terms = limits.terms.get(id_)
    if entry is None or entry.site != offer.site or terms is None:
        return f"{id_} may not be evicted"
    if component is not None and component not in terms.optional_jobs:
        return f"job {component} of {id_} is not optional"
    if terms.priority < limits.priority + (not offer.bid.moves):
        return f"{id_} is not of lower priority"
    if terms.spared_until_s > limits.now_s:
        return f"{id_} began, or was evicted, not long ago"
    nodes = {name for plan in offer.bid.jobs for name in plan.nodes}
    jobs = range(len(entry.plan)) if component is None else (component,)
    if nodes.isdisjoint(nodes_of(entry.plan, jobs)):
        return f"{id_} is on none of the nodes"
    return ""


def _wrong_moves(offer: Award, ledger: Ledger, limits: EvictionLimits) -> str:
    """The reason against having others move; "" if there is none, or nobody is to."""
    bid = offer.bid
    if not bid.moves:
        return ""
    if bid.shrinks or sorted(move.workload for move in bid.moves) != sorted(bid.victims):
        return "not everybody who leaves goes on at a node"
    if len(bid.moves) > limits.moves:
        return f"{len(bid.moves)} are to move"
    of_plan = {name for plan in bid.jobs for name in plan.nodes}
    for move in bid.moves:
        entry, terms = ledger.entries.get(id_ := WorkloadId(move.workload)), limits.terms.get(id_)
        if entry is None or terms is None or not terms.movable:
            return f"{id_} may not move"
        if move.node in of_plan or move.node in entry.node_names:
            return f"{id_} is to move to a node that is not free for it"
    return ""


def _wait(reason: Reason) -> Refusal:
    return Refusal(kind=RefusalKind.WAIT, reasons=(reason,))


def victim_terms(ledger: Ledger, rules: Rules, now_s: float) -> dict[WorkloadId, VictimTerms]:
    """On which terms each running workload may be evicted now; who may not be is left out.

    So is who is about to be told of its time limit: it leaves without being anybody's victim.
    Reading a checkpoint is taken to last as long as writing it. This is the definition; passes use
    ``eviction_terms``, which keeps the same from one to the next.
    """
    found = quota_statuses(ledger)
    return {
        entry.workload.id: terms_of(entry, found[entry.workload.id].priority, ledger, rules)
        for entry in ledger.in_state(WorkloadState.RUNNING)
        if entry.workload.preemptible
        and entry.workload.id in found
        and not is_near_its_limit(entry, rules, now_s)
    }


def terms_of(entry: WorkloadRecord, priority: int, ledger: Ledger, rules: Rules) -> VictimTerms:
    """The terms of one that runs at this priority, and may be evicted."""
    family, saves = family_of(entry.workload), ledger.saves
    known_s = saves.known_s(family)
    optional = entry.workload.optional_jobs
    return VictimTerms(
        priority=priority,
        spared_until_s=spared_until_s(entry, rules),
        saves_in_time=saves.in_time(family, rules.grace_s),
        save_s=known_s,
        restart_s=START_UP_S + known_s,
        optional=entry.workload.optional,
        optional_jobs=tuple([k for k in optional if k not in entry.taken_jobs]),
        movable=rules.defragment is not Defragment.OFF and may_move(entry, priority),
    )


def may_move(entry: WorkloadRecord, priority: int) -> bool:
    """Tell whether one that may be evicted could go on at any other node like its own.

    It is on one node, names none, and runs within quota: nobody need lend it its place again.
    """
    workload = entry.workload
    if priority >= LOWEST_PRIORITY or workload.elastic is not None or len(entry.plan) != 1:
        return False
    (plan,) = entry.plan
    names_some = any(job.nodelist or job.exclude for job in workload.jobs)
    return (
        len(workload.jobs) == len(plan.nodes) == 1
        and not names_some
        and not plan.reservation
        and not plan.licenses
    )


def spared_until_s(entry: WorkloadRecord, rules: Rules) -> float:
    """Before when a running workload should not be chosen as a victim."""
    evicted_at_s = max(entry.evicted_at_s if entry.preemptions else 0.0, entry.site_evicted_at_s)
    cooldown_ends_s = evicted_at_s + rules.cooldown_s if evicted_at_s else 0.0
    return max(cooldown_ends_s, entry.started_at_s + rules.min_run_s if rules.min_run_s else 0.0)


def checkpoint_in_reach(entry: WorkloadRecord, site: SiteName, rules: Rules) -> bool:
    """Tell whether a workload could go on at a site; one without a checkpoint can anywhere."""
    if not entry.saved_at or rules.reaches(site, entry.saved_at):
        return True
    is_copied = entry.copied_to in rules.regions  # else its site may have been taken out since
    return is_copied and rules.reaches(site, entry.copied_to)
