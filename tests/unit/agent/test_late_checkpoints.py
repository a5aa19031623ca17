"""What attempts saved before they ended untold: looked at once, and told with their end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from federator.agent.acts import AT_ONCE, LOOK_TAKES_S
from federator.agent.base import CheckpointStatus
from federator.agent.folders import LateCheckpoints
from federator.agent.journal import JournalMark, JournalStep
from federator.faults.clock import VirtualClock, run_virtual
from federator.model.site import AttemptReport, SiteJobState
from federator.model.site_message import LaunchAccepted, Report
from federator.wire.agent_protocol import PreemptOrder
from tests.fakes.agent import Daemon, LookedSite, PartOfAgent, order
from tests.fakes.build import attempt

SAVED_AT_S = 77.0
PUT_BACK = SiteJobState.PENDING


def report(number: int, state: SiteJobState, restarts: int = 0, user: str = "ada") -> AttemptReport:
    return AttemptReport(
        attempt=attempt(number), user=user, site_job_id=100 + number, state=state, restarts=restarts
    )


class Rig:
    """One ``LateCheckpoints``, and the sweeps that it completes."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.site = LookedSite(self.clock)
        self._agent = PartOfAgent(folder, self.site, self.clock)
        self._late = LateCheckpoints(self._agent.memory)

    def launched(self, number: int, user: str = "ada", folder: str = "/c") -> None:
        """An attempt that has saved at its site, if it has a folder."""
        mark = JournalMark(
            step=JournalStep.JOB,
            at_s=self.clock(),
            user=user,
            job_id=100 + number,
            checkpoint_dir=folder and f"{folder}/{number}",
        )
        self._agent.journal.put(attempt(number), mark)
        self.site.seen[attempt(number)] = CheckpointStatus(checkpointed_at_s=SAVED_AT_S)

    def saved(self, *reports: AttemptReport) -> list[float]:
        """What is known of each after one more sweep."""
        found: list[float] = []

        async def sweep() -> None:
            swept = {r.attempt: r for r in reports}
            self._late.looks(swept)
            self._agent.begin(self._late.looked)
            await self._agent.finish()
            done = self._late.complete(swept)
            found.extend(done[r.attempt].saved_at_s for r in reports)

        run_virtual(self.clock, sweep())
        return found


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.mark.parametrize(
    "found",
    [
        report(1, SiteJobState.NODE_FAIL),
        report(1, SiteJobState.BOOT_FAIL),
        report(1, SiteJobState.PREEMPTED),
        report(1, SiteJobState.TIMEOUT),
        report(1, PUT_BACK, restarts=1),
    ],
)
def test_what_ends_or_is_put_back_untold_is_looked_at_once(rig: Rig, found: AttemptReport) -> None:
    rig.launched(1)
    assert [rig.saved(found) for _ in range(3)] == [[SAVED_AT_S]] * 3
    ((asked,),) = rig.site.looks
    assert (asked.attempt, asked.user, asked.checkpoint_dir) == (attempt(1), "ada", "/c/1")


@pytest.mark.parametrize(
    "found",
    [
        report(1, PUT_BACK),
        report(1, SiteJobState.RUNNING, restarts=1),
        report(1, SiteJobState.COMPLETED),
        report(1, SiteJobState.FAILED),
        report(1, SiteJobState.CANCELLED),
    ],
)
def test_nobody_looks_at_what_waits_runs_or_has_ended_for_good(
    rig: Rig, found: AttemptReport
) -> None:
    rig.launched(1)
    assert rig.saved(found) == [0.0]
    assert rig.site.looks == []


def test_one_that_is_put_back_again_is_looked_at_again(rig: Rig) -> None:
    rig.launched(1)
    rig.site.seen.clear()
    assert rig.saved(report(1, PUT_BACK, restarts=1)) == [0.0]
    rig.site.seen[attempt(1)] = CheckpointStatus(checkpointed_at_s=SAVED_AT_S)
    assert rig.saved(report(1, SiteJobState.RUNNING, restarts=1)) == [0.0]
    assert rig.saved(report(1, PUT_BACK, restarts=2)) == [SAVED_AT_S]
    assert rig.saved(report(1, SiteJobState.NODE_FAIL, restarts=2)) == [SAVED_AT_S]
    assert len(rig.site.looks) == 3


def test_attempts_without_a_folder_or_a_mark_are_not_looked_for(rig: Rig) -> None:
    rig.launched(1, folder="")
    failed = SiteJobState.NODE_FAIL
    assert rig.saved(report(1, failed), report(2, failed)) == [0.0, 0.0]
    assert rig.site.looks == []


def test_one_question_is_asked_for_each_user_and_a_refusal_is_only_theirs(rig: Rig) -> None:
    for number, user in enumerate(["ada", "bob", "ada"]):
        rig.launched(number, user)
    rig.site.refuses = {"bob"}
    failed = [
        report(number, SiteJobState.NODE_FAIL, user=user)
        for number, user in enumerate(["ada", "bob", "ada"])
    ]
    assert rig.saved(*failed) == [SAVED_AT_S, 0.0, SAVED_AT_S]
    assert sorted(len(orders) for orders in rig.site.looks) == [1, 2]
    assert rig.saved(*failed) == [SAVED_AT_S, 0.0, SAVED_AT_S]  # nor is it asked again
    assert len(rig.site.looks) == 2


def test_folders_that_hang_delay_a_sweep_by_no_more_than_one_look(rig: Rig) -> None:
    users = [f"u{k}" for k in range(2 * AT_ONCE["endings"])]
    for number, user in enumerate(["ada", *users]):
        rig.launched(number, user)
    rig.site.hangs = set(users)
    failed = [
        report(number, SiteJobState.NODE_FAIL, user=user)
        for number, user in enumerate(["ada", *users])
    ]
    began_s = rig.clock()
    rig.saved(*failed)
    assert rig.clock() - began_s == pytest.approx(LOOK_TAKES_S)
    rig.saved(*failed)
    assert rig.clock() - began_s == pytest.approx(LOOK_TAKES_S)


# ---- at the agent ----


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path)


def last_told(daemon: Daemon) -> AttemptReport:
    return [each for said in daemon.heard(Report) for each in said.attempts][-1]


async def launched_and_saved(daemon: Daemon) -> None:
    daemon.tell(msgspec.structs.replace(order(), checkpoint_dir="/c/1"))
    await daemon.wait_for(LaunchAccepted)
    daemon.site.seen[attempt()] = CheckpointStatus(checkpointed_at_s=SAVED_AT_S)
    await asyncio.sleep(10.0)


def test_the_end_of_a_job_whose_node_fails_is_told_with_its_checkpoint(daemon: Daemon) -> None:
    async def script() -> None:
        await launched_and_saved(daemon)
        daemon.slurm.fail_node("a1")
        await asyncio.sleep(30.0)

    daemon.serve(script)
    ends = [r for said in daemon.heard(Report) for r in said.attempts if r.state.ended]
    assert [(r.state, r.saved_at_s) for r in ends] == [(SiteJobState.NODE_FAIL, SAVED_AT_S)]


def test_an_agent_that_comes_after_knows_the_folder(daemon: Daemon) -> None:
    async def first() -> None:
        await launched_and_saved(daemon)

    async def second() -> None:
        daemon.slurm.requeue(attempt())
        await asyncio.sleep(30.0)

    daemon.serve(first)
    daemon.slurm.starts_jobs = False
    daemon.serve(second)
    told = last_told(daemon)
    assert (told.state, told.restarts, told.saved_at_s) == (PUT_BACK, 1, SAVED_AT_S)


def test_what_was_told_to_leave_is_not_looked_at_here(daemon: Daemon) -> None:
    async def script() -> None:
        await launched_and_saved(daemon)
        daemon.tell(
            PreemptOrder(
                attempt=attempt(), user="ada", site_job_id=101, grace_s=120.0, checkpoint_dir="/c/1"
            )
        )
        await asyncio.sleep(20.0)
        daemon.slurm.fail_node("a1")
        await asyncio.sleep(30.0)

    daemon.serve(script)
    told = last_told(daemon)
    assert told.leave is not None
    assert (told.leave.saved_at_s, told.saved_at_s) == (SAVED_AT_S, 0.0)
