"""Says when jobs are due again that wait for time alone: for few switches, or a reservation.

Jobs with ``--switches`` start under more switches when they have waited long enough.

As in slurmctld the wait begins when a job could start but for the number of switches, and it is
over for good. A daemon that comes after begins it anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf

from federator.model.event import Amended
from federator.model.lifecycle import WorkloadState
from federator.model.reason import ReasonCode
from federator.model.workload import WorkloadId
from federator.sched.passes.transaction import Transaction
from federator.sched.state.ledger import WorkloadRecord

_CLOCKS_APART_S = 1.0  # those of sites and daemon
_WAITS = (WorkloadState.PENDING, WorkloadState.INELIGIBLE, WorkloadState.HELD)


class SwitchWaits:
    """When each of these jobs gives its wish up."""

    def __init__(self) -> None:
        self._until_s: dict[WorkloadId, float] = {}

    def note(self, entry: WorkloadRecord, now_s: float) -> None:
        """Take in what sites have said of a job in a pass."""
        waits = [job.switch_wait_s for job in entry.workload.jobs if job.switches]
        id_ = entry.workload.id
        if waits and id_ not in self._until_s and _is_too_spread(entry):
            self._until_s[id_] = now_s + min(waits)

    def next_s(self) -> float:
        """Unix time at which a pass is due, whomever it asks about; inf: none is."""
        return min(self._until_s.values(), default=inf)

    def give_up(self, turn: Transaction) -> None:
        """Record what has waited long enough; to be called while no pass is open."""
        for id_, until_s in list(self._until_s.items()):
            entry = turn.ledger.entries.get(id_)
            waits = entry is not None and entry.state in _WAITS
            if waits and until_s > turn.now_s:
                continue
            del self._until_s[id_]
            if entry is not None and waits:
                jobs = tuple(replace(job, switches=0) for job in entry.workload.jobs)
                turn.record(Amended(at_s=turn.now_s, workloads=(id_,), jobs=jobs))


def reservation_begins_s(entry: WorkloadRecord, now_s: float) -> float:
    """When the first reservation begins for which sites have said that a job waits; inf: none."""
    begins = (
        reason.from_s + _CLOCKS_APART_S
        for refusal in entry.refusals.values()
        for reason in refusal.reasons
        if reason.code is ReasonCode.RESERVATION and reason.from_s + _CLOCKS_APART_S > now_s
    )
    return min(begins, default=inf)


def _is_too_spread(entry: WorkloadRecord) -> bool:
    reasons: Iterable[ReasonCode] = (
        reason.code for refusal in entry.refusals.values() for reason in refusal.reasons
    )
    return ReasonCode.SWITCHES in reasons
