"""Continues a workload that has ``--fed-continue`` beyond its time limit.

It is told to leave as a victim is, early enough to save, and goes back to the queue; its next
attempt goes on from what it saved. One whose attempts save nothing is stopped in the end, as it
would run its first hours for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Final

from federator.model.lifecycle import WorkloadState
from federator.model.reason import Reason, ReasonCode
from federator.model.site import AttemptReport, Leave
from federator.model.workload import SiteName, WorkloadId
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules

FRUITLESS_ATTEMPTS: Final = 3
"""So many in a row that were cut off without having saved end a workload as TIMEOUT."""

SIGNAL_EARLY_S: Final = 60.0
"""By which Slurm may send a job's signal too early (sbatch(1), ``--signal``)."""

NOTICE_FRAC: Final = 0.5
"""Of its time limit a workload works at least the rest, however long the grace is."""

_LEAST_GRACE_S: Final = 1.0

AT_LIMIT: Final = Reason(code=ReasonCode.TIME_LIMIT)
NO_PROGRESS: Final = Reason(code=ReasonCode.NO_PROGRESS, needed=FRUITLESS_ATTEMPTS)


def notice_s(entry: WorkloadRecord, rules: Rules) -> float:
    """The time before its limit at which a workload is notified: its grace.

    If Slurm itself signals it earlier, it is told before that, so that an exit finds it told; but
    never before it has had its part of the limit.
    """
    workload = entry.workload
    asked_s = workload.signal_lead_s + SIGNAL_EARLY_S if workload.signal_lead_s else 0.0
    return min(max(rules.grace_s, asked_s), workload.time_limit_s * NOTICE_FRAC)


def is_near_its_limit(entry: WorkloadRecord, rules: Rules, now_s: float) -> bool:
    """Whether a running workload that is to go on must be told to leave."""
    return entry.workload.continues and limit_at_s(entry) - notice_s(entry, rules) <= now_s


def limit_at_s(entry: WorkloadRecord) -> float:
    """The time at which the limit of the running attempt strikes; ``inf`` without one."""
    return (entry.started_at_s or entry.lease_from_s) + entry.workload.time_limit_s


def grace_s(entry: WorkloadRecord, rules: Rules, now_s: float) -> float:
    """The grace of a workload that is notified now: not beyond its time limit."""
    if not entry.at_its_limit:
        return rules.grace_s
    return max(_LEAST_GRACE_S, limit_at_s(entry) - now_s)


def has_saved(report: AttemptReport) -> bool:
    """Whether an attempt is known to have saved anything that it has done."""
    return report.leave is not None and report.leave.saved_at_s > report.started_at_s


def is_last_chance(entry: WorkloadRecord, leave: Leave | None) -> bool:
    """Whether the workload is stopped if this attempt is cut off at its limit, too.

    One that its site had not told had no chance to save, and is not counted.
    """
    notified = entry.at_its_limit and leave is not None
    return notified and entry.fruitless_attempts + 1 >= FRUITLESS_ATTEMPTS


class LimitWatch:
    """The times at which running workloads are notified. Not in the log, which implies it."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, WorkloadId, int]] = []

    def watch(self, entry: WorkloadRecord, rules: Rules) -> float:
        """Take note of a workload that has started; return when it must be told.

        ``inf``: never, for it has no limit or did not ask to go on.
        """
        at_s = limit_at_s(entry) - notice_s(entry, rules) if entry.workload.continues else inf
        if at_s < inf:
            heappush(self._heap, (at_s, entry.workload.id, entry.attempt))
        return at_s

    def due(
        self, now_s: float, ledger: Ledger, rules: Rules, hears: Callable[[SiteName], bool]
    ) -> list[WorkloadRecord]:
        """Those that must be told by now; who cannot be told yet stays noted.

        Args:
            now_s: Unix time.
            ledger: says what still runs.
            rules: as for ``watch``.
            hears: whether a site can be told now.
        """
        found: list[WorkloadRecord] = []
        unheard: list[tuple[float, WorkloadId, int]] = []
        while self._heap and self._heap[0][0] <= now_s:
            noted = heappop(self._heap)
            entry = ledger.entries.get(noted[1])
            if entry is None or entry.attempt != noted[2]:
                continue
            if entry.state is not WorkloadState.RUNNING:
                continue
            if limit_at_s(entry) - notice_s(entry, rules) > now_s:
                continue  # its site started it once more, which was noted then
            if hears(entry.site) and entry.promised_to is None:  # as a victim it is told anyway
                found.append(entry)
            else:
                unheard.append(noted)
        for noted in unheard:
            heappush(self._heap, noted)
        return found
