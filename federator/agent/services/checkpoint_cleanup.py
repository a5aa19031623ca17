"""Removes checkpoint folders of workloads that have ended, at one site of a region, as their users.

The daemon says which have ended and which live; what lives here is left alone besides, whatever it
says, and by this site's clock nothing goes before its time. Users are those that it names, and of
old folders all who have one on the shared storage. The daemon is told of each.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Mapping
from typing import Protocol

from federator.agent.base import Removal, Tidying
from federator.errors import FederatorError
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import Tidied, TidyOrder


class TidyDriver(Protocol):
    """The part of a ``SiteDriver`` that is needed here."""

    async def tidy(self, user: str, order: Tidying) -> Removal:
        """As ``SiteDriver.tidy``."""
        ...


class Tidier:
    """Carries out the daemon's orders one after the other, a user at a time.

    Args:
        driver: this site's Slurm.
        live: the users of the attempts that may start or run here.
        knows_user: whether the site has an account of that name.
        clock: Unix time.
        tell: sends an answer to the daemon.
    """

    def __init__(
        self,
        driver: TidyDriver,
        live: Callable[[], Mapping[AttemptId, str]],
        knows_user: Callable[[str], bool],
        clock: Callable[[], float],
        tell: Callable[[Tidied], None],
    ) -> None:
        self._driver = driver
        self._live = live
        self._knows_user = knows_user
        self._clock = clock
        self._tell = tell
        self._turn = asyncio.Lock()

    async def tidy(self, order: TidyOrder) -> None:
        """Remove what may go; what cannot be removed now may be with a later order."""
        async with self._turn:
            users = set(order.ended)
            if order.before_s > 0:
                users |= set(await asyncio.to_thread(owners, order.shared))
            for user in sorted(filter(self._knows_user, users)):
                try:
                    done = await self._driver.tidy(user, self._part_of(user, order))
                except FederatorError as error:  # of this one; others have their turn
                    done = Removal(wrong=str(error))
                self._answer(order, user, done)
            self._answer(order, "", Removal())

    def _part_of(self, user: str, order: TidyOrder) -> Tidying:
        here = {int(a.workload) for a, name in self._live().items() if name == user}
        return Tidying(
            root=f"{order.shared}/{user}/checkpoints",
            ended=order.ended.get(user, ()),
            live=tuple(sorted(here | set(order.live.get(user, ())))),
            below=order.below,
            before_s=max(0.0, min(order.before_s, self._clock() - order.keep_s)),
        )

    def _answer(self, order: TidyOrder, user: str, done: Removal) -> None:
        if order.order_id:  # older daemons wait for no answer
            answer = Tidied(
                order_id=order.order_id, user=user, removed=done.removed, wrong=done.wrong
            )
            self._tell(answer)


def owners(shared: str) -> list[str]:
    """The names of the folders on a region's storage, which are users'; [] where it is not read."""
    try:
        with os.scandir(shared) as entries:
            return [e.name for e in entries if stat.S_ISDIR(e.stat(follow_symlinks=False).st_mode)]
    except OSError:
        return []
