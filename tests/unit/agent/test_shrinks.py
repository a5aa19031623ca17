"""Optional components of a running het job are ended; nothing else of it is, nor of anybody's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from federator.agent.shrinks import Shrinks
from federator.faults.clock import VirtualClock
from federator.faults.slurm import SimulatedSlurm
from federator.model.site import SiteJobState
from federator.model.site_message import ShrinkOrder
from federator.wire.agent_protocol import CancelFailed
from tests.fakes.agent import PartOfAgent
from tests.fakes.build import attempt, plan_on, rack
from tests.fakes.slurm import SimulatedSite


class SiteOfOneHetJob:
    """A job of three components of 8 GPUs, and what an agent knows of it."""

    def __init__(self, folder: Path) -> None:
        self.slurm = SimulatedSlurm(rack("a", 3), VirtualClock())
        self.site = SimulatedSite(self.slurm)
        plans = tuple(plan_on(f"a{k}", job=f"job{k}")[0] for k in (1, 2, 3))
        self.job = self.slurm.jobs[self.slurm.submit(attempt(), "ada", plans)]
        self._agent = PartOfAgent(folder, self.site, lambda: 0.0)
        self.said = self._agent.said
        self.shrinks = Shrinks(self._agent.memory, self)
        self._known = True

    @property
    def watched(self) -> bool:
        return self._agent.memory.sweep_soon

    def forget(self) -> None:
        """No sweep has shown the job yet."""
        self._known = False

    def when_swept(self, then: Callable[[bool], None]) -> None:
        """As of a sweeper: the sweep is made at once."""
        self._sweep()
        then(True)

    def _sweep(self) -> None:
        self._agent.memory.known = {report.attempt: report for report in self.slurm.reports()}

    def order(self, *components: int, user: str = "ada") -> None:
        async def obey() -> None:
            self.shrinks.order(ShrinkOrder(attempt=attempt(), user=user, components=components))
            self._agent.begin(self.shrinks.ended)
            await self._agent.finish()

        if self._known:
            self._sweep()
        asyncio.run(obey())

    @property
    def running(self) -> list[int]:
        return [k for k, c in self.job.components.items() if c.state is SiteJobState.RUNNING]


@pytest.fixture
def site(tmp_path: Path) -> SiteOfOneHetJob:
    return SiteOfOneHetJob(tmp_path)


def test_only_the_components_named_are_ended_and_the_site_is_watched(site: SiteOfOneHetJob) -> None:
    site.order(2)
    assert (site.running, site.watched) == ([0, 1], True)


def test_an_order_may_come_again(site: SiteOfOneHetJob) -> None:
    site.order(1)
    site.forget()
    site.order(1, 2)
    assert (site.running, site.said) == ([0], [])


def test_the_first_component_is_never_ended(site: SiteOfOneHetJob) -> None:
    site.order(0, -1, 7)
    assert site.running == [0, 1, 2]


def test_nothing_of_another_users_job_is_ended(site: SiteOfOneHetJob) -> None:
    site.order(1, user="eve")
    assert site.running == [0, 1, 2]


def test_components_of_a_job_that_waits_are_left_alone(site: SiteOfOneHetJob) -> None:
    site.slurm.starts_jobs = False
    site.slurm.requeue(attempt())
    site.order(1)
    assert site.job.cancelled == frozenset()


def test_what_slurm_refuses_is_told(site: SiteOfOneHetJob) -> None:
    site.slurm.refuses_cancels = True
    site.order(1)
    assert [type(message) for message in site.said] == [CancelFailed]
