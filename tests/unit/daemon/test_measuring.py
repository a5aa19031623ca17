"""Sites are asked once what an attempt used, a question at a time, and the history keeps it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from federator.daemon.measuring import ANSWER_S, Measuring
from federator.errors import HistoryError
from federator.history.measured import Unmeasured
from federator.history.service import JobHistory
from federator.model.tagged import Message
from federator.model.workload import AttemptId, SiteName, WorkloadId
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob, UsageAsk, UsageTaken

ALPINE, BOREAL = SiteName("alpine"), SiteName("boreal")
USE = MeasuredUse(cpu_s=1.0)


def unmeasured(number: int, site: SiteName = ALPINE) -> Unmeasured:
    attempt = AttemptId(workload=WorkloadId(2**32 + number), attempt=1)
    job = EndedJob(attempt=attempt, user="ada", site_job_id=number, started_at_s=1.0)
    return Unmeasured(site, job, 0)


class History:
    """Of attempts that are due, and of what was put."""

    def __init__(self, *due: Unmeasured) -> None:
        self.list = list(due)
        self.kept: list[tuple[list[Unmeasured], Sequence[MeasuredUse | None]]] = []
        self.again: Collection[int] = ()
        self.away = False

    async def unmeasured(self, sites: Sequence[str], most: int) -> list[Unmeasured]:
        if self.away:
            raise HistoryError("away")
        return [each for each in self.list if each.site in sites][:most]

    async def put_measured(
        self,
        asked: list[Unmeasured],
        uses: Sequence[MeasuredUse | None],
        again: Collection[int] = (),
    ) -> None:
        if self.away:
            raise HistoryError("away")
        self.again = again
        self.kept.append((asked, uses))
        self.list = [each for each in self.list if each not in asked]


class Link:
    """A channel that is up, to an agent that answers or not."""

    def __init__(self, measures: bool = True) -> None:
        self.measures = measures
        self.sent: list[UsageAsk] = []

    def can_measure(self) -> bool:
        return self.measures

    def send(self, message: Message) -> None:
        assert isinstance(message, UsageAsk)
        self.sent.append(message)

    def flush(self) -> None:
        pass


class Scene:
    """A daemon with two sites, the second with an older agent."""

    def __init__(self, *due: Unmeasured) -> None:
        self.history = History(*due)
        self.links = {ALPINE: Link(), BOREAL: Link(measures=False)}
        self.now_s = 100.0
        self.measuring = Measuring(cast(JobHistory, self.history), self.links, lambda: self.now_s)


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_site_is_asked_about_what_is_due_and_its_answer_is_kept() -> None:
    scene = Scene(unmeasured(1), unmeasured(2), unmeasured(3, BOREAL))
    await scene.measuring.look()
    (ask,) = scene.links[ALPINE].sent
    assert [job.site_job_id for job in ask.jobs] == [1, 2]
    scene.measuring.take(ALPINE, UsageTaken(ask_id=ask.ask_id, used=(USE, None), again=(0,)))
    await settle()
    assert scene.history.kept == [([unmeasured(1), unmeasured(2)], (USE, None))]
    assert scene.history.again == (0,), "of which the site may know more later"
    assert scene.links[BOREAL].sent == []


async def test_there_is_one_question_at_a_time_until_it_is_too_old() -> None:
    scene = Scene(unmeasured(1))
    await scene.measuring.look()
    await scene.measuring.look()
    assert len(scene.links[ALPINE].sent) == 1
    scene.now_s += ANSWER_S
    await scene.measuring.look()
    first, second = scene.links[ALPINE].sent
    scene.measuring.take(ALPINE, UsageTaken(ask_id=first.ask_id, used=(USE,)))  # too late
    await settle()
    assert scene.history.kept == []
    scene.measuring.take(ALPINE, UsageTaken(ask_id=second.ask_id, used=(USE, USE)))  # of another
    scene.measuring.take(BOREAL, UsageTaken(ask_id=1, used=()))
    await settle()
    assert scene.history.kept == []


async def test_a_history_that_is_away_is_asked_again() -> None:
    scene = Scene(unmeasured(1))
    scene.history.away = True
    await scene.measuring.look()
    assert scene.links[ALPINE].sent == []
    scene.history.away = False
    await scene.measuring.look()
    (ask,) = scene.links[ALPINE].sent
    scene.history.away = True
    with capture_logs() as logs:
        scene.measuring.take(ALPINE, UsageTaken(ask_id=ask.ask_id, used=(USE,)))
        await settle()
    assert [line["event"] for line in logs] == ["usage_not_kept"]
    assert scene.history.list == [unmeasured(1)]


async def test_nothing_due_is_no_question() -> None:
    scene = Scene()
    await scene.measuring.look()
    assert scene.links[ALPINE].sent == []


pytestmark = pytest.mark.asyncio


async def test_a_site_is_told_where_jobs_have_left_notes() -> None:
    scene = Scene(unmeasured(1))
    shared = {ALPINE: Path("/shared/")}
    history = cast(JobHistory, scene.history)
    measuring = Measuring(history, scene.links, lambda: 0.0, lambda: shared)
    await measuring.look()
    (ask,) = scene.links[ALPINE].sent
    assert [job.checkpoint_dir for job in ask.jobs] == [f"/shared/ada/checkpoints/{2**32 + 1}"]
