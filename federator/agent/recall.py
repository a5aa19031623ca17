"""Answers a queue that has forgotten, or is not sure, with all that this site knows of attempts.

All of them, or those asked for: whether each is here, how it stands or how it ended. What is under
way is waited for, so that the answer is certain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from federator.agent.effects import SendRemembered
from federator.agent.journal import JournalMark, JournalStep
from federator.agent.memory import AgentMemory
from federator.agent.sweeping import Sweeper
from federator.agent.vanished import Endings, Vanished
from federator.model.site import AttemptReport
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import RecoverAsk, RecoverDone, RememberedAttempt


@dataclass(slots=True)
class _Question:
    ask: RecoverAsk
    known_before: set[AttemptId]  # who is given up meanwhile was not known
    attempts: list[AttemptId]
    waits_for: set[AttemptId] = field(default_factory=set)


class Recall:
    """``RecoverAsk``, answered.

    Args:
        memory: shared.
        sweeper: looks again.
        vanished: knows how attempts ended.
        settle: finds out what has become of an attempt, and says so; False: that is known.
    """

    def __init__(
        self,
        memory: AgentMemory,
        sweeper: Sweeper,
        vanished: Vanished,
        settle: Callable[[AttemptId], bool],
    ) -> None:
        self._memory = memory
        self._sweeper = sweeper
        self._vanished = vanished
        self._settle = settle
        self._questions: list[_Question] = []

    def ask(self, ask: RecoverAsk) -> None:
        """Look first, then wait for what is under way."""
        self._sweeper.when_swept(lambda ok: self._begin(ask, ok=ok))

    def _begin(self, ask: RecoverAsk, *, ok: bool) -> None:
        if not ok:
            detail = "slurmctld does not answer"
            self._memory.send(RecoverDone(ask_id=ask.ask_id, last=True, detail=detail))
            return
        marks = self._memory.index.marks()
        question = _Question(ask, set(marks), list(ask.attempts or marks))
        self._questions.append(question)
        for attempt in question.attempts:
            if self._settle(attempt):
                question.waits_for.add(attempt)
        if not question.waits_for:
            self._tell(question)

    def settled(self, attempt: AttemptId) -> None:
        """Note that an attempt's fate is certain."""
        for question in list(self._questions):
            if attempt in question.waits_for:
                question.waits_for.discard(attempt)
                if not question.waits_for:
                    self._tell(question)

    def _tell(self, question: _Question) -> None:
        memory = self._memory
        self._questions.remove(question)
        marks = {a: m for a in question.attempts if (m := memory.index.get(a)) is not None}
        hidden = [a for a in marks if a not in memory.known]
        self._vanished.endings_of(hidden, lambda found: self._send(question, marks, found))

    def _send(
        self, question: _Question, marks: dict[AttemptId, JournalMark], found: Endings
    ) -> None:
        memory, ask = self._memory, question.ask
        reports = {a: memory.known[a] for a in marks if a in memory.known} | {**found}
        reports = {r.attempt: r for r in memory.index.located(reports.values())}
        kept = [
            _kept(a, mark, reports.get(a), unnotified=memory.is_unnotified(a))
            for a, mark in marks.items()
        ]
        if not ask.attempts:
            kept += self._unmarked()
        effect = SendRemembered(ask_id=ask.ask_id, kept=tuple(kept))

        def answer() -> None:
            memory.emit(effect)

        unknown = [a for a in ask.attempts if a not in question.known_before]
        self._vanished.tell(unknown, answer)

    def _unmarked(self) -> list[RememberedAttempt]:
        """Live attempts that the journal does not know (any more): they must not run elsewhere too.

        Its comment alone names it, so its user may have made it up; an order of that user tells.
        """
        memory = self._memory
        return [
            RememberedAttempt(
                attempt=a, user=report.user, site_job_id=report.site_job_id, report=report
            )
            for a, report in memory.known.items()
            if memory.index.get(a) is None and not report.state.ended
        ]


def _kept(
    attempt: AttemptId, mark: JournalMark, report: AttemptReport | None, *, unnotified: bool
) -> RememberedAttempt:
    return RememberedAttempt(
        attempt=attempt,
        user=mark.user,
        site_job_id=mark.job_id,
        void=mark.step is JournalStep.VOID,
        withdrawn=mark.withdrawn,
        cancelled=mark.cancelled,
        report=report,
        unnotified=unnotified,
    )
