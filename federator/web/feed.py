"""The page's knowledge: few questions to the daemon, one after another, shared by all viewers.

However many look, and however often they ask, each question goes to the daemon at most once in a
second, and no more often than that it costs one hundredth of the daemon's time. Nobody waits for
the daemon but the first who looks at something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
import structlog

from federator.errors import FederatorError, SiteUnavailable
from federator.web.fleet_feed import FleetFeed
from federator.web.past import Past
from federator.web.story_feed import StoryFeed
from federator.web.topic import Topic
from federator.wire.audit_messages import AuditCall, AuditReply
from federator.wire.client_protocol import (
    Call,
    PassesCall,
    PassesReply,
    QueueCall,
    QueueReply,
    StatusCall,
    StatusReply,
    TenantsCall,
    TenantsReply,
)
from federator.wire.replies import Reply

FIRST_S: Final = 10.0  # that somebody waits for the first answer
REST_S: Final = 0.5  # the longest between two looks at what is due

Ask = Callable[[Call], Awaitable[Reply]]
R = TypeVar("R", bound=msgspec.Struct)

log = structlog.get_logger()


class Feed:
    """The shared answers.

    Args:
        ask: brings a call to the daemon.
        clock: seconds, of the event loop.
        wall: Unix time.

    Attributes:
        status, queue, tenants, passes, audit: what they are called.
        fleet: nodes of all sites.
        stories: of single workloads.
        past: of tenants, as far as this process remembers.
    """

    def __init__(self, ask: Ask, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._ask, self._clock = ask, clock
        self.fleet = FleetFeed()
        self.status = Topic("status", StatusCall, StatusReply, 2.0, 30.0, self._know_sites)
        self.queue = Topic("queue", _queue, QueueReply, 2.0)
        self.past = Past(wall)
        self.tenants = Topic("tenants", TenantsCall, TenantsReply, 5.0, 60.0, self.past.take)
        self.passes = Topic("passes", PassesCall, PassesReply, 2.0)
        self.audit = Topic("audit", AuditCall, AuditReply, 5.0)
        self.stories = StoryFeed(ask, clock)
        self._news = asyncio.Event()
        self._wake = asyncio.Event()

    @property
    def topics(self) -> tuple[Topic[Any], ...]:
        """All of them, in the order in which they are served."""
        topics = (self.status, self.queue, self.tenants, self.passes, self.audit)
        return (*topics, *self.fleet.topics)

    def _know_sites(self, reply: StatusReply) -> None:
        self.fleet.know([site.name for site in reply.sites])

    def version_of(self, name: str) -> int:
        """A number that changes with the news of a topic."""
        return sum(topic.version for topic in self.topics if topic.name == name)

    def is_fresh(self, name: str) -> bool:
        """Whether what is known of a topic, and of the status, is of now."""
        now_s = self._clock()
        return all(t.is_fresh(now_s) for t in self.topics if t.name in (name, "status"))

    def want(self, name: str) -> None:
        """Somebody looks at a topic, and at the status with it."""
        now_s = self._clock()
        for topic in self.topics:
            if topic.name in (name, "status"):
                topic.want(now_s)

    async def of(self, topic: Topic[R]) -> R:
        """The answer of a topic; waits only where there is none, or none of lately.

        Raises:
            SiteUnavailable: the daemon does not answer, and did not before.
        """
        topic.want(self._clock())
        if topic.is_fresh(self._clock()):
            assert topic.answer is not None
            return topic.answer
        if not (topic.trouble and self._clock() < topic.due_s(self._clock())):
            await self._once_asked(topic)
        if topic.answer is None:
            raise SiteUnavailable(topic.trouble or "the daemon has not answered yet")
        return topic.answer

    async def _once_asked(self, topic: Topic[Any]) -> None:
        """Wait until a topic has been asked once more, however it was answered."""
        until_s, times = self._clock() + FIRST_S, topic.times_asked
        self._wake.set()
        while topic.times_asked == times and self._clock() < until_s:
            await self.news(min(until_s - self._clock(), FIRST_S))

    async def news(self, patience_s: float) -> None:
        """Wait until some answer has come, or for so long."""
        try:
            async with asyncio.timeout(patience_s):
                await self._news.wait()
        except TimeoutError:
            return

    async def run(self) -> None:
        """Ask what is due, one question after another, until cancelled."""
        while True:
            self._wake.clear()
            now_s = self._clock()
            due = min(self.topics, key=lambda topic: topic.due_s(now_s))
            rest_s = due.due_s(now_s) - now_s
            if rest_s > 0:
                try:
                    async with asyncio.timeout(min(rest_s, REST_S)):
                        await self._wake.wait()
                except TimeoutError:
                    continue
                continue
            await self._serve(due)

    async def _serve(self, topic: Topic[Any]) -> None:
        asked_at_s = self._clock()
        reply: Reply | str
        try:
            reply = await self._ask(topic.call())
        except FederatorError as error:
            reply = str(error)
        before = topic.trouble
        topic.take(reply, asked_at_s, self._clock())
        if topic.trouble and topic.trouble != before:
            log.warning("daemon_asked_in_vain", topic=topic.name, detail=topic.trouble[:300])
        # Whoever waits sees that something has come; who comes later waits for the next.
        self._news.set()
        self._news = asyncio.Event()


def _queue() -> QueueCall:
    return QueueCall(collapsed=True, brief=True)
