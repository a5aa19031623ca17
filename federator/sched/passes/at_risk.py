"""Names the workloads that run and are likely to have to leave before they have ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from federator.model.lifecycle import WorkloadState
from federator.model.prices import SPOT, PriceList
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules

DAY_S: Final = 86_400.0


def at_risk(ledger: Ledger, rules: Rules, now_s: float) -> Iterator[WorkloadRecord]:
    """Those that may start again, and must leave a drain, or have lost spot nodes within a day.

    A cordon asks nobody to leave. Of spot partitions only those count that a workload is on now.
    """
    drains = ledger.drains
    empties = any(drain.migrate or drain.deadline_s for drain in drains.saved())
    prices = PriceList(rules.prices) if any(r.tier == SPOT for r in rules.prices) else None
    if not empties and prices is None:
        return
    for entry in ledger.in_state(WorkloadState.RUNNING):
        if not entry.workload.requeue:
            continue
        drain = drains.of(entry.site, entry.node_names) if empties else None
        must_leave = drain is not None and (drain.migrate or drain.deadline_s > 0)
        if must_leave or (prices is not None and _lost_spot_nodes(entry, prices, now_s)):
            yield entry


def _lost_spot_nodes(entry: WorkloadRecord, prices: PriceList, now_s: float) -> bool:
    day = int(now_s // DAY_S)
    return any(
        at_s > now_s - DAY_S and prices.tier(site, partition, gpu_type, day) == SPOT
        for at_s, site, partition, gpu_type in entry.interruptions
    ) and any(
        prices.tier(entry.site, plan.partition, plan.gpu_type, day) == SPOT for plan in entry.plan
    )
