"""Bounds how many workloads of a region save at the same time: its sites share one storage."""

from __future__ import annotations

from math import inf

from federator.model.lifecycle import WorkloadState
from federator.model.workload import SiteName
from federator.sched.passes.eviction import spared_yet
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules


def saves_left(ledger: Ledger, rules: Rules, site: SiteName) -> float:
    """How many workloads more may be told to save and leave in the region of a site.

    Whoever has been told and is not gone yet counts, also at a time limit, and whoever is promised
    to a winner there. ``inf``: there is no bound.
    """
    if not rules.max_saves_per_region:
        return inf
    region = rules.regions.get(site, "")
    saving = sum(
        rules.regions.get(entry.site, "") == region
        for entry in ledger.in_state(WorkloadState.PREEMPTING)
    )
    promised = sum(
        len(spared_yet(winner, ledger))
        for winner in ledger.in_state(WorkloadState.AWARDED, WorkloadState.LAUNCHING)
        if winner.displaces and rules.regions.get(winner.site, "") == region
    )
    return max(0, rules.max_saves_per_region - saving - promised)
