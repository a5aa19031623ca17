"""First come, first served inside each priority level: the example to copy for a new policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from federator.model.lifecycle import WorkloadState
from federator.sched.queue.policy import RankedList, Ranking
from federator.sched.queue.ranked import Ranked
from federator.sched.state.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Fifo:
    """Order by (priority, submission time, id); priority 1 goes first. Quotas do not
    count; limits do, whatever the policy."""

    by_quota: ClassVar[bool] = False

    def rank(self, ledger: Ledger, now_s: float) -> Ranking:  # noqa: ARG002
        waiting = (entry.workload for entry in ledger.in_state(WorkloadState.PENDING))
        order = sorted(waiting, key=lambda w: (w.priority, w.submitted_at_s, w.id))
        return RankedList(Ranked(w.id, w.priority, within_quota=False) for w in order)
