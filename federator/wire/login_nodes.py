"""Reaches a site's agent by whichever of its login nodes lets us in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from federator.errors import SiteUnavailable
from federator.wire.opened_ahead import OpenedAhead
from federator.wire.transport import Channel, Transport

NEXT_AFTER_S: Final = 2.0  # one that does not answer is left for the next one, at first


class LoginNodes(OpenedAhead):
    """A ``Transport`` to one of several login nodes, in turn.

    Whoever opens a channel anew has lost the one before, so the node after that one is tried first:
    one that fell silent would let us wait. While none lets us in, each is given more time.

    Args:
        ways: to each of them, the first one first.
    """

    def __init__(self, ways: Sequence[Transport]) -> None:
        super().__init__()
        self._ways = ways
        self._next = 0
        self._rounds = 0  # in which no node let us in
        self._ahead: asyncio.Task[Channel] | None = None
        self._next_without = 0  # ``_next`` if what is opened ahead is not needed

    def prepare(self) -> bool:
        """Begin to open the channel that ``open`` will return; False: that has begun before."""
        if self._ahead is not None:
            return False
        self._next_without = self._next
        self._ahead = asyncio.ensure_future(self._open())
        return True

    def forget(self) -> None:
        """Close what was prepared, if anything: the channel of before is not lost."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._next = self._next_without
            self._rounds = 0  # it was prepared beside a channel that is up
            ahead.cancel()
            ahead.add_done_callback(_close_unused)

    async def open(self) -> Channel:
        """Start an agent at the first node that lets us in, or return what was prepared.

        Raises:
            SiteUnavailable: none does.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            with contextlib.suppress(SiteUnavailable):
                return await ahead
        return await self._open()

    async def _open(self) -> Channel:
        details: list[str] = []
        for _ in self._ways:
            way = self._ways[self._next]
            self._next = (self._next + 1) % len(self._ways)
            within_s = None if self._rounds else NEXT_AFTER_S
            try:
                async with asyncio.timeout(within_s):
                    channel = await way.open()
            except TimeoutError:
                details.append(f"no answer within {NEXT_AFTER_S:.0f} s")
            except SiteUnavailable as error:
                details.append(str(error))
            else:
                self._rounds = 0
                return channel
        self._rounds += 1
        raise SiteUnavailable("; ".join(details))

    async def probe(self) -> None:
        """Each of them must let us in.

        Raises:
            SiteUnavailable: some do not.
        """
        details: list[str] = []
        for way in self._ways:
            try:
                await way.probe()
            except SiteUnavailable as error:
                details.append(str(error))
        if details:
            raise SiteUnavailable("; ".join(details))


_closing: set[asyncio.Task[None]] = set()


def _close_unused(opening: asyncio.Task[Channel]) -> None:
    if opening.cancelled() or opening.exception() is not None:
        return
    closing = asyncio.ensure_future(opening.result().close())
    _closing.add(closing)
    closing.add_done_callback(_closing.discard)
