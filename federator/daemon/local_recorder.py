"""Keeps in the history what agents tell of their sites' own jobs, beside the daemon's turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Final, Protocol

import structlog

from federator.errors import HistoryError
from federator.history.local_jobs import LocalBatch
from federator.history.service import JobHistory
from federator.model.site import Capacity
from federator.model.workload import SiteName
from federator.sched.passes.site_view import SiteView
from federator.wire.agent_protocol import LocalJobs

WRITE_EVERY_S: Final = 2.0
NOTE_EVERY_S: Final = 5.0  # that a site is watched
SWEPT_WITHIN_S: Final = 60.0  # or it is not
MOST_WAITING: Final = 500_000  # records, while the database is away

log = structlog.get_logger()


class WatchedSite(Protocol):
    """The daemon's end of a site's channel."""

    @property
    def watches(self) -> bool:
        """Whether its agent tells of the site's own jobs."""
        ...

    def sweep_age_s(self) -> float:
        """Time since its agent last read its Slurm."""
        ...


class LocalRecorder:
    """Takes what is told, and writes it now and then.

    Args:
        history: keeps it.
        links: by site; may come to hold others.
        views: of the sites, read, never changed.
        clock: Unix time.
    """

    def __init__(
        self,
        history: JobHistory,
        links: Mapping[SiteName, WatchedSite],
        views: Mapping[SiteName, SiteView],
        clock: Callable[[], float],
    ) -> None:
        self._history, self._links, self._views, self._clock = history, links, views, clock
        self._waiting: list[LocalBatch] = []
        self._records = 0  # that wait
        self._noted_at_s = -NOTE_EVERY_S
        self._fault = ""  # that was logged

    def take(self, site: SiteName, batch: LocalJobs) -> None:
        """Keep this; while the database is away for long, the oldest are lost, and that is said."""
        if not isfinite(batch.at_s):  # no database holds it, and it would keep back all others'
            log.warning("local_jobs_lost", site=site, records=len(batch.records))
            return
        self._waiting.append(LocalBatch(site, batch.at_s, batch.records, batch.complete))
        self._records += len(batch.records)
        while self._records > MOST_WAITING and len(self._waiting) > 1:
            lost = self._waiting.pop(0)
            self._records -= len(lost.records)
            log.warning("local_jobs_lost", site=lost.site, records=len(lost.records))

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await asyncio.sleep(WRITE_EVERY_S)
            await self.write()

    async def write(self) -> None:
        """Write what waits; what cannot be written waits on."""
        try:
            if self._waiting:
                await self._put()
            await self._note()
        except HistoryError:  # the history itself says that it is away
            return
        except Exception as error:  # a fault of ours must not end the recorder
            if repr(error) != self._fault:
                self._fault = repr(error)
                log.exception("local_jobs_fault")

    async def _put(self) -> None:
        news, count = self._waiting, self._records
        self._waiting, self._records = [], 0  # more may come meanwhile
        try:
            await self._history.put_local(tuple(news))
        except BaseException:
            self._waiting = news + self._waiting
            self._records += count
            raise

    async def _note(self) -> None:
        now_s = self._clock()
        if 0 <= now_s - self._noted_at_s < NOTE_EVERY_S:
            return
        watched: dict[SiteName, Capacity | None] = {
            name: self._views[name].capacity
            for name, link in self._links.items()
            if link.watches and link.sweep_age_s() < SWEPT_WITHIN_S and self._views[name].ready
        }
        if watched:
            await self._history.note_watched(watched, now_s)
            self._noted_at_s = now_s
