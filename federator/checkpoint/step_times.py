"""Measures the steps of a training: of each window of time the median, and what nine of ten took.

A step that was saved in counts without its save, as far as ``Checkpointer.save`` made it.
"""

from __future__ import annotations

from collections import deque

_MOST = 1024  # steps of a window that count: the latest


class StepDurations:
    """One rank's steps. Seconds are those of one clock that never goes back."""

    def __init__(self) -> None:
        self._took_s: deque[float] = deque(maxlen=_MOST)
        self._last: tuple[int, float, float] | None = None  # step, when, seconds saved until then
        self._window = 0

    def finished(self, step: int, now_s: float, saved_s: float) -> None:
        """Take in that a step is finished.

        Args:
            step: its number; where it is not above the last one, a new beginning.
            now_s: the time.
            saved_s: for so long this rank has saved until now.
        """
        last, self._last = self._last, (step, now_s, saved_s)
        if last is None or step <= last[0]:
            return
        took_s = (now_s - last[1] - (saved_s - last[2])) / (step - last[0])
        if took_s > 0.0:
            self._took_s.append(took_s)

    def window(self) -> str:
        """The window up to now, as a line; the next one begins. "": it has no step.

        Its number, its steps, their median and what nine of ten did not exceed, in seconds.
        """
        if not self._took_s:
            return ""
        took_s = sorted(self._took_s)
        self._took_s.clear()
        self._window += 1
        middle, most = took_s[len(took_s) // 2], took_s[int(0.9 * (len(took_s) - 1))]
        return f"{self._window} {len(took_s)} {middle:.6f} {most:.6f}\n"
