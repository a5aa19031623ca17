"""What does the federation tell the job that runs here, and how does the job answer?

All of it is environment and small files in ``$FED_CHECKPOINT_DIR/.fed``; outside the federation
nothing is set, nobody tells, and answers go nowhere.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .files import make_folder, put_in_place

if TYPE_CHECKING:
    from collections.abc import Mapping


class FederatedJob(NamedTuple):
    """One attempt of a federated workload, as its environment describes it."""

    directory: Path | None = None  # FED_CHECKPOINT_DIR
    attempt: int = 1  # FED_ATTEMPT
    deadline_file: Path | None = None  # FED_PREEMPT_DEADLINE
    interval_s: float | None = None  # FED_CHECKPOINT_INTERVAL_S
    why_no_directory: str = ""  # FED_CHECKPOINT_ERROR

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> FederatedJob:
        """Read ``FED_*``; what is absent or makes no sense is left at its default."""
        found = os.environ if environment is None else environment
        directory = found.get("FED_CHECKPOINT_DIR")
        deadline_file = found.get("FED_PREEMPT_DEADLINE")
        attempt = found.get("FED_ATTEMPT", "")
        return cls(
            directory=Path(directory) if directory else None,
            attempt=int(attempt) if attempt.isascii() and attempt.isdigit() else 1,
            deadline_file=Path(deadline_file) if deadline_file else None,
            interval_s=_positive(found.get("FED_CHECKPOINT_INTERVAL_S", "")),
            why_no_directory=found.get("FED_CHECKPOINT_ERROR", ""),
        )

    def told_to_leave(self) -> bool:
        """Tell whether the deadline file is there. One look at the shared file system."""
        return self.deadline_file is not None and self.deadline_file.exists()

    def deadline_s(self) -> float | None:
        """Return the Unix time at which the job is killed; None when it was not told to leave."""
        if self.deadline_file is None:
            return None
        try:
            return _positive(self.deadline_file.read_text())
        except (OSError, ValueError):
            return None

    def acknowledge(self) -> None:
        """Say that the state is saved: the federation ends the job at once.

        Raises:
            OSError: the answer cannot be written.
        """
        self._answer(f"saved.{self.attempt}")

    def checkpointed(self) -> None:
        """Say that a checkpoint is complete as of now; only work done later can be lost.

        Raises:
            OSError: the answer cannot be written.
        """
        self._answer("checkpointed")

    def _answer(self, name: str) -> None:
        if self.directory is None:
            return
        folder = self.directory / ".fed"
        make_folder(folder)
        put_in_place(folder / name, f"{time.time():.3f}\n")


def _positive(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value > 0 and math.isfinite(value) else None
