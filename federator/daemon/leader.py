"""Elects the leading daemon: this one waits until it may lead, and ends when it no longer may.

The store says who: it gives the lead for the length of a lease, or for as long as this process
lives where the kernel guards it. How long the lease lasts is reckoned on this machine's own clock
from before it was asked for, so it is over here before another daemon can have it. What is done in
between all the same, by a process that was stopped for a while, is harmless by the epoch: the log
takes nothing from an older one, and a site that a newer one has reached serves no older one.

Renewals must not wait for a long turn of the event loop: a pass that took longer than the lease
would end every leader in turn. So they may run in a loop of their own (``in_a_thread``), for as
long as the first one shows now and then that it is alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from typing import Any, Final

import structlog

from federator.errors import LeadershipLost, StoreError
from federator.store.base import Store

TRY_S: Final = 0.5  # between two tries of a standby
RENEW_S: Final = 1.0
AGAIN_S: Final = 0.25  # after a renewal that was not answered
HUNG_S: Final = 10.0  # a daemon that shows no life for so long is not kept in the lead

Work = Callable[[], Coroutine[Any, Any, None]]

log = structlog.get_logger()


class Leadership:
    """One process's claim to lead.

    Args:
        store: gives the lead; ``renew`` is called while other calls may be under way.
        monotonic: a clock in seconds that runs on while this process is stopped.
        act: calls what may block, without blocking.
    """

    def __init__(
        self,
        store: Store,
        monotonic: Callable[[], float],
        act: Callable[..., Awaitable[Any]],
    ) -> None:
        self._store = store
        self._monotonic = monotonic
        self._act = act
        self._until_s = -inf
        self._alive_at_s = -inf
        self._given_up = False
        self._trouble = ""

    @property
    def holds(self) -> bool:
        """Whether this process leads now, for sure."""
        return self._monotonic() < self._until_s

    def check(self) -> None:
        """Go on only as the leader.

        Raises:
            LeadershipLost: the lease has run out.
        """
        if not self.holds:
            trouble = f"; the store: {self._trouble}" if self._trouble else ""
            raise LeadershipLost(
                "the lease ran out before it was renewed: another daemon may lead now, so this "
                f"one ends{trouble}"
            )

    def give_up(self) -> None:
        """Lead no more, and renew no more; the store is not told."""
        # Before anything else ends, so that no write of this daemon follows.
        self._given_up, self._until_s = True, -inf

    async def gain(
        self,
        at_least: Callable[[], int],
        stand_by: Callable[[], Awaitable[bool]],
        stopping: asyncio.Event,
    ) -> int | None:
        """Try until this process leads.

        Args:
            at_least: the epoch will be no smaller.
            stand_by: called after each try while another one leads; tells whether there is nothing
                more to do before the next.
            stopping: ends the wait.

        Returns:
            The epoch; None when told to stop before.

        Raises:
            StoreError: the log cannot be led, at the first try. A standby waits until it can.
        """
        stood_by = False
        while not stopping.is_set():
            idle = True
            try:
                epoch = await self._try(at_least())
                if epoch is not None:
                    return epoch
                stood_by = True
                idle = await stand_by()
                self._trouble = ""
            except StoreError as error:
                if not stood_by:
                    raise
                self._silent(error)
            if idle:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TRY_S):
                        await stopping.wait()
        return None

    async def _try(self, at_least: int) -> int | None:
        epoch: int | None = await self._act(self._store.lead, at_least)
        if epoch is None:
            return None
        began_s = self._monotonic()
        try:
            # The lease counts from before the request, since the store granted it at some moment
            # after that.
            self._until_s = began_s + await self._act(self._store.renew)
        except LeadershipLost:  # a moment is enough
            return None
        return epoch

    async def keep(self) -> None:
        """Renew for as long as it is granted, and ``show_life`` runs.

        Raises:
            LeadershipLost: another one leads, or no renewal came in time. Nothing may be done.
        """
        pause_s, self._alive_at_s = RENEW_S, self._monotonic()
        while True:
            await asyncio.sleep(min(pause_s, max(0.0, self._until_s - self._monotonic())))
            if self._given_up:
                return
            self.check()
            silent_s = self._monotonic() - self._alive_at_s
            if silent_s > HUNG_S and self._until_s < inf:  # else there is nobody to make way for
                raise LeadershipLost(f"the daemon hung for {HUNG_S:.0f} s: another one may lead")
            pause_s = RENEW_S if await self._renewed() else AGAIN_S

    async def show_life(self) -> None:
        """Run for ever where the work is done that the lead is for."""
        while True:
            self._alive_at_s = self._monotonic()
            await asyncio.sleep(RENEW_S)

    async def _renewed(self) -> bool:
        began_s = self._monotonic()
        patience_s = self._until_s - began_s
        try:
            async with asyncio.timeout(patience_s if patience_s < inf else None):
                lasts_s = await self._act(self._store.renew)
        except LeadershipLost:
            self._until_s = -inf
            raise
        except TimeoutError:
            self._silent(StoreError("no answer"))
            return False
        except StoreError as error:
            self._silent(error)
            return False
        if not self._given_up:
            # As above: from before the request, so that this daemon never believes in its lead
            # longer than the store.
            self._until_s, self._trouble = began_s + lasts_s, ""
        return True

    def _silent(self, error: StoreError) -> None:
        """Once for each kind of trouble."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            log.warning("store_trouble", detail=self._trouble)


async def in_a_thread(work: Work) -> None:
    """Run a coroutine in an event loop that this one cannot hold up; raises what it raises.

    Nothing waits for the thread when the process ends, or when this is cancelled.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def end(error: BaseException | None) -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)

    def tell(error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the other loop is closed: nobody waits
            loop.call_soon_threadsafe(end, error)

    async def work_and_tell() -> None:
        try:
            await work()
        except BaseException as error:
            tell(error)  # before asyncio.run waits for a call of the store that hangs
            raise
        tell(None)

    def run() -> None:
        try:
            asyncio.run(work_and_tell())
        except BaseException as error:  # whatever it is, it is told; what was told counts
            tell(error)

    threading.Thread(target=run, daemon=True).start()
    await ended
