"""Says what the eviction of a workload takes of the budget: GPUs, and work that it destroys.

The budget may be bounded in both. One unit does for both: work that is predicted to be lost counts
as the GPUs that make as large a part of a window's budget. Whichever is more counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from federator.model.plan import Bid
from federator.model.site import START_UP_S
from federator.model.workload import WorkloadId
from federator.sched.state.evictions import charged_gpus
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.preemption_cost import expected_loss_s
from federator.sched.state.rules import LEAST_GPUS, Rules
from federator.sched.state.save_times import family_of
from federator.sched.state.shrink import gpus_of


class _AtRisk(NamedTuple):
    """What is known of a running workload's work, as ``expected_loss_s`` asks for it."""

    started_at_s: float
    save_s: float
    restart_s: float
    saves_in_time: bool
    saved_at_s: float = 0.0  # the site knows, the federation does not


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionPrices:
    """What evictions take of a budget.

    Attributes:
        ledger: which knows who runs where, and how long families take to save.
        rules: see ``Rules``.
        whole_gpus: that may be evicted in a window.
        now_s: Unix time.
    """

    ledger: Ledger
    rules: Rules
    whole_gpus: float
    now_s: float

    def counted_gpus(self, entry: WorkloadRecord, jobs: Sequence[int] | None = None) -> int:
        """The GPUs that the budget counts for a workload, or for some optional jobs of one."""
        held = entry.held_gpus if jobs is None else gpus_of(entry.plan, jobs)
        gpus, most_gpu_s = max(LEAST_GPUS, held), self.rules.preempt_lost_gpu_s
        if not most_gpu_s or not self.whole_gpus:
            return gpus
        family, saves = family_of(entry.workload), self.ledger.saves
        known_s = saves.known_s(family)
        job = _AtRisk(
            started_at_s=entry.started_at_s,
            save_s=known_s,
            restart_s=START_UP_S + known_s,
            saves_in_time=saves.in_time(family, self.rules.grace_s),
        )
        lost_gpu_s = held * expected_loss_s(job, self.now_s, grace=jobs is None)
        return max(gpus, ceil(lost_gpu_s / most_gpu_s * self.whole_gpus))

    def charged_gpus(self, entry: WorkloadRecord, jobs: Sequence[int] | None = None) -> float:
        """The part of a window's budget that the same takes: all of it at most."""
        return charged_gpus(self.counted_gpus(entry, jobs), self.whole_gpus)

    def of_bid(self, bid: Bid) -> float:
        """The part that those take whom a bid evicts, whole or in part."""
        entries = self.ledger.entries
        wholes = (self.charged_gpus(entries[WorkloadId(id_)]) for id_ in bid.victims)
        parts = (self.charged_gpus(entries[WorkloadId(id_)], (k,)) for id_, k in bid.shrinks)
        return sum((*wholes, *parts))

    def of_gpus(self, bid: Bid) -> float:
        """The same, as if no work were lost."""
        return replace(self, rules=replace(self.rules, preempt_lost_gpu_s=0.0)).of_bid(bid)
