"""Single workloads in full, asked for together: one question a second for all who look at one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from federator.errors import FederatorError, SiteUnavailable
from federator.wire.accounting_rows import AccountingRow
from federator.wire.client_protocol import (
    AccountingCall,
    AccountingReply,
    Call,
    ErrorReply,
    QueueCall,
    QueueReply,
    QueueRow,
)
from federator.wire.replies import Reply

AT_ONCE: Final = 50  # ids of one question
WAITING_AT_MOST: Final = 500  # ids
KEPT: Final = 500  # answers
FRESH_S: Final = 3.0
PAUSE_S: Final = 1.0  # between two questions, or so many times what one took
PART_OF_TIME: Final = 20

Ask = Callable[[Call], Awaitable[Reply]]


class StoryFound(NamedTuple):
    """What the daemon knows of one id: a workload, or the tasks of an array."""

    rows: tuple[QueueRow, ...]
    accounts: tuple[AccountingRow, ...]
    now_s: float


class StoryFeed:
    """Answers by id.

    Args:
        ask: brings a call to the daemon.
        clock: seconds, of the event loop.
    """

    def __init__(self, ask: Ask, clock: Callable[[], float]) -> None:
        self._ask, self._clock = ask, clock
        self._kept: OrderedDict[str, tuple[float, StoryFound]] = OrderedDict()
        self._waiting: dict[str, asyncio.Future[StoryFound]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._not_before_s = 0.0

    async def of(self, name: str) -> StoryFound:
        """All about ``ID``, ``ARRAY`` or ``ARRAY_INDEX``; no rows: there is none.

        Raises:
            SiteUnavailable: the daemon does not answer, or too many ids are asked for.
        """
        kept = self._kept.get(name)
        if kept is not None and self._clock() < kept[0] + FRESH_S:
            return kept[1]
        future = self._waiting.get(name)
        if future is None:
            if len(self._waiting) >= WAITING_AT_MOST:
                raise SiteUnavailable("too many jobs are looked at right now; try again")
            future = self._waiting[name] = asyncio.get_running_loop().create_future()
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._serve())
        return await asyncio.shield(future)

    async def _serve(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(max(0.0, self._not_before_s - self._clock()))
                names = tuple(self._waiting)[:AT_ONCE]
                futures = {name: self._waiting[name] for name in names}
                began_s = self._clock()
                found = await self._found(names)
                self._not_before_s = began_s + max(
                    PAUSE_S, PART_OF_TIME * (self._clock() - began_s)
                )
                self._give(futures, found)
        finally:
            self._asking = None

    def _give(
        self,
        futures: dict[str, asyncio.Future[StoryFound]],
        found: dict[str, StoryFound] | SiteUnavailable,
    ) -> None:
        for name, future in futures.items():
            del self._waiting[name]
            if isinstance(found, SiteUnavailable):
                future.set_exception(found)
                future.exception()  # whoever asked may have gone
                continue
            self._kept[name] = self._clock(), found[name]
            self._kept.move_to_end(name)
            future.set_result(found[name])
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    async def _found(self, names: Sequence[str]) -> dict[str, StoryFound] | SiteUnavailable:
        """The answers; of an answer that does not hold all, each half is asked for by itself."""
        try:
            queue = await self._ask(QueueCall(ids=tuple(names), ended=True, why=True, files=True))
            call = AccountingCall(ids=tuple(names), attempts=True, use=True)
            accounts = await self._ask(call)
        except FederatorError as error:
            return SiteUnavailable(str(error))
        for reply in (queue, accounts):
            if isinstance(reply, ErrorReply):
                return SiteUnavailable(reply.message)
        if not isinstance(queue, QueueReply) or not isinstance(accounts, AccountingReply):
            return SiteUnavailable("the daemon gave an unexpected answer")
        is_cut = queue.left_off or accounts.left_off or accounts.after is not None
        if is_cut and len(names) > 1:
            return await self._in_halves(names)
        return {
            name: StoryFound(
                tuple(r for r in queue.rows if is_meant(name, r.id, r.array_id, r.array_index)),
                tuple(r for r in accounts.rows if is_meant(name, r.id, r.array_id, r.array_index)),
                queue.now_s,
            )
            for name in names
        }

    async def _in_halves(self, names: Sequence[str]) -> dict[str, StoryFound] | SiteUnavailable:
        middle = len(names) // 2
        found: dict[str, StoryFound] = {}
        for half in (names[:middle], names[middle:]):
            part = await self._found(half)
            if isinstance(part, SiteUnavailable):
                return part
            found |= part
        return found


def is_meant(name: str, id_: int, array_id: int, array_index: int) -> bool:
    """Whether a workload is what is called ``name``."""
    head, _, index = name.partition("_")
    if index:
        return array_id == int(head) and array_index == int(index)
    return int(head) in (id_, array_id)
