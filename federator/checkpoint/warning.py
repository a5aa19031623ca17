"""Has a signal told this process to leave?"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType


class LeaveSignals:
    """A flag that signals raise. The handler does nothing else but call the script's own.

    Outside the main thread Python allows no handlers: then only the deadline file tells. Forked
    helpers, of a multiprocessing pool say, die of the signals as if nobody had listened.
    """

    def __init__(self, signals: Sequence[signal.Signals]) -> None:
        self.received = False
        self._pid = os.getpid()
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in signals:
                self._before[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Put the handlers back that were there before, where they are still ours."""
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        before = self._before.get(number)
        if os.getpid() != self._pid:
            signal.signal(number, signal.SIG_DFL if before is None else before)
            os.kill(os.getpid(), number)
            return
        self.received = True
        if callable(before) and before is not signal.default_int_handler:
            before(number, frame)
