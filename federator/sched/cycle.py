"""What is a scheduling pass? Rank, ask, auction, award: in rounds, until every workload is settled.

A pass lives across several observations, since the sites' answers take time; it is volatile and
never logged. What it decides is logged as ``Awarded`` before any site is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from federator.model.lifecycle import AT_SITE, WorkloadState
from federator.model.message import SiteAnswer
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.workload import SiteName, Workload, WorkloadId
from federator.sched.ledger import Entry, Ledger
from federator.sched.policy import Policy


@dataclass(slots=True)
class Round:
    """One question to the sites, and the answers so far."""

    pass_id: int
    order: tuple[WorkloadId, ...]
    waiting_for: set[SiteName]
    deadline_s: float
    answers: dict[SiteName, dict[WorkloadId, SiteAnswer]] = field(default_factory=dict)

    def take(self, site: SiteName, answers: Iterable[SiteAnswer]) -> None:
        if site in self.waiting_for:
            self.waiting_for.discard(site)
            self.answers[site] = {a.id: a for a in answers}

    def over(self, now_s: float) -> bool:
        return not self.waiting_for or now_s >= self.deadline_s

    def silent(self) -> dict[SiteName, Refusal]:
        """The sites that did not answer, as refusals."""
        return {site: wait(ReasonCode.NO_ANSWER) for site in sorted(self.waiting_for)}


@dataclass(slots=True)
class Pass:
    """The workloads of one pass that are not settled yet, first to try first."""

    queue: list[WorkloadId]
    round: Round


@dataclass(slots=True)
class Trial:
    """A ``--test-only`` question of one client."""

    client: int
    round: Round


def wait(code: ReasonCode, needed: int = 0) -> Refusal:
    return Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=code, needed=needed),))


def rank(
    ledger: Ledger, policy: Policy, now_s: float
) -> tuple[list[WorkloadId], dict[WorkloadId, Refusal]]:
    """Put the pending workloads into the policy's order.

    Returns:
        Those to try, first to try first; and why the others are not tried: array tasks beyond
        their throttle.
    """
    pending = [entry.workload for entry in ledger.in_state(WorkloadState.PENDING)]
    ordered = policy.order(pending, now_s)
    room = _array_room(ledger, ordered)
    queue: list[WorkloadId] = []
    throttled: dict[WorkloadId, Refusal] = {}
    for workload in ordered:
        if workload.array is not None and workload.array.max_running:
            left = room[workload.array.array_id]
            if left <= 0:
                limit = workload.array.max_running
                throttled[workload.id] = wait(ReasonCode.ARRAY_LIMIT, limit)
                continue
            room[workload.array.array_id] = left - 1
        queue.append(workload.id)
    return queue, throttled


def _array_room(ledger: Ledger, pending: Sequence[Workload]) -> dict[WorkloadId, int]:
    """How many more tasks of each throttled array may leave the queue."""
    room = {w.array.array_id: w.array.max_running for w in pending if w.array is not None}
    for entry in ledger.in_state(*AT_SITE):
        array = entry.workload.array
        if array is not None and array.array_id in room:
            room[array.array_id] -= 1
    return room


def for_site(
    window: Sequence[WorkloadId], site: SiteName, ledger: Ledger, now_s: float
) -> tuple[Workload, ...]:
    """Those of the window that this site may bid for now."""
    entries = (ledger.entries[id_] for id_ in window)
    return tuple(e.workload for e in entries if e.avoid_until_s.get(site, 0.0) <= now_s)


def remember(
    entry: Entry, answers: Mapping[SiteName, Mapping[WorkloadId, SiteAnswer]],
    silent: Mapping[SiteName, Refusal], down: Iterable[SiteName], now_s: float,
) -> None:  # fmt: skip
    """Keep each site's reason with the workload, for ``fsqueue --why``."""
    refusals = {site: wait(ReasonCode.SITE_DOWN) for site in down} | dict(silent)
    for site, until_s in entry.avoid_until_s.items():
        if until_s > now_s and site not in refusals:
            refusals[site] = Refusal(kind=RefusalKind.WAIT, reasons=(entry.setbacks[site],))
    for site, by_id in answers.items():
        answer = by_id.get(entry.workload.id)
        if answer is not None and answer.refusal is not None:
            refusals[site] = answer.refusal
    entry.refusals = refusals
