"""When running jobs were last saved: looked at now and then, and only where it matters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from federator.agent.acts import LOOK_TAKES_S
from federator.agent.base import CheckpointStatus
from federator.agent.folders import ATTEMPTS_PER_LOOK, CheckpointTimes
from federator.agent.folders import SAVES_EVERY_S as EVERY_S
from federator.agent.journal import Journal, JournalMark, JournalStep
from federator.faults.clock import VirtualClock, run_virtual
from federator.model.site import AttemptReport, Leave, RunningJob, SiteJobState, VictimTerms
from federator.model.site_message import Ask, Report
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import SnapshotAsk, SnapshotTaken, unpacked
from tests.fakes.agent import Daemon, LookedSite, PartOfAgent
from tests.fakes.build import attempt, plan_on

SAVED_AT_S = 77.0


class Rig:
    """One ``CheckpointTimes``; ``sweep`` is what an agent does with it."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.site = LookedSite(self.clock)
        self._agent = PartOfAgent(folder, self.site, self.clock)
        self._saves = CheckpointTimes(self._agent.memory)

    def launched(self, number: int, user: str = "ada", folder: str = "/c") -> None:
        mark = JournalMark(
            step=JournalStep.JOB,
            at_s=self.clock(),
            user=user,
            job_id=100 + number,
            checkpoint_dir=folder and f"{folder}/{number}",
        )
        self._agent.journal.put(attempt(number), mark)
        self.site.seen[attempt(number)] = CheckpointStatus(checkpointed_at_s=SAVED_AT_S)

    def run(self, script: Callable[[], Awaitable[None]]) -> None:
        async def to_the_end() -> None:
            await script()
            self._agent.stop()

        run_virtual(self.clock, to_the_end())

    def sweep(self, *reports: AttemptReport, evictable: bool = True) -> list[float]:
        """What is known of each; what is looked at now is known the next time."""
        self._saves.evictable = {r.attempt.workload for r in reports} if evictable else set()
        self._agent.memory.now = self._agent.now
        self._agent.memory.known = {r.attempt: r for r in reports}
        self._saves.refresh()
        self._agent.begin(self._saves.looked)
        jobs = [
            RunningJob(
                id=r.attempt.workload,
                tenant="nlp",
                priority=7,
                preemptible=True,
                started_at_s=0.0,
                nodes={},
            )
            for r in reports
        ]
        return [job.saved_at_s for job in self._saves.complete(jobs)]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def runs(number: int, *, leave: Leave | None = None) -> AttemptReport:
    return AttemptReport(
        attempt=attempt(number),
        user="ada",
        site_job_id=100 + number,
        state=SiteJobState.RUNNING,
        leave=leave,
    )


def test_a_save_is_known_from_the_next_sweep_on_and_looked_for_each_minute(rig: Rig) -> None:
    rig.launched(1)

    async def script() -> None:
        assert rig.sweep(runs(1)) == [0.0]
        await asyncio.sleep(1.0)
        assert rig.sweep(runs(1)) == [SAVED_AT_S]
        rig.site.seen[attempt(1)] = CheckpointStatus(checkpointed_at_s=SAVED_AT_S + 30.0)
        await asyncio.sleep(EVERY_S - 10.0)
        assert rig.sweep(runs(1)) == [SAVED_AT_S]
        assert len(rig.site.looks) == 1
        await asyncio.sleep(10.0)
        rig.sweep(runs(1))
        await asyncio.sleep(1.0)
        assert rig.sweep(runs(1)) == [SAVED_AT_S + 30.0]

    rig.run(script)


def test_the_folders_of_one_user_are_one_question(rig: Rig) -> None:
    for number in (1, 2, 3):
        rig.launched(number)

    async def script() -> None:
        rig.sweep(runs(1), runs(2), runs(3))
        await asyncio.sleep(1.0)

    rig.run(script)
    assert [len(look) for look in rig.site.looks] == [3]


def test_many_folders_of_one_user_are_looked_into_in_parts_from_sweep_to_sweep(rig: Rig) -> None:
    numbers = range(2 * ATTEMPTS_PER_LOOK + 1)
    for number in numbers:
        rig.launched(number)
    many = [runs(number) for number in numbers]

    async def script() -> None:
        for _ in range(4):
            rig.sweep(*many)
            await asyncio.sleep(1.0)

    rig.run(script)
    assert [len(look) for look in rig.site.looks] == [ATTEMPTS_PER_LOOK, ATTEMPTS_PER_LOOK, 1]
    seen = {order.attempt for look in rig.site.looks for order in look}
    assert seen == {report.attempt for report in many}


def test_nobody_is_looked_at_who_may_not_be_evicted_or_leaves_or_has_no_folder(rig: Rig) -> None:
    rig.launched(1)
    rig.launched(2)
    rig.launched(3, folder="")

    async def script() -> None:
        rig.sweep(runs(1), evictable=False)
        rig.sweep(runs(2, leave=Leave(told_at_s=5.0)), runs(3))
        await asyncio.sleep(1.0)

    rig.run(script)
    assert rig.site.looks == []


@pytest.mark.parametrize("trouble", ["hangs", "refuses"])
def test_a_folder_that_does_not_answer_is_asked_again_a_minute_later(
    rig: Rig, trouble: str
) -> None:
    rig.launched(1)
    getattr(rig.site, trouble).add("ada")

    async def script() -> None:
        for _ in range(3):
            assert rig.sweep(runs(1)) == [0.0]
            await asyncio.sleep(LOOK_TAKES_S)
        assert len(rig.site.looks) == 1
        await asyncio.sleep(EVERY_S)
        getattr(rig.site, trouble).clear()
        rig.sweep(runs(1))
        await asyncio.sleep(1.0)
        assert rig.sweep(runs(1)) == [SAVED_AT_S]

    rig.run(script)


def test_an_agent_bids_with_the_saves_of_those_that_it_may_evict(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    job_id = daemon.slurm.submit(attempt(), "ada", plan_on("a1"))
    daemon.site.seen[attempt()] = CheckpointStatus(checkpointed_at_s=SAVED_AT_S)
    journal = Journal(tmp_path, daemon.clock())
    journal.put(
        attempt(),
        JournalMark(
            step=JournalStep.JOB,
            at_s=daemon.clock(),
            user="ada",
            job_id=job_id,
            checkpoint_dir="/c/1",
        ),
    )
    del journal  # the agent's lock

    async def script() -> None:
        await daemon.wait_for(Report)
        terms = VictimTerms(priority=7, save_s=20.0, restart_s=170.0)
        daemon.tell(Ask(pass_id=1, requests=(), victims={attempt().workload: terms}))
        await asyncio.sleep(25.0)  # two sweeps
        daemon.tell(SnapshotAsk(ask_id=7))
        taken = await daemon.wait_for(SnapshotTaken)
        (job,) = unpacked(taken.snapshot).running
        assert (job.saved_at_s, job.save_s, job.restart_s) == (SAVED_AT_S, 20.0, 170.0)

    daemon.serve(script)


class CountedId(AttemptId):
    """An attempt's id that counts how often it is looked up."""

    lookups = 0

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        CountedId.lookups += 1
        return hash((self.workload, self.attempt))


def test_twice_as_many_running_jobs_are_twice_as_much_work_for_a_sweep(rig: Rig) -> None:
    lookups: list[int] = []

    async def script() -> None:
        for count in (50, 100):
            ids = [
                CountedId(workload=attempt(number).workload, attempt=1) for number in range(count)
            ]
            for number in range(count):
                rig.launched(number)
            reports = [replace(runs(n), attempt=id_) for n, id_ in enumerate(ids)]
            rig.sweep(*reports)
            await asyncio.sleep(1.0)
            CountedId.lookups = 0
            rig.sweep(*reports)
            lookups.append(CountedId.lookups)

    rig.run(script)
    assert lookups[0] > 0
    assert lookups[1] <= 2 * lookups[0]
