"""Learned durations: how long workloads run, as the ledger's events show it.

It feeds the ledger's ``DurationModel`` and asks it. A run lasts from a start to the end of the
workload. One that was evicted, or lost its nodes, is one run with its next attempt, as far as its
work was kept.

Ends count as follows:

* It completed, failed by itself, or was cancelled: so long such workloads run.
* Its time limit, its nodes, its site or the site's watch ended it: it would have run longer.
* It is unknown to its site: nobody knows when it ended, so nothing is learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from federator.model.event import Changed, SnapshotDurations, SnapshotRun
from federator.model.lifecycle import TERMINAL, WorkloadEvent, WorkloadState
from federator.model.reason import ReasonCode
from federator.model.workload import Workload, WorkloadId
from federator.sched.state.durations import DurationModel, Lasting, OpenRun, Remaining
from federator.sched.state.recent_runs import kinds_of_pattern
from federator.sched.state.save_times import family_of
from federator.sched.state.workload_record import WorkloadRecord

LEAST_KNOWN: Final = 8
"""Before so many runs of its size class have ended, nothing is predicted of a workload."""

_KINDS_IN_A_RECORD: Final = 200
_RUNS_IN_A_RECORD: Final = 200

_CUT_OFF: Final = frozenset(
    {WorkloadEvent.TIMED_OUT, WorkloadEvent.NODE_FAILED, WorkloadEvent.SITE_PREEMPTED}
)
_ENDED_BY_SITE: Final = frozenset({ReasonCode.NODE_FAILED, ReasonCode.FILES, ReasonCode.RECLAIMED})


class LearnedDurations:
    """How long workloads run. Only the ledger changes it, so the same log gives the same answers.

    An answer is a prediction: nothing may be ended for one, and nothing promised by one.
    """

    def __init__(self) -> None:
        self._model = DurationModel()
        self._kept_s: dict[WorkloadId, float] = {}  # run by those that wait to go on

    # ---- predictions ----

    def remaining(self, entry: WorkloadRecord, now_s: float) -> Remaining | None:
        """How long a running workload will hold its nodes, unless somebody ends it.

        Args:
            entry: one that runs.
            now_s: Unix time; not before the latest event.

        Returns:
            ``expected_s`` and ``q90_s`` (over by then with 90 % probability), seconds >= 0, at
            most what its time limit leaves it; None: too little is known of its like, or it does
            not run.
        """
        if not self._knows(entry.held_gpus):
            return None
        limit_s = (entry.started_at_s or now_s) + entry.workload.time_limit_s - now_s
        return self._model.remaining_of(entry.workload.id, now_s, limit_s)

    def expected(self, workload: Workload) -> Remaining | None:
        """The same of one that waits, as if it started now; the work that it has kept counts."""
        gpus = workload.total_gpus
        if not self._knows(gpus):
            return None
        ran_s = self._kept_s.get(workload.id, 0.0)
        limit_s = ran_s + workload.time_limit_s
        return self._model.remaining(family_of(workload), gpus, ran_s, limit_s)

    def lasting(self, entry: WorkloadRecord, now_s: float) -> Lasting | None:
        """How long a workload may hold its nodes, or would if it started now, to be drawn from.

        Where nothing that ran longer is known of its size, its time limit alone counts. None: it
        has none either.
        """
        workload = entry.workload
        if entry.started_at_s and entry.state is not WorkloadState.PENDING:
            limit_s = entry.started_at_s + workload.time_limit_s - now_s
            return self._model.lasting_of(workload.id, now_s, limit_s)
        ran_s = self._kept_s.get(workload.id, 0.0)
        limit_s = ran_s + workload.time_limit_s
        return self._model.lasting(family_of(workload), workload.total_gpus, ran_s, limit_s)

    def lasting_like(self, workload: Workload) -> Lasting | None:
        """The same of one that nothing is known of."""
        return self._model.lasting(
            family_of(workload), workload.total_gpus, 0.0, workload.time_limit_s
        )

    def _knows(self, gpus: int) -> bool:
        return self._model.recent.count(gpus) >= LEAST_KNOWN

    # ---- learning ----

    def started(self, entry: WorkloadRecord, at_s: float) -> None:
        """An attempt has started; ``at_s`` is when that became known."""
        id_ = entry.workload.id
        self._model.advance(at_s)
        began_s = _believed_s(entry, entry.started_at_s or at_s, at_s)
        ran_s = self._kept_s.pop(id_, 0.0)
        self._model.started(id_, family_of(entry.workload), entry.held_gpus, began_s, ran_s)

    def left(self, entry: WorkloadRecord, event: Changed) -> None:
        """An attempt that ran is over; ``entry`` has the state that ``event`` led to."""
        id_ = entry.workload.id
        self._model.advance(event.at_s)
        ended_s = _believed_s(entry, event.ended_at_s or event.at_s, event.at_s)
        if entry.state in TERMINAL and event.happening is not WorkloadEvent.LOST:
            self._model.ended(id_, ended_s, cut_off=_is_cut_off(event))
            return
        ran_s = self._model.stopped(id_, ended_s)
        if entry.state not in TERMINAL:
            kept_s = ran_s - max(0.0, ended_s - useful_until_s(entry, event, ended_s))
            if kept_s > 0.0:
                self._kept_s[id_] = kept_s

    def over(self, id_: WorkloadId) -> None:
        """A workload has ended, wherever it was: it does not go on."""
        self._kept_s.pop(id_, None)

    # ---- snapshots ----

    def saved(self, at_s: float) -> Iterator[SnapshotDurations]:
        """All that is known, in records of some 50 KiB at most."""
        kinds = self._model.recent.saved()
        while some := tuple(islice(kinds, _KINDS_IN_A_RECORD)):
            yield SnapshotDurations(at_s=at_s, kinds=some)
        runs = (_saved_run(WorkloadId(id_), run) for id_, run in self._model.saved_runs())
        while follow := tuple(islice(runs, _RUNS_IN_A_RECORD)):
            yield SnapshotDurations(at_s=at_s, runs=follow)
        kept = iter(self._kept_s.items())
        while wait := tuple(islice(kept, _RUNS_IN_A_RECORD)):
            yield SnapshotDurations(at_s=at_s, kept_s=wait)
        yield SnapshotDurations(at_s=at_s, corrections=self._model.saved_corrections())

    def restore(self, record: SnapshotDurations) -> None:
        """Know this as well, as ``saved`` gave it; records come in the same order."""
        if record.kinds:
            self._model.recent.restore(record.kinds)
        if record.runs:
            self._model.restore_runs((int(run.id), _open_run(run)) for run in record.runs)
        self._kept_s.update(record.kept_s)
        if record.corrections is not None:
            self._model.restore_corrections(record.corrections)

    def follow_others(self, running: Iterable[WorkloadRecord], now_s: float) -> None:
        """Follow those that run and are not followed: their snapshot is of an older release."""
        known = {id_ for id_, _ in self._model.saved_runs()}
        for entry in running:
            if entry.started_at_s and entry.workload.id not in known:
                ran_s = max(0.0, now_s - entry.started_at_s)
                family = family_of(entry.workload)
                self._model.started(entry.workload.id, family, entry.held_gpus, now_s, ran_s)


def _believed_s(entry: WorkloadRecord, time_s: float, at_s: float) -> float:
    """A site's time, as far as it lies between the award and the event that tells of it."""
    since_s = entry.award.at_s if entry.award is not None else at_s
    return min(at_s, max(since_s, time_s))


def _is_cut_off(event: Changed) -> bool:
    """Tell whether a workload that is over would have run longer."""
    by_site = event.reason is not None and event.reason.code in _ENDED_BY_SITE
    return by_site or event.happening in _CUT_OFF


def _saved_run(id_: WorkloadId, run: OpenRun) -> SnapshotRun:
    _, tenant, user, pattern, size = run.kinds[0]
    return SnapshotRun(
        id=id_,
        tenant=tenant,
        user=user,
        pattern=pattern,
        size=size,
        began_s=run.began_s,
        next_age=run.next_age,
        promises=run.promises,
        broken=run.broken,
    )


def _open_run(saved: SnapshotRun) -> OpenRun:
    return OpenRun(
        kinds=kinds_of_pattern(saved.tenant, saved.user, saved.pattern, saved.size),
        began_s=saved.began_s,
        next_age=saved.next_age,
        promises=saved.promises,
        broken=saved.broken,
    )


def useful_until_s(entry: WorkloadRecord, event: Changed, ended_s: float) -> float:
    """Unix time up to which the work of an attempt is not lost; its start, if all of it is."""
    started_s = event.started_at_s or entry.started_at_s or ended_s
    reason = event.reason.code if event.reason is not None else None
    if event.happening is WorkloadEvent.CHECKPOINTED or reason is ReasonCode.REQUEUED:
        return ended_s
    leave = event.leave
    saved_s = event.saved_at_s if leave is None else min(leave.told_at_s, leave.saved_at_s)
    return min(ended_s, max(started_s, saved_s))
