"""A site's agent takes one step of a copy for each order, and tells how it stands."""

from __future__ import annotations

import asyncio

import pytest

from federator.agent.services.data_copies import DataCopies
from federator.errors import SiteRefused, SiteUnavailable
from federator.model.dataset import CopyPhase
from federator.wire.agent_protocol import CopyOrder, CopyStatus

ORDER = CopyOrder(
    name="a",
    version="1",
    domain="east",
    user="ada",
    host="gate",
    source="/w/a",
    root="/e",
    path="a",
    digest="sha256tree:00",
)


class Site:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def copy(self, order: CopyOrder) -> tuple[CopyPhase, int, str]:
        assert order == ORDER
        if self.error is not None:
            raise self.error
        return CopyPhase.COPYING, 5, ""


def told(site: Site) -> list[CopyStatus]:
    found: list[CopyStatus] = []
    asyncio.run(DataCopies(site, found.append).step(ORDER))
    return found


def test_the_answer_names_what_was_copied_and_how_far() -> None:
    (answer,) = told(Site())
    assert (answer.name, answer.version, answer.domain) == ("a", "1", "east")
    assert (answer.phase, answer.copied_bytes, answer.digest) == (
        CopyPhase.COPYING,
        5,
        ORDER.digest,
    )


def test_a_refusal_of_the_site_is_a_failure_with_its_words() -> None:
    (answer,) = told(Site(SiteRefused("no such user")))
    assert (answer.phase, answer.detail) == (CopyPhase.FAILED, "no such user")


@pytest.mark.parametrize("error", [SiteUnavailable("late")])
def test_what_cannot_be_known_is_not_told(error: Exception) -> None:
    assert told(Site(error)) == []


def test_an_order_whose_copy_has_a_step_under_way_is_passed_over() -> None:
    class Slow(Site):
        def __init__(self) -> None:
            super().__init__()
            self.begun, self.may_end = 0, asyncio.Event()

        async def copy(self, order: CopyOrder) -> tuple[CopyPhase, int, str]:
            self.begun += 1
            await self.may_end.wait()
            return await super().copy(order)

    async def steps() -> int:
        site, found = Slow(), list[CopyStatus]()
        copies = DataCopies(site, found.append)
        first = asyncio.create_task(copies.step(ORDER))
        await asyncio.sleep(0)  # it begins
        for _ in range(5):
            await copies.step(ORDER)
        site.may_end.set()
        await first
        assert (site.begun, len(found)) == (1, 1)
        await copies.step(ORDER)
        return site.begun

    assert asyncio.run(steps()) == 2
