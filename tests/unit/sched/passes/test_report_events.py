"""What a report means: the steps that must have been, in order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.lifecycle import WorkloadEvent, WorkloadState, step
from federator.model.reason import Reason, ReasonCode
from federator.model.site import AttemptReport, Leave, SiteComponent, SiteJobState
from federator.sched.passes.report_events import events_of_report, reason_for
from federator.sched.state.ledger import WorkloadRecord
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
    entry = WorkloadRecord(
        workload=replace(workload(), requeue=requeue), state=state, withdrawing=withdrawing
    )
    for happening in events_of_report(entry, report(told)):
        state = step(state, happening).to


@pytest.mark.parametrize("state", AT_SITE)
def test_every_end_at_the_site_ends_the_attempt(state: WorkloadState) -> None:
    for told in (s for s in SiteJobState if s.ended):
        reached = state
        for happening in events_of_report(
            WorkloadRecord(workload=workload(), state=state), report(told)
        ):
            reached = step(reached, happening).to
        assert reached not in AT_SITE, told


@pytest.mark.parametrize("told", [SiteJobState.RUNNING, SiteJobState.SUSPENDED])
def test_the_same_news_twice_is_no_news(told: SiteJobState) -> None:
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.RUNNING)
    assert events_of_report(entry, report(told)) == []


def test_steps_that_no_sweep_saw_are_filled_in() -> None:
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.AWARDED)
    assert events_of_report(entry, report(SiteJobState.COMPLETED)) == [
        WorkloadEvent.ACCEPTED,
        WorkloadEvent.STARTED,
        WorkloadEvent.COMPLETED,
    ]


def test_a_withdrawn_job_is_told_from_one_that_somebody_cancelled() -> None:
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.LAUNCHING)
    assert events_of_report(entry, report(SiteJobState.CANCELLED)) == [WorkloadEvent.CANCELLED]
    entry.withdrawing = True
    assert events_of_report(entry, report(SiteJobState.CANCELLED)) == [WorkloadEvent.WITHDRAWN]


def test_a_job_that_its_site_ended_for_its_deadline_never_started() -> None:
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.LAUNCHING)
    told = report(SiteJobState.DEADLINE)
    assert events_of_report(entry, told) == [WorkloadEvent.DEADLINE_PASSED]
    ran = replace(told, started_at_s=5.0)
    expected = [WorkloadEvent.STARTED, WorkloadEvent.FAILED]
    assert events_of_report(entry, ran) == expected


def test_a_node_failure_ends_what_may_not_be_requeued() -> None:
    entry = WorkloadRecord(workload=replace(workload(), requeue=False), state=WorkloadState.RUNNING)
    assert events_of_report(entry, report(SiteJobState.NODE_FAIL)) == [WorkloadEvent.FAILED]


@pytest.mark.parametrize("state", [SiteJobState.CANCELLED, SiteJobState.FAILED])
def test_what_a_prolog_refused_and_may_not_be_requeued_fails_on_account_of_its_node(
    state: SiteJobState,
) -> None:
    entry = WorkloadRecord(workload=replace(workload(), requeue=False), state=WorkloadState.RUNNING)
    refused = replace(report(state), exit_code=1, failed_nodes=("n1",), failed_why="n1: ecc")
    assert events_of_report(entry, refused) == [WorkloadEvent.FAILED]
    why = reason_for(entry, WorkloadEvent.FAILED, refused)
    assert why is not None
    assert (why.code, why.detail) == (ReasonCode.NODE_FAILED, "n1 (n1: ecc)")


def test_a_job_whose_files_could_not_be_opened_says_which() -> None:
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.RUNNING)
    wrong = "at alpine: --output=/x/7.out: its folder does not exist"
    ended = replace(report(SiteJobState.FAILED), signal=53, unopened=wrong)
    assert events_of_report(entry, ended) == [WorkloadEvent.FAILED]
    why = reason_for(entry, WorkloadEvent.FAILED, ended)
    assert why is not None
    assert (why.code, why.detail) == (ReasonCode.FILES, wrong)


def test_running_on_while_it_is_being_cancelled_is_no_news() -> None:
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.CANCELLING)
    assert events_of_report(entry, report(SiteJobState.RUNNING)) == []


def test_a_cancel_of_what_ran_for_long_after_a_withdrawal_was_somebody_elses() -> None:
    entry = WorkloadRecord(
        workload=workload(), state=WorkloadState.RUNNING, withdrawing=True, started_at_s=100.0
    )
    late = replace(report(SiteJobState.CANCELLED), ended_at_s=5000.0)
    assert events_of_report(entry, late) == [WorkloadEvent.CANCELLED]


@pytest.mark.parametrize("skew_s", [-600.0, 0.0, 600.0])
def test_a_withdrawal_that_met_a_job_as_it_started_is_ours_whatever_the_sites_clock_shows(
    skew_s: float,
) -> None:
    entry = WorkloadRecord(
        workload=workload(),
        state=WorkloadState.RUNNING,
        withdrawing=True,
        started_at_s=1000.0 + skew_s,
    )
    ended = replace(report(SiteJobState.CANCELLED), ended_at_s=1002.0 + skew_s)
    assert events_of_report(entry, ended) == [WorkloadEvent.WITHDRAWN]


def test_a_withdrawal_that_took_effect_late_is_still_ours() -> None:
    """It is repeated until it has an effect, for instance once the site is back."""
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.LAUNCHING, withdrawing=True)
    late = replace(report(SiteJobState.CANCELLED), ended_at_s=5000.0)
    assert events_of_report(entry, late) == [WorkloadEvent.WITHDRAWN]


# ---- what its site's watch did ----


def test_what_the_sites_watch_ended_says_so_and_any_other_that_it_was_cancelled() -> None:
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.RUNNING)
    ended_by_watch = replace(report(SiteJobState.CANCELLED), reason="fed-watch:idle-7200s")
    why = reason_for(entry, WorkloadEvent.CANCELLED, ended_by_watch)
    assert why == Reason(code=ReasonCode.RECLAIMED, detail="idle for 7200 s")
    why = reason_for(entry, WorkloadEvent.CANCELLED, report(SiteJobState.CANCELLED))
    assert why == Reason(code=ReasonCode.SITE_CANCELLED)
    by_gate = replace(report(SiteJobState.CANCELLED), reason="fed-gate:there-is-no-lease")
    why = reason_for(entry, WorkloadEvent.CANCELLED, by_gate)
    assert why == Reason(code=ReasonCode.SITE_CANCELLED, detail="by its gate: there is no lease")
    entry.state = WorkloadState.CANCELLING
    assert reason_for(entry, WorkloadEvent.CANCELLED, ended_by_watch) is None


def test_a_job_that_the_sites_watch_put_back_is_requeued_and_says_why() -> None:
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.RUNNING)
    put_back = replace(
        report(SiteJobState.PENDING), restarts=1, reason="BeginTime fed-watch:zombie-600s"
    )
    why = reason_for(entry, WorkloadEvent.SITE_REQUEUED, put_back)
    assert why == Reason(code=ReasonCode.REQUEUED, detail="by its watch, zombie for 600 s")


@pytest.mark.parametrize("words", ["fed-watch:busy-1s", "fed-watch:idle-s", "fed-watch:idle-1s x"])
def test_a_note_that_the_watch_does_not_write_is_no_reason(words: str) -> None:
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.RUNNING)
    told = replace(report(SiteJobState.CANCELLED), reason=words)
    assert reason_for(entry, WorkloadEvent.CANCELLED, told) == Reason(
        code=ReasonCode.SITE_CANCELLED
    )


# ---- what a job asks for by the way it ends ----


def ended(
    exit_code: int = 0,
    signal: int = 0,
    leave: Leave | None = None,
    state: SiteJobState = SiteJobState.FAILED,
) -> AttemptReport:
    """It ended at 101 s."""
    return replace(
        report(state),
        exit_code=exit_code,
        signal=signal,
        ended_at_s=101.0,
        leave=leave,
    )


TOLD = Leave(told_at_s=100.0)


@pytest.mark.parametrize("continues", [False, True])
def test_exit_status_85_of_one_that_nobody_told_asks_for_another_start(continues: bool) -> None:
    """It may answer Slurm's own signal, or have saved because it wanted to."""
    asks = replace(workload(), continues=continues)
    entry = WorkloadRecord(workload=asks, state=WorkloadState.RUNNING)
    assert events_of_report(entry, ended(85)) == [WorkloadEvent.CHECKPOINTED]
    assert step(WorkloadState.RUNNING, WorkloadEvent.CHECKPOINTED).to is WorkloadState.PENDING


def test_exit_status_85_is_a_failure_of_one_that_may_not_be_requeued() -> None:
    entry = WorkloadRecord(workload=replace(workload(), requeue=False), state=WorkloadState.RUNNING)
    assert events_of_report(entry, ended(85)) == [WorkloadEvent.FAILED]


@pytest.mark.parametrize("number", [1, 2, 3, 9, 10, 12, 14, 15])
def test_one_that_dies_of_a_signal_that_told_it_to_leave_has_left(number: int) -> None:
    """HUP INT QUIT KILL USR1 USR2 ALRM TERM, as Slurm says it or as a shell does."""
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.PREEMPTING)
    for found in (ended(signal=number, leave=TOLD), ended(128 + number, leave=TOLD)):
        assert events_of_report(entry, found) == [WorkloadEvent.PREEMPTED]


def test_one_that_is_cancelled_while_it_leaves_has_not_failed_by_leaving() -> None:
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.CANCELLING)
    for found in (ended(signal=15, leave=TOLD), ended(143, leave=TOLD), ended(1, leave=TOLD)):
        assert events_of_report(entry, found) == [WorkloadEvent.CANCELLED]
    for found in (ended(signal=11, leave=TOLD), ended(1)):
        assert events_of_report(entry, found) == [WorkloadEvent.FAILED]


def test_one_that_is_cancelled_while_it_leaves_has_not_completed_by_leaving() -> None:
    """Found by fault history 60000123: it had saved, and exited with 0."""
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.CANCELLING)
    done = ended(state=SiteJobState.COMPLETED, leave=TOLD)
    assert events_of_report(entry, done) == [WorkloadEvent.CANCELLED]
    for quicker in (replace(done, leave=None), replace(done, ended_at_s=99.0)):
        assert events_of_report(entry, quicker) == [WorkloadEvent.COMPLETED]


@pytest.mark.parametrize("number", [4, 6, 7, 8, 11])
def test_one_that_crashes_while_it_leaves_has_failed(number: int) -> None:
    """ILL ABRT BUS FPE SEGV."""
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.PREEMPTING)
    for found in (ended(signal=number, leave=TOLD), ended(128 + number, leave=TOLD)):
        assert events_of_report(entry, found) == [WorkloadEvent.FAILED]


@pytest.mark.parametrize(
    "found",
    [
        ended(139),
        ended(signal=11),
        ended(state=SiteJobState.OUT_OF_MEMORY),
    ],
)
def test_one_that_said_it_had_saved_comes_back_however_it_ends(found: AttemptReport) -> None:
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.PREEMPTING)
    saved = Leave(told_at_s=100.0, saved_at_s=100.5)
    assert events_of_report(entry, replace(found, leave=saved)) == [WorkloadEvent.PREEMPTED]
    assert events_of_report(entry, replace(found, leave=TOLD)) == [WorkloadEvent.FAILED]


def test_one_that_was_told_comes_back_whatever_status_its_launcher_makes_of_it() -> None:
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.PREEMPTING)
    assert events_of_report(entry, ended(1, leave=TOLD)) == [WorkloadEvent.PREEMPTED]
    assert events_of_report(entry, ended(1)) == [WorkloadEvent.FAILED]


@pytest.mark.parametrize("number", [10, 12])
def test_one_that_nobody_told_and_that_dies_of_a_signal_has_failed(number: int) -> None:
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.RUNNING)
    assert events_of_report(entry, ended(signal=number)) == [WorkloadEvent.FAILED]


@pytest.mark.parametrize(
    ("leave", "ends"),
    [(None, WorkloadEvent.COMPLETED), (Leave(told_at_s=10.0), WorkloadEvent.PREEMPTED)],
)
def test_a_het_job_whose_leader_completed_before_it_was_told_to_leave_does_not_come_back(
    leave: Leave | None, ends: WorkloadEvent
) -> None:
    """Somebody had cancelled its other component."""
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.PREEMPTING)
    parts = {
        0: SiteComponent(job_id=7, state=SiteJobState.COMPLETED),
        1: SiteComponent(job_id=8, state=SiteJobState.CANCELLED),
    }
    found = replace(report(SiteJobState.CANCELLED), components=parts, leave=leave, ended_at_s=20.0)
    assert events_of_report(entry, found) == [ends]


@pytest.mark.parametrize("told", [s for s in SiteJobState if s.ended])
def test_however_a_het_job_ends_whose_leader_had_completed_a_victim_has_left(
    told: SiteJobState,
) -> None:
    entry = WorkloadRecord(workload=workload(), state=WorkloadState.PREEMPTING)
    parts = {0: SiteComponent(job_id=7, state=SiteJobState.COMPLETED)}
    reached = WorkloadState.PREEMPTING
    for happening in events_of_report(entry, replace(report(told), components=parts)):
        reached = step(reached, happening).to
    assert reached not in AT_SITE
