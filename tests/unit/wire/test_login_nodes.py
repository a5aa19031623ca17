"""A site with several login nodes is reached by whichever lets the daemon in."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from federator.errors import SiteUnavailable
from federator.faults.clock import VirtualClock, run_virtual
from federator.wire.login_nodes import NEXT_AFTER_S, LoginNodes
from federator.wire.transport import Channel


class Node:
    """A login node; ``takes_s`` None: it refuses."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.takes_s: float | None = 0.1
        self.opened = self.closed = 0

    async def open(self) -> Channel:
        await self.probe()
        self.opened += 1
        return cast(Channel, self)  # only whose it is matters here

    async def close(self) -> None:
        self.closed += 1

    async def probe(self) -> None:
        if self.takes_s is None:
            raise SiteUnavailable(f"{self.name}: refused")
        await asyncio.sleep(self.takes_s)


async def node(ways: LoginNodes) -> Node:
    """The one that lets us in."""
    return cast(Node, await ways.open())


def test_they_are_tried_in_order_and_after_a_loss_the_next_one_first() -> None:
    one, two = Node("one"), Node("two")

    async def story() -> None:
        ways = LoginNodes([one, two])
        assert await node(ways) is one
        assert await node(ways) is two
        assert await node(ways) is one
        two.takes_s = None
        assert await node(ways) is one

    run_virtual(VirtualClock(), story())


def test_one_that_is_silent_is_left_soon_and_is_given_time_when_all_are() -> None:
    one, two = Node("one"), Node("two")
    one.takes_s = two.takes_s = 9.0

    async def story() -> None:
        ways, loop = LoginNodes([one, two]), asyncio.get_running_loop()
        began_s = loop.time()
        with pytest.raises(SiteUnavailable, match="no answer within 2 s; no answer within 2 s"):
            await ways.open()
        assert loop.time() - began_s == pytest.approx(2 * NEXT_AFTER_S)
        assert await node(ways) is one

    run_virtual(VirtualClock(), story())


def test_a_channel_that_was_prepared_is_there_when_it_is_asked_for() -> None:
    one, two = Node("one"), Node("two")

    async def story() -> None:
        ways, loop = LoginNodes([one, two]), asyncio.get_running_loop()
        assert await node(ways) is one
        ways.prepare()
        ways.prepare()
        await asyncio.sleep(1.0)
        began_s = loop.time()
        assert await node(ways) is two
        assert (loop.time() - began_s, two.opened, two.closed) == (0.0, 1, 0)

    run_virtual(VirtualClock(), story())


@pytest.mark.parametrize("after_s", [0.05, 1.0], ids=["under way", "open"])
def test_a_channel_that_was_prepared_in_vain_is_closed_and_changes_no_order(after_s: float) -> None:
    one, two = Node("one"), Node("two")

    async def story() -> None:
        ways = LoginNodes([one, two])
        assert await node(ways) is one
        ways.prepare()
        await asyncio.sleep(after_s)
        ways.forget()
        ways.forget()
        await asyncio.sleep(1.0)
        assert two.opened == two.closed
        assert await node(ways) is two

    run_virtual(VirtualClock(), story())


def test_where_preparing_has_failed_all_are_tried_anew() -> None:
    one, two = Node("one"), Node("two")

    async def story() -> None:
        ways = LoginNodes([one, two])
        assert await node(ways) is one
        one.takes_s = two.takes_s = None
        ways.prepare()
        await asyncio.sleep(1.0)
        two.takes_s = 0.1
        assert await node(ways) is two

    run_virtual(VirtualClock(), story())


def test_preparing_that_failed_in_vain_leaves_a_silent_node_as_soon_as_before() -> None:
    one, two = Node("one"), Node("two")

    async def story() -> None:
        ways, loop = LoginNodes([one, two]), asyncio.get_running_loop()
        assert await node(ways) is one
        one.takes_s = two.takes_s = None
        ways.prepare()
        await asyncio.sleep(1.0)
        ways.forget()
        one.takes_s, two.takes_s = 0.1, 9.0
        began_s = loop.time()
        assert await node(ways) is one
        assert loop.time() - began_s == pytest.approx(NEXT_AFTER_S + 0.1)

    run_virtual(VirtualClock(), story())


def test_all_must_let_us_in_to_pass_a_check() -> None:
    one, two = Node("one"), Node("two")

    async def story() -> None:
        await LoginNodes([one, two]).probe()
        two.takes_s = None
        with pytest.raises(SiteUnavailable, match="two: refused"):
            await LoginNodes([one, two]).probe()

    run_virtual(VirtualClock(), story())
