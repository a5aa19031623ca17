"""What a report means: the steps that must have been, in order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.lifecycle import Happening, WorkloadState, step
from federator.model.site import AttemptReport, SiteJobState
from federator.sched.ledger import Entry
from federator.sched.news import happenings
from tests.fakes.build import attempt, workload

AT_SITE = (
    WorkloadState.AWARDED,
    WorkloadState.LAUNCHING,
    WorkloadState.RUNNING,
    WorkloadState.PREEMPTING,
    WorkloadState.CANCELLING,
)


def report(state: SiteJobState) -> AttemptReport:
    return AttemptReport(attempt=attempt(), user="ada", site_job_id=7, state=state)


@pytest.mark.parametrize("withdrawing", [False, True])
@pytest.mark.parametrize("requeue", [False, True])
@pytest.mark.parametrize("told", list(SiteJobState))
@pytest.mark.parametrize("state", AT_SITE)
def test_whatever_a_site_reports_of_a_live_attempt_is_legal(
    state: WorkloadState, told: SiteJobState, requeue: bool, withdrawing: bool
) -> None:
    entry = Entry(workload=replace(workload(), requeue=requeue), state=state,
                  withdrawing=withdrawing)  # fmt: skip
    for happening in happenings(entry, report(told)):
        state = step(state, happening).to


@pytest.mark.parametrize("state", AT_SITE)
def test_every_end_at_the_site_ends_the_attempt(state: WorkloadState) -> None:
    for told in (s for s in SiteJobState if s.ended):
        reached = state
        for happening in happenings(Entry(workload=workload(), state=state), report(told)):
            reached = step(reached, happening).to
        assert reached not in AT_SITE, told


@pytest.mark.parametrize("told", [SiteJobState.RUNNING, SiteJobState.SUSPENDED])
def test_the_same_news_twice_is_no_news(told: SiteJobState) -> None:
    entry = Entry(workload=workload(), state=WorkloadState.RUNNING)
    assert happenings(entry, report(told)) == []


def test_steps_that_no_sweep_saw_are_filled_in() -> None:
    entry = Entry(workload=workload(), state=WorkloadState.AWARDED)
    assert happenings(entry, report(SiteJobState.COMPLETED)) == [
        Happening.ACCEPTED,
        Happening.STARTED,
        Happening.COMPLETED,
    ]


def test_a_withdrawn_job_is_told_from_one_that_somebody_cancelled() -> None:
    entry = Entry(workload=workload(), state=WorkloadState.LAUNCHING)
    assert happenings(entry, report(SiteJobState.CANCELLED)) == [Happening.CANCELLED]
    entry.withdrawing = True
    assert happenings(entry, report(SiteJobState.CANCELLED)) == [Happening.WITHDRAWN]


def test_a_node_failure_ends_what_may_not_be_requeued() -> None:
    entry = Entry(workload=replace(workload(), requeue=False), state=WorkloadState.RUNNING)
    assert happenings(entry, report(SiteJobState.NODE_FAIL)) == [Happening.FAILED]


def test_running_on_while_it_is_being_cancelled_is_no_news() -> None:
    entry = Entry(workload=workload(), state=WorkloadState.CANCELLING)
    assert happenings(entry, report(SiteJobState.RUNNING)) == []


def test_a_cancel_long_after_a_withdrawal_was_somebody_elses() -> None:
    entry = Entry(workload=workload(), state=WorkloadState.RUNNING, withdrawing=True,
                  withdrawn_at_s=100.0)  # fmt: skip
    late = replace(report(SiteJobState.CANCELLED), ended_at_s=5000.0)
    assert happenings(entry, late) == [Happening.CANCELLED]


def test_a_withdrawal_that_took_effect_late_is_still_ours() -> None:
    """It is repeated until it has an effect, for instance once the site is back."""
    entry = Entry(workload=workload(), state=WorkloadState.LAUNCHING, withdrawing=True,
                  withdrawn_at_s=100.0)  # fmt: skip
    late = replace(report(SiteJobState.CANCELLED), ended_at_s=5000.0)
    assert happenings(entry, late) == [Happening.WITHDRAWN]
