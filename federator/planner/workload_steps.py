"""Reads from the log when workloads came, started and ended, as forecasts of load need it.

A workload comes when it may start: with its submission, or once its hold, its dependency or its
begin time is over. One that was evicted, or lost its nodes, does not come anew: it waits, and
that it waits the daemon knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

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
from federator.model.tenant import Tenancy
from federator.model.workload import Workload, WorkloadId
from federator.sched.state.eligibility import may_not_start

_CAME = frozenset({WorkloadState.PENDING, WorkloadState.HELD})


class LoadStep(Enum):
    """One step in the life of a workload."""

    CAME = 0
    STARTED = 1
    ENDED = 2


class Load(NamedTuple):
    """A workload as a forecast sees it."""

    id: WorkloadId
    user: str
    row: int  # of its tenant
    amounts: tuple[int, ...]  # by resource of the tenancy


class WorkloadStep(NamedTuple):
    """When it happened, to whom, and what."""

    at_s: float
    load: Load
    step: LoadStep


class _Followed:
    """A workload that may still take a step."""

    __slots__ = ("came", "load", "ran", "state")

    def __init__(self, load: Load, state: WorkloadState) -> None:
        self.load, self.state = load, state
        self.came = self.ran = False


class WorkloadSteps:
    """Takes the records of a log in their order, from its beginning.

    Args:
        tenancy: the tenants, as configured now.
    """

    def __init__(self, tenancy: Tenancy) -> None:
        self._tenancy = tenancy
        self._live: dict[WorkloadId, _Followed] = {}
        self._like: dict[WorkloadId, Workload] = {}  # of the snapshot that is being read

    def take(self, record: LogRecord) -> Iterator[WorkloadStep]:
        """The steps that a record tells of; those of a snapshot are in no order of time."""
        match record:
            case Submitted():
                yield from self._submitted(record)
            case Awarded():
                self._moved(record.attempt.workload, WorkloadEvent.AWARDED)
            case Changed():
                yield from self._changed(record)
            case Forgotten():
                for id_ in record.ids:
                    self._live.pop(id_, None)
            case SnapshotWorkloads():
                for submission in record.submissions:
                    yield from self._restored(submission)
            case _:
                pass

    def _submitted(self, record: Submitted) -> Iterator[WorkloadStep]:
        state = WorkloadState.INELIGIBLE if may_not_start(record) else WorkloadState.PENDING
        for workload in record.workloads():
            known = self._live[workload.id] = _Followed(self._load_of(workload), state)
            yield from self._came(known, record.at_s)

    def _changed(self, record: Changed) -> Iterator[WorkloadStep]:
        known = self._moved(record.workload, record.happening)
        if known is None:
            return
        yield from self._came(known, record.at_s)
        if record.happening is WorkloadEvent.STARTED:
            known.ran = True
            yield WorkloadStep(record.at_s, known.load, LoadStep.STARTED)
        if known.state in TERMINAL:
            del self._live[record.workload]
            if known.came:
                yield WorkloadStep(record.at_s, known.load, LoadStep.ENDED)

    def _moved(self, id_: WorkloadId, happening: WorkloadEvent) -> _Followed | None:
        known = self._live.get(id_)
        if known is None:
            return None
        try:
            known.state = step(known.state, happening).to
        except InvalidTransition:  # of a later release: its end will be seen
            return None
        return known

    def _came(self, known: _Followed, at_s: float) -> Iterator[WorkloadStep]:
        if not known.came and known.state in _CAME:
            known.came = True
            yield WorkloadStep(at_s, known.load, LoadStep.CAME)

    def _restored(self, submission: SnapshotSubmission) -> Iterator[WorkloadStep]:
        like = submission.like or self._like.get(submission.same_as)
        if like is None:
            return
        for kept in submission.workloads:
            self._like[kept.id] = like
            yield from self._steps_of(kept, self._load_of(like, kept.id), like.submitted_at_s)

    def _steps_of(
        self, kept: SnapshotWorkload, load: Load, submitted_at_s: float
    ) -> Iterator[WorkloadStep]:
        known = _Followed(load, kept.state)
        if kept.state is not WorkloadState.INELIGIBLE:
            known.came = True
            yield WorkloadStep(kept.eligible_at_s or submitted_at_s, load, LoadStep.CAME)
        if kept.started_at_s:
            known.ran = True
            yield WorkloadStep(kept.started_at_s, load, LoadStep.STARTED)
        if kept.state not in TERMINAL:
            self._live[kept.id] = known
        elif known.came:
            yield WorkloadStep(kept.over_at_s or kept.ended_at_s, load, LoadStep.ENDED)

    def _load_of(self, workload: Workload, id_: WorkloadId | None = None) -> Load:
        return Load(
            workload.id if id_ is None else id_,
            workload.user,
            self._tenancy.row(workload.tenant),
            tuple(self._tenancy.resources.request(workload.jobs)),
        )
