"""The way to a site that never answers."""

from __future__ import annotations

import asyncio

from federator.wire.transport import Channel


class Nowhere:
    """A transport whose channel never opens."""

    async def open(self) -> Channel:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def probe(self) -> None: ...
