"""Grace, kept by the agent: told once, warned, ended by the deadline; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from federator.agent.base import CheckpointStatus
from federator.agent.journal import Journal, JournalMark, JournalStep
from federator.faults.slurm import SimulatedJob
from federator.model.site import AttemptReport, Leave, SiteJobState
from federator.model.site_message import (
    AttemptAbsent,
    CancelOrder,
    LaunchAccepted,
    LaunchDeclined,
    Report,
)
from federator.wire.agent_protocol import PreemptOrder, SignalTo
from tests.fakes.agent import Daemon, order
from tests.fakes.build import attempt, plan_on

GRACE_S = 120.0
KILL_WAIT_S = 5.0


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path)


def preempt(daemon: Daemon, job_id: int, grace_s: float = GRACE_S) -> None:
    daemon.tell(
        PreemptOrder(
            attempt=attempt(),
            user="ada",
            site_job_id=job_id,
            grace_s=grace_s,
            signal="USR1",
            signal_to=SignalTo.STEPS,
            checkpoint_dir="/c/1",
        )
    )


def submitted(daemon: Daemon) -> int:
    return daemon.slurm.submit(attempt(), "ada", plan_on("a1"))


def seen_off(
    daemon: Daemon, meanwhile: Callable[[float], None] = lambda _at_s: None, for_s: float = 200.0
) -> tuple[AttemptReport, float]:
    """The attempt's last report, and how long after the order its job ended.

    ``meanwhile`` is called every second with the time since the order.
    """
    job_id = submitted(daemon)

    async def script() -> None:
        await daemon.wait_for(Report)
        began_s = daemon.clock()
        preempt(daemon, job_id)
        while daemon.clock() < began_s + for_s:
            await asyncio.sleep(1.0)
            meanwhile(daemon.clock() - began_s)
        ends.append(daemon.slurm.jobs[job_id].ended_at_s - began_s)

    ends: list[float] = []
    daemon.serve(script)
    told = [r for report in daemon.heard(Report) for r in report.attempts]
    return told[-1], ends[0]


def leave_of(report: AttemptReport) -> Leave:
    assert report.leave is not None
    return report.leave


# ---- the course of a grace ----


def test_it_is_told_at_once_warned_by_term_and_gone_at_the_deadline(daemon: Daemon) -> None:
    times: list[tuple[str, SignalTo, float]] = []
    began_s = daemon.clock()
    daemon.site.on_signal = lambda _job, name: times.append(
        (name, daemon.site.signals[-1][2], daemon.clock() - began_s)
    )
    report, took_s = seen_off(daemon)
    assert [(name, to) for name, to, _ in times] == [
        ("USR1", SignalTo.STEPS),
        ("TERM", SignalTo.ALL),
    ]
    assert times[0][2] < 1.0
    assert GRACE_S - 15.0 <= times[1][2] < GRACE_S - 14.0
    assert GRACE_S - KILL_WAIT_S <= took_s <= GRACE_S
    assert report.state is SiteJobState.CANCELLED
    assert leave_of(report).forced
    assert not leave_of(report).saved
    assert daemon.site.deadlines_s[attempt()] == pytest.approx(began_s + GRACE_S, abs=1.0)


def test_what_a_cancel_does_not_end_is_killed_at_the_deadline(daemon: Daemon) -> None:
    daemon.slurm.refuses_cancels = True
    report, took_s = seen_off(daemon)
    assert GRACE_S <= took_s < GRACE_S + 3.0
    assert (report.state, report.signal) == (SiteJobState.FAILED, 9)
    assert leave_of(report).forced


def test_with_a_long_kill_wait_half_of_the_grace_is_left_to_the_job(daemon: Daemon) -> None:
    daemon.slurm.kill_wait_s = 300.0
    _, took_s = seen_off(daemon)
    assert GRACE_S / 2 <= took_s < GRACE_S / 2 + 2.0


def test_it_is_told_once_however_often_the_order_comes(daemon: Daemon) -> None:
    def again(_at_s: float) -> None:
        preempt(daemon, 101, grace_s=500.0)

    _, took_s = seen_off(daemon, again)
    assert [name for _, name, _ in daemon.site.signals] == ["USR1", "TERM"]
    assert took_s <= GRACE_S


def test_an_agent_that_comes_after_keeps_the_deadline(daemon: Daemon) -> None:
    job_id = submitted(daemon)
    began_s = daemon.clock()

    async def first() -> None:
        await daemon.wait_for(Report)
        preempt(daemon, job_id)
        await asyncio.sleep(30.0)

    async def second() -> None:
        await daemon.wait_for(Report)
        preempt(daemon, job_id)
        await asyncio.sleep(150.0)

    daemon.serve(first)
    daemon.serve(second)
    assert [name for _, name, _ in daemon.site.signals] == ["USR1", "TERM"]
    assert daemon.slurm.jobs[job_id].ended_at_s - began_s == pytest.approx(GRACE_S, abs=7.0)


@pytest.mark.parametrize("ahead_s", [600.0, -600.0])
def test_a_clock_that_is_set_meanwhile_changes_nobodys_grace(
    daemon: Daemon, ahead_s: float
) -> None:
    def sets(at_s: float) -> None:
        if at_s > 10.0:
            daemon.clock_is_ahead_s = ahead_s

    _, took_s = seen_off(daemon, sets)
    assert GRACE_S - KILL_WAIT_S <= took_s <= GRACE_S + 1.0


@pytest.mark.parametrize("ahead_s", [20.0, 0.0, -20.0])
def test_what_was_seen_to_live_after_it_was_told_has_ended_after_that(
    daemon: Daemon, ahead_s: float
) -> None:
    """By whatever the agent's clock shows beside slurmctld's."""
    daemon.clock_is_ahead_s = ahead_s

    def ends(at_s: float) -> None:
        if at_s > 8.0:
            daemon.slurm.end(attempt())

    report, _ = seen_off(daemon, ends)
    assert report.state is SiteJobState.COMPLETED
    assert report.ended_at_s >= leave_of(report).told_at_s
    assert leave_of(report).saved


def test_a_cancel_in_the_grace_is_remembered_beyond_it(daemon: Daemon) -> None:
    """The queue may be lost before it hears how the job ended."""
    Journal(daemon.folder, 0.0).put(
        attempt(), JournalMark(step=JournalStep.JOB, user="ada", at_s=daemon.clock(), job_id=101)
    )

    def cancels(at_s: float) -> None:
        if 10.0 <= at_s < 11.0:
            daemon.slurm.refuses_cancels = True
            daemon.tell(CancelOrder(attempt=attempt(), user="ada", site_job_id=101))
        daemon.slurm.refuses_cancels = at_s < 20.0

    seen_off(daemon, cancels)
    mark = Journal(daemon.folder, daemon.clock()).index.get(attempt())
    assert mark is not None
    assert mark.cancelled
    assert mark.leave_by_s
    assert mark.told_at_s


def test_a_slurm_that_does_not_answer_is_asked_until_it_does(daemon: Daemon) -> None:
    def down_for_a_while(at_s: float) -> None:
        daemon.site.down = 5.0 < at_s < GRACE_S + 20.0

    _, took_s = seen_off(daemon, down_for_a_while)
    assert GRACE_S + 20.0 <= took_s < GRACE_S + 30.0


def test_an_attempt_that_the_site_does_not_know_is_gone(daemon: Daemon) -> None:
    async def script() -> None:
        await daemon.wait_for(Report)
        preempt(daemon, 77)
        gone = await daemon.wait_for(Report, 2)
        assert gone.gone == (attempt(),)

    daemon.serve(script)
    assert not daemon.heard(AttemptAbsent)
    assert not daemon.site.signals


# ---- what jobs may do about it ----


def test_one_that_says_it_has_saved_is_ended_at_once(daemon: Daemon) -> None:
    def saves(at_s: float) -> None:
        if 30.0 <= at_s < 31.0:
            daemon.site.seen[attempt()] = CheckpointStatus(acked_at_s=daemon.clock())

    report, took_s = seen_off(daemon, saves)
    assert 30.0 <= took_s < 33.0
    assert leave_of(report).saved
    assert not leave_of(report).forced


@pytest.mark.parametrize(
    ("state", "exit_code", "saved"),
    [
        (SiteJobState.FAILED, 85, True),  # "checkpointed, start me again"
        (SiteJobState.COMPLETED, 0, True),  # as Slurm itself takes what exits in its grace
        (SiteJobState.FAILED, 1, False),
    ],
)
def test_how_it_leaves_tells_whether_it_has_saved(
    daemon: Daemon, state: SiteJobState, exit_code: int, saved: bool
) -> None:
    def leaves(at_s: float) -> None:
        if 20.0 <= at_s < 21.0:
            daemon.slurm.end(attempt(), state, exit_code)

    report, _ = seen_off(daemon, leaves)
    assert (report.state, leave_of(report).saved) == (state, saved)


def test_the_last_periodic_checkpoint_counts_where_it_did_not_save(daemon: Daemon) -> None:
    checkpointed_s = daemon.clock() - 50.0
    daemon.site.seen[attempt()] = CheckpointStatus(checkpointed_at_s=checkpointed_s)
    report, _ = seen_off(daemon)
    assert leave_of(report).saved_at_s == checkpointed_s
    assert not leave_of(report).saved


def test_one_that_requeues_itself_is_taken_back_and_never_doubled(daemon: Daemon) -> None:
    def requeues(job: SimulatedJob, name: str) -> None:
        if name == "USR1":
            daemon.slurm.starts_jobs = False
            daemon.slurm.requeue(job.attempt)

    daemon.site.on_signal = requeues
    report, took_s = seen_off(daemon)
    assert report.state is SiteJobState.CANCELLED
    assert took_s < 10.0
    assert leave_of(report).saved


def test_one_that_has_requeued_itself_and_runs_again_is_taken_back_too(daemon: Daemon) -> None:
    def requeues(job: SimulatedJob, name: str) -> None:
        if name == "USR1":
            daemon.slurm.starts_jobs = False
            daemon.slurm.requeue(job.attempt)

    def runs_again(at_s: float) -> None:
        daemon.slurm.refuses_cancels = at_s < 20.0
        daemon.slurm.starts_jobs = at_s > 10.0
        daemon.slurm.start_what_can()

    daemon.site.on_signal = requeues
    report, took_s = seen_off(daemon, runs_again)
    assert report.state is SiteJobState.CANCELLED
    assert took_s < 25.0


def test_one_that_ends_before_it_could_be_told_ended_by_itself(daemon: Daemon) -> None:
    job_id = submitted(daemon)

    async def script() -> None:
        await daemon.wait_for(Report)
        daemon.slurm.end(attempt())
        preempt(daemon, job_id)
        await asyncio.sleep(30.0)

    daemon.serve(script)
    last = [r for report in daemon.heard(Report) for r in report.attempts][-1]
    assert (last.state, last.leave) == (SiteJobState.COMPLETED, None)


# ---- who waits for the nodes ----


def test_a_launch_that_waits_for_victims_is_held_beside_them(daemon: Daemon) -> None:
    """Its nodes are taken, but by those who leave for it: that is no obstacle."""
    submitted(daemon)

    async def script() -> None:

        await daemon.wait_for(Report)
        victim = attempt().workload
        daemon.tell(msgspec.structs.replace(order(1, "a1"), victims=(victim,)))
        await daemon.wait_for(LaunchAccepted)
        daemon.tell(order(2, "a1"))
        declined = await daemon.wait_for(LaunchDeclined)
        assert declined.attempt == attempt(2)

    daemon.serve(script)
