"""A virtual clock for asyncio: time leaps to the next timer, and nothing is waited for."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar


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

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0) if self._others() else []
        if not ready:
            assert timeout is not None, "every task waits for something that will never happen"
            self._clock.advance(max(0.0, timeout))
        return ready

    def _others(self) -> bool:
        """Whether a file is watched but the loop's own, which wakes it, and it never sleeps."""
        return len(self.get_map()) > 1


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which a sleep of an hour takes no time."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(_LeapingSelector(clock))
        self._virtual_clock = clock
        self._clock_resolution = 1e-6  # Unix time in a double has no finer one

    def time(self) -> float:
        return self._virtual_clock()


_T = TypeVar("_T")


def run_virtual(
    clock: VirtualClock,
    work: Coroutine[Any, Any, _T],
    loop_of: Callable[[VirtualClock], asyncio.AbstractEventLoop] = VirtualLoop,
) -> _T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=lambda: loop_of(clock)) as runner:
        return runner.run(work)
