"""Tasks for tests of runs: other processes find them here by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from federator.errors import FederatorError
from federator.sim.runs.base import Progress, SimRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Squared:
    """What ``Square`` returns."""

    number: int
    square: float
    longest_s: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """Squares a number; says by a file that it was done."""

    number: int
    notes: str = ""  # a folder
    wait_for: str = ""  # a file that must be there first, with a pipe's semantics

    def __call__(self, progress: Progress) -> Squared:
        if self.wait_for:
            with open(self.wait_for, "rb") as pipe:
                pipe.read(1)
        progress(0.5)
        if self.notes:
            with open(os.path.join(self.notes, str(self.number)), "a") as note:
                note.write("done\n")
        if self.number == 13:
            raise FederatorError("13 is\nrefused")
        if self.number == 14:
            raise ValueError("a mistake")
        if self.number == 15:
            os.kill(os.getpid(), signal.SIGKILL)
        return Squared(number=self.number, square=self.number**2)


def squares(numbers: Sequence[int], **fields: Any) -> list[SimRun[Squared]]:
    return [
        SimRun(name=f"square {number}", task=Square(number=number, **fields), returns=Squared)
        for number in numbers
    ]
