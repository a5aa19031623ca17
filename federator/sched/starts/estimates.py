"""Estimates when workloads that wait will start, and learns from when they do.

Each workload that waits is promised an interval when it is first seen to wait, and again when it
has waited for each of ``AGES_S``. A promise is judged when the workload starts, or when its
interval is over; so those that wait longest are not missing from what is learned. One that leaves
the queue before is not judged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from math import inf
from typing import Final

import msgspec

from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadState
from federator.model.start_estimate import NoEstimate, StartEstimate, StartHelp
from federator.model.workload import Workload, WorkloadId
from federator.sched.passes.federation import Federation
from federator.sched.starts.arrivals import Arrivals
from federator.sched.starts.calibration import COVERAGE, GRAIN_S, Calibration, Classes, Wait
from federator.sched.starts.changes import AskedChange, changes_of
from federator.sched.starts.plays import HORIZON_S, Plays
from federator.sched.starts.queue_view import PlayedQueue, Queued, classes_of, queue_view
from federator.sched.starts.rated_classes import rated_class
from federator.sched.state.workload_record import WorkloadRecord

AGES_S: Final = (0.0, 600.0, 3600.0, 21_600.0)
AGE_NAMES: Final = tuple(f"had waited {age_s:g} s" for age_s in AGES_S)
TRIAL: Final = WorkloadId(0)
"""Of one that is not queued: the ids of those that are begin far above."""
SAME_VIEW_S: Final = 5.0
LEAST_JUDGED: Final = 20
"""Before so many promises have been judged nothing is shown."""
WIDEST: Final = 8.0
"""An interval that is wider than so many times the likely wait says nothing."""
MOST_S: Final = 2 * HORIZON_S
"""An interval that ends later than so has been corrected too far to be shown."""
_NARROW_S: Final = 600.0  # unless it is no wider than this


_TO_START: Final = (WorkloadState.AWARDED, WorkloadState.LAUNCHING)


class Promise(msgspec.Struct):
    """An interval that was given for a workload."""

    id: WorkloadId
    age: int  # index in ``AGES_S``
    made_at_s: float
    played: Wait
    given: Wait
    classes: Classes
    shown: bool  # else it would have been kept back
    judged: bool = False


class StartEstimates:
    """The estimates of a federation; by them data may be copied, and nothing else is decided.

    Args:
        federation: read; from the first ``look`` on its ledger is watched for changes.

    Attributes:
        calibration: how good they were.
    """

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self.calibration = Calibration()
        self.arrivals = Arrivals()
        self._changed: set[WorkloadId] | None = None
        self._next_id = 0
        self._promises: dict[WorkloadId, list[Promise]] = {}
        self._ends: list[tuple[float, int, Promise]] = []  # a heap: until when
        self._made = 0
        self._due: set[WorkloadId] = set()  # that wait, and have no promise
        self._view: PlayedQueue | None = None
        self._latest: PlayedQueue | None = None  # looked at, not played yet perhaps
        self._waits: dict[WorkloadId, Wait] = {}
        self._queued: dict[WorkloadId, Queued] = {}

    # ---- what happens ----

    def look(self, now_s: float) -> bool:
        """Take in what has come, started and left; tell whether somebody lacks a promise."""
        ledger = self._federation.ledger
        if self._changed is None:
            self._changed = ledger.watches.open()
        for entry in self._new():
            self.arrivals.add(entry.workload)
            self._changed.add(entry.workload.id)
        for id_ in self._changed:
            known = ledger.entries.get(id_)
            if known is None:
                self._left(id_)
            else:
                self._take(known, now_s)
        self._changed.clear()
        while self._ends and self._ends[0][0] < now_s:
            _, _, promise = heappop(self._ends)
            self._judge(promise, now_s)
        return bool(self._due)

    def _new(self) -> list[WorkloadRecord]:
        """Those that have come since the last time, in their order; a watch hears only of later."""
        entries, first = self._federation.ledger.entries, self._next_id
        self._next_id = self._federation.ledger.next_id
        if self._next_id - first <= len(entries):
            ids = [id_ for id_ in map(WorkloadId, range(first, self._next_id)) if id_ in entries]
        else:  # ids have a gap where a term began
            ids = sorted(id_ for id_ in entries if id_ >= first)
        return [entries[id_] for id_ in ids]

    def _take(self, entry: WorkloadRecord, now_s: float) -> None:
        id_ = entry.workload.id
        if entry.state is WorkloadState.PENDING:
            if id_ not in self._promises:
                self._due.add(id_)
        elif entry.started_at_s and entry.state not in _TO_START:
            for promise in self._promises.get(id_, ()):
                self._judge(promise, min(now_s, entry.started_at_s))
            self._left(id_)
        elif entry.state not in AT_SITE:
            self._left(id_)
        else:
            self._due.discard(id_)

    def _left(self, id_: WorkloadId) -> None:
        """It waits no more; what was promised and not judged never is."""
        self._due.discard(id_)
        for promise in self._promises.pop(id_, ()):
            if not promise.judged:
                promise.judged = True
                self.calibration.forget(promise.classes)

    def _judge(self, promise: Promise, at_s: float) -> None:
        """It has started then, or its interval is over."""
        if not promise.judged:
            promise.judged = True
            wait_s = max(0.0, at_s - promise.made_at_s)
            self.calibration.judge(
                promise.given,
                promise.classes,
                wait_s,
                counts=promise.shown,
                rated=rated_class(promise.classes),
            )

    def _corrected(self, played: Wait, classes: Classes) -> tuple[Wait, Classes, NoEstimate | None]:
        """An interval, the classes that it is judged in, and why it is kept back, if it is.

        Those that are shown are classes of their own: else it would be the easy part of nine of ten
        that is kept back, or shown.
        """
        first = self.calibration.corrected(played, classes)
        none = kept_back(first)
        if none is not None:
            return first, classes, none
        classes = (*classes, "shown", *(f"shown, {each}" for each in classes))
        given = self.calibration.corrected(played, classes)
        # One that these classes make too wide is judged in them: else they would stay as wide.
        return given, classes, kept_back(given)

    # ---- plays ----

    def begin(self, now_s: float) -> Plays:
        """Look at the queue; then ``play`` until it is over, and ``finish``."""
        self._latest = queue_view(self._federation, now_s)
        return Plays(self._latest, self.arrivals, seed=int(now_s))

    def begin_trial(self, workload: Workload, now_s: float) -> Plays | StartEstimate:
        """The same with a workload that is not queued; then ``play``, and ``of_trial``.

        Several that are asked for within ``SAME_VIEW_S`` look at the same queue.
        """
        level = self._federation.ledger.tenancy.level(workload)
        if self._latest is None or not 0.0 <= now_s - self._latest.at_s <= SAME_VIEW_S:
            self._latest = queue_view(self._federation, now_s)
        view = self._latest.with_trial(replace(workload, id=TRIAL), level)
        if isinstance(view, NoEstimate):
            return _none(view)
        return Plays(view, self.arrivals, seed=int(now_s))

    def of_trial(self, plays: Plays, now_s: float) -> StartEstimate:
        """When a workload that is not queued would start, by its own plays."""
        trial = next(queued for queued in plays.view.queued if queued.id == TRIAL)
        classes = (*trial.classes, AGE_NAMES[0])
        return self._shown(plays.waits()[TRIAL], classes, plays.view.at_s, now_s)

    def begin_changes(
        self, id_: WorkloadId, now_s: float
    ) -> Iterator[tuple[AskedChange | None, Plays]]:
        """What to play to tell ``helps`` for one that waits; as it is comes first.

        All draw the same numbers. Each is made when it is asked for, so that others can have their
        turn between two. None: it is not played, nothing can be told yet, or no change is known.
        """
        entry = self._federation.ledger.entries.get(id_)
        if entry is None or self.calibration.judged < LEAST_JUDGED:
            return
        if entry.workload.elastic is not None:
            return
        if self._latest is None or not 0.0 <= now_s - self._latest.at_s <= SAME_VIEW_S:
            self._latest = queue_view(self._federation, now_s)
        view = self._latest
        queued = next((queued for queued in view.queued if queued.id == id_), None)
        if queued is None:
            return
        changes = changes_of(entry.workload, view.passing_s(queued))
        if not changes:
            return
        yield None, self._plays(view)
        for change in changes:
            changed = view.with_change(change.workload)
            if changed is not None and changed.queued != view.queued:
                yield change, self._plays(changed)

    def _plays(self, view: PlayedQueue) -> Plays:
        return Plays(view, self.arrivals, seed=int(view.at_s))

    def helps(
        self, id_: WorkloadId, played: Sequence[tuple[AskedChange | None, Plays]], now_s: float
    ) -> tuple[StartHelp, ...]:
        """Changes after whose interval that of the workload as it is begins; the soonest first.

        Args:
            id_: of the workload.
            played: of ``begin_changes``, all over; some may be missing at the end.
            now_s: Unix time.
        """
        if not played:
            return ()
        (_, as_it_is), *changed = played
        queued = next(queued for queued in as_it_is.view.queued if queued.id == id_)
        at_s = as_it_is.view.at_s
        classes = (*queued.classes, AGE_NAMES[age_of(at_s - queued.since_s)])
        now, _, _ = self._corrected(as_it_is.waits()[id_], classes)
        found = []
        for change, plays in changed:
            assert change is not None
            size = classes_of(change.workload, queued.within_quota)
            then = self._shown(plays.waits()[id_], (*size, classes[-1]), at_s, now_s)
            if not then.none and then.latest_s - at_s < now.earliest_s:
                sooner_s = now.likely_s - (then.likely_s - at_s) if now.likely_s < inf else 0.0
                found.append(
                    StartHelp(
                        kind=change.kind.value,
                        amount=change.amount,
                        start=then,
                        sooner_s=sooner_s if sooner_s <= MOST_S else 0.0,
                    )
                )
        return tuple(sorted(found, key=lambda each: each.start.likely_s))

    def finish(self, plays: Plays) -> list[Promise]:
        """Take the quantiles over, and promise what is due; returns those promises."""
        self._view, self._waits = plays.view, plays.waits()
        self._queued = {queued.id: queued for queued in plays.view.queued}
        self._due.difference_update(plays.view.without)
        if plays.view.is_cut:  # those that are due and deeper have their promise when they rise
            self._due.clear()
        made = []
        for queued in plays.view.queued:
            promise = self._promised(queued, plays.view.at_s)
            if promise is not None:
                made.append(promise)
        return made

    def _promised(self, queued: Queued, now_s: float) -> Promise | None:
        """A promise for one that is of an age at which it has none yet."""
        self._due.discard(queued.id)
        entry = self._federation.ledger.entries.get(queued.id)
        if entry is None or entry.state is not WorkloadState.PENDING:
            return None
        age = age_of(now_s - queued.since_s)
        before = self._promises.setdefault(queued.id, [])
        if before and before[-1].age >= age:
            return None
        played = self._waits[queued.id]
        given, classes, none = self._corrected(played, (*queued.classes, AGE_NAMES[age]))
        shown = none is None
        promise = Promise(queued.id, age, now_s, played, given, classes, shown)
        before.append(promise)
        if given.latest_s < inf:
            self._made += 1
            self.calibration.gave(classes)
            heappush(self._ends, (now_s + given.latest_s, self._made, promise))
        else:
            promise.judged = True  # it can never be
        return promise

    # ---- answers ----

    def of(self, id_: WorkloadId, now_s: float) -> StartEstimate:
        """When a workload is estimated to start, by the latest play."""
        entry = self._federation.ledger.entries.get(id_)
        if entry is None or entry.state in AT_SITE or entry.state in TERMINAL:
            return _none(NoEstimate.NOT_WAITING)
        if entry.state is not WorkloadState.PENDING:
            return _none(NoEstimate.MAY_NOT_START)
        view, queued = self._view, self._queued.get(id_)
        if view is None or queued is None:
            deeper = view is not None and view.is_cut and entry.queued_since_s <= view.at_s
            why = NoEstimate.TOO_DEEP if deeper else NoEstimate.NOT_YET
            return _none(view.without.get(id_, why) if view else why)
        age = age_of(view.at_s - queued.since_s)
        classes = (*queued.classes, AGE_NAMES[age])
        return self._shown(self._waits[id_], classes, view.at_s, now_s)

    def where_data_is(self, now_s: float) -> dict[WorkloadId, float]:
        """The likely starts, in Unix time, of those for whom data or a checkpoint may be copied.

        Of those with the same data sets and the same needs that is the first.
        """
        ledger = self._federation.ledger
        heads = [WorkloadId(lane.place(0)[1]) for lane in ledger.backlog.with_data() if len(lane)]
        found = {}
        for id_ in (*heads, *ledger.saved):
            estimate = self.of(id_, now_s)
            if not estimate.none:
                found[id_] = estimate.likely_s
        return found

    def _shown(
        self, played: Wait, classes: Classes, made_at_s: float, now_s: float
    ) -> StartEstimate:
        known = self.calibration
        given, _, none = self._corrected(played, classes)
        none = NoEstimate.UNTRIED if known.judged < LEAST_JUDGED else none
        if none is None and made_at_s + given.latest_s < now_s:
            none = NoEstimate.NOT_YET  # the next play knows more
        if none is not None:
            return msgspec.structs.replace(
                _none(none), hit_frac=known.hit_frac, latest=known.latest, judged=known.judged
            )
        alike = known.rate_of(rated_class(classes))
        return StartEstimate(
            made_at_s=made_at_s,
            earliest_s=max(now_s, made_at_s + given.earliest_s),
            likely_s=max(now_s, made_at_s + given.likely_s),
            latest_s=made_at_s + given.latest_s,
            frac=COVERAGE,
            hit_frac=known.hit_frac,
            latest=known.latest,
            judged=known.judged,
            hit_frac_alike=alike.hit_frac if alike is not None else 0.0,
            latest_alike=alike.latest if alike is not None else 0,
        )


def age_of(waited_s: float) -> int:
    """The index in ``AGES_S`` of the age that one has reached that has waited so long."""
    return max(0, bisect_right(AGES_S, waited_s) - 1)


def kept_back(given: Wait) -> NoEstimate | None:
    """Why an interval is not worth showing; None: it is."""
    if given.latest_s > MOST_S:
        return NoEstimate.TOO_LATE
    if given.latest_s - given.earliest_s > max(_NARROW_S, WIDEST * (given.likely_s + GRAIN_S)):
        return NoEstimate.TOO_WIDE
    return None


def _none(why: NoEstimate) -> StartEstimate:
    return StartEstimate(none=why.value)
