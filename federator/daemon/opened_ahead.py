"""Opens the channels to all sites while the log is still being read.

To log in at a site and start its agent takes about a second, and needs nothing that the log holds:
the agent waits for the daemon's first word.
"""

from __future__ import annotations

import asyncio
from typing import Final

from federator.wire.transport import Channel, Transport

FRESH_S: Final = (
    10.0  # the agent ends when it has heard nothing for 15 s (agent.services.handshake)
)


class OpenedAhead:
    """A transport whose first channel is being opened already.

    Args:
        transport: opens it, and those after it.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._began_s = asyncio.get_running_loop().time()
        self._opening: asyncio.Task[Channel] | None = asyncio.create_task(transport.open())

    async def open(self) -> Channel:
        """As ``Transport.open``."""
        if asyncio.get_running_loop().time() - self._began_s > FRESH_S:
            await self.close()
        opening = self._opening
        if opening is None:
            return await self._transport.open()
        # Who is cancelled here leaves it to ``close``, which waits until it is undone.
        await asyncio.wait((opening,))
        self._opening = None
        return opening.result()

    async def probe(self) -> None:
        """As ``Transport.probe``."""
        await self._transport.probe()

    async def close(self) -> None:
        """Close the channel if nobody has taken it."""
        opening, self._opening = self._opening, None
        if opening is None:
            return
        opening.cancel()
        await asyncio.wait((opening,))
        if not opening.cancelled() and opening.exception() is None:
            await opening.result().close()
