"""The end of an agent: its site is within reach again soon, and no sbatch that outlives it doubles.

The helper goes on without its agent, as the real one does: it calls sbatch within 12 s or not at
all, and ends it after 30 s.
"""

from __future__ import annotations

import asyncio

import pytest

from federator.agent.base import SubmittedJob
from federator.agent.journal import Journal, JournalStep
from federator.agent.lost_sbatch import INTENT_HORIZON_S
from federator.agent.shell import FINISHES_WITHIN_S
from federator.errors import SiteRefused
from federator.faults.sbatch_helper import SBATCH_ENDS_S
from federator.model.site_message import AttemptAbsent, LaunchAccepted, LaunchDeclined
from federator.slurm.helper_client import START_WITHIN_S
from federator.wire.agent_protocol import LaunchOrder
from tests.fakes.agent import Daemon, cancel, daemon, order, spooled
from tests.fakes.build import attempt

__all__ = ["daemon"]

LATEST_S = START_WITHIN_S + SBATCH_ENDS_S
SOON_S = 5.0


class SlowHelper:
    """The helper, in a process of its own: its sbatch takes so long, whatever becomes of the agent.

    Args:
        daemon: whose site's sbatch it calls.
        takes_s: from the request to sbatch's end; by attempt number, others take no time.
        refuses: sbatch says no in the end.
    """

    def __init__(self, daemon: Daemon, takes_s: dict[int, float], *, refuses: bool = False) -> None:
        self._daemon = daemon
        self._takes_s = takes_s
        self._refuses = refuses
        self._launch = daemon.site.launch
        self._running: set[asyncio.Task[SubmittedJob]] = set()
        self.ended_at_s: list[float] = []

    async def launch(
        self, order_: LaunchOrder, ticket: str = "", start_line: str = ""
    ) -> SubmittedJob:
        work = asyncio.create_task(self._sbatch(order_, ticket, start_line))
        self._running.add(work)  # nobody else may hold it
        work.add_done_callback(lambda over: over.cancelled() or over.exception())  # or hear of it
        return await asyncio.shield(work)

    async def _sbatch(self, order_: LaunchOrder, ticket: str, start_line: str) -> SubmittedJob:
        await asyncio.sleep(self._takes_s.get(order_.attempt.workload - attempt().workload, 0.0))
        self.ended_at_s.append(self._daemon.clock())
        if ticket:
            assert (self._daemon.folder / "spool" / "tickets" / ticket).exists()
        if self._refuses:
            raise SiteRefused("sbatch: error: Batch job submission failed")
        return await self._launch(order_, ticket, start_line)


def slow(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, takes_s: float, *, refuses: bool = False
) -> SlowHelper:
    """Have the sbatch of attempt 0 take so long."""
    helper = SlowHelper(daemon, {0: takes_s}, refuses=refuses)
    monkeypatch.setattr(daemon.site, "launch", helper.launch)
    return helper


# ---- within reach ----


def test_an_sbatch_that_is_soon_over_is_waited_for(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is noted, so nobody has to look for the job."""
    slow(daemon, monkeypatch, FINISHES_WITHIN_S)

    async def script() -> None:
        daemon.tell(order(0, "a1"))
        await asyncio.sleep(1.0)

    daemon.serve(script)
    mark = Journal(daemon.folder, daemon.clock()).index.get(attempt())
    assert mark is not None
    assert (mark.step, mark.job_id) == (JournalStep.JOB, 101)


def test_an_sbatch_that_hangs_does_not_keep_the_next_agent_from_its_site(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancel of another job waited 22 s for it, and a launch would have."""
    slow(daemon, monkeypatch, LATEST_S)
    cut_at_s: list[float] = []

    async def first() -> None:
        daemon.tell(order(1, "a2"))
        await daemon.wait_for(LaunchAccepted)
        daemon.tell(order(0, "a1"))
        await asyncio.sleep(1.0)
        cut_at_s.append(daemon.clock())

    async def second() -> None:
        assert daemon.clock() - cut_at_s[0] <= SOON_S
        daemon.tell(cancel(1, 101))
        daemon.tell(order(2, "a3"))
        await daemon.wait_for(LaunchAccepted, 2)
        assert not daemon.slurm.jobs[101].live
        assert daemon.clock() - cut_at_s[0] <= SOON_S

    daemon.serve(first, second)


def test_a_scancel_that_hangs_does_not_keep_the_next_agent_from_its_site(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(user: str, job_id: int, *, pending_only: bool) -> bool:
        await asyncio.sleep(60.0)
        return True

    cut_at_s: list[float] = []

    async def first() -> None:
        daemon.tell(order(0, "a1"))
        await daemon.wait_for(LaunchAccepted)
        with monkeypatch.context() as patch:
            patch.setattr(daemon.site, "cancel", hangs)
            daemon.tell(cancel(0, 101))
            await asyncio.sleep(1.0)
        cut_at_s.append(daemon.clock())

    async def second() -> None:
        assert daemon.clock() - cut_at_s[0] <= SOON_S
        daemon.tell(cancel(0, 101))  # as the daemon does, until it hears of the end
        await asyncio.sleep(1.0)
        assert not daemon.slurm.jobs[101].live

    daemon.serve(first, second)


# ---- at most once ----


@pytest.mark.parametrize("takes_s", [3.9, 4.1, 5.0, 11.9, 20.0, 41.0, LATEST_S])
def test_a_late_sbatch_is_found_and_not_doubled(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, takes_s: float
) -> None:
    """Its order comes again to the next agent, as the daemon repeats it."""
    folder = spooled(daemon)
    helper = slow(daemon, monkeypatch, takes_s)

    async def first() -> None:
        daemon.tell(order(0, "a1"))
        await asyncio.sleep(1.0)

    async def second() -> None:
        daemon.tell(order(0, "a1"))
        accepted = await daemon.wait_for(LaunchAccepted)
        assert accepted.site_job_id == 101
        assert daemon.clock() - helper.ended_at_s[0] <= 3.0
        await asyncio.sleep(2 * INTENT_HORIZON_S)

    daemon.serve(first, second)
    assert daemon.site.submitted == [attempt()]
    assert not daemon.heard(LaunchDeclined)
    assert [path.name for path in (folder / "leases").iterdir()] == [f"{attempt().workload}.1"]


@pytest.mark.parametrize("takes_s", [5.0, 30.0, LATEST_S])
def test_a_late_sbatch_of_what_is_cancelled_meanwhile_leaves_no_job(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, takes_s: float
) -> None:
    slow(daemon, monkeypatch, takes_s)

    async def first() -> None:
        daemon.tell(order(0, "a1"))
        await asyncio.sleep(1.0)

    async def second() -> None:
        daemon.tell(cancel())
        await asyncio.sleep(2 * INTENT_HORIZON_S)

    daemon.serve(first, second)
    assert daemon.site.submitted == [attempt()]
    assert not daemon.slurm.jobs[101].live
    assert not daemon.heard(AttemptAbsent)  # that says that it never had a job


@pytest.mark.parametrize("takes_s", [5.0, LATEST_S])
def test_an_sbatch_that_is_refused_late_is_given_up_when_no_sbatch_can_be_left(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, takes_s: float
) -> None:
    """By the horizon from the next agent's start: when the call was made, it does not know."""
    helper = slow(daemon, monkeypatch, takes_s, refuses=True)
    began_s: list[float] = []

    async def first() -> None:
        daemon.tell(order(0, "a1"))
        await asyncio.sleep(1.0)

    async def second() -> None:
        began_s.append(daemon.clock())
        daemon.tell(order(0, "a1"))
        await daemon.wait_for(LaunchDeclined)
        assert daemon.clock() - began_s[0] >= INTENT_HORIZON_S - 1.0
        assert daemon.clock() > helper.ended_at_s[0]

    daemon.serve(first, second)
    assert daemon.site.submitted == []


def test_a_chain_of_agents_that_end_early_gives_nothing_up_too_soon(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each counts the horizon from its own start, so none can be late by another's clock."""
    slow(daemon, monkeypatch, LATEST_S)

    async def begun() -> None:
        daemon.tell(order(0, "a1"))
        await asyncio.sleep(1.0)

    async def cut_off() -> None:
        daemon.tell(order(0, "a1"))
        await asyncio.sleep(8.0)

    async def last() -> None:
        daemon.tell(order(0, "a1"))
        await daemon.wait_for(LaunchAccepted)
        await asyncio.sleep(INTENT_HORIZON_S)

    daemon.serve(begun, cut_off, cut_off, cut_off, last)
    assert daemon.site.submitted == [attempt()]
    assert not daemon.heard(LaunchDeclined)


def test_whoever_is_cancelled_has_ended_before_the_agent(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A squeue whose start was cancelled as the loop closed kept agent and lock for ever."""
    ended: list[bool] = []

    async def ends_slowly(*_: object, **__: object) -> None:
        try:
            await asyncio.sleep(1000.0)
        finally:
            await asyncio.sleep(FINISHES_WITHIN_S - 1)
            ended.append(True)

    async def script() -> None:
        monkeypatch.setattr(daemon.site, "sweep", ends_slowly)
        await asyncio.sleep(15.0)  # the next one is under way

    daemon.serve(script)
    assert ended
