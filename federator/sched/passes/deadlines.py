"""Keeps the times of leases, limits and repeated orders, and does what is due."""

from __future__ import annotations

from collections.abc import Mapping

from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.continuation import AT_LIMIT, LimitWatch
from federator.sched.passes.eviction import clearing
from federator.sched.passes.held import Holding
from federator.sched.passes.orders import lease_end_s
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.transaction import ORDER_AGAIN_S, Transaction
from federator.sched.state.ledger import Ledger


class Deadlines:
    """The times at which something is to be done though nothing has happened.

    Args:
        sites: as they last were.
        ledger: the queue.
        holding: knows why a job does not start.

    Attributes:
        leave_sent_s: when each workload that must leave was last ordered to.
        left_alone: those whose present attempt stands still, and goes on.
        limits: whom to notify that its time limit is near.
    """

    def __init__(
        self, sites: Mapping[SiteName, SiteView], ledger: Ledger, holding: Holding
    ) -> None:
        self._sites = sites
        self._ledger = ledger
        self._holding = holding
        self.leave_sent_s: dict[WorkloadId, float] = {}
        self.left_alone: set[WorkloadId] = set()
        self.limits = LimitWatch()

    def begin(self, turn: Transaction) -> None:
        """Watch all that starts and runs, by the rules of now."""
        self.limits = turn.limits = LimitWatch()
        for entry in self._ledger.in_state(WorkloadState.LAUNCHING):
            turn.wake_at_lease_end(entry)
        for entry in self._ledger.in_state(WorkloadState.RUNNING):
            turn.watch_limit(entry)

    def passed(self, turn: Transaction) -> None:
        """Withdraw what did not start in time, notify whose limit is near, repeat orders."""
        for entry in self._ledger.in_state(WorkloadState.LAUNCHING):
            ends_s = lease_end_s(entry, turn.rules)
            over = turn.now_s >= ends_s and not clearing(entry, self._ledger)
            if entry.displaces and not over:
                turn.evict(entry)  # in case that a crash came between
            if over and not entry.withdrawing and self._sites[entry.site].up:
                turn.change(entry, WorkloadEvent.LEASE_OVER, reason=self._holding.why_stuck(entry))
        for entry in self.limits.due(turn.now_s, self._ledger, turn.rules, self._is_ready):
            turn.change(entry, WorkloadEvent.LIMIT_NEAR, reason=AT_LIMIT)
        wanted = {entry.workload.id: entry for entry in turn.to_leave()}
        for id_ in self.leave_sent_s.keys() - wanted.keys():
            del self.leave_sent_s[id_]
        for id_, entry in wanted.items():
            sent_s = self.leave_sent_s.get(id_, 0.0)
            if turn.now_s >= sent_s + ORDER_AGAIN_S and self._sites[entry.site].up:
                turn.order_to_leave(entry)

    def _is_ready(self, site: SiteName) -> bool:
        return self._sites[site].ready
