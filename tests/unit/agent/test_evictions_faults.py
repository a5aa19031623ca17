"""Grace when folders hang, clocks differ, nodes fail or agents come late; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest

from federator.agent.acts import AT_ONCE
from federator.agent.base import CheckpointStatus
from federator.errors import SiteRefused
from federator.faults.slurm import SimulatedJob, SimulatedSlurm
from federator.model.site import SiteJobState
from federator.model.site_message import Report
from federator.wire.agent_protocol import PreemptOrder, SignalTo
from tests.fakes.agent import Daemon
from tests.fakes.build import attempt, plan_on, rack
from tests.unit.agent.test_evictions import (
    GRACE_S,
    KILL_WAIT_S,
    leave_of,
    preempt,
    seen_off,
    submitted,
)

HANGS_S = 1000.0
TERM_S = GRACE_S - 15.0


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path)


def all_seen_off(
    daemon: Daemon, users: list[str], meanwhile: Callable[[float], None] = lambda _at_s: None
) -> list[float]:
    """When the jobs of these users, one node each, had ended after all were ordered to leave.

    ``inf``: it had not.
    """
    daemon.slurm = daemon.site.slurm = SimulatedSlurm(rack("a", len(users)), daemon.clock)
    jobs = [
        daemon.slurm.submit(attempt(k), user, plan_on(f"a{k + 1}")) for k, user in enumerate(users)
    ]
    ends_s: list[float] = []

    async def script() -> None:
        await daemon.wait_for(Report)
        began_s = daemon.clock()
        for k, user in enumerate(users):
            daemon.tell(
                PreemptOrder(
                    attempt=attempt(k),
                    user=user,
                    site_job_id=jobs[k],
                    grace_s=GRACE_S,
                    signal="USR1",
                    signal_to=SignalTo.STEPS,
                    checkpoint_dir=f"/c/{k}",
                )
            )
        while daemon.clock() < began_s + 200.0:
            await asyncio.sleep(1.0)
            meanwhile(daemon.clock() - began_s)
        ended = [daemon.slurm.jobs[job] for job in jobs]
        ends_s.extend(inf if job.live else job.ended_at_s - began_s for job in ended)

    daemon.serve(script)
    return ends_s


def telling_hangs(daemon: Daemon, whose: str) -> None:
    real = daemon.site.notify

    async def tell(order: PreemptOrder, deadline_s: float) -> None:
        if order.user == whose:
            await asyncio.sleep(HANGS_S)
        await real(order, deadline_s)

    daemon.site.notify = tell  # type: ignore[method-assign]


# ---- folders that do not answer ----


def test_a_telling_that_hangs_delays_neither_term_nor_the_end(daemon: Daemon) -> None:
    telling_hangs(daemon, "ada")
    termed_s: list[float] = []
    began_s = daemon.clock()
    daemon.site.on_signal = lambda _job, _name: termed_s.append(daemon.clock() - began_s)
    report, took_s = seen_off(daemon)
    assert [name for _, name, _ in daemon.site.signals] == ["TERM"]
    assert TERM_S <= termed_s[0] < TERM_S + 1.0
    assert GRACE_S - KILL_WAIT_S <= took_s <= GRACE_S
    assert report.leave is None  # nobody knows that it was told


def test_a_telling_that_hangs_does_not_delay_the_kill(daemon: Daemon) -> None:
    telling_hangs(daemon, "ada")
    daemon.slurm.refuses_cancels = True
    _, took_s = seen_off(daemon)
    assert GRACE_S <= took_s < GRACE_S + 3.0


def test_hung_folders_of_one_user_do_not_keep_another_past_the_deadline(daemon: Daemon) -> None:
    telling_hangs(daemon, "bob")
    ends_s = all_seen_off(daemon, ["bob"] * AT_ONCE["tell"] + ["ada"])
    assert max(ends_s) <= GRACE_S


def test_a_look_that_hangs_does_not_delay_what_another_user_says(daemon: Daemon) -> None:
    real = daemon.site.read_checkpoint_status

    async def look(user: str, told: list[PreemptOrder]) -> list[CheckpointStatus]:
        if user == "bob":
            await asyncio.sleep(HANGS_S)
        return await real(user, told)

    def saves(at_s: float) -> None:
        if 20.0 <= at_s < 21.0:
            daemon.site.seen[attempt(1)] = CheckpointStatus(acked_at_s=daemon.clock())

    daemon.site.read_checkpoint_status = look  # type: ignore[assignment, method-assign]
    bobs_s, adas_s = all_seen_off(daemon, ["bob", "ada"], saves)
    assert 20.0 <= adas_s < 23.0
    assert bobs_s <= GRACE_S


# ---- what is not a save ----


@pytest.mark.parametrize(
    "state",
    [
        SiteJobState.TIMEOUT,
        SiteJobState.NODE_FAIL,
        SiteJobState.OUT_OF_MEMORY,
        SiteJobState.PREEMPTED,
        SiteJobState.DEADLINE,
    ],
)
def test_what_ends_it_in_its_grace_with_code_0_has_not_saved(
    daemon: Daemon, state: SiteJobState
) -> None:
    def ends(at_s: float) -> None:
        if 20.0 <= at_s < 21.0:
            daemon.slurm.end(attempt(), state, 0)

    report, _ = seen_off(daemon, ends)
    assert report.state is state
    assert not leave_of(report).saved


def test_one_that_a_failed_node_puts_back_has_not_saved_and_the_node_is_named_to_the_end(
    daemon: Daemon,
) -> None:
    def fails(at_s: float) -> None:
        if 20.0 <= at_s < 21.0:
            daemon.slurm.fail_prolog("a1")

    report, took_s = seen_off(daemon, fails)
    assert 20.0 <= took_s < 25.0
    assert (report.state, report.failed_nodes) == (SiteJobState.CANCELLED, ("a1",))
    assert not leave_of(report).saved


def test_one_that_its_site_preempts_has_not_saved(daemon: Daemon) -> None:
    def preempts(at_s: float) -> None:
        if 20.0 <= at_s < 21.0:
            daemon.slurm.starts_jobs = False
            daemon.slurm.requeue(attempt(), preempted=True)

    report, took_s = seen_off(daemon, preempts)
    assert 20.0 <= took_s < 25.0
    assert report.state is SiteJobState.CANCELLED
    assert not leave_of(report).saved


# ---- what is ----


def test_one_that_requeues_itself_and_runs_on_at_once_is_taken_back(daemon: Daemon) -> None:
    """No sweep ever sees it wait: only the count of its restarts tells."""

    def requeues(job: SimulatedJob, name: str) -> None:
        if name == "USR1":
            daemon.slurm.requeue(job.attempt)

    daemon.site.on_signal = requeues
    report, took_s = seen_off(daemon)
    assert 0.0 <= took_s < 15.0
    assert report.state is SiteJobState.CANCELLED
    assert leave_of(report).saved
    assert not leave_of(report).forced


@pytest.mark.parametrize("skew_s", [-5000.0, -40.0, 0.5, 3.0, 5000.0])
def test_an_answer_counts_from_when_it_is_seen_whatever_the_file_server_thinks(
    daemon: Daemon, skew_s: float
) -> None:
    began_s = daemon.clock()

    def saves(at_s: float) -> None:
        if 30.0 <= at_s < 31.0:
            daemon.site.seen[attempt()] = CheckpointStatus(acked_at_s=daemon.clock() + skew_s)

    report, took_s = seen_off(daemon, saves)
    assert 30.0 <= took_s < 33.0
    assert leave_of(report).saved
    assert 30.0 <= leave_of(report).saved_at_s - began_s < 33.0


def test_an_answer_that_is_seen_before_the_signal_got_through_ends_it_at_once(
    daemon: Daemon,
) -> None:
    """The deadline was in its folder; scancel alone was refused."""

    async def tell(order: PreemptOrder, deadline_s: float) -> None:
        raise SiteRefused("scancel: error")

    def saves(at_s: float) -> None:
        if 10.0 <= at_s < 11.0:
            daemon.site.seen[attempt()] = CheckpointStatus(acked_at_s=daemon.clock())

    daemon.site.notify = tell  # type: ignore[method-assign]
    report, took_s = seen_off(daemon, saves)
    assert 10.0 <= took_s < 13.0
    assert leave_of(report).saved


# ---- agents that come late ----


def test_an_agent_that_comes_after_the_deadline_says_that_it_has_forced_it(
    daemon: Daemon,
) -> None:
    job_id = submitted(daemon)

    async def first() -> None:
        await daemon.wait_for(Report)
        preempt(daemon, job_id)
        await asyncio.sleep(30.0)

    async def second() -> None:
        preempt(daemon, job_id)
        await asyncio.sleep(30.0)

    daemon.serve(first)
    daemon.clock.advance(2 * GRACE_S)
    daemon.serve(second)
    last = [r for report in daemon.heard(Report) for r in report.attempts][-1]
    assert last.signal == 9
    assert leave_of(last).forced
    assert not leave_of(last).saved
