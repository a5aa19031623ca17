"""The virtual loop calls what asyncio's own turn calls, in the same order at the same time."""

from __future__ import annotations

import asyncio
import socket
from random import Random

from federator.faults.clock import VirtualClock, VirtualLoop, run_virtual


class _AsyncioTurns(VirtualLoop):
    """Each turn is asyncio's."""

    def _run_once(self) -> None:
        asyncio.BaseEventLoop._run_once(self)  # type: ignore[attr-defined]


async def _many_timers(rng: Random, clock: VirtualClock, told: list[tuple[float, int]]) -> None:
    """Hundreds, of which many come at one moment and most are cancelled."""
    loop = asyncio.get_running_loop()

    def tell(number: int) -> None:
        told.append((clock(), number))

    waiting: list[asyncio.TimerHandle] = []
    for turn in range(40):
        for k in range(20):
            number = turn * 100 + k
            after_s = rng.choice((0.0, 1.0, 1.0, 2.5, 30.0, 1e-7, 90_000.0))
            waiting.append(loop.call_later(after_s, tell, number))
        loop.call_soon(told.append, (clock(), -turn))
        rng.shuffle(waiting)
        for timer in waiting[: len(waiting) * 2 // 3]:
            timer.cancel()
        del waiting[: len(waiting) * 2 // 3]
        await asyncio.sleep(rng.choice((0.0, 0.5, 1.0)))
    await asyncio.sleep(100_000.0)


def _told_by(loop_of: type[VirtualLoop], seed: int) -> list[tuple[float, int]]:
    clock, told = VirtualClock(), list[tuple[float, int]]()
    run_virtual(clock, _many_timers(Random(seed), clock, told), loop_of)
    return [*told, (clock(), 0)]


def test_the_same_is_called_in_the_same_order_as_by_asyncio() -> None:
    for seed in range(10):
        told = _told_by(VirtualLoop, seed)
        assert told == _told_by(_AsyncioTurns, seed)
        assert len(told) > 100


def test_a_file_that_is_watched_is_served() -> None:
    here, there = socket.socketpair()
    clock = VirtualClock()

    async def live() -> bytes:
        here.setblocking(False)
        there.send(b"word")
        return await asyncio.get_running_loop().sock_recv(here, 9)

    with here, there:
        assert run_virtual(clock, live()) == b"word"
