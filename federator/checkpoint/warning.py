"""Notes that a signal has warned this process to leave."""

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
        self._ended = False
        self._pid = os.getpid()
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in signals:
                self._before[number] = signal.signal(number, self._handle)

    def rearm(self) -> None:
        """Listen again, where Python still takes the handlers for ours.

        A library in C that came later (an MPI, faulthandler) may have taken the signals without
        Python's knowing. What a script has registered with faulthandler meanwhile goes as well:
        nothing tells one from the other.
        """
        if threading.current_thread() is threading.main_thread():
            for number in self._before:
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, self._handle)

    def restore(self) -> None:
        """Put the handlers back that were there before, where they are still ours.

        Who listened after this one may still call ours, or put it back: it only passes on then.
        """
        self._ended = True
        for number in self._before:
            if signal.getsignal(number) == self._handle:
                signal.signal(number, self._handler_before(number))

    def _handler_before(self, number: int) -> Any:
        """Return what to put back: the handler of the last one before that still listens."""
        before = self._before.get(number)
        owner = getattr(before, "__self__", None)
        if isinstance(owner, LeaveSignals) and owner._ended:
            return owner._handler_before(number)
        return signal.SIG_DFL if before is None else before

    def _handle(self, number: int, frame: FrameType | None) -> None:
        before = self._handler_before(number)
        put_back = self._ended and signal.getsignal(number) == self._handle
        if os.getpid() != self._pid or put_back:
            signal.signal(number, before)
            os.kill(os.getpid(), number)
            return
        self.received = self.received or not self._ended
        if callable(before) and before is not signal.default_int_handler:
            before(number, frame)
