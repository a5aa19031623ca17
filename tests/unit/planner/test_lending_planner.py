"""The planner reads the log, and forecasts what owners will ask for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from federator.model.draft import Draft
from federator.model.eligibility import Hold
from federator.model.event import (
    Awarded,
    Changed,
    Forgotten,
    LogRecord,
    Submitted,
    decode_event,
    encode_event,
)
from federator.model.lending import LendingPlan, LoadForecast
from federator.model.lifecycle import WorkloadEvent
from federator.model.tenant import Allowance, Tenancy, Tenant
from federator.model.workload import FIRST_WORKLOAD_ID, TenantName, WorkloadId
from federator.planner.anticipation import WINDOWS_S
from federator.planner.forecast import LatelyForecast
from federator.planner.history import STEP_S
from federator.planner.lending_planner import LOOKS_BACK_S, LendingPlanner
from federator.planner.promises import ENOUGH
from federator.planner.workload_steps import LoadStep, WorkloadSteps
from federator.sched.state.ledger import Ledger
from federator.sched.state.snapshot import taken
from tests.fakes.build import attempt, draft, gang, plan_on, tenant

T0 = 1_000_000.0
DAY_S = 86_400


def tenancy() -> Tenancy:
    typed = Allowance(gpus=32, gpu_types={"h100": 8})
    return Tenancy(
        [
            tenant("vision", 16),
            Tenant(name=TenantName("nlp"), quota=typed),
            Tenant(name=TenantName("guest")),
        ]
    )


def submitted(number: int, at_s: float, wanted: Draft | None = None) -> Submitted:
    id_ = WorkloadId(FIRST_WORKLOAD_ID + number)
    return Submitted(at_s=at_s, draft=wanted or draft(gang(1, 8)), first_id=id_, key=f"k{number}")


def changed(number: int, happening: WorkloadEvent, at_s: float) -> Changed:
    id_ = WorkloadId(FIRST_WORKLOAD_ID + number)
    return Changed(at_s=at_s, workload=id_, happening=happening, attempt=1)


def life(number: int, at_s: float, runs_s: float, wanted: Draft | None = None) -> list[LogRecord]:
    """Submitted, awarded and started within a second, and completed."""
    return [
        submitted(number, at_s, wanted),
        Awarded(at_s=at_s, attempt=attempt(number), site="alpine", jobs=plan_on("a1")),
        changed(number, WorkloadEvent.ACCEPTED, at_s),
        changed(number, WorkloadEvent.STARTED, at_s + 1),
        changed(number, WorkloadEvent.COMPLETED, at_s + 1 + runs_s),
    ]


def planner(*records: LogRecord) -> LendingPlanner:
    found = LendingPlanner(tenancy(), LatelyForecast(), "lately")
    for record in records:
        found.take(record)
    return found


def new_gpus(plan: LendingPlan) -> dict[tuple[str, str], tuple[int, ...]]:
    return {(f.tenant, f.gpu_type): f.new_gpus for f in plan.forecasts}


def test_a_plan_has_each_tenant_with_a_quota_and_each_type_that_one_counts() -> None:
    plan = planner().plan(T0)
    assert new_gpus(plan) == {
        ("vision", ""): (0, 0, 0),
        ("nlp", ""): (0, 0, 0),
        ("nlp", "h100"): (0, 0, 0),
    }
    assert (plan.made_at_s, plan.expires_at_s, plan.source) == (T0, T0 + 900, "lately")
    assert plan.windows_s == WINDOWS_S


def test_new_load_is_forecast_where_it_came_lately() -> None:
    h100 = draft(replace(gang(1, 4), gpu_types=("h100",)), tenant="nlp")
    events = [*life(0, T0 + 10, 60.0), *life(1, T0 + 20, 60.0, h100)]
    found = new_gpus(planner(*events).plan(T0 + 610))
    assert found == {
        ("vision", ""): (0, 8, 8),
        ("nlp", ""): (0, 4, 4),
        ("nlp", "h100"): (0, 4, 4),
    }


def test_load_is_at_most_the_quota_and_work_that_never_fits_it_is_no_load() -> None:
    events = [submitted(k, T0 + k, draft(gang(1, 12))) for k in range(3)]
    never = [submitted(k, T0 + k, draft(gang(3, 8))) for k in range(3, 6)]
    found = planner(*events, *never).plan(T0 + 600)
    assert new_gpus(found)["vision", ""] == (0, 16, 16)
    assert new_gpus(planner(*never).plan(T0 + 600))["vision", ""] == (0, 0, 0)


def steps(records: Iterable[LogRecord]) -> list[tuple[float, LoadStep]]:
    read = WorkloadSteps(tenancy())
    return [(s.at_s - T0, s.step) for record in records for s in read.take(record)]


def test_held_work_comes_when_it_may_start() -> None:
    held = submitted(0, T0, draft(gang(1), hold=Hold.USER))
    assert steps([held, changed(0, WorkloadEvent.ELIGIBLE, T0 + 90)]) == [(90, LoadStep.CAME)]


def test_evicted_work_does_not_come_anew_and_ends_once() -> None:
    events = [
        *life(0, T0, 0.0)[:4],
        changed(0, WorkloadEvent.EVICTED, T0 + 50),
        changed(0, WorkloadEvent.PREEMPTED, T0 + 60),
        *life(0, T0 + 70, 20.0)[1:],
        Forgotten(at_s=T0 + 99, ids=(FIRST_WORKLOAD_ID,)),
    ]
    assert steps(events) == [
        (0, LoadStep.CAME),
        (1, LoadStep.STARTED),
        (71, LoadStep.STARTED),
        (91, LoadStep.ENDED),
    ]


def test_work_that_is_cancelled_before_it_starts_ends_without_a_run() -> None:
    events: list[LogRecord] = [
        submitted(0, T0),
        changed(0, WorkloadEvent.CANCEL_ASKED, T0 + 5),
        *life(1, T0 + 10, 60.0),
    ]
    assert new_gpus(planner(*events).plan(T0 + 600))["vision", ""] == (0, 16, 16)


def test_a_snapshot_tells_what_the_log_before_it_told() -> None:
    events = [*life(0, T0 + 10, 400.0), *life(1, T0 + 1000, 60.0), submitted(2, T0 + 1200)]
    ledger = Ledger(tenancy())
    for event in events:
        ledger.apply(event)
    snapshot = [decode_event(encode_event(e)) for e in taken(ledger, T0 + 1500)]
    later = life(2, T0 + 1600, 10.0)[1:]
    before, after = planner(*events, *later), planner(*snapshot, *later)
    assert after.plan(T0 + 2000).forecasts == before.plan(T0 + 2000).forecasts


def test_a_planner_that_begins_late_says_what_one_that_ran_on_says() -> None:
    events = [e for k in range(200) for e in life(k, T0 + 1800 * k, 900.0)]
    events.sort(key=lambda e: e.at_s)
    now_s = T0 + 1800 * 200
    running, late = planner(), planner(*events)
    at_s, given = T0, 0
    while at_s <= now_s:
        while given < len(events) and events[given].at_s <= at_s:
            running.take(events[given])
            given += 1
        plan = running.plan(at_s)
        at_s += STEP_S
    found = late.plan(plan.made_at_s)
    assert new_gpus(found) == new_gpus(plan)
    (mine, *_), (theirs, *_) = found.forecasts, plan.forecasts
    assert mine.promises[1] == theirs.promises[1] == 100


def test_a_tenant_whose_forecasts_often_fail_lends_nothing_for_such_windows() -> None:
    """Every half hour 8 GPUs come; five minutes before nobody thinks so."""
    events = [e for k in range(40) for e in life(k, T0 + 600 * k + 5, 60.0)]
    found = planner(*events)
    vision, nlp = found.plan(T0 + 600 * 40).forecasts[:2]
    assert vision.promises[0] > ENOUGH
    assert vision.is_off(0)
    assert not vision.is_off(1)
    assert not any(nlp.is_off(window) for window in range(3))
    assert vision.precision_frac(0) < 0.8 < vision.precision_frac(1)


def test_history_of_long_ago_is_left_out() -> None:
    old = [e for k in range(3) for e in life(k, T0 + k, 60.0)]
    now_s = T0 + LOOKS_BACK_S + DAY_S
    found = planner(*old, *life(9, now_s - 400, 60.0))
    assert new_gpus(found.plan(now_s))["vision", ""][1:] == (8, 8)


def test_the_same_log_gives_the_same_plan() -> None:
    events = [e for k in range(30) for e in life(k, T0 + 977 * k, 60.0 * k)]
    events.sort(key=lambda e: e.at_s)
    assert planner(*events).plan(T0 + 40_000) == planner(*events).plan(T0 + 40_000)


@pytest.mark.parametrize("now_s", [T0, T0 + 1])
def test_a_planner_without_any_history_promises_nothing_to_come(now_s: float) -> None:
    (vision, *_) = planner().plan(now_s).forecasts
    assert vision == LoadForecast(
        tenant="vision", new_gpus=(0, 0, 0), off=(False,) * 3, kept=(0,) * 3, promises=(0,) * 3
    )
