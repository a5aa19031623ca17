"""Keeps one link to each site that is configured, and makes anew those that a reload changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from federator.daemon.handshake import ServedFolder
from federator.daemon.links import SiteLink
from federator.model.workload import SiteName
from federator.wire.agent_protocol import Admission


class SiteLinks:
    """The links of one term, each with the task that runs it.

    Args:
        make: makes the link to a site, as it is configured now.

    Attributes:
        by_site: the links; the same mapping for as long as the term lasts.
    """

    def __init__(self, make: Callable[[SiteName], SiteLink]) -> None:
        self._make = make
        self.by_site: dict[SiteName, SiteLink] = {}
        self._tasks: dict[SiteName, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._admission: Admission | None = None  # the last that was sent
        self._served_folders: dict[SiteName, ServedFolder] = {}

    def copies(self, site: SiteName, what: str = "copy") -> bool:
        """Whether a site is connected whose agent copies data sets; none in shadow mode does.

        ``what`` "checkpoint": that copies checkpoints.
        """
        return self._does(what, site)

    def seals(self, site: SiteName) -> bool:
        """Whether one is whose agent seals, and removes, what jobs write."""
        return self._does("output", site)

    def _does(self, what: str, site: SiteName) -> bool:
        link = self.by_site.get(site)
        if link is None or link.shadow:
            return False
        return link.questions.connected and what in link.questions.answers

    def begin(self, sites: Iterable[SiteName]) -> None:
        """Connect to these."""
        for name in sites:
            self._begin(name, None)

    def _begin(self, name: SiteName, after: asyncio.Task[None] | None) -> None:
        link = self.by_site[name] = self._make(name)
        link.admission.latest = self._admission
        link.served_folder = self._served_folders.setdefault(name, ServedFolder())

        async def run() -> None:
            if after is not None:
                await after
            await link.run()

        self._tasks[name] = asyncio.create_task(run())

    def renew(self, ends: Iterable[SiteName], begins: Iterable[SiteName]) -> None:
        """Close some links, and connect to some sites: to one of both when the old link is closed.

        Nothing that a closed one receives is observed any more.
        """
        closing = {name: self._end(name) for name in ends}
        for name in begins:
            self._begin(name, closing.get(name))

    def _end(self, name: SiteName) -> asyncio.Task[None]:
        link, task = self.by_site.pop(name), self._tasks.pop(name)
        link.stop()
        task.cancel()

        async def close() -> None:
            await asyncio.wait({task})
            await link.hang_up()

        closing = asyncio.create_task(close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing

    def send_admission(self, news: Admission) -> None:
        """Have every site know, now or when it comes up."""
        self._admission = news
        for link in self.by_site.values():
            link.admission.renew(news)

    def flush(self) -> None:
        """Have all that was sent leave now."""
        for link in self.by_site.values():
            link.flush()

    def stop(self) -> None:
        """Close all of them; nothing more is sent that was not flushed."""
        for link in self.by_site.values():
            link.stop()
        for task in (*self._tasks.values(), *self._closing):
            task.cancel()
