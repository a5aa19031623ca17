"""Reads from the log how workloads use data sets, and expects it of the days to come.

Workloads of one tenant and priority that name the same data sets, have the same right to them and
ask for the same type of GPU are one kind. A day counts the workloads of a kind that came, and the
GPU hours of those that ran.

What is expected of a day is an average of the last 28 days in which a day counts half as much as
one a week later. A home stays for weeks, so the day of the week is no part of it. Chosen because
nothing has to be learnt, and a kind that is new counts from its first day.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from federator.model.data_use import DataUse
from federator.model.event import (
    Awarded,
    Changed,
    Forgotten,
    LogRecord,
    SnapshotSubmission,
    SnapshotWorkload,
    SnapshotWorkloads,
    Submitted,
)
from federator.model.lifecycle import (
    TERMINAL,
    InvalidTransition,
    WorkloadEvent,
    WorkloadState,
    step,
)
from federator.model.workload import Workload, WorkloadId
from federator.sched.state.eligibility import may_not_start

DAY_S: Final = 86_400.0
LOOKS_BACK_DAYS: Final = 28
HALVES_IN_DAYS: Final = 7.0
MOST_KINDS: Final = 20_000  # those used last
ASSUMED_H: Final = 1.0  # of a workload of a kind of which none has ended
_WAITS: Final = frozenset({WorkloadState.PENDING, WorkloadState.HELD, WorkloadState.INELIGIBLE})


class UseKind(NamedTuple):
    """Workloads that use data sets alike."""

    tenant: str
    priority: int  # 1 is the highest
    gpu_types: tuple[str, ...]  # any of these; none: any
    sets: tuple[DataUse, ...]  # none of them to be written


class ExpectedUse(NamedTuple):
    """What is expected of a kind in a day."""

    kind: UseKind
    runs: float
    gpu_h: float


class _Live:
    """A workload that has not ended."""

    __slots__ = ("gpus", "kind", "since_s", "started_s", "state")

    def __init__(self, kind: UseKind, gpus: int, state: WorkloadState, since_s: float) -> None:
        self.kind, self.gpus, self.state = kind, gpus, state
        self.since_s, self.started_s = since_s, 0.0


class _Past:
    """Of one kind, by day: workloads that came, GPU hours; and of those that have ended."""

    __slots__ = ("days", "ended", "ended_h")

    def __init__(self) -> None:
        self.days: dict[int, list[float]] = {}
        self.ended, self.ended_h = 0, 0.0

    def add(self, at_s: float, runs: float, gpu_h: float) -> None:
        amounts = self.days.setdefault(int(at_s // DAY_S), [0.0, 0.0])
        amounts[0] += runs
        amounts[1] += gpu_h

    @property
    def last_day(self) -> int:
        return max(self.days, default=0)


class DataDemand:
    """Takes the records of a log in their order, from its beginning."""

    def __init__(self) -> None:
        self._live: dict[WorkloadId, _Live] = {}
        self._past: dict[UseKind, _Past] = {}
        self._like: dict[WorkloadId, Workload] = {}  # of the snapshot that is being read
        self._began_s = 0.0  # what the log tells of begins here

    def take(self, record: LogRecord) -> None:
        """Take the next record in."""
        match record:
            case Submitted():
                waits = WorkloadState.INELIGIBLE if may_not_start(record) else WorkloadState.PENDING
                for workload in record.workloads():
                    self._came(workload, workload.id, waits, record.at_s)
            case Awarded():
                self._moved(record.attempt.workload, WorkloadEvent.AWARDED, record.at_s)
            case Changed():
                self._moved(record.workload, record.happening, record.at_s)
            case Forgotten():
                for id_ in record.ids:
                    self._live.pop(id_, None)
            case SnapshotWorkloads():
                for submission in record.submissions:
                    self._restored(submission)
            case _:
                pass

    def expected(self, now_s: float) -> list[ExpectedUse]:
        """What is expected of a day, of each kind; the order is that in which they came."""
        self._forget(now_s)
        open_h: dict[UseKind, float] = {}
        for live in self._live.values():
            open_h[live.kind] = open_h.get(live.kind, 0.0) + self._open_h(live, now_s)
        today = int(now_s // DAY_S)
        first = max(today - LOOKS_BACK_DAYS + 1, int(self._began_s // DAY_S))
        weights = {
            day: 0.5 ** ((today - day) / HALVES_IN_DAYS) for day in range(min(first, today), today)
        }
        weights[today] = 1.0
        covered = dict.fromkeys(weights, 1.0) | {today: (now_s % DAY_S) / DAY_S}
        if first * DAY_S < self._began_s:
            covered[first] = max(covered[first] - (self._began_s % DAY_S) / DAY_S, 0.0)
        whole = max(sum(w * covered[day] for day, w in weights.items()), 1.0)
        return [
            ExpectedUse(kind, *_average(past, weights, whole, today, open_h.get(kind, 0.0)))
            for kind, past in self._past.items()
        ]

    def _open_h(self, live: _Live, now_s: float) -> float:
        """The GPU hours of one that has not ended: until now, or as others of its kind took."""
        if live.started_s:
            return live.gpus * max(now_s - live.started_s, 0.0) / 3600
        past = self._past.get(live.kind)
        if past is None or not past.ended:
            return live.gpus * ASSUMED_H
        return past.ended_h / past.ended

    def _came(
        self, workload: Workload, id_: WorkloadId, state: WorkloadState, at_s: float
    ) -> _Live | None:
        if not workload.data:
            return None
        types = tuple(dict.fromkeys(name for job in workload.jobs for name in job.gpu_types))
        read = {replace(use, write=False) for use in workload.data}
        sets = tuple(sorted(read, key=lambda use: (use.label, use.owner, use.shared.value)))
        kind = UseKind(workload.tenant, workload.priority, types, sets)
        live = _Live(kind, workload.total_gpus, state, at_s)
        self._past.setdefault(kind, _Past()).add(at_s, 1.0, 0.0)
        self._began_s = min(self._began_s, at_s) if self._began_s else at_s
        self._live[id_] = live
        return live

    def _moved(self, id_: WorkloadId, happening: WorkloadEvent, at_s: float) -> None:
        live = self._live.get(id_)
        if live is None:
            return
        try:
            live.state = step(live.state, happening).to
        except InvalidTransition:  # of a later release: its end will be seen
            return
        if happening is WorkloadEvent.STARTED:
            live.started_s = at_s
        elif live.state in TERMINAL or live.state in _WAITS:
            self._ran(live, at_s)
        if live.state in TERMINAL:
            del self._live[id_]

    def _ran(self, live: _Live, at_s: float) -> None:
        if not live.started_s:
            return
        gpu_h = live.gpus * max(at_s - live.started_s, 0.0) / 3600
        live.started_s = 0.0
        past = self._past.setdefault(live.kind, _Past())
        past.add(at_s, 0.0, gpu_h)
        past.ended += 1
        past.ended_h += gpu_h

    def _restored(self, submission: SnapshotSubmission) -> None:
        like = submission.like or self._like.get(submission.same_as)
        if like is None:
            return
        for kept in submission.workloads:
            self._like[kept.id] = like
            self._kept(kept, like)

    def _kept(self, kept: SnapshotWorkload, like: Workload) -> None:
        live = self._came(like, kept.id, kept.state, kept.eligible_at_s or like.submitted_at_s)
        if live is None:
            return
        live.started_s = kept.started_at_s
        if kept.state in TERMINAL:
            self._ran(live, kept.over_at_s or kept.ended_at_s)
            del self._live[kept.id]

    def _forget(self, now_s: float) -> None:
        """What is too old, and the kinds used longest ago where there are too many."""
        first = int(now_s // DAY_S) - LOOKS_BACK_DAYS + 1
        for past in self._past.values():
            for day in [day for day in past.days if day < first]:
                del past.days[day]
        live = {each.kind for each in self._live.values()}
        kept = {k: past for k, past in self._past.items() if past.days or k in live}
        if len(kept) > MOST_KINDS:
            latest = sorted(kept, key=lambda kind: -kept[kind].last_day)[:MOST_KINDS]
            kept = {kind: kept[kind] for kind in latest}
        self._past = kept


def _average(
    past: _Past, weights: dict[int, float], whole: float, today: int, open_h: float
) -> Iterator[float]:
    """Runs and GPU hours of a day."""
    for k, more in ((0, 0.0), (1, open_h)):
        amounts = {day: both[k] for day, both in past.days.items()}
        amounts[today] = amounts.get(today, 0.0) + more
        yield sum(weights.get(day, 0.0) * amount for day, amount in amounts.items()) / whole
