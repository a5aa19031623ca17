"""Counts the GPUs that nobody holds, by what sites report and by what the ledger knows.

A site's report is late by a sweep, and the ledger knows nothing of local users. So the smaller
number of both counts, and what was awarded and does not run yet counts as held in the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from federator.model.lifecycle import WorkloadState
from federator.model.resources import Amounts
from federator.model.site import VictimTerms
from federator.model.tenant import LOWEST_PRIORITY
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.availability import takes_work
from federator.sched.passes.site_view import SiteView
from federator.sched.queue.lending import Idle
from federator.sched.state.ledger import Ledger

_IN_FLIGHT = (WorkloadState.AWARDED, WorkloadState.LAUNCHING)


def idle_gpus(
    sites: Mapping[SiteName, SiteView],
    ledger: Ledger,
    terms: Mapping[WorkloadId, VictimTerms],
    budget_gpus: float,
    now_s: float,
) -> Idle:
    """The GPUs that nobody holds now, and of guests those that evictions could free at once.

    Args:
        sites: as they last were.
        ledger: knows what workloads hold.
        terms: of whoever may be evicted.
        budget_gpus: that may be evicted now.
        now_s: Unix time.
    """
    views = [view for name, view in sites.items() if takes_work(name, view, ledger)]
    by_ledger = _less(_capacity(views, ledger), _held(ledger))
    amounts = by_ledger
    if views and all(view.summary for view in views):
        in_flight = [e.charge.amounts for e in ledger.in_state(*_IN_FLIGHT) if e.charge is not None]
        reported = _amounts(ledger, (_idle_of(view) for view in views))
        amounts = tuple(map(min, by_ledger, _less(reported, in_flight)))
    return Idle(
        [max(0, amount) for amount in amounts], _reclaimable(ledger, terms, budget_gpus, now_s)
    )


def _reclaimable(
    ledger: Ledger, terms: Mapping[WorkloadId, VictimTerms], budget_gpus: float, now_s: float
) -> float:
    """Of guests that may be evicted now, within the budget."""
    found = 0.0
    for id_, each in terms.items():
        if found >= budget_gpus:
            return budget_gpus
        if each.priority == LOWEST_PRIORITY and each.spared_until_s <= now_s:
            entry = ledger.entries.get(id_)
            found += entry.held_gpus if entry is not None else 0
    return min(found, budget_gpus)


def _held(ledger: Ledger) -> Iterable[Amounts]:
    return (tuple(ledger.holdings.own(row)) for row in range(len(ledger.tenancy)))


def _capacity(views: Iterable[SiteView], ledger: Ledger) -> Amounts:
    return _amounts(ledger, (view.gpus_by_type for view in views))


def _idle_of(view: SiteView) -> Counter[str]:
    """By type. Of partitions that share nodes, the one with most: less is there, or as much."""
    found: Counter[str] = Counter()
    shares = sum(row.gpus for row in view.summary) > view.gpus
    for row in view.summary:
        idle = max(0, row.gpus - row.gpus_alloc - row.gpus_out)
        found[row.gpu_type] = (
            max(found[row.gpu_type], idle) if shares else (found[row.gpu_type] + idle)
        )
    return found


def _amounts(ledger: Ledger, by_type: Iterable[Mapping[str, int]]) -> Amounts:
    """By resource of the tenancy; CPUs are left out."""
    total: Counter[str] = Counter()
    for each in by_type:
        total.update(each)
    return ledger.tenancy.resources.amounts(sum(total.values()), 0, total)


def _less(amounts: Amounts, taken: Iterable[Amounts]) -> Amounts:
    left = list(amounts)
    for each in taken:
        left = [have - gone for have, gone in zip(left, each, strict=True)]
    return tuple(left)
