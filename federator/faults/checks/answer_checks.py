"""Checks what users are answered: ids, keys and cancels."""

from __future__ import annotations

from collections.abc import Iterable

from federator.faults.checks.evidence import Evidence
from federator.model.workload import WorkloadId
from federator.sched.state.ledger import Ledger
from federator.wire.client_protocol import ErrorReply
from federator.wire.replies import Reply


class AnswerChecks:
    """Sees every answer that reaches a user.

    Args:
        evidence: of this history.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._id_of_key: dict[str, int] = {}
        self._refused: set[str] = set()

    def acknowledged(self, key: str, id_: int) -> None:
        self._evidence.tell(f"client {key}: it is {id_}")
        self._evidence.counts["acknowledged submissions"] += 1
        known = self._id_of_key.setdefault(key, id_)
        if known != id_:
            self._evidence.break_(f"key {key} was {known}, and is {id_} now")
        self._evidence.truth(WorkloadId(id_)).acked = key

    def refused(self, key: str, *, may_be_late: bool) -> None:
        """A client was told that it is not queued, and gave up: its deadline is too near."""
        self._evidence.tell(f"client {key}: it is refused")
        self._refused.add(key)
        if not may_be_late:
            self._evidence.break_(f"key {key} was refused, and asks for nothing that cannot be")

    def release_asked(self, id_: int, tasks: int) -> None:
        """A client releases what it had submitted on hold."""
        for k in range(max(1, tasks)):
            self._evidence.truth(WorkloadId(id_ + k)).release_asked = True

    def heard(self, id_: int, asked_at_s: float) -> None:
        """The command of an interactive job was answered: it was heard after it had asked."""
        self._evidence.truth(WorkloadId(id_)).heard_at_s = asked_at_s

    def died(self, id_: int) -> None:
        """The command of an interactive job says nothing any more."""
        self._evidence.tell(f"client: the command of {id_} dies")
        self._evidence.truth(WorkloadId(id_)).command_died_at_s = self._evidence.clock()

    def key_reused(self, key: str, id_: int) -> None:
        """Another submission with the same key was taken for the first one."""
        self._evidence.break_(
            f"key {key} of {self._id_of_key[key]} was used again, and answered with {id_}"
        )

    def forged(self, user: str, reply: Reply) -> None:
        """A site was answered that spoke for a user who is not of its map."""
        self._evidence.tell(f"a site speaks for {user}: {type(reply).__name__}")
        if not isinstance(reply, ErrorReply):
            self._evidence.break_(f"a site spoke for {user}, and was answered {reply}")

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
        for key in self._refused & ledger.keys.id_of.keys():
            self._evidence.break_(f"key {key} was refused, and is {ledger.keys.id_of[key]}")
