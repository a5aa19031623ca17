"""Knows users' groups by this host, and looks them up beside the event loop.

The groups of a host may come from a directory server, and the library that asks it waits. A
thread of its own waits instead, and is given up after a while; it cannot be ended. So a slow
directory delays only those who call.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

PATIENCE_S: Final = 10.0
AT_ONCE: Final = 8  # threads; who comes beyond is answered when one is done, or by his patience
GROUPS_FRESH_S: Final = 60.0  # what the host said of a user's groups
AGAIN_S: Final = 5.0  # after which it is asked again, if it did not say
USERS_KEPT: Final = 10_000

GroupsOf = Callable[[str], frozenset[str]]
TakeGroups = Callable[[frozenset[str] | None], None]
LookUp = Callable[[GroupsOf, str, TakeGroups], None]

log = structlog.get_logger()


def groups_on_this_host(user: str) -> frozenset[str]:
    """The groups of a user, by name; none of one that this host does not know."""
    try:
        ids = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
    except KeyError:
        return frozenset()
    found = set()
    for gid in ids:
        try:
            found.add(grp.getgrgid(gid).gr_name)
        except KeyError:  # a group without a name
            continue
    return frozenset(found)


def at_once(groups_of: GroupsOf, user: str, take: TakeGroups) -> None:
    """Look up here and now."""
    take(groups_of(user))


class UserGroups:
    """The groups of users, kept for a minute.

    Args:
        groups_of: a user's, on this host.
        clock: monotonic seconds.
        look_up: how the host is asked by ``when_known``.
    """

    def __init__(
        self,
        groups_of: GroupsOf = groups_on_this_host,
        clock: Callable[[], float] = time.monotonic,
        look_up: LookUp = at_once,
    ) -> None:
        self._groups_of = groups_of
        self._clock = clock
        self._look_up = look_up
        self._known: dict[str, tuple[float, frozenset[str]]] = {}  # until when, and which
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def of(self, user: str) -> frozenset[str]:
        """The groups of a user; the host is asked here and now if they are not known."""
        if not self._is_fresh(user):
            self._keep(user, self._groups_of(user), GROUPS_FRESH_S)
        return self._known[user][1]

    def when_known(self, user: str, then: Callable[[], None]) -> None:
        """Call ``then`` once the groups of a user are known, or the host does not tell them.

        Where it does not, he has those that he had before, or none.
        """
        if self._is_fresh(user):
            then()
            return
        waiting = self._waiting.setdefault(user, [])
        waiting.append(then)
        if len(waiting) == 1:
            self._look_up(self._groups_of, user, partial(self._take, user))

    def _take(self, user: str, found: frozenset[str] | None) -> None:
        if found is None:
            _, before = self._known.get(user, (0.0, frozenset[str]()))
            self._keep(user, before, AGAIN_S)
        else:
            self._keep(user, found, GROUPS_FRESH_S)
        for then in self._waiting.pop(user):
            then()

    def _is_fresh(self, user: str) -> bool:
        known = self._known.get(user)
        return known is not None and self._clock() < known[0]

    def _keep(self, user: str, groups: frozenset[str], fresh_s: float) -> None:
        if len(self._known) >= USERS_KEPT:
            self._known.clear()
        self._known[user] = self._clock() + fresh_s, groups


class GroupLookup:
    """Looks up in threads; called on the event loop, and answers there.

    Args:
        patience_s: after which the answer is None: nothing is known.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._places = asyncio.Semaphore(AT_ONCE)
        self._waiting: set[asyncio.Task[None]] = set()  # or they could be lost on their way

    def __call__(self, groups_of: GroupsOf, user: str, take: TakeGroups) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(groups_of, user, take))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _serve(self, groups_of: GroupsOf, user: str, take: TakeGroups) -> None:
        found: frozenset[str] | None = None
        try:
            async with asyncio.timeout(self._patience_s):
                await self._places.acquire()
                found = await self._in_thread(groups_of, user)
        except TimeoutError:
            log.warning("groups_unknown", user=user, waited_s=self._patience_s)
        except Exception as error:  # whatever a directory's library raises
            log.warning("groups_unknown", user=user, error=str(error))
        take(found)

    async def _in_thread(self, groups_of: GroupsOf, user: str) -> frozenset[str]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[frozenset[str]] = loop.create_future()

        def done(found: frozenset[str] | None, error: Exception | None) -> None:
            self._places.release()
            if future.done():  # given up
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(found or frozenset())

        def ask() -> None:
            try:
                found, error = groups_of(user), None
            except Exception as fault:  # goes to whoever waits
                found, error = None, fault
            try:
                loop.call_soon_threadsafe(done, found, error)
            except RuntimeError:  # the loop has ended meanwhile
                return

        threading.Thread(target=ask, name="groups", daemon=True).start()
        return await future
