"""Makes mails of records, once these are durable: one for each event, if its job asks for one.

What is mailed of a job is what ``--mail-type`` names. An array is mailed as a whole, as with Slurm:
when its first task begins and when its last has ended, unless ``ARRAY_TASKS`` is given.

What must be known of earlier records is read from the ledger when a daemon begins to lead. So no
event is mailed twice over a restart, and one whose daemon dies before it was mailed is not mailed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from msgspec import Raw

from federator.config_mail import MailConfig
from federator.daemon.mail.letters import Letter, MailEvent, array_letter, job_letter
from federator.model.event import Awarded, Changed, LogRecord
from federator.model.lifecycle import TERMINAL, WorkloadEvent, WorkloadState
from federator.model.reason import Reason, ReasonCode
from federator.model.submission import unpack_submission
from federator.model.workload import SiteName, Workload, WorkloadId
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.slurm.options.mail_option import SPELLED, MailWish, wish_of

REPEATED_S: Final = 3600.0  # of the tasks of an array one mail of a kind in this time
_WISHES: Final = 4096  # kept, of arrays above all

_S, _H = WorkloadState, WorkloadEvent
_LEAVES: Final = frozenset({_H.EVICTED, _H.REQUEUE_ASKED, _H.LIMIT_NEAR})
_RETURNS: Final = frozenset(
    {
        *(_H.WITHDRAWN, _H.SITE_REQUEUED, _H.NODE_FAILED, _H.SITE_PREEMPTED),
        *(_H.CHECKPOINTED, _H.PREEMPTED, _H.LIMIT_STRUCK, _H.LOST, _H.GREW_IN_VAIN),
    }
)
_MOVES: Final = frozenset({ReasonCode.DRAINED, ReasonCode.WRITTEN_OFF})
_NONE: Final = MailWish(types=frozenset())


class _Kept(NamedTuple):
    submission: Raw
    wish: MailWish


class LetterWriter:
    """What is to be mailed.

    Args:
        ledger: read; records are applied to it before they come here.
        config: says what users are called.
    """

    def __init__(self, ledger: Ledger, config: MailConfig) -> None:
        self._ledger = ledger
        self._config = config
        self._wishes: dict[WorkloadId, _Kept] = {}
        self._from: dict[WorkloadId, SiteName] = {}  # where one that is to start ran before
        self._since: dict[WorkloadId, float] = {}  # Unix time of the start of those that run
        self._why: dict[WorkloadId, Reason | None] = {}  # of those that leave
        self._starts: set[WorkloadId] = set()  # by the records at hand
        self._begun: set[WorkloadId] = set()  # arrays
        self._live: dict[WorkloadId, set[WorkloadId]] = {}  # tasks of arrays that begin to end
        self._repeated: dict[tuple[WorkloadId, str], float] = {}
        for entry in ledger.in_state(_S.AWARDED, _S.LAUNCHING):
            self._awarded(entry, entry.site)
        for entry in ledger.in_state(_S.RUNNING, _S.PREEMPTING, _S.CANCELLING):
            if entry.started_at_s and self._wish(entry.workload).types:
                self._since[entry.workload.id] = entry.started_at_s
                self._why[entry.workload.id] = entry.reason

    def of(self, records: Sequence[LogRecord]) -> list[Letter]:
        """The mails of records that were appended together."""
        changes = [record for record in records if isinstance(record, Changed)]
        last = {record.workload: record for record in changes}
        self._starts = {r.workload for r in changes if r.happening is _H.STARTED}
        if len(self._live) >= _WISHES:
            self._live = {id_: live for id_, live in self._live.items() if live}
        return [letter for record in records for letter in self._of(record, last)]

    def _of(self, record: LogRecord, last: Mapping[WorkloadId, Changed]) -> Iterator[Letter]:
        if isinstance(record, Awarded):
            entry = self._ledger.entries.get(record.attempt.workload)
            if entry is not None:
                self._awarded(entry, SiteName(record.site))
        elif isinstance(record, Changed):
            entry = self._ledger.entries.get(record.workload)
            wish = self._wish(entry.workload) if entry is not None else _NONE
            if entry is not None and wish.types:
                ends = entry.state in TERMINAL and last[record.workload] is record
                change = self._end if ends else self._changed
                yield from change(record, entry, wish)

    def _awarded(self, entry: WorkloadRecord, site: SiteName) -> None:
        self._from.pop(entry.workload.id, None)
        array = entry.workload.array
        # It ran before: in another daemon's time, or its array is known to have begun.
        if array is not None and entry.ran_at and entry.workload.id not in self._starts:
            self._begun.add(array.array_id)
        if entry.ran_at and entry.ran_at != site and self._wish(entry.workload).types:
            self._from[entry.workload.id] = entry.ran_at

    def _changed(self, record: Changed, entry: WorkloadRecord, wish: MailWish) -> Iterator[Letter]:
        id_ = record.workload
        if record.happening is _H.STARTED:
            self._since[id_] = record.started_at_s or record.at_s
            yield from self._start(record, entry, wish)
        elif record.happening in _LEAVES:
            self._why[id_] = record.reason
        elif record.happening in _RETURNS and id_ in self._since:
            yield from self._requeue(record, entry, wish)

    def _start(self, record: Changed, entry: WorkloadRecord, wish: MailWish) -> Iterator[Letter]:
        before = self._from.pop(record.workload, "")
        if before and "NEW_SITE" in wish.types:
            details = f"Started at {entry.site}, after {before}"
            yield from self._of_many(MailEvent("NEW_SITE", details), record, entry, wish)
        elif "BEGIN" in wish.types:
            queued_s = self._since[record.workload] - entry.queued_since_s
            details = f"Began, Queued time {_span(queued_s)}"
            if entry.workload.array is None or wish.each_task:
                yield job_letter(MailEvent("BEGIN", details), entry, self._to(entry, wish))
            elif self._is_first(entry.workload.array.array_id):
                yield array_letter(MailEvent("BEGIN", "Began"), entry, self._to(entry, wish))

    def _is_first(self, array_id: WorkloadId) -> bool:
        """Whether no other task of an array has begun before."""
        if array_id in self._begun:
            return False
        self._begun.add(array_id)
        others = (id_ for id_ in self._tasks(array_id) if id_ not in self._starts)
        return not any(self._ledger.entries[id_].ran_at for id_ in others)

    def _requeue(self, record: Changed, entry: WorkloadRecord, wish: MailWish) -> Iterator[Letter]:
        since_s, reason = self._since.pop(record.workload), self._why.pop(record.workload, None)
        reason = reason or record.reason
        kind, words = "REQUEUE", "Requeued"
        if record.happening is _H.SITE_PREEMPTED or _is(reason, ReasonCode.PREEMPTED):
            kind, words = "PREEMPT", "Preempted"
        elif _is(reason, ReasonCode.MOVED):
            kind, words = "PREEMPT", "Moving to another node"
        elif reason is not None and reason.code in _MOVES:
            kind, words = "MOVE", "Moving to another site"
        if kind not in wish.types:
            kind = "REQUEUE"
        if kind in wish.types:
            ran = _span((record.ended_at_s or record.at_s) - since_s)
            event = MailEvent(kind, f"{words}, Run time {ran}", reason)
            yield from self._of_many(event, record, entry, wish)

    def _of_many(
        self, event: MailEvent, record: Changed, entry: WorkloadRecord, wish: MailWish
    ) -> Iterator[Letter]:
        """One of a kind that a job may have many of; of an array one in an hour."""
        array = entry.workload.array
        if array is not None and not wish.each_task:
            key = array.array_id, event.kind
            if record.at_s - self._repeated.get(key, -inf) < REPEATED_S:
                return
            if len(self._repeated) >= _WISHES:
                self._repeated.clear()
            self._repeated[key] = record.at_s
            words = f"{event.words}; more of its tasks are not mailed within the hour"
            event = event._replace(words=words)
        yield job_letter(event, entry, self._to(entry, wish))

    def _end(self, record: Changed, entry: WorkloadRecord, wish: MailWish) -> Iterator[Letter]:
        since_s = self._since.pop(record.workload, 0.0)
        for known in (self._from, self._why):
            known.pop(record.workload, None)
        array = entry.workload.array
        if array is not None and not wish.each_task:
            yield from self._array_end(array.array_id, entry, wish)
            return
        kind, words = _ending([entry], wish)
        if kind:
            ran_s = (record.ended_at_s or record.at_s) - since_s if since_s else 0.0
            code = f"ExitCode {entry.exit_code}" + (f":{entry.signal}" if entry.signal else "")
            details = f"{words}, Run time {_span(ran_s)}, {entry.state.value}, {code}"
            yield job_letter(MailEvent(kind, details, entry.reason), entry, self._to(entry, wish))

    def _array_end(
        self, array_id: WorkloadId, entry: WorkloadRecord, wish: MailWish
    ) -> Iterator[Letter]:
        entries = self._ledger.entries
        if array_id not in self._live:
            tasks = self._tasks(array_id)
            self._live[array_id] = {id_ for id_ in tasks if entries[id_].state not in TERMINAL}
            is_over = False
        else:
            is_over = not self._live[array_id]  # others of the same records ended with it
        self._live[array_id].discard(entry.workload.id)
        if self._live[array_id] or is_over:
            return
        ended = [entries[id_] for id_ in self._tasks(array_id)]
        kind, words = _ending(ended, wish)
        if kind:
            states = sorted({each.state.value for each in ended})
            shown = states[0] if len(states) == 1 else f"Mixed ({', '.join(states)})"
            highest = max(each.exit_code for each in ended)
            details = f"{words}, {shown}, MaxExitCode {highest}"
            yield array_letter(MailEvent(kind, details), entry, self._to(entry, wish))

    def _tasks(self, array_id: WorkloadId) -> list[WorkloadId]:
        """The tasks of an array that the log still has."""
        found = self._ledger.array_tasks.get(array_id, {}).values()
        return [id_ for id_ in found if id_ in self._ledger.entries]

    def _wish(self, workload: Workload) -> MailWish:
        submission = workload.submission
        if SPELLED not in bytes(submission):
            return _NONE
        id_ = workload.array.array_id if workload.array is not None else workload.id
        kept = self._wishes.get(id_)
        if kept is None or kept.submission is not submission:
            if len(self._wishes) >= _WISHES:
                self._wishes.clear()
            kept = self._wishes[id_] = _Kept(submission, wish_of(unpack_submission(submission)))
        return kept.wish

    def _to(self, entry: WorkloadRecord, wish: MailWish) -> str:
        address, domain = wish.address or entry.workload.user, self._config.domain
        return address if "@" in address or not domain else f"{address}@{domain}"


def _ending(ended: Sequence[WorkloadRecord], wish: MailWish) -> tuple[str, str]:
    """The type and the word of an end, as Slurm chooses them; no type: none was asked for."""
    fine = all(each.state in (_S.COMPLETED, _S.CANCELLED) for each in ended)
    if not fine and "FAIL" in wish.types:
        return "FAIL", "Failed"
    return ("END" if "END" in wish.types else ""), "Ended"


def _is(reason: Reason | None, code: ReasonCode) -> bool:
    return reason is not None and reason.code is code


def _span(seconds: float) -> str:
    """Slurm's own: [D-]HH:MM:SS."""
    minutes, s = divmod(max(0, round(seconds)), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{h:02}:{m:02}:{s:02}"
