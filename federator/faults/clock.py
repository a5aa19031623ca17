"""A virtual clock for asyncio: time leaps to the next timer, and nothing is waited for."""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

_FEW: Final = 100  # timers: so many may lie about cancelled
_CANCELLED_FRAC: Final = 0.5


class VirtualClock:
    """Unix time that moves only when told to."""

    def __init__(self, now_s: float = 1_000_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def advance(self, by_s: float) -> None:
        assert by_s >= 0, "time does not run backwards"
        self.now_s += by_s


class _LeapingSelector(selectors.DefaultSelector):
    """Never waits: when no file is ready, the clock leaps to the next timer."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self.watched = 0  # files

    def register(self, *args: Any) -> selectors.SelectorKey:
        key = super().register(*args)
        self.watched += 1
        return key

    def unregister(self, *args: Any) -> selectors.SelectorKey:
        key = super().unregister(*args)
        self.watched -= 1
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0) if self.others() else []
        if not ready:
            assert timeout is not None, "every task waits for something that will never happen"
            self._clock.advance(max(0.0, timeout))
        return ready

    def others(self) -> bool:
        """Whether a file is watched but the loop's own, which wakes it, and it never sleeps."""
        return self.watched > 1


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which a sleep of an hour takes no time."""

    def __init__(self, clock: VirtualClock) -> None:
        self._files = _LeapingSelector(clock)
        super().__init__(self._files)
        self._virtual_clock = clock
        self._clock_resolution = 1e-6  # Unix time in a double has no finer one

    def time(self) -> float:
        return self._virtual_clock.now_s

    # As in asyncio, whose words for all this are not public: it calls the same in the same order.
    # But it asks no selector while no file is watched. A history of faults has some ten thousand
    # turns, and in most of them one thing is called.

    def _run_once(self) -> None:
        loop: Any = self
        if self._files.others():
            super()._run_once()  # type: ignore[misc]
            return
        self._forget_cancelled()
        timers, ready, clock = loop._scheduled, loop._ready, self._virtual_clock
        if not ready and not loop._stopping:
            assert timers, "every task waits for something that will never happen"
            clock.advance(max(0.0, timers[0]._when - clock.now_s))
        due_s = clock.now_s + self._clock_resolution
        while timers and timers[0]._when < due_s:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _forget_cancelled(self) -> None:
        """Of the timers; only those that come next, unless they are many."""
        loop: Any = self
        timers = loop._scheduled
        if len(timers) > _FEW and loop._timer_cancelled_count / len(timers) > _CANCELLED_FRAC:
            loop._scheduled = [timer for timer in timers if not timer._cancelled]
            heapq.heapify(loop._scheduled)
            loop._timer_cancelled_count = 0
            for timer in timers:
                timer._scheduled = timer._scheduled and not timer._cancelled
            return
        while timers and timers[0]._cancelled:
            loop._timer_cancelled_count -= 1
            heapq.heappop(timers)._scheduled = False


_T = TypeVar("_T")


def run_virtual(
    clock: VirtualClock,
    work: Coroutine[Any, Any, _T],
    loop_of: Callable[[VirtualClock], asyncio.AbstractEventLoop] = VirtualLoop,
) -> _T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=lambda: loop_of(clock)) as runner:
        return runner.run(work)
