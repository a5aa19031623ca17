"""When jobs that run at this site, and may be evicted, were last saved.

A job's checkpoint folder has the time of its last complete checkpoint. The folders are looked into
in the background, so a bid uses what was seen last. One user's folders are one question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from federator.errors import FederatorError
from federator.model.site import AttemptReport, RunningJob, SiteJobState
from federator.model.workload import AttemptId
from federator.sites.base import SiteDriver
from federator.sites.journal import Journal
from federator.sites.leaving import LOOK_TAKES_S
from federator.sites.protocol import PreemptOrder

EVERY_S: Final = 60.0  # between two looks into one folder
USERS_AT_ONCE: Final = 2


class LastSaves:
    """The times of the last checkpoints, as seen.

    Args:
        driver: this site's Slurm.
        journal: knows the checkpoint folders.
        start: runs a task to its end.
        elapsed: returns seconds of a clock that is never set.
    """

    def __init__(
        self,
        driver: SiteDriver,
        journal: Journal,
        start: Callable[[Coroutine[Any, Any, None]], None],
        elapsed: Callable[[], float],
    ) -> None:
        self._driver = driver
        self._journal = journal
        self._start = start
        self._elapsed = elapsed
        self.evictable: Collection[int] = frozenset()  # workloads; others are not looked at
        self._turns = asyncio.Semaphore(USERS_AT_ONCE)
        self._looked_at_s: dict[AttemptId, float] = {}
        self._saved_at_s: dict[AttemptId, float] = {}
        self._busy: set[str] = set()  # users whose folders are being looked into

    def refresh(self, known: Mapping[AttemptId, AttemptReport]) -> None:
        """Look again, where the last look is ``EVERY_S`` old; forget what does not run any more.

        ``known``: the attempts at the site.
        """
        running = {
            a
            for a, r in known.items()
            if r.state is SiteJobState.RUNNING and r.leave is None and a.workload in self.evictable
        }
        self._looked_at_s = {a: at_s for a, at_s in self._looked_at_s.items() if a in running}
        self._saved_at_s = {a: at_s for a, at_s in self._saved_at_s.items() if a in running}
        now_s = self._elapsed()
        due: dict[str, list[PreemptOrder]] = {}
        for attempt in sorted(running, key=str):
            mark = self._journal.get(attempt)
            looked_at_s = self._looked_at_s.get(attempt)
            if mark is None or not mark.checkpoint_dir or mark.user in self._busy:
                continue
            if looked_at_s is None or now_s - looked_at_s >= EVERY_S:
                due.setdefault(mark.user, []).append(
                    PreemptOrder(
                        attempt=attempt,
                        user=mark.user,
                        site_job_id=mark.job_id,
                        grace_s=0.0,
                        checkpoint_dir=mark.checkpoint_dir,
                    )
                )
        for user, orders in due.items():
            self._busy.add(user)
            self._start(self._look(user, orders))

    async def _look(self, user: str, orders: Sequence[PreemptOrder]) -> None:
        try:
            async with self._turns, asyncio.timeout(LOOK_TAKES_S):
                seen = await self._driver.look(user, orders)
        except (FederatorError, TimeoutError):
            seen = []
        finally:
            self._busy.discard(user)
            now_s = self._elapsed()
            self._looked_at_s.update((order.attempt, now_s) for order in orders)
        for order, found in zip(orders, seen, strict=False):
            if found.checkpointed_at_s > 0:
                self._saved_at_s[order.attempt] = found.checkpointed_at_s

    def complete(self, running: Iterable[RunningJob]) -> list[RunningJob]:
        """The same jobs, with ``saved_at_s`` where it has been seen."""
        seen: dict[int, float] = {
            attempt.workload: at_s for attempt, at_s in self._saved_at_s.items()
        }
        return [replace(j, saved_at_s=seen[j.id]) if j.id in seen else j for j in running]
