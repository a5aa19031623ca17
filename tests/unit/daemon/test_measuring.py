"""Sites are asked once what an attempt used, a question at a time, and the history keeps it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from federator.daemon.measuring import ANSWER_S, SETTLED_S, Measuring
from federator.errors import HistoryError
from federator.history.measured import Unmeasured
from federator.history.service import JobHistory
from federator.model.tagged import Message
from federator.model.workload import AttemptId, SiteName, WorkloadId
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob, UsageAsk, UsageTaken

ALPINE, BOREAL = SiteName("alpine"), SiteName("boreal")
USE = MeasuredUse(cpu_s=1.0)
UNIX_S = 1_760_000_000.0


def unmeasured(number: int, site: SiteName = ALPINE, ended_at_s: float = 2.0) -> Unmeasured:
    attempt = AttemptId(workload=WorkloadId(2**32 + number), attempt=1)
    job = EndedJob(
        attempt=attempt, user="ada", site_job_id=number, started_at_s=1.0, ended_at_s=ended_at_s
    )
    return Unmeasured(site, job, 0)


class History:
    """Of attempts that are due, and of what was put."""

    def __init__(self, *due: Unmeasured) -> None:
        self.list = list(due)
        self.kept: list[tuple[list[Unmeasured], Sequence[MeasuredUse | None]]] = []
        self.again: Collection[int] = ()
        self.away = False
        self.meanwhile: Callable[[], object] = lambda: None  # what comes while it reads

    async def unmeasured(self, sites: Sequence[str], most: int) -> list[Unmeasured]:
        if self.away:
            raise HistoryError("away")
        self.meanwhile()
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
        self.measures = self.ends = measures
        self.sent: list[UsageAsk] = []

    def can_measure(self, *, just_ended: bool = False) -> bool:
        return self.measures and (self.ends or not just_ended)

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
        history = cast(JobHistory, self.history)
        self.measuring = Measuring(history, self.links, self.clock, lambda: UNIX_S + self.now_s)

    def clock(self) -> float:
        return self.now_s

    def reload(self, after: dict[SiteName, Link]) -> None:
        del self.links[ALPINE]
        self.links.update(after)


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
    measuring = Measuring(history, scene.links, lambda: 0.0, lambda: UNIX_S, lambda: shared)
    await measuring.look()
    (ask,) = scene.links[ALPINE].sent
    assert [job.checkpoint_dir for job in ask.jobs] == [f"/shared/ada/checkpoints/{2**32 + 1}"]


async def test_an_older_agent_is_asked_once_the_accounts_of_a_job_are_whole() -> None:
    """It takes what slurmdbd has within seconds for all that there will be."""
    ended_at_s = UNIX_S + 98
    both = (unmeasured(1), unmeasured(2, ended_at_s=ended_at_s))
    new, old = Scene(*both), Scene(*both)
    old.links[ALPINE].ends = False
    for scene in (new, old):
        await scene.measuring.look()
    assert [job.site_job_id for job in new.links[ALPINE].sent[0].jobs] == [1, 2]
    (ask,) = old.links[ALPINE].sent
    assert [job.site_job_id for job in ask.jobs] == [1]
    old.measuring.take(ALPINE, UsageTaken(ask_id=ask.ask_id, used=(USE,)))
    await settle()
    await old.measuring.look()
    assert len(old.links[ALPINE].sent) == 1, "there is nothing to ask yet"
    old.now_s += SETTLED_S
    await old.measuring.look()
    assert [job.site_job_id for job in old.links[ALPINE].sent[1].jobs] == [2]


async def test_a_link_that_ends_while_the_history_reads_is_not_asked() -> None:
    """A reload pops it, and may make another one, whose agent is not there yet."""
    for after in ({}, {ALPINE: Link(measures=False)}):
        scene = Scene(unmeasured(1), unmeasured(2, BOREAL))
        links, before = scene.links, scene.links[ALPINE]
        links[BOREAL].measures = True
        scene.history.meanwhile = partial(scene.reload, after)
        await scene.measuring.look()
        assert [link.sent for link in (before, *after.values())] == [[]] * (1 + len(after))
        assert [job.site_job_id for job in links[BOREAL].sent[0].jobs] == [2]
        links[ALPINE] = before  # it is free at once: nothing was noted as asked
        scene.history.meanwhile = lambda: None
        await scene.measuring.look()
        assert [job.site_job_id for job in before.sent[0].jobs] == [1]
