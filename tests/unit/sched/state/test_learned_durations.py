"""Durations that the ledger learns from its events, and keeps over a restart."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from federator.model.event import (
    Awarded,
    Changed,
    LogRecord,
    SnapshotDurations,
    Submitted,
    decode_event,
    encode_event,
)
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.reason import Reason, ReasonCode
from federator.model.site import Leave
from federator.model.workload import AttemptId, WorkloadId
from federator.sched.state.learned_durations import LEAST_KNOWN
from federator.sched.state.ledger import Ledger
from federator.sched.state.snapshot import taken
from federator.sched.state.workload_record import WorkloadRecord
from tests.fakes.build import draft, gang, plan_on

HOUR_S = 3600.0
GPUS = 16


class History:
    """A ledger, and what befalls its workloads one after another."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.now_s = 1000.0

    def submit(self, limit_s: float = inf) -> WorkloadRecord:
        wanted = draft(gang(2), name="train-1", time_limit_s=limit_s)
        id_ = self.ledger.next_id
        self.apply(Submitted(at_s=self.now_s, draft=wanted, first_id=id_, key=str(id_)))
        return self.ledger.entries[id_]

    def start(self, entry: WorkloadRecord) -> WorkloadRecord:
        attempt = AttemptId(workload=entry.workload.id, attempt=entry.attempt + 1)
        plan = plan_on("n1", "n2")
        self.apply(
            Awarded(at_s=self.now_s, attempt=attempt, site="alpine", jobs=plan, within_quota=True)
        )
        self.change(entry, WorkloadEvent.ACCEPTED)
        self.change(entry, WorkloadEvent.STARTED, started_at_s=self.now_s)
        return entry

    def change(self, entry: WorkloadRecord, happening: WorkloadEvent, **more: Any) -> None:
        self.apply(
            Changed(
                at_s=self.now_s,
                workload=entry.workload.id,
                happening=happening,
                attempt=entry.attempt,
                **more,
            )
        )

    def end(self, entry: WorkloadRecord, happening: WorkloadEvent, **more: Any) -> None:
        self.change(entry, happening, ended_at_s=self.now_s, **more)

    def apply(self, record: LogRecord) -> None:
        self.ledger.apply(record)

    def run(
        self, hours: float, ending: WorkloadEvent = WorkloadEvent.COMPLETED, **more: Any
    ) -> WorkloadRecord:
        entry = self.start(self.submit())
        self.now_s += hours * HOUR_S
        self.end(entry, ending, **more)
        return entry

    def evict(self, entry: WorkloadRecord, *, saved: bool) -> None:
        """It is told to leave now, and leaves after ten minutes."""
        self.change(entry, WorkloadEvent.EVICTED)
        asked_s = self.now_s
        self.now_s += 600.0
        leave = Leave(told_at_s=asked_s, saved_at_s=self.now_s if saved else 0.0)
        self.end(entry, WorkloadEvent.PREEMPTED, leave=leave)

    def expected_h(self) -> float:
        """Of another workload that starts now, in hours."""
        found = self.ledger.durations.expected(self.submit().workload)
        assert found is not None
        return found.expected_s / HOUR_S


@pytest.fixture
def history() -> History:
    return History()


def test_nothing_is_predicted_before_a_few_have_ended(history: History) -> None:
    waits = history.submit()
    runs = history.start(history.submit())
    for _ in range(LEAST_KNOWN - 1):
        history.run(1.0)
    assert history.ledger.durations.expected(waits.workload) is None
    assert history.ledger.durations.remaining(runs, history.now_s) is None
    history.run(1.0)
    assert history.ledger.durations.expected(waits.workload) is not None


@pytest.mark.parametrize("ending", [WorkloadEvent.COMPLETED, WorkloadEvent.FAILED])
def test_an_end_of_its_own_tells_how_long_such_workloads_run(
    history: History, ending: WorkloadEvent
) -> None:
    for _ in range(LEAST_KNOWN):
        history.run(2.0, ending)
    assert history.expected_h() == pytest.approx(2.0, rel=0.05)


def test_one_that_its_user_cancels_has_ended_as_such_workloads_do(history: History) -> None:
    for _ in range(LEAST_KNOWN):
        entry = history.start(history.submit())
        history.now_s += 2 * HOUR_S
        history.change(entry, WorkloadEvent.CANCEL_ASKED)
        history.end(entry, WorkloadEvent.CANCELLED)
    assert history.expected_h() == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (WorkloadEvent.TIMED_OUT, None),
        (WorkloadEvent.FAILED, ReasonCode.NODE_FAILED),
        (WorkloadEvent.FAILED, ReasonCode.FILES),
        (WorkloadEvent.CANCELLED, ReasonCode.RECLAIMED),
    ],
)
def test_one_that_was_cut_off_would_have_run_longer(
    history: History, ending: WorkloadEvent, reason: ReasonCode | None
) -> None:
    for _ in range(LEAST_KNOWN):
        history.run(2.0)
    for _ in range(LEAST_KNOWN):
        history.run(0.1, ending, reason=None if reason is None else Reason(code=reason))
    assert history.expected_h() == pytest.approx(2.0, rel=0.05)


def test_nothing_is_learned_from_one_that_its_site_lost(history: History) -> None:
    for _ in range(LEAST_KNOWN):
        history.run(2.0)
    for _ in range(20):
        history.run(0.1, WorkloadEvent.LOST)
    assert history.expected_h() == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize(("saved", "whole_h"), [(True, 3.0), (False, 2.0)])
def test_an_evicted_run_goes_on_with_what_it_saved(
    history: History, saved: bool, whole_h: float
) -> None:
    for _ in range(LEAST_KNOWN):
        entry = history.start(history.submit())
        history.now_s += HOUR_S
        history.evict(entry, saved=saved)
        history.now_s += 5 * HOUR_S
        history.start(entry)
        history.now_s += 2 * HOUR_S
        history.end(entry, WorkloadEvent.COMPLETED)
    assert history.expected_h() == pytest.approx(whole_h, rel=0.05)


def test_of_one_that_waits_to_go_on_the_rest_is_expected(history: History) -> None:
    for _ in range(LEAST_KNOWN):
        history.run(3.0)
    entry = history.start(history.submit())
    history.now_s += HOUR_S
    history.evict(entry, saved=True)
    found = history.ledger.durations.expected(entry.workload)
    assert found is not None
    assert found.expected_s == pytest.approx(2 * HOUR_S, rel=0.05)


@pytest.mark.parametrize(
    ("ending", "more"),
    [
        (WorkloadEvent.CHECKPOINTED, {}),
        (WorkloadEvent.SITE_REQUEUED, {"reason": Reason(code=ReasonCode.REQUEUED)}),
        (WorkloadEvent.NODE_FAILED, {"saved_at_s": 1000.0 + 24 * HOUR_S + HOUR_S}),
    ],
)
def test_what_it_saved_of_its_own_counts_too(
    history: History, ending: WorkloadEvent, more: dict[str, Any]
) -> None:
    for _ in range(LEAST_KNOWN):
        history.run(3.0)
    entry = history.start(history.submit())
    history.now_s += HOUR_S
    history.end(entry, ending, **more)
    found = history.ledger.durations.expected(entry.workload)
    assert found is not None
    assert found.expected_s == pytest.approx(2 * HOUR_S, rel=0.05)


def test_a_workload_that_is_cancelled_while_it_waits_to_go_on_is_forgotten(
    history: History,
) -> None:
    entry = history.start(history.submit())
    history.now_s += HOUR_S
    history.evict(entry, saved=True)
    history.change(entry, WorkloadEvent.CANCEL_ASKED)
    assert entry.state is WorkloadState.CANCELLED
    assert not any(r.kept_s or r.runs for r in history.ledger.durations.saved(history.now_s))


def test_a_time_limit_bounds_what_is_predicted(history: History) -> None:
    for _ in range(LEAST_KNOWN):
        history.run(10.0)
    entry = history.start(history.submit(limit_s=2 * HOUR_S))
    history.now_s += HOUR_S
    found = history.ledger.durations.remaining(entry, history.now_s)
    assert found is not None
    assert found.expected_s == found.q90_s == HOUR_S


def test_one_that_does_not_run_holds_nothing(history: History) -> None:
    for _ in range(LEAST_KNOWN):
        ended = history.run(1.0)
    assert history.ledger.durations.remaining(ended, history.now_s) is None
    assert history.ledger.durations.remaining(history.submit(), history.now_s) is None


def test_no_site_is_believed_that_one_ran_longer_than_it_was_there(history: History) -> None:
    for _ in range(LEAST_KNOWN):
        entry = history.start(history.submit())
        history.now_s += HOUR_S
        more = {"started_at_s": 1.0, "ended_at_s": 1e12}
        history.change(entry, WorkloadEvent.COMPLETED, **more)
    assert history.expected_h() == pytest.approx(1.0, rel=0.05)


# ---- restarts ----


def eventful() -> History:
    history = History()
    for k in range(40):
        entry = history.run(0.5 + k % 7)
        if k % 3 == 0:
            entry = history.start(history.submit())
            history.now_s += 100.0 * k
            history.evict(entry, saved=True)
        if k % 4 == 0:
            history.start(history.submit())
    return history


def loaded(records: list[LogRecord]) -> Ledger:
    ledger = Ledger()
    for record in records:
        ledger.apply(decode_event(encode_event(record)))
    return ledger


def predictions(ledger: Ledger, now_s: float) -> list[object]:
    learned = ledger.durations
    return [
        (learned.remaining(entry, now_s), learned.expected(entry.workload))
        for entry in ledger.entries.values()
    ]


def test_a_daemon_that_starts_from_a_snapshot_predicts_as_the_one_before() -> None:
    history = eventful()
    again = History()
    again.ledger = loaded(list(taken(history.ledger, history.now_s)))
    again.now_s = history.now_s
    found = predictions(again.ledger, again.now_s)
    assert found == predictions(history.ledger, history.now_s)
    assert any(each is not None for pair in found for each in pair)  # type: ignore[attr-defined]
    for each in (history, again):  # and it goes on to learn the same
        for k in range(20):
            each.run(0.3 * k)
    found = predictions(again.ledger, again.now_s)
    assert found == predictions(history.ledger, history.now_s)


def test_a_snapshot_of_an_older_release_loads_and_what_runs_is_followed() -> None:
    history = eventful()
    records = taken(history.ledger, history.now_s)
    again = History()
    again.ledger = loaded([r for r in records if not isinstance(r, SnapshotDurations)])
    again.now_s = history.now_s
    runs = next(again.ledger.in_state(WorkloadState.RUNNING))
    assert again.ledger.durations.remaining(runs, again.now_s) is None
    for _ in range(LEAST_KNOWN):
        again.run(200.0)
    ran_h = (again.now_s - runs.started_at_s) / HOUR_S
    again.end(runs, WorkloadEvent.COMPLETED)
    assert again.expected_h() == pytest.approx((ran_h + 200 * LEAST_KNOWN) / 9, rel=0.07)


def test_no_record_of_what_was_learned_is_large() -> None:
    history = History()
    for k in range(2_000):
        wanted = draft(gang(2), name="x" * 200, user=f"user{k}")
        history.apply(
            Submitted(at_s=history.now_s, draft=wanted, first_id=WorkloadId(5000 + k), key=str(k))
        )
        history.start(history.ledger.entries[WorkloadId(5000 + k)])
        history.now_s += 1.0
        if k % 2:
            history.end(history.ledger.entries[WorkloadId(5000 + k)], WorkloadEvent.COMPLETED)
    records = list(history.ledger.durations.saved(history.now_s))
    assert len(records) > 10
    assert max(len(encode_event(record)) for record in records) < 64 << 10
