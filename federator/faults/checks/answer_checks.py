"""Checks what users are answered: ids, keys and cancels."""

from __future__ import annotations

from collections.abc import Iterable

from federator.faults.checks.evidence import Evidence
from federator.model.workload import WorkloadId
from federator.sched.state.ledger import Ledger


class AnswerChecks:
    """Sees every answer that reaches a user.

    Args:
        evidence: of this history.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._id_of_key: dict[str, int] = {}

    def acknowledged(self, key: str, id_: int) -> None:
        self._evidence.tell(f"client {key}: it is {id_}")
        self._evidence.counts["acknowledged submissions"] += 1
        known = self._id_of_key.setdefault(key, id_)
        if known != id_:
            self._evidence.break_(f"key {key} was {known}, and is {id_} now")
        self._evidence.truth(WorkloadId(id_)).acked = key

    def key_reused(self, key: str, id_: int) -> None:
        """Another submission with the same key was taken for the first one."""
        self._evidence.break_(
            f"key {key} of {self._id_of_key[key]} was used again, and answered with {id_}"
        )

    def cancel_asked(self, id_: int) -> None:
        """A client wants it to end; it may not learn that it was heard."""
        self._evidence.truth(WorkloadId(id_)).cancel_asked = True

    def cancelled(self, ids: Iterable[int]) -> None:
        for id_ in ids:
            truth = self._evidence.truth(WorkloadId(id_))
            self._evidence.tell(f"client: {id_} is cancelled")
            self._evidence.counts["acknowledged cancels"] += 1
            if not truth.cancel_acked:
                truth.cancel_acked, truth.attempt_at_cancel = True, truth.last_attempt
                truth.cancel_acked_at_s = self._evidence.clock()

    def check_acknowledged(self, ledger: Ledger) -> None:
        """After a start from the log: whatever was acknowledged is known, under the same key."""
        for key, id_ in self._id_of_key.items():
            array = self._evidence.arrays.get(WorkloadId(id_))
            ids = array.tasks if array is not None else (WorkloadId(id_),)
            if ledger.keys.id_of.get(key) != id_ or not all(i in ledger.entries for i in ids):
                self._evidence.break_(f"key {key} was acknowledged as {id_}, and is lost")
