"""What agents tell of their sites' own jobs is written, whatever becomes of the database."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import cast

import pytest
from structlog.testing import capture_logs

from federator.daemon import local_recorder
from federator.daemon.local_recorder import LocalRecorder
from federator.errors import HistoryError
from federator.history.local_jobs import LocalBatch
from federator.history.service import JobHistory
from federator.model.local_record import LocalRecord
from federator.model.site import Capacity, Node
from federator.model.workload import SiteName
from federator.sched.passes.site_view import SiteView
from federator.wire.agent_protocol import LocalJobs

ALPINE, BIRCH = SiteName("alpine"), SiteName("birch")


def told(at_s: float, count: int = 1) -> LocalJobs:
    record = LocalRecord(
        job_id=1,
        shown="1",
        user="ada",
        account="bio",
        partition="gpu",
        state="RUNNING",
        submitted_at_s=1.0,
    )
    return LocalJobs(at_s=at_s, records=(record,) * count, complete=True)


@dataclass
class Link:
    watches: bool = True
    age_s: float = 1.0

    def sweep_age_s(self) -> float:
        return self.age_s


class History:
    def __init__(self) -> None:
        self.away = False
        self.news: list[LocalBatch] = []
        self.watched: list[tuple[list[SiteName], float]] = []

    async def put_local(self, news: Sequence[LocalBatch]) -> None:
        if self.away:
            raise HistoryError("away")
        self.news += news

    async def note_watched(self, sites: Mapping[SiteName, Capacity | None], now_s: float) -> None:
        self.watched.append((list(sites), now_s))


def recorder(history: History, links: Mapping[SiteName, Link], now: list[float]) -> LocalRecorder:
    views = {name: SiteView(partitions=("gpu",), up=True, ready=True) for name in links}
    views[ALPINE].has(Capacity(nodes=(Node(name="a", partitions=("gpu",), cpus=1, mem_mib=1),)))
    return LocalRecorder(cast(JobHistory, history), links, views, lambda: now[0])


def test_what_is_told_is_written_in_its_order_once_the_database_is_there() -> None:
    history = History()
    keeps = recorder(history, {ALPINE: Link(watches=False)}, [0.0])
    history.away = True
    keeps.take(ALPINE, told(1.0))
    asyncio.run(keeps.write())
    keeps.take(ALPINE, told(2.0))
    history.away = False
    asyncio.run(keeps.write())
    asyncio.run(keeps.write())
    assert [(each.site, each.at_s) for each in history.news] == [(ALPINE, 1.0), (ALPINE, 2.0)]


def test_while_the_database_is_away_no_more_waits_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_recorder, "MOST_WAITING", 5)
    history = History()
    keeps = recorder(history, {ALPINE: Link(watches=False)}, [0.0])
    with capture_logs() as logs:
        for at_s in (1.0, 2.0, 3.0):
            keeps.take(ALPINE, told(at_s, count=2))
    assert [(line["event"], line["records"]) for line in logs] == [("local_jobs_lost", 2)]
    asyncio.run(keeps.write())
    assert [each.at_s for each in history.news] == [2.0, 3.0]


@pytest.mark.parametrize("at_s", [nan, inf])
def test_a_time_that_is_none_keeps_back_no_other_site(at_s: float) -> None:
    history = History()
    keeps = recorder(history, {ALPINE: Link(watches=False)}, [0.0])
    with capture_logs() as logs:
        keeps.take(BIRCH, told(at_s))
    keeps.take(ALPINE, told(1.0))
    asyncio.run(keeps.write())
    assert [each.site for each in history.news] == [ALPINE]
    assert [(line["event"], line["site"]) for line in logs] == [("local_jobs_lost", BIRCH)]


def test_what_comes_during_a_write_is_written_once_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_recorder, "MOST_WAITING", 2)
    history = History()
    keeps = recorder(history, {ALPINE: Link(watches=False)}, [0.0])

    async def slow(news: Sequence[LocalBatch]) -> None:
        history.news += news
        if len(history.news) == 2:
            keeps.take(ALPINE, told(3.0))
            keeps.take(ALPINE, told(4.0))

    monkeypatch.setattr(history, "put_local", slow)
    keeps.take(ALPINE, told(1.0))
    keeps.take(ALPINE, told(2.0))
    with capture_logs() as logs:
        asyncio.run(keeps.write())
        asyncio.run(keeps.write())
    assert [each.at_s for each in history.news] == [1.0, 2.0, 3.0, 4.0]
    assert logs == []


def test_a_site_counts_as_watched_while_its_agent_sweeps() -> None:
    history, now = History(), [1000.0]
    links = {ALPINE: Link(), BIRCH: Link(watches=False)}
    keeps = recorder(history, links, now)
    for step in (0.0, 2.0, 5.0):
        now[0] = 1000.0 + step
        asyncio.run(keeps.write())
    assert history.watched == [([ALPINE], 1000.0), ([ALPINE], 1005.0)]
    links[ALPINE].age_s, now[0] = 300.0, 1130.0
    asyncio.run(keeps.write())
    assert len(history.watched) == 2
