"""A site's agent takes one step for an output at a time, and tells where it stands."""

from __future__ import annotations

import asyncio

from federator.agent.services.job_outputs import AT_ONCE, JobOutputs, status_of
from federator.errors import SiteRefused, SiteUnavailable
from federator.model.data_output import OutputPlace
from federator.model.dataset import CopyPhase
from federator.model.workload import WorkloadId
from federator.wire.agent_protocol import OutputOrder, OutputStatus


def order(id_: int = 7, domain: str = "east") -> OutputOrder:
    place = OutputPlace(
        id=WorkloadId(id_), name="a", version="1", domain=domain, root="/e", path="ada/outputs/a@1"
    )
    return OutputOrder(place=place, attempt=1, user="ada")


class Site:
    """Answers once it may, with what it is given."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.may_end = asyncio.Event()
        self.error: Exception | None = None

    async def output(self, order: OutputOrder) -> OutputStatus:
        self.begun.append(order.place.id)
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return status_of(order, CopyPhase.CHECKING)


def test_an_order_whose_folder_has_a_step_that_waits_or_is_under_way_is_passed_over() -> None:
    async def steps() -> None:
        site, found = Site(), list[OutputStatus]()
        outputs = JobOutputs(site, found.append)
        tasks = [asyncio.create_task(outputs.step(order(id_))) for id_ in range(1, AT_ONCE + 2)]
        await asyncio.sleep(0)
        assert site.begun == list(range(1, AT_ONCE + 1)), "one waits"
        for id_ in range(1, AT_ONCE + 2):
            await outputs.step(order(id_))
        site.may_end.set()
        await asyncio.gather(*tasks)
        assert site.begun == [status.workload for status in found] == list(range(1, AT_ONCE + 2))
        await outputs.step(order(1))
        assert site.begun[-1] == 1

    asyncio.run(steps())


def test_after_a_step_that_fails_there_may_be_another() -> None:
    async def steps() -> None:
        site, found = Site(), list[OutputStatus]()
        site.may_end.set()
        outputs = JobOutputs(site, found.append)
        for error in (SiteUnavailable("late"), SiteRefused("no such user"), None):
            site.error = error
            await outputs.step(order())
        assert [(each.phase, each.detail) for each in found] == [
            (CopyPhase.FAILED, "no such user"),
            (CopyPhase.CHECKING, ""),
        ]

    asyncio.run(steps())
