"""Looks up users' groups beside the event loop: a slow directory delays only those who call.

The groups of a host may come from a directory server, and the library that asks it waits. A
thread of its own waits instead, and is given up after a while; it cannot be ended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

import structlog

PATIENCE_S: Final = 10.0
AT_ONCE: Final = 8  # threads; who comes beyond is answered when one is done, or by his patience

GroupsOf = Callable[[str], frozenset[str]]
TakeGroups = Callable[[frozenset[str] | None], None]
LookUp = Callable[[GroupsOf, str, TakeGroups], None]

log = structlog.get_logger()


def at_once(groups_of: GroupsOf, user: str, take: TakeGroups) -> None:
    """Look up here and now."""
    take(groups_of(user))


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
