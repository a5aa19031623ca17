"""The state that the parts of an agent's core share, and the effects they emit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, Protocol, TypeVar

from federator.agent.attempt_table import AttemptEvent, AttemptState
from federator.agent.base import Launched
from federator.agent.effects import AgentEffect, Leased, Send, WriteMark
from federator.agent.grace import Grace
from federator.agent.journal import JournalMark, JournalStep, MarkIndex
from federator.agent.observations import Now
from federator.model.reason import Reason
from federator.model.site import AttemptReport, Leave, SiteJobState
from federator.model.site_message import CancelOrder
from federator.model.tagged import Message
from federator.model.workload import AttemptId
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.wire.agent_protocol import LaunchOrder, PreemptOrder

SEEN_WITHIN_S: Final = 60.0  # of sbatch's answer a sweep shows a job, or it is forgotten
WATCH_FOR_S: Final = 8.0  # sweeps come in short order for so long after something was begun
_EffectT = TypeVar("_EffectT", bound=AgentEffect)


@dataclass(slots=True)
class OrderTurn:
    """An order that waits for its turn at an attempt, or has it.

    ``order``: None where somebody only asks what has become of the attempt.
    """

    order: LaunchOrder | CancelOrder | None
    obstacle: Reason | None = None  # of a launch: its plan did not fit when the order came
    abandoned: bool = False  # of a cancel: the attempt was given up for it


@dataclass(slots=True)
class AttemptRecord:
    """An attempt that something is done about."""

    attempt: AttemptId
    state: AttemptState
    turns: deque[OrderTurn] = field(default_factory=deque)  # the first one has its turn
    look_from: int = 0  # the first sweep whose result counts
    look_at_s: float = inf  # when to ask for the next one
    begun_s: float = -inf  # when this agent called sbatch
    job_id: int = 0  # that was found, but is not noted yet
    work_dir: str | None = None
    supposed: int = 0  # the job that accounts say lives
    leased: Leased | None = None
    fresh: bool = False  # sbatch has just named its job
    reason: Reason | None = None  # why it was given up
    grace: Grace | None = None
    evict_later: tuple[PreemptOrder, float] | None = None  # came at, while sbatch was on its way


class Looks(Protocol):
    """Looks at Slurm again."""

    def when_swept(self, then: Callable[[bool], None], /) -> None:
        """Call this after a sweep that begins from now on; with False if Slurm did not answer."""
        ...


class AgentMemory:
    """One agent's view of its site, and its outbox.

    Args:
        site: its name.
        index: the journal's memory.
        endings: how attempts ended, as far as this site has seen it.
        now: when the agent began.
        scheduler: of the site.
    """

    def __init__(
        self,
        site: str,
        index: MarkIndex,
        endings: Mapping[AttemptId, AttemptReport],
        now: Now,
        scheduler: SiteScheduler,
    ) -> None:
        self.site = site
        self.index = index
        self.endings = endings
        self.now = now
        self.began_s = now.elapsed_s  # an earlier agent was over, with all it had begun
        self.scheduler = scheduler
        self.known: dict[AttemptId, AttemptReport] = {}  # the attempts of the last sweep
        self.records: dict[AttemptId, AttemptRecord] = {}
        self.leaving: dict[AttemptId, AttemptRecord] = {}  # those that have a grace
        self.supposed: dict[int, Launched] = {}
        """Jobs that may be attempts that were begun, by their (leaders') ids."""
        self.accepted_lately: dict[AttemptId, tuple[str, int]] = {}
        """User and job id of those accepted since the last sweep began."""
        self.watch_until_s = -inf
        self.sweep_soon = False  # something is about to happen
        self.spool_trouble = ""  # why every launch would be declined
        self.ending = False  # the channel has: nothing new is begun
        self._out: list[AgentEffect] = []
        self._number = 0

    # ---- the outbox ----

    def number(self) -> int:
        """Return a new number for an effect."""
        self._number += 1
        return self._number

    def emit(self, effect: _EffectT) -> _EffectT:
        """Have an effect carried out."""
        self._out.append(effect)
        return effect

    def send(self, message: Message, otherwise: Message | None = None) -> None:
        """Tell the daemon."""
        self.emit(Send(message=message, otherwise=otherwise))

    def write(self, attempt: AttemptId, mark: JournalMark) -> int:
        """Remember a mark, durably; return the number that ``after`` takes."""
        # The core knows the mark at once; effects that rely on it name this number as ``after``.
        self.index.remember(attempt, mark)
        return self.emit(WriteMark(number=self.number(), attempt=attempt, mark=mark)).number

    def mark(self, attempt: AttemptId) -> JournalMark:
        """The last word on an attempt that there is one on."""
        mark = self.index.get(attempt)
        assert mark is not None
        return mark

    def note(self, attempt: AttemptId, **fields: Any) -> None:
        """Change the last word on an attempt, durably, if that is a change."""
        mark = self.mark(attempt)
        noted = replace(mark, **fields)
        if noted != mark:
            self.write(attempt, noted)

    def taken(self) -> list[AgentEffect]:
        """The effects since the last call."""
        out, self._out = self._out, []
        return out

    def watch(self) -> None:
        """Something is about to happen: sweep in short order for a while."""
        self.watch_until_s = self.now.elapsed_s + WATCH_FOR_S
        self.sweep_soon = True

    # ---- attempts ----

    def record(self, attempt: AttemptId) -> AttemptRecord:
        """The record of an attempt, made where there is none."""
        found = self.records.get(attempt)
        if found is None:
            found = AttemptRecord(attempt, self.state_of(attempt))
            self.records[attempt] = found
        return found

    def state_of(self, attempt: AttemptId) -> AttemptState:
        """The state of an attempt, by its record, or else by journal and sweep."""
        record, mark = self.records.get(attempt), self.index.get(attempt)
        if record is not None:
            return record.state
        if mark is None:
            return AttemptState.UNKNOWN
        if mark.step is not JournalStep.JOB:
            return AttemptState.INTENT if mark.step is JournalStep.INTENT else AttemptState.VOID
        return state_of_report(self.known.get(attempt))

    def forget_idle(self, attempt: AttemptId) -> None:
        """Drop a record whose state journal and sweep tell as well."""
        record = self.records.get(attempt)
        if record is None or record.turns or record.grace is not None:
            return
        if record.state in _KNOWN_ANYWAY and record.evict_later is None:
            del self.records[attempt]

    # ---- what follows from journal and sweep ----

    def is_over(self, attempt: AttemptId) -> bool:
        """Tell, after a sweep, whether an attempt can never start here (again).

        One that waits, runs or was put back may; one whose outcome is unknown too. A job that
        sbatch named since the sweep began, however long that takes, or a moment before may not be
        in it yet.
        """
        record = self.records.get(attempt)
        # sbatch named its job after the sweep had begun: that sweep proves nothing about it.
        if attempt in self.accepted_lately or (record and record.state is AttemptState.LEASING):
            return False
        mark, report = self.index.get(attempt), self.known.get(attempt)
        if mark is not None and mark.step is JournalStep.VOID:
            return True
        if report is not None:
            return report.state.ended
        if mark is None or mark.step is JournalStep.INTENT:
            return mark is None
        # slurmctld may show a new job late; until then "not shown" does not mean "over".
        return self.now.unix_s > mark.at_s + SEEN_WITHIN_S

    def live(self) -> dict[AttemptId, str]:
        """The users of those that have a job here that may start or run, by the last sweep."""
        return {
            a: report.user
            for a, report in self.known.items()
            if (mark := self.index.get(a)) is not None
            and mark.step is JournalStep.JOB
            and not mark.cancelled  # its lease is not made anew
            and not report.state.ended
        }

    def is_unnotified(self, attempt: AttemptId) -> bool:
        """Tell whether an attempt had a job that was never told to leave: it ended by itself."""
        mark = self.index.get(attempt)
        return mark is not None and mark.step is JournalStep.JOB and not mark.leave_by_s

    def with_leave(self, report: AttemptReport) -> AttemptReport:
        """A report, with how the attempt leaves if it was told to."""
        mark = self.index.get(report.attempt)
        if mark is None or not mark.told_at_s:
            return report
        leave = Leave(told_at_s=mark.told_at_s, saved_at_s=mark.saved_at_s, forced=mark.forced)
        return replace(report, leave=leave)


_KNOWN_ANYWAY = frozenset(
    {
        AttemptState.UNKNOWN,
        AttemptState.INTENT,
        AttemptState.SUBMITTED,
        AttemptState.RUNNING,
        AttemptState.ENDED,
        AttemptState.VOID,
    }
)


def state_of_report(report: AttemptReport | None) -> AttemptState:
    """The state of an attempt that has a job and is not told to leave."""
    if report is None or report.state is SiteJobState.PENDING:
        return AttemptState.SUBMITTED
    return AttemptState.ENDED if report.state.ended else AttemptState.RUNNING


def event_of_report(report: AttemptReport) -> AttemptEvent:
    """The event that a sweep makes of a report."""
    if report.state is SiteJobState.PENDING:
        return AttemptEvent.SHOWN_WAITING
    if report.state.ended:
        return AttemptEvent.SHOWN_ENDED
    return AttemptEvent.SHOWN_RUNNING
