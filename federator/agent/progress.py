"""Finds attempts that have a progress lease and finish no step in its time; tells of their steps.

Their folders are looked into a few times in that time. What counts is when a change was *seen*, by
this agent's clock: file servers have clocks of their own. So an agent that comes after this one
begins the lease anew. A job that has never noted a step has no lease yet: it may be loading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

from federator.agent.base import CheckpointStatus
from federator.agent.effects import Failure, ReadFolders
from federator.agent.folders import folders_of
from federator.agent.memory import AgentMemory
from federator.model.site import AttemptReport, SiteJobState, StepWindow
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import PreemptOrder

LOOKS: Final = 4  # in the time of a lease
LOOK_EVERY_S: Final = 60.0  # at most
OVER_FRAC: Final = 1.25
"""Of a lease, after which it is over: a note may be a quarter of it older than the last step."""
SILENT_FRAC: Final = 1.5
"""The same where no rank says anything, or others may still speak: they do so one by one."""
Reports = Mapping[AttemptId, AttemptReport]
_Orders = tuple[PreemptOrder, ...]


@dataclass(slots=True)
class _Lease:
    within_s: float
    restarts: int
    looked_s: float  # elapsed time of the last look
    earlier_at_s: float | None = 0.0  # a note of this time is an earlier run's; None: look first
    stepped_at_s: float = 0.0  # as its note says; 0: it has noted no step, or no more are to come
    changed_s: float = 0.0  # elapsed time at which that was first seen
    changed_at_s: float = 0.0  # Unix time, likewise
    stall: str = ""
    all_said: bool = False  # two looks in a row found the same words
    steps: StepWindow | None = None  # as this run last told of them


class ProgressLeases:
    """The leases of what runs here. No look holds up a sweep.

    Args:
        memory: shared.
    """

    def __init__(self, memory: AgentMemory) -> None:
        self._memory = memory
        self._leases: dict[AttemptId, _Lease] = {}
        self._waiting: dict[str, list[_Orders]] = {}
        """What is left to look into of the folders of users who are being looked at: one user's
        folders, which may not answer, hold up others once at a time."""

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
        parts: dict[str, list[_Orders]] = {}
        for user, orders in folders_of(self._memory, sorted(due, key=str)):
            parts.setdefault(user, []).append(orders)
        for user, of_user in parts.items():
            if user not in self._waiting:
                self._look(user, of_user)
        return []

    def _look(self, user: str, parts: list[_Orders]) -> None:
        """Look into the first part of a user's folders; the others are next."""
        self._waiting[user] = parts[1:]
        number = self._memory.number()
        look = ReadFolders(number=number, user=user, orders=parts[0], lane="progress")
        self._memory.emit(look)

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
        looked_s = self._memory.now.elapsed_s - mark.progress_s
        # The last sweep did not see this run, so what it finds at first an earlier one has left.
        is_again = report.restarts > 0 and report.attempt in self._memory.known
        earlier_at_s = None if is_again else 0.0
        return _Lease(mark.progress_s, report.restarts, looked_s, earlier_at_s)

    def looked(self, look: ReadFolders, seen: tuple[CheckpointStatus, ...] | Failure) -> None:
        """Take what was seen; a folder that does not answer proves nothing, and begins it anew."""
        rest = self._waiting.pop(look.user, [])
        found = () if isinstance(seen, Failure) else seen
        orders = list(look.orders)
        if isinstance(seen, Failure) and seen.timed_out:
            orders += [order for part in rest for order in part]  # nor would these answer
        elif rest:
            self._look(look.user, rest)
        for order, status in zip_longest(orders, found[: len(orders)]):
            lease = self._leases.get(order.attempt)
            if lease is not None:
                self._take(lease, status)

    def _take(self, lease: _Lease, status: CheckpointStatus | None) -> None:
        now, was_over = self._memory.now, self._is_over(lease)
        lease.looked_s = now.elapsed_s
        stepped_at_s = status.stepped_at_s if status is not None else lease.stepped_at_s
        if lease.earlier_at_s is None and status is not None:
            lease.earlier_at_s = stepped_at_s
        if stepped_at_s == lease.earlier_at_s:
            stepped_at_s = 0.0
        if status is None or stepped_at_s != lease.stepped_at_s:
            lease.changed_s, lease.changed_at_s = now.elapsed_s, now.unix_s
            lease.stepped_at_s = stepped_at_s
            lease.stall, lease.all_said = "", False
        elif not was_over:  # else it was told, and is not told anew with each of their words
            lease.all_said = bool(status.stall) and status.stall == lease.stall
            lease.stall = status.stall
        if status is not None and status.steps is not None and lease.stepped_at_s > 0:
            lease.steps = status.steps  # of this run: an earlier one's note is not believed

    def _is_over(self, lease: _Lease) -> bool:
        """Whether the last look has found no step for as long as the lease gives."""
        frac = OVER_FRAC if lease.all_said else SILENT_FRAC
        waited_s = lease.looked_s - lease.changed_s
        return lease.stepped_at_s > 0 and waited_s >= frac * lease.within_s

    def complete(self, reports: Reports) -> dict[AttemptId, AttemptReport]:
        """The same reports, with the steps of those that run, and with ``stalled_since_s`` and
        ``stall`` of those whose lease is over."""
        return {
            a: self._completed(r, self._leases[a])
            if a in self._leases and r.state is SiteJobState.RUNNING
            else r
            for a, r in reports.items()
        }

    def _completed(self, report: AttemptReport, lease: _Lease) -> AttemptReport:
        if not self._is_over(lease):
            return report if lease.steps is None else replace(report, steps=lease.steps)
        since_s, stall = lease.changed_at_s, lease.stall
        return replace(report, steps=lease.steps, stalled_since_s=since_s, stall=stall)
