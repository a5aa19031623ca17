"""Measures what ranks do in a step: wait for input, compute, wait for each other.

The loop marks where its batch is there and where its own part ends; what it does not mark is not
known. Ranks compare their means whenever they save, as they are together then.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .ranks import Ranks

_MOST = 1024  # steps that count: the latest
_PAUSE = 10.0  # a step that takes so many times the median holds something else: an evaluation
_LEAST = 10  # steps, before anything is told
_US = 1_000_000


class _Step(NamedTuple):
    took_s: float
    load_s: float  # until its batch was there
    own_s: float  # until its own part was done; 0: not marked


class StepPhases:
    """One rank's steps. Seconds are those of one clock that never goes back."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque(maxlen=_MOST)
        self._began: tuple[int, float] | None = None  # step; when, less all saves until then
        self._loaded_s = self._computed_s = 0.0

    def loaded(self, now_s: float, saved_s: float) -> None:
        """Take in that the batch of the next step is there; as ``finished`` has it.

        Of several in a step, as gradients are accumulated, the first counts: the time until the
        last holds computing.
        """
        self._loaded_s = self._loaded_s or now_s - saved_s

    def computed(self, now_s: float, saved_s: float) -> None:
        """Take in that this rank's part of the step is done; as ``finished`` has it."""
        self._computed_s = now_s - saved_s

    def finished(self, step: int, now_s: float, saved_s: float) -> None:
        """Take in that a step is finished.

        Args:
            step: its number; one that does not follow the last is not measured.
            now_s: the time.
            saved_s: for so long this rank has saved until now.
        """
        ends_s = now_s - saved_s
        began, self._began = self._began, (step, ends_s)
        marks, self._loaded_s, self._computed_s = (self._loaded_s, self._computed_s), 0.0, 0.0
        if began is None or step != began[0] + 1 or ends_s <= began[1]:
            return
        load_s, own_s = (max(0.0, mark - began[1]) for mark in marks)
        self._steps.append(_Step(ends_s - began[1], load_s, own_s))

    def means(self) -> _Step:
        """The means of the latest steps, without those that hold a pause; zeros: too few."""
        took_s = sorted(step.took_s for step in self._steps)
        if len(took_s) < _LEAST:
            return _Step(0.0, 0.0, 0.0)
        most_s = _PAUSE * took_s[len(took_s) // 2]
        kept = [step for step in self._steps if step.took_s <= most_s]
        return _Step(
            sum(step.took_s for step in kept) / len(kept),
            sum(step.load_s for step in kept) / len(kept),
            sum(step.own_s for step in kept) / len(kept),
        )

    def line(self, ranks: Ranks) -> str:
        """What all ranks measured, as a line; "": none marks its steps, or has too few.

        All ranks must ask at once. Ranks; seconds of a step, of the longest wait for input, of the
        least and the most of its own part; the rank of the most.
        """
        mine = self.means()
        load_us, own_us = (round(each * _US) for each in mine[1:])
        load_us, most_us = ranks.agree(load_us), ranks.agree(own_us)
        if not (load_us or most_us):  # and so for every rank
            return ""
        took_us = ranks.agree(round(mine.took_s * _US))
        least_us = -ranks.agree(-own_us)
        slowest = ranks.agree(ranks.rank if own_us == most_us else -1)
        times = " ".join(f"{us / _US:.6f}" for us in (took_us, load_us, least_us, most_us))
        return f"{ranks.size()} {times} {slowest}\n"
