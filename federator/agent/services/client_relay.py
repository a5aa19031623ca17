"""Relays users' commands at a site to the daemon, through the agent's own channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from federator.errors import SiteUnavailable
from federator.model.tagged import Message
from federator.wire.agent_protocol import CallAnswer, ClientCall
from federator.wire.client_protocol import Call
from federator.wire.replies import Reply

CALL_S: Final = 25.0  # less than the command itself waits


class Relay:
    """Calls that wait for the daemon's answer.

    Args:
        send: hands a message to the daemon.
    """

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._calls: dict[int, asyncio.Future[Reply]] = {}
        self._next_call = 0
        self._ended = False

    async def ask(self, user: str, call: Call) -> Reply:
        """Hand a user's call to the daemon and wait for its answer.

        Raises:
            SiteUnavailable: none came, so whether the call was carried out is not known. Who asked
                is to be told by a connection that breaks: a refusal would say that it was not.
        """
        if self._ended:
            raise SiteUnavailable("the channel to the daemon has ended")
        self._next_call += 1
        call_id = self._next_call
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = future
        self._send(ClientCall(call_id=call_id, user=user, call=call))
        try:
            return await asyncio.wait_for(future, CALL_S)
        except TimeoutError as error:
            raise SiteUnavailable(f"the daemon did not answer within {CALL_S:.0f} s") from error
        finally:
            self._calls.pop(call_id, None)

    def hang_up(self) -> None:
        """The channel has ended: nobody is to wait for an answer that cannot come."""
        self._ended = True
        for future in self._calls.values():
            if not future.done():
                future.set_exception(SiteUnavailable("the channel to the daemon has ended"))

    def pass_on(self, answer: CallAnswer) -> None:
        """Give the daemon's answer to whoever waits for it; nobody may."""
        future = self._calls.pop(answer.call_id, None)
        if future is not None and not future.done():
            future.set_result(answer.reply)
