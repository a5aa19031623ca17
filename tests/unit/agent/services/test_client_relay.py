"""A user's call is answered by the daemon, or its connection breaks: it never hangs."""

from __future__ import annotations

import asyncio

import pytest

from federator.agent.services.client_relay import CALL_S, Relay
from federator.errors import SiteUnavailable
from federator.faults.clock import VirtualClock, run_virtual
from federator.model.tagged import Message
from federator.wire.agent_protocol import CallAnswer, ClientCall
from federator.wire.client_protocol import SitesCall, SitesReply


def test_the_answer_goes_to_whoever_asked() -> None:
    async def script() -> None:
        said: list[Message] = []
        relay = Relay(said.append)
        waiting = asyncio.create_task(relay.ask("ada", SitesCall()))
        await asyncio.sleep(1.0)
        (asked,) = said
        assert isinstance(asked, ClientCall)
        relay.pass_on(CallAnswer(call_id=asked.call_id, reply=SitesReply(sites=())))
        assert await waiting == SitesReply(sites=())

    run_virtual(VirtualClock(), script())


def test_calls_that_wait_when_the_channel_ends_are_let_go_at_once() -> None:
    """A refusal would say that nothing was queued, which nobody knows here."""
    clock = VirtualClock()

    async def script() -> None:
        relay = Relay(lambda _message: None)
        waiting = [asyncio.create_task(relay.ask("ada", SitesCall())) for _ in range(3)]
        await asyncio.sleep(1.0)
        relay.hang_up()
        began_s = clock()
        for task in waiting:
            with pytest.raises(SiteUnavailable, match="has ended"):
                await task
        with pytest.raises(SiteUnavailable, match="has ended"):
            await relay.ask("ada", SitesCall())
        assert clock() == began_s

    run_virtual(clock, script())


def test_a_daemon_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    clock = VirtualClock()

    async def script() -> None:
        began_s = clock()
        with pytest.raises(SiteUnavailable, match="did not answer"):
            await Relay(lambda _message: None).ask("ada", SitesCall())
        assert clock() - began_s == CALL_S

    run_virtual(clock, script())
