"""Looks for an attempt whose sbatch was begun, until it is certain whether that has made a job.

By sweeps for as long as an sbatch may take, by a clock that is never set; then by the hooks, which
note the job that used its lease; then, without its lease, by one more sweep and by sacct.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Final

from federator.agent.attempt_table import Act, AttemptEvent, AttemptState
from federator.agent.base import Launched, Missing
from federator.agent.effects import AskAccounts, Failure, FindBoundJob, Release
from federator.agent.journal import JournalMark, JournalStep
from federator.agent.memory import AgentMemory, AttemptRecord
from federator.agent.steps import Steps
from federator.agent.sweeping import Sweeper
from federator.model.site import AttemptReport
from federator.model.workload import AttemptId

INTENT_HORIZON_S: Final = 45.0  # an sbatch older than this has succeeded or never will:
# the helper calls it within 12 s or not at all, and ends it after 30 s
LOOK_EVERY_S: Final = 1.0
SEARCHED_BY_SWEEPS: Final = (
    AttemptState.LOOKING,
    AttemptState.LAST_LOOK,
    AttemptState.CONFIRMING,
)


class LostSbatchSearch:
    """The way from an intent to its outcome.

    Args:
        memory: shared.
        steps: moves attempts.
        sweeper: looks again.
    """

    def __init__(self, memory: AgentMemory, steps: Steps, sweeper: Sweeper) -> None:
        self._memory = memory
        self._steps = steps
        self._sweeper = sweeper
        steps.add(
            {
                Act.LOOK: self._look,
                Act.LOOK_LATER: self._look_later,
                Act.ASK_HOOKS: self._ask_hooks,
                Act.WITHDRAW: self._withdraw,
                Act.ASK_ACCOUNTS: self._ask_accounts,
                Act.SUPPOSE: self._suppose,
                Act.NOTE_FOUND: self._note_found,
                Act.NOTE_LATE: self._note_late,
            }
        )

    # ---- sweeps ----

    def _look(self, record: AttemptRecord) -> None:
        # Only a sweep that begins from now on counts: the one under way may have read squeue
        # before sbatch's job was there.
        record.look_from = self._sweeper.next_number
        self._sweeper.want()

    def _look_later(self, record: AttemptRecord) -> None:
        record.look_at_s = self._memory.now.elapsed_s + LOOK_EVERY_S

    def wake(self) -> None:
        """Ask for the sweeps that are due."""
        for record in list(self._memory.records.values()):
            if record.look_at_s <= self._memory.now.elapsed_s:
                record.look_at_s = inf
                if record.state in SEARCHED_BY_SWEEPS:
                    self._look(record)

    def next_s(self) -> float:
        """The time at which ``wake`` is to be called."""
        return min((r.look_at_s for r in self._memory.records.values()), default=inf)

    def swept(self, record: AttemptRecord, number: int, *, saw: bool) -> None:
        """A sweep has ended that does not show an attempt that is searched for."""
        if record.state not in SEARCHED_BY_SWEEPS or not 0 < record.look_from <= number:
            return
        record.look_from = 0
        event = AttemptEvent.MISSED if saw else AttemptEvent.BLIND
        if record.state is AttemptState.LOOKING and self._sbatch_is_over(record):
            event = AttemptEvent.HORIZON_OVER
        self._steps.step(record, event)

    def _sbatch_is_over(self, record: AttemptRecord) -> bool:
        # The horizon counts from the start of this agent at the latest: an earlier one may have
        # called sbatch at its very end.
        begun_s = max(record.begun_s, self._memory.began_s)
        return self._memory.now.elapsed_s > begun_s + INTENT_HORIZON_S

    # ---- hooks, lease and accounts ----

    def _ask_hooks(self, record: AttemptRecord) -> None:
        user = self._intent(record).user
        self._memory.emit(
            FindBoundJob(number=self._memory.number(), attempt=record.attempt, user=user)
        )

    def bound(self, effect: FindBoundJob, job_id: int | Failure | None) -> None:
        """The hooks name the job that used its lease; 0: none did; None: they cannot say."""
        record = self._memory.records.get(effect.attempt)
        if record is None:
            return
        job_id = None if isinstance(job_id, Failure) else job_id
        # A sweep may have found the job while the hooks were asked; its answer stands.
        if record.state is AttemptState.ASKING_HOOKS and job_id:
            record.job_id = job_id
        if job_id is None:
            self._steps.step(record, AttemptEvent.HOOKS_SILENT)
        else:
            self._steps.step(record, AttemptEvent.BOUND if job_id else AttemptEvent.UNBOUND)

    def _withdraw(self, record: AttemptRecord) -> None:
        self._memory.emit(Release(number=self._memory.number(), attempt=record.attempt))

    def released(self, effect: Release, done: bool | Failure) -> None:
        """Its lease is gone, or could not be removed."""
        record = self._memory.records.get(effect.attempt)
        if record is not None:
            event = AttemptEvent.RELEASED if done is True else AttemptEvent.NOT_RELEASED
            self._steps.step(record, event)

    def _ask_accounts(self, record: AttemptRecord) -> None:
        intent = self._intent(record)
        missing = Missing(attempt=record.attempt, user=intent.user, submitted_at_s=intent.at_s)
        self._memory.emit(AskAccounts(number=self._memory.number(), missing=(missing,)))

    def accounted(self, effect: AskAccounts, found: Mapping[AttemptId, AttemptReport]) -> None:
        """Take sacct's answer about the attempt that it was asked for."""
        attempt = effect.missing[0].attempt
        record, report = self._memory.records.get(attempt), found.get(attempt)
        if record is None:
            return
        if report is None:
            self._steps.step(record, AttemptEvent.UNACCOUNTED)
            return
        if record.state is AttemptState.ACCOUNTING:
            record.job_id = report.site_job_id
        ended = report.state.ended
        self._steps.step(record, AttemptEvent.ACCOUNTS_END if ended else AttemptEvent.ACCOUNTS_LIVE)

    def _suppose(self, record: AttemptRecord) -> None:
        """Of jobs that slurmctld has lost accounts say that they run: is it shown, by any name?"""
        intent = self._intent(record)
        record.supposed = record.job_id
        # Later sbatch cannot have reached slurmctld; a job of this id that was submitted after
        # that is another's.
        at_s = intent.at_s + INTENT_HORIZON_S
        ours = Launched(attempt=record.attempt, user=intent.user, at_s=at_s)
        self._memory.supposed[record.job_id] = ours
        self._look(record)

    # ---- what was found ----

    def _note_found(self, record: AttemptRecord) -> None:
        """By a sweep: it is there now."""
        job_id = self._memory.known[record.attempt].site_job_id
        self._note(record, job_id, self._memory.now.unix_s)

    def _note_late(self, record: AttemptRecord) -> None:
        """By what it has left; Slurm may have forgotten it, and have given its id to another."""
        self._note(record, record.job_id, self._intent(record).at_s + INTENT_HORIZON_S, late=True)

    def _note(self, record: AttemptRecord, job_id: int, at_s: float, *, late: bool = False) -> None:
        self._memory.supposed.pop(record.supposed, None)
        intent = self._intent(record)
        found = replace(intent, step=JournalStep.JOB, job_id=job_id, at_s=at_s, late=late)
        self._memory.write(record.attempt, found)

    def _intent(self, record: AttemptRecord) -> JournalMark:
        mark = self._memory.index.get(record.attempt)
        assert mark is not None
        return mark
