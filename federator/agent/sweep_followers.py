"""Passes on what a sweep shows: every attempt takes the step that follows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from federator.agent.attempt_table import HAS_JOB, AttemptEvent
from federator.agent.evictions import Evictions
from federator.agent.folders import CheckpointTimes
from federator.agent.journal import JournalStep
from federator.agent.lost_sbatch import LostSbatchSearch
from federator.agent.memory import AgentMemory, AttemptRecord, event_of_report
from federator.agent.steps import Steps
from federator.agent.sweeping import Completing
from federator.agent.vanished import Vanished
from federator.model.site import RunningJob
from federator.model.workload import AttemptId


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFollowers:
    """The parts of a core that a sweep concerns (``sweeping.Followers``)."""

    memory: AgentMemory
    steps: Steps
    search: LostSbatchSearch
    evictions: Evictions
    gone: Vanished
    saves: CheckpointTimes
    completes: tuple[Completing, ...]  # in the order in which they add to reports

    def completing(self) -> Iterable[Completing]:
        """The parts that add to reports, in their order."""
        return self.completes

    def swept(self, number: int) -> None:
        """Every attempt takes the step that the sweep shows."""
        memory = self.memory
        for attempt in list(memory.known):
            mark = memory.index.get(attempt)
            if (
                mark is not None
                and mark.step is JournalStep.INTENT
                and attempt not in memory.records
            ):
                self._step_as_shown(memory.record(attempt), number)
                memory.forget_idle(attempt)
        for record in list(memory.records.values()):
            self._step_as_shown(record, number)
            memory.forget_idle(record.attempt)
        self.evictions.swept()
        self.gone.swept()

    def _step_as_shown(self, record: AttemptRecord, number: int) -> None:
        report = self.memory.known.get(record.attempt)
        if report is not None:
            self.steps.step(record, event_of_report(report))
        elif record.state in HAS_JOB:
            self.steps.step(record, AttemptEvent.MISSED)
        else:
            self.search.swept(record, number, saw=True)

    def blind(self, number: int) -> None:
        """Whoever waits for a sweep waits for the next one."""
        for record in list(self.memory.records.values()):
            self.search.swept(record, number, saw=False)

    def running(self, jobs: Iterable[RunningJob]) -> list[RunningJob]:
        """The same jobs, with when they were last saved; folders are looked into in passing."""
        self.saves.refresh()
        return self.saves.complete(jobs)

    def vanished(self, attempts: tuple[AttemptId, ...]) -> None:
        """Tell how they ended."""
        self.gone.tell(attempts)
