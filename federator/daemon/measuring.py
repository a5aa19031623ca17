"""Asks each site what ended attempts have used, and keeps the answers in the history.

The history knows which attempts are still to be asked about, so a restart forgets none. A site is
asked one question at a time, about at most ``JOBS_AT_ONCE`` attempts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec
import structlog

from federator.daemon.effects import checkpoint_folder
from federator.errors import HistoryError
from federator.history.measured import Unmeasured
from federator.history.service import JobHistory
from federator.model.tagged import Message
from federator.model.workload import SiteName
from federator.wire.agent_protocol import EndedJob, UsageAsk, UsageTaken

LOOK_EVERY_S: Final = 3.0
ANSWER_S: Final = 120.0  # then the site is asked again
JOBS_AT_ONCE: Final = 200
SETTLED_S: Final = 15.0  # after the end: an older agent takes half an account for the whole

log = structlog.get_logger()


class AskedSite(Protocol):
    """The daemon's end of a site's channel."""

    def can_measure(self, *, just_ended: bool = False) -> bool:
        """Whether an agent is connected that answers ``UsageAsk``, also right after an end."""
        ...

    def send(self, message: Message) -> None: ...

    def flush(self) -> None: ...


class _Question(NamedTuple):
    """What one site was asked last, and has not told."""

    ask_id: int
    at_s: float
    asked: list[Unmeasured]


class Measuring:
    """Collects what attempts have used, beside the daemon's turns.

    Args:
        history: says what is not known yet, and keeps what is.
        sites: by name; may come to hold more.
        elapsed: seconds that never run backwards.
        clock: Unix time.
        shared: returns the folder that each site shares with its region.
    """

    def __init__(
        self,
        history: JobHistory,
        sites: Mapping[SiteName, AskedSite],
        elapsed: Callable[[], float],
        clock: Callable[[], float],
        shared: Callable[[], Mapping[SiteName, Path]] = dict,
    ) -> None:
        self._history, self._sites = history, sites
        self._elapsed, self._clock, self._shared = elapsed, clock, shared
        self._questions: dict[SiteName, _Question] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # or they could be lost on their way
        self._asked = 0

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Ask every site that is free about the attempts that are due there."""
        now_s = self._elapsed()
        free = [
            name
            for name, site in self._sites.items()
            if site.can_measure() and not self._waits_for(name, now_s)
        ]
        if not free:
            return
        try:
            due = await self._history.unmeasured(free, JOBS_AT_ONCE)
        except HistoryError:  # the history itself says that it is away
            return
        # Only now is it known which sites are there: a reload may have ended links meanwhile.
        for name, its in groupby(due, key=lambda each: each.site):
            self._ask(name, list(its), now_s)

    def _waits_for(self, name: SiteName, now_s: float) -> bool:
        question = self._questions.get(name)
        return question is not None and now_s < question.at_s + ANSWER_S

    def _ask(self, name: SiteName, due: list[Unmeasured], now_s: float) -> None:
        site = self._sites.get(name)
        if site is None or not site.can_measure():
            return
        if not site.can_measure(just_ended=True):
            settled_s = self._clock() - SETTLED_S
            due = [each for each in due if each.job.ended_at_s <= settled_s]
        if not due:
            return
        self._asked += 1
        self._questions[name] = _Question(self._asked, now_s, due)
        folder = self._shared().get(name)
        jobs = tuple(_with_folder(each.job, folder) for each in due)
        site.send(UsageAsk(ask_id=self._asked, jobs=jobs))
        site.flush()

    def take(self, name: SiteName, answer: UsageTaken) -> None:
        """Take an answer; one that is late, or of another length, counts as none."""
        question = self._questions.get(name)
        if question is None or question.ask_id != answer.ask_id:
            return
        del self._questions[name]
        if len(answer.used) != len(question.asked):
            return
        task = asyncio.get_running_loop().create_task(self._keep(question.asked, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep(self, asked: list[Unmeasured], answer: UsageTaken) -> None:
        try:
            await self._history.put_measured(asked, answer.used, answer.again)
        except HistoryError as error:  # they stay on its list
            log.warning("usage_not_kept", attempts=len(asked), detail=str(error))


def _with_folder(job: EndedJob, shared: Path | None) -> EndedJob:
    """Say where it may have left notes."""
    if shared is None:
        return job
    folder = checkpoint_folder(str(shared), job.user, job.attempt.workload)
    return msgspec.structs.replace(job, checkpoint_dir=folder)
