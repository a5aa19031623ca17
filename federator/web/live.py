"""Tells open pages that there is news, by server-sent events: numbers only, no content."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from federator.web.feed import Feed

STREAMS_AT_MOST: Final = 300
NEWS_EVERY_S: Final = 2.0  # at most
SIGN_OF_LIFE_S: Final = 15.0
LASTS_S: Final = 3600.0  # the browser opens the next one by itself
TOPICS: Final = frozenset({"status", "queue", "tenants", "passes", "fleet"})


class LiveStreams:
    """The event streams of open pages.

    Args:
        feed: whose news is told.
        clock: seconds.
    """

    def __init__(self, feed: Feed, clock: Callable[[], float]) -> None:
        self._feed, self._clock = feed, clock
        self._open = 0
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Have all streams end: the process wants to."""
        self._ending.set()

    async def events(self, request: Request) -> Response:
        """``/events?of=TOPIC``."""
        topic = request.query_params.get("of", "")
        if topic not in TOPICS:
            return PlainTextResponse("there is no such topic\n", status_code=404)
        if self._open >= STREAMS_AT_MOST:
            headers = {"retry-after": "60"}
            return PlainTextResponse("too many open pages\n", status_code=503, headers=headers)
        stream = self._news_of(topic)
        return StreamingResponse(stream, media_type="text/event-stream")

    async def _news_of(self, topic: str) -> AsyncIterator[str]:
        self._open += 1
        try:
            began_s = sent_s = self._clock()
            sent = self._version(topic)
            yield f"retry: 5000\nevent: news\ndata: {sent}\n\n"
            while self._clock() < began_s + LASTS_S:
                self._feed.want(topic)
                if await self._ends_within(NEWS_EVERY_S):
                    return
                version = self._version(topic)
                if version != sent:
                    sent, sent_s = version, self._clock()
                    yield f"event: news\ndata: {sent}\n\n"
                elif self._clock() > sent_s + SIGN_OF_LIFE_S:
                    sent_s = self._clock()
                    yield ": still here\n\n"
        finally:
            self._open -= 1

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        except TimeoutError:
            return False
        return True

    def _version(self, topic: str) -> int:
        return self._feed.version_of(topic) + self._feed.version_of("status")
