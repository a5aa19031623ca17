"""Finds attempts that have a progress lease and finish no step in its time.

Their folders are looked into a few times in that time. What counts is when a change was *seen*, by
this agent's clock: file servers have clocks of their own. So an agent that comes after this one
begins the lease anew. A job that has never noted a step has no lease yet: it may be loading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from federator.agent.base import CheckpointStatus
from federator.agent.effects import Failure, ReadFolders
from federator.agent.folders import folders_of
from federator.agent.memory import AgentMemory
from federator.model.site import AttemptReport, SiteJobState
from federator.model.workload import AttemptId

LOOKS: Final = 4  # in the time of a lease
LOOK_EVERY_S: Final = 60.0  # at most
OVER_FRAC: Final = 1.25
"""Of a lease, after which it is over: a note may be a quarter of it older than the last step."""
SILENT_FRAC: Final = 1.5
"""The same where no rank says anything: their words come a while after the lease's end."""
Reports = Mapping[AttemptId, AttemptReport]


@dataclass(slots=True)
class _Lease:
    within_s: float
    restarts: int
    looked_s: float  # elapsed time of the last look
    stepped_at_s: float = 0.0  # as its note says; 0: it has noted no step
    changed_s: float = 0.0  # elapsed time at which that was first seen
    changed_at_s: float = 0.0  # Unix time, likewise
    stall: str = ""


class ProgressLeases:
    """The leases of what runs here. No look holds up a sweep.

    Args:
        memory: shared.
    """

    def __init__(self, memory: AgentMemory) -> None:
        self._memory = memory
        self._leases: dict[AttemptId, _Lease] = {}
        self._busy: set[str] = set()  # users whose folders are being looked into

    def looks(self, reports: Reports) -> list[int]:
        """Look where the last look is old enough; the sweep waits for none of them."""
        leases = {a: self._lease(r) for a, r in reports.items()}
        self._leases = {a: lease for a, lease in leases.items() if lease is not None}
        now_s = self._memory.now.elapsed_s
        due = [
            attempt
            for attempt, lease in self._leases.items()
            if now_s - lease.looked_s >= min(LOOK_EVERY_S, lease.within_s / LOOKS)
        ]
        for user, orders in folders_of(self._memory, sorted(due, key=str)):
            if user not in self._busy:
                self._busy.add(user)
                number = self._memory.number()
                look = ReadFolders(number=number, user=user, orders=orders, lane="progress")
                self._memory.emit(look)
        return []

    def _lease(self, report: AttemptReport) -> _Lease | None:
        """That of one that runs, and was not told to leave."""
        mark = self._memory.index.get(report.attempt)
        leaves = self._memory.with_leave(report).leave is not None
        runs = report.state is SiteJobState.RUNNING and not leaves
        if mark is None or not mark.progress_s or not runs:
            return None
        known = self._leases.get(report.attempt)
        if known is not None and known.restarts == report.restarts:
            return known
        now_s = self._memory.now.elapsed_s
        return _Lease(mark.progress_s, report.restarts, now_s - mark.progress_s)

    def looked(self, look: ReadFolders, seen: tuple[CheckpointStatus, ...] | Failure) -> None:
        """Take what was seen; a folder that does not answer proves nothing, and begins it anew."""
        self._busy.discard(look.user)
        now = self._memory.now
        found = () if isinstance(seen, Failure) else seen
        answers = [*found, *[None] * (len(look.orders) - len(found))]
        for order, status in zip(look.orders, answers, strict=False):
            lease = self._leases.get(order.attempt)
            if lease is None:
                continue
            lease.looked_s = now.elapsed_s
            if status is None or status.stepped_at_s != lease.stepped_at_s:
                lease.changed_s, lease.changed_at_s = now.elapsed_s, now.unix_s
                lease.stepped_at_s = status.stepped_at_s if status else lease.stepped_at_s
                lease.stall = ""
            else:
                lease.stall = status.stall

    def _is_over(self, lease: _Lease) -> bool:
        """Whether the last look has found no step for as long as the lease gives."""
        frac = OVER_FRAC if lease.stall else SILENT_FRAC
        waited_s = lease.looked_s - lease.changed_s
        return lease.stepped_at_s > 0 and waited_s >= frac * lease.within_s

    def complete(self, reports: Reports) -> dict[AttemptId, AttemptReport]:
        """The same reports, with ``stalled_since_s`` and ``stall`` of those whose lease is over."""
        over = {a: lease for a, lease in self._leases.items() if self._is_over(lease)}
        return {
            a: replace(r, stalled_since_s=over[a].changed_at_s, stall=over[a].stall)
            if a in over and r.state is SiteJobState.RUNNING
            else r
            for a, r in reports.items()
        }
