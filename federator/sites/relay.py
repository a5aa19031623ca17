"""How does a researcher's command at a site reach the daemon? Through the agent's own channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from federator.sites.protocol import Call, CallAnswer, ClientCall, ErrorReply, Message, Reply

CALL_S: Final = 30.0


class Relay:
    """Calls that wait for the daemon's answer.

    Args:
        send: hands a message to the daemon.
    """

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._calls: dict[int, asyncio.Future[Reply]] = {}
        self._next_call = 0

    async def ask(self, user: str, call: Call) -> Reply:
        """Hand a researcher's call to the daemon and wait for its answer."""
        self._next_call += 1
        call_id = self._next_call
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = future
        self._send(ClientCall(call_id=call_id, user=user, call=call))
        try:
            return await asyncio.wait_for(future, CALL_S)
        except TimeoutError:
            return ErrorReply(message=f"the daemon did not answer within {CALL_S:.0f} s")
        finally:
            self._calls.pop(call_id, None)

    def pass_on(self, answer: CallAnswer) -> None:
        """Give the daemon's answer to whoever waits for it; nobody may."""
        future = self._calls.pop(answer.call_id, None)
        if future is not None and not future.done():
            future.set_result(answer.reply)
