"""What have attempts saved that ended, or were put back, before anybody told them to leave?

A node fails, the site preempts or requeues, a time limit strikes: such an attempt has left its
periodic checkpoints all the same, and can go on only where they are. Its folder is looked into
once, before the end is reported. Those that were told to leave are ``sites.leaving``'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from federator.errors import FederatorError
from federator.model.site import AttemptReport, SiteJobState
from federator.model.workload import AttemptId
from federator.sites.base import SiteDriver
from federator.sites.journal import Journal
from federator.sites.leaving import LOOK_TAKES_S
from federator.sites.protocol import PreemptOrder

USERS_AT_ONCE: Final = 8
_UNTOLD: Final = frozenset({
    SiteJobState.NODE_FAIL, SiteJobState.BOOT_FAIL, SiteJobState.PREEMPTED, SiteJobState.TIMEOUT,
})  # fmt: skip
_Standing = tuple[int, SiteJobState]  # restarts so far, and how it stands: looked at once in each


class LeftBehind:
    """Completes reports with when their last checkpoint was complete.

    Args:
        driver: this site's Slurm.
        journal: knows the checkpoint folders.
    """

    def __init__(self, driver: SiteDriver, journal: Journal) -> None:
        self._driver = driver
        self._journal = journal
        self._turns = asyncio.Semaphore(USERS_AT_ONCE)
        self._looked: dict[AttemptId, _Standing] = {}
        self._saved_at_s: dict[AttemptId, float] = {}

    async def complete(
        self, reports: Mapping[AttemptId, AttemptReport]
    ) -> dict[AttemptId, AttemptReport]:
        """The same reports, with ``saved_at_s``; within ``LOOK_TAKES_S``, as sweeps wait.

        A folder that does not answer is taken for an empty one.

        Args:
            reports: of all genuine attempts at the site, with ``leave`` of those that were told.
        """
        standing = {a: (r.restarts, r.state) for a, r in reports.items() if _ended_untold(r)}
        self._looked = {a: s for a, s in self._looked.items() if standing.get(a) == s}
        self._saved_at_s = {a: at_s for a, at_s in self._saved_at_s.items() if a in self._looked}
        of_user: dict[str, list[PreemptOrder]] = {}
        for attempt in standing.keys() - self._looked.keys():
            mark = self._journal.get(attempt)
            if mark is not None and mark.checkpoint_dir:
                of_user.setdefault(mark.user, []).append(
                    PreemptOrder(attempt=attempt, user=mark.user, site_job_id=mark.job_id,
                                 grace_s=0.0, checkpoint_dir=mark.checkpoint_dir)
                )  # fmt: skip
        await asyncio.gather(*(self._look(user, orders) for user, orders in of_user.items()))
        self._looked = standing
        saved = self._saved_at_s
        return {a: replace(r, saved_at_s=saved[a]) if a in saved else r for a, r in reports.items()}

    async def _look(self, user: str, orders: Sequence[PreemptOrder]) -> None:
        try:
            async with asyncio.timeout(LOOK_TAKES_S), self._turns:
                seen = await self._driver.look(user, orders)
        except (FederatorError, TimeoutError):
            return
        for order, found in zip(orders, seen, strict=False):
            if found.checkpointed_at_s > 0:
                self._saved_at_s[order.attempt] = found.checkpointed_at_s


def _ended_untold(report: AttemptReport) -> bool:
    put_back = report.state is SiteJobState.PENDING and report.restarts > 0
    return report.leave is None and (put_back or report.state in _UNTOLD)
