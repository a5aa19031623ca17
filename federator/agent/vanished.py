"""Tells the daemon of jobs that Slurm does not show any more: how they ended, if that is known.

The agent may have seen it itself, before a channel broke, say; or Slurm's accounting has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from federator.agent.base import Missing
from federator.agent.effects import AskAccounts
from federator.agent.journal import JournalStep
from federator.agent.memory import AgentMemory
from federator.model.site import AttemptReport
from federator.model.site_message import Report
from federator.model.workload import AttemptId

Endings = Mapping[AttemptId, AttemptReport]


class _Asked(NamedTuple):
    found: Endings  # without the accounts
    then: Callable[[Endings], None]


class Vanished:
    """Questions about attempts that no sweep shows.

    Args:
        memory: shared.
    """

    def __init__(self, memory: AgentMemory) -> None:
        self._memory = memory
        self._doubtful: set[AttemptId] = set()  # were to end; the next sweep may not show them
        self._asked: dict[int, _Asked] = {}

    def expect_end(self, attempt: AttemptId) -> None:
        """It was to end: what is not seen any more has ended, or its user has renamed it."""
        self._doubtful.add(attempt)

    def swept(self) -> None:
        """Tell of those in doubt that the sweep should show and does not."""
        memory, doubtful = self._memory, self._doubtful
        self._doubtful = set()
        gone = [a for a in doubtful if a not in memory.known and memory.is_over(a)]
        if gone:
            self.tell(gone)

    def tell(self, attempts: Iterable[AttemptId], then: Callable[[], None] = lambda: None) -> None:
        """Report how they ended, or that they are gone."""
        missing = [a for a in attempts if a not in self._memory.known]

        def report(found: Endings) -> None:
            self._report(missing, found)
            then()

        self.endings_of(missing, report)

    def _report(self, missing: Iterable[AttemptId], found: Endings) -> None:
        attempts = [a for a in missing if a not in self._memory.known]  # a later sweep may show it
        if not attempts:
            return
        for attempt in attempts:
            self._memory.scheduler.release(attempt)
        ends = self._memory.index.located(found[a] for a in attempts if a in found)
        gone = tuple(a for a in attempts if a not in found)
        unnotified = tuple(a for a in gone if self._memory.is_unnotified(a))
        freed = self._memory.scheduler.freed
        self._memory.send(Report(attempts=ends, gone=gone, unnotified=unnotified, freed=freed))

    def endings_of(self, attempts: Iterable[AttemptId], then: Callable[[Endings], None]) -> None:
        """Find out how attempts ended, as far as anybody here can tell."""
        memory, attempts = self._memory, list(attempts)
        found = {a: memory.endings[a] for a in attempts if a in memory.endings}
        missing = tuple(
            Missing(attempt=a, user=mark.user, submitted_at_s=mark.at_s, job_id=mark.job_id)
            for a in attempts
            if a not in found
            and (mark := memory.index.get(a)) is not None
            and mark.step is JournalStep.JOB
        )
        if not missing:
            then(found)
            return
        number = memory.number()
        self._asked[number] = _Asked(found, then)
        memory.emit(AskAccounts(number=number, missing=missing))

    def accounted(self, number: int, found: Endings) -> bool:
        """Sacct has answered; False: this was not asked here."""
        asked = self._asked.pop(number, None)
        if asked is None:
            return False
        asked.then({**asked.found, **found})
        return True
