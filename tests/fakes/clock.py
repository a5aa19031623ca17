"""What time is it in a test? Whatever the test says; asyncio can be made to believe it too."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
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
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not ready:
            assert timeout is not None, "every task waits for something that will never happen"
            self._clock.advance(max(0.0, timeout))
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(_LeapingSelector(clock))
        self._virtual_clock = clock

    def time(self) -> float:
        return self._virtual_clock()


_T = TypeVar("_T")


def run_virtual(clock: VirtualClock, work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end in virtual time: a sleep of an hour takes none."""
    with asyncio.Runner(loop_factory=lambda: _VirtualLoop(clock)) as runner:
        return runner.run(work)
