"""A job of submitit that counts, and goes on where it was when it had to leave.

A module, not the submitting script: a class of ``__main__`` travels as bytecode, which another
site's Python need not understand.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from submitit.helpers import Checkpointable


class Counting(Checkpointable):
    """Counts until a file called ``enough`` is in its folder; ``checkpoint`` is submitit's own."""

    def __init__(self) -> None:
        self.step = 0
        self.attempts: list[str] = []

    def __call__(self, folder: str, step_s: float = 0.1) -> tuple[int, list[str]]:
        attempt = f"{os.environ['FED_SITE']} {os.environ['FED_ATTEMPT']}"
        self.attempts.append(attempt)
        with open(Path(folder, f"log.{os.environ['FED_ATTEMPT']}"), "a") as log:
            while not Path(folder, "enough").exists():
                print(attempt, self.step + 1, file=log, flush=True)
                self.step += 1
                time.sleep(step_s)
        return self.step, self.attempts


def double(number: int) -> int:
    """Return twice the number; 13 is refused."""
    if number == 13:
        raise ValueError("not 13")
    return 2 * number
