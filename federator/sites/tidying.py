"""Removes checkpoint folders of workloads that have ended, at one site of a region, as their users.

The daemon says which have ended and which live; what lives here is left alone besides, whatever it
says. Users are those that it names, and of old folders all who have one on the shared storage.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Mapping
from typing import Protocol

from federator.errors import FederatorError
from federator.model.workload import AttemptId
from federator.sites.base import Tidying
from federator.sites.protocol import TidyOrder


class TidyDriver(Protocol):
    """What is needed of a ``SiteDriver``."""

    async def tidy(self, user: str, order: Tidying) -> tuple[int, ...]:
        """As ``SiteDriver.tidy``."""
        ...


class Tidier:
    """Carries out the daemon's orders one after the other, a user at a time.

    Args:
        driver: this site's Slurm.
        live: the users of the attempts that may start or run here.
        knows_user: whether the site has an account of that name.
    """

    def __init__(
        self,
        driver: TidyDriver,
        live: Callable[[], Mapping[AttemptId, str]],
        knows_user: Callable[[str], bool],
    ) -> None:
        self._driver = driver
        self._live = live
        self._knows_user = knows_user
        self._turn = asyncio.Lock()

    async def tidy(self, order: TidyOrder) -> None:
        """Remove what may go; what cannot be removed now may be with a later order."""
        async with self._turn:
            users = set(order.ended)
            if order.before_s > 0:
                users |= set(await asyncio.to_thread(owners, order.shared))
            for user in sorted(filter(self._knows_user, users)):
                here = {int(a.workload) for a, name in self._live().items() if name == user}
                of_user = Tidying(
                    root=f"{order.shared}/{user}/checkpoints",
                    ended=order.ended.get(user, ()),
                    live=tuple(sorted(here | set(order.live.get(user, ())))),
                    below=order.below,
                    before_s=order.before_s,
                )
                try:
                    await self._driver.tidy(user, of_user)
                except FederatorError:  # the site may not act for this one; others have their turn
                    continue


def owners(shared: str) -> list[str]:
    """The names of the folders on a region's storage, which are users'; [] where it is not read."""
    try:
        with os.scandir(shared) as entries:
            return [e.name for e in entries if stat.S_ISDIR(e.stat(follow_symlinks=False).st_mode)]
    except OSError:
        return []
