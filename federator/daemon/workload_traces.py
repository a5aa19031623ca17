"""Makes the spans of workloads from the records of the log, once these are durable.

It follows, as the metrics do: it is called with what has happened, and nothing depends on it. A
workload that was there before this term has the spans of what happens from now on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from federator.model.event import Awarded, Changed, LogRecord, Submitted
from federator.model.lifecycle import TERMINAL, WorkloadEvent, WorkloadState
from federator.model.message import (
    Command,
    Observation,
    SendTo,
    SiteDown,
    SiteSent,
    SubmitAsked,
)
from federator.model.reason import Refusal
from federator.model.site_message import Ask, BidsMade
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.round import PassSummary
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.traces.span import Tell, TracedSpan, Value, launch_key

log = structlog.get_logger()

MOST_CALLS: Final = 10_000  # that are remembered while they wait; the oldest go
_ENDS: Final = {
    WorkloadEvent.DECLINED,
    WorkloadEvent.WITHDRAWN,
    WorkloadEvent.NODE_FAILED,
    WorkloadEvent.SITE_PREEMPTED,
    WorkloadEvent.CHECKPOINTED,
    WorkloadEvent.COMPLETED,
    WorkloadEvent.FAILED,
    WorkloadEvent.TIMED_OUT,
    WorkloadEvent.LOST,
    WorkloadEvent.DEADLINE_PASSED,
    WorkloadEvent.PREEMPTED,
    WorkloadEvent.LIMIT_STRUCK,
    WorkloadEvent.GREW_IN_VAIN,
    WorkloadEvent.CANCELLED,
}
"""An attempt is over."""
_ERRORS: Final = {
    WorkloadEvent.DECLINED,
    WorkloadEvent.NODE_FAILED,
    WorkloadEvent.FAILED,
    WorkloadEvent.TIMED_OUT,
    WorkloadEvent.LOST,
    WorkloadEvent.DEADLINE_PASSED,
    WorkloadEvent.GREW_IN_VAIN,
}


def spans_dropped(detail: str) -> None:
    """Say that nobody takes them."""
    log.warning("traces_dropped", detail=detail)


class _Answer(NamedTuple):
    """What a site said of one workload."""

    asked_s: float
    came_s: float
    refusal: Refusal | None


@dataclass(slots=True)
class _Attempt:
    """One attempt that is not over; times are Unix times, 0: not yet."""

    number: int
    site: str
    awarded_s: float
    durable_s: float
    accepted_s: float = 0.0
    started_s: float = 0.0


class WorkloadTraces:
    """The traces of one term.

    Args:
        ledger: read for what a record does not say itself.
        tell: takes the spans.
        clock: Unix time, as records have it.
    """

    def __init__(self, ledger: Ledger, tell: Tell, clock: Callable[[], float]) -> None:
        self._ledger, self._tell, self._clock = ledger, tell, clock
        self._came: dict[str, float] = {}  # calls by their submit keys
        self._pass_began_s = 0.0
        self._asked: dict[SiteName, tuple[int, float]] = {}
        self._answers: dict[WorkloadId, dict[SiteName, _Answer]] = {}
        self._attempts: dict[WorkloadId, _Attempt] = {}
        self._back_s: dict[WorkloadId, float] = {}  # since when it waits anew

    # ---- what comes in ----

    def arrived(self, observation: Observation) -> None:
        """An observation waits to be decided on."""
        if isinstance(observation, SubmitAsked) and not observation.test_only:
            if len(self._came) >= MOST_CALLS:
                del self._came[next(iter(self._came))]
            self._came.setdefault(observation.key, self._clock())

    def decided(
        self,
        observation: Observation,
        commands: Sequence[Command],
        last: PassSummary | None,
        now_s: float,
    ) -> None:
        """The core has decided; ``last``: the pass that is open by now, or was the last."""
        if isinstance(observation, SiteSent):
            if isinstance(observation.message, BidsMade):
                self._bids_came(observation.site, observation.message, now_s)
        elif isinstance(observation, SiteDown):
            self._asked.pop(observation.site, None)
        if last is not None and last.began_s != self._pass_began_s:
            self._pass_began_s = last.began_s
            self._answers = {}
        for command in commands:
            if isinstance(command, SendTo) and isinstance(command.message, Ask):
                self._asked[command.site] = (command.message.pass_id, now_s)

    def _bids_came(self, site: SiteName, came: BidsMade, now_s: float) -> None:
        pass_id, asked_s = self._asked.pop(site, (0, 0.0))
        if pass_id != came.pass_id:
            return  # too late
        for each in came.answers:
            answer = _Answer(asked_s, now_s, each.refusal)
            self._answers.setdefault(each.id, {})[site] = answer

    # ---- what is durable ----

    def recorded(self, events: Sequence[LogRecord]) -> None:
        """These are durable, and applied to the ledger."""
        try:
            self._follow(events)
        except Exception:  # a fault of ours must not end the turn
            log.exception("traces_fault")

    def _follow(self, events: Sequence[LogRecord]) -> None:
        now_s = self._clock()
        last = {e.workload: number for number, e in enumerate(events) if isinstance(e, Changed)}
        for number, event in enumerate(events):
            if isinstance(event, Submitted):
                self._submitted(event, now_s)
            elif isinstance(event, Awarded):
                self._awarded(event, now_s)
            elif isinstance(event, Changed):
                self._changed(event, is_last=last[event.workload] == number)

    def _submitted(self, event: Submitted, now_s: float) -> None:
        began_s = self._came.pop(event.key, event.at_s)
        tasks = len(event.draft.array_indices) or 1
        about: dict[str, Value] = {"federator.tasks": tasks}
        self._tell(TracedSpan(event.first_id, "submit", "submit", began_s, now_s, attributes=about))

    def _awarded(self, event: Awarded, now_s: float) -> None:
        id_, number = event.attempt.workload, event.attempt.attempt
        entry = self._ledger.entries.get(id_)
        self._attempts[id_] = _Attempt(number, event.site, event.at_s, now_s)
        since_s = self._back_s.pop(id_, 0.0)
        if not since_s:
            since_s = entry.queued_since_s if entry is not None else event.at_s
        about: dict[str, Value] = {"federator.attempt": number}
        wait, pass_ = f"wait/{number}", f"pass/{number}"
        self._tell(TracedSpan(id_, "wait", wait, since_s, event.at_s, attributes=about))
        answers = self._answers.pop(id_, {})
        if answers:
            began_s = min(self._pass_began_s, *(each.asked_s for each in answers.values()))
            self._tell(TracedSpan(id_, "pass", pass_, began_s, event.at_s, wait, about))
        for site, answer in answers.items():
            self._tell(_bid(event, site, answer, pass_))
        about = about | {
            "federator.site": event.site,
            "federator.within_quota": event.within_quota,
            "federator.priority": event.priority,
            "federator.victims": len(event.victims),
        }
        attempt = f"attempt/{number}"
        self._tell(TracedSpan(id_, "award", f"award/{number}", event.at_s, now_s, attempt, about))

    def _changed(self, event: Changed, *, is_last: bool) -> None:
        id_, entry = event.workload, self._ledger.entries.get(event.workload)
        attempt = self._attempt(event, entry)
        if attempt is not None:
            self._step(event, attempt)
            if event.happening in _ENDS:
                self._over(event, attempt)
        if is_last and entry is not None and entry.state in TERMINAL:
            self._back_s.pop(id_, None)
            self._answers.pop(id_, None)
            self._tell(_root(entry, event))

    def _attempt(self, event: Changed, entry: WorkloadRecord | None) -> _Attempt | None:
        """The attempt that it befell; one of an earlier term as the ledger has it."""
        found = self._attempts.get(event.workload)
        award = entry.award if entry is not None else None
        if found is None and award is not None and entry is not None and event.attempt:
            found = _Attempt(award.attempt.attempt, award.site, award.at_s, award.at_s)
            found.started_s = entry.started_at_s
            self._attempts[event.workload] = found
        return found if found is not None and found.number == event.attempt else None

    def _step(self, event: Changed, attempt: _Attempt) -> None:
        id_, number = event.workload, attempt.number
        about: dict[str, Value] = {"federator.attempt": number, "federator.site": attempt.site}
        around = f"attempt/{number}"
        if event.site_job_id:
            about["slurm.job_id"] = event.site_job_id
        if event.happening in (WorkloadEvent.ACCEPTED, WorkloadEvent.DECLINED):
            attempt.accepted_s = event.at_s
            error = _words(event) if event.happening is WorkloadEvent.DECLINED else ""
            key, since_s = launch_key(number), attempt.durable_s
            self._tell(TracedSpan(id_, "launch", key, since_s, event.at_s, around, about, error))
        elif event.happening is WorkloadEvent.STARTED:
            attempt.started_s = event.started_at_s or event.at_s
            since_s = min(attempt.accepted_s or attempt.durable_s, attempt.started_s)
            key = f"start/{number}"
            self._tell(TracedSpan(id_, "start", key, since_s, attempt.started_s, around, about))

    def _over(self, event: Changed, attempt: _Attempt) -> None:
        id_, number = event.workload, attempt.number
        del self._attempts[id_]
        self._back_s[id_] = event.at_s
        about: dict[str, Value] = {
            "federator.attempt": number,
            "federator.site": attempt.site,
            "federator.step": event.happening.name.lower(),
        }
        if event.site_state:
            about["slurm.state"] = event.site_state
        error = _words(event) if event.happening in _ERRORS else ""
        around = f"attempt/{number}"
        started_s = event.started_at_s or attempt.started_s
        if started_s:
            ended_s = event.ended_at_s or event.at_s
            if event.happening in (WorkloadEvent.COMPLETED, WorkloadEvent.FAILED):
                about |= {"slurm.exit_code": event.exit_code, "slurm.signal": event.signal}
            key = f"run/{number}"
            self._tell(TracedSpan(id_, "run", key, started_s, ended_s, around, about, error))
        began_s = attempt.awarded_s
        self._tell(TracedSpan(id_, "attempt", around, began_s, event.at_s, "", about, error))


def _bid(event: Awarded, site: SiteName, answer: _Answer, around: str) -> TracedSpan:
    """A site's answer in the pass that awarded it."""
    about: dict[str, Value] = {"federator.site": site, "federator.won": site == event.site}
    if answer.refusal is not None:
        about["federator.refusal"] = answer.refusal.reasons[0].code.value
    elif site in event.offers:
        terms = event.named_offers[site]
        about |= {f"federator.score.{name}": value for name, value in terms.items()}
    key = f"bid/{event.attempt.attempt}/{site}"
    id_ = event.attempt.workload
    return TracedSpan(id_, "bid", key, answer.asked_s, answer.came_s, around, about)


def _root(entry: WorkloadRecord, event: Changed) -> TracedSpan:
    """All of a life that has ended."""
    workload = entry.workload
    about: dict[str, Value] = {
        "federator.tenant": workload.tenant,
        "federator.user": workload.user,
        "federator.name": workload.name,
        "federator.gpus": sum(job.total_gpus for job in workload.jobs),
        "federator.state": entry.state.value,
        "federator.attempts": entry.attempt,
    }
    bad = entry.state in (WorkloadState.FAILED, WorkloadState.TIMEOUT)
    error = _words(event) if bad else ""
    began_s = workload.submitted_at_s
    return TracedSpan(workload.id, "workload", "", began_s, event.at_s, None, about, error)


def _words(event: Changed) -> str:
    said = event.reason.code.value if event.reason is not None else ""
    return " ".join(filter(None, (event.happening.value, said)))
