"""The running job as the federation describes it, and the job's answers.

All of it is environment and small files in ``$FED_CHECKPOINT_DIR/.fed``; outside the federation
nothing is set, nobody tells, and answers go nowhere.
"""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
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
    restarts: int = 0  # SLURM_RESTART_COUNT: Slurm started this same attempt again
    start_at_s: float | None = None  # SLURM_JOB_START_TIME, where Slurm tells it

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> FederatedJob:
        """Read ``FED_*``; what is absent or makes no sense is left at its default."""
        found = os.environ if environment is None else environment
        directory = found.get("FED_CHECKPOINT_DIR")
        deadline_file = found.get("FED_PREEMPT_DEADLINE")
        attempt, restarts = found.get("FED_ATTEMPT", ""), found.get("SLURM_RESTART_COUNT", "")
        return cls(
            directory=Path(directory) if directory else None,
            attempt=_number(attempt, 1),
            deadline_file=Path(deadline_file) if deadline_file else None,
            interval_s=_positive(found.get("FED_CHECKPOINT_INTERVAL_S", "")),
            why_no_directory=found.get("FED_CHECKPOINT_ERROR", ""),
            restarts=_number(restarts, 0),
            start_at_s=_positive(found.get("SLURM_JOB_START_TIME", "")),
        )

    def told_to_leave(self) -> bool:
        """Tell whether the deadline file is there. One look at the shared file system.

        A file system that does not answer tells nothing: the next look may. So does a file that is
        left of an earlier run of the same attempt.
        """
        if self.deadline_file is None or _modified_at_s(self.deadline_file) is None:
            return False
        return not self._deadline_is_old()

    def deadline_s(self) -> float | None:
        """Return the Unix time at which the job is killed; None when it was not told to leave."""
        return None if self._deadline_is_old() else self._read_deadline_s()

    def forget_earlier_run(self) -> None:
        """Remove what an earlier run of the same attempt was told, and its answer.

        For the start of the one process that answers. Ranks that look before are not misled.
        """
        if not self.restarts:
            return
        if self.deadline_file is not None and self._deadline_is_old():
            _remove(self.deadline_file)
        if self.directory is not None:
            answer = self.directory / ".fed" / f"saved.{self.attempt}"
            if self._answer_is_old(answer):
                _remove(answer)
            name = f"progress.{self.attempt}"
            with suppress(OSError):
                for note in (name, f"{name}.steps", f"{name}.ranks"):
                    _remove(answer.parent / note)
                for note_of_rank in answer.parent.glob(f"{name}.stalled.*"):
                    _remove(note_of_rank)

    def _deadline_is_old(self) -> bool:
        """Slurm restarted the job; the note is older than this run, or its time is over."""
        if not self.restarts or self.deadline_file is None:
            return False
        at_s, deadline_s = _modified_at_s(self.deadline_file), self._read_deadline_s()
        is_older = self.start_at_s is not None and at_s is not None and at_s < self.start_at_s
        return is_older or (deadline_s is not None and deadline_s < time.time())

    def _answer_is_old(self, answer: Path) -> bool:
        """It is older than this run; where Slurm does not tell, nothing asked for an answer."""
        if self.start_at_s is None:
            return self.deadline_file is None or _modified_at_s(self.deadline_file) is None
        at_s = _modified_at_s(answer)
        return at_s is not None and at_s < self.start_at_s

    def _read_deadline_s(self) -> float | None:
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

    @staticmethod
    def now_s() -> float:
        """Unix time."""
        return time.time()

    def tell_progress(self, ready_at_s: float, save_s: float, *, goes_on: bool = True) -> None:
        """Say when the first step was finished, and how long all saves took until now.

        The time of this note renews the lease of progress; the time 0 says that there is none, as
        no more steps are to come (not ``goes_on``).

        Raises:
            OSError: the note cannot be written, nor its time be set.
        """
        if self.directory is None:
            return
        name = f"progress.{self.attempt}"
        note = self.directory / ".fed" / name
        try:
            self._answer(name, f"{ready_at_s:.3f} {save_s:.3f}\n")
        except OSError:  # a full disk, or a quota: the time needs no block
            os.utime(note)
        if not goes_on:
            os.utime(note, (0.0, 0.0))

    def tell_steps(self, window: str) -> None:
        """Say how long the latest steps took, as ``StepDurations.window`` has it.

        Raises:
            OSError: the note cannot be written.
        """
        self._answer(f"progress.{self.attempt}.steps", window)

    def tell_phases(self, line: str) -> None:
        """Say what ranks do in a step, as ``StepPhases.line`` has it.

        Raises:
            OSError: the note cannot be written.
        """
        self._answer(f"progress.{self.attempt}.ranks", line)

    def tell_stall(self, rank: int, text: str) -> None:
        """Say what a rank does that finishes no step; "" takes that back.

        Raises:
            OSError: the note cannot be written.
        """
        name = f"progress.{self.attempt}.stalled.{rank}"
        if text:
            self._answer(name, f"{text}\n")
        elif self.directory is not None:
            _remove(self.directory / ".fed" / name)

    def _answer(self, name: str, text: str = "") -> None:
        if self.directory is None:
            return
        folder = self.directory / ".fed"
        make_folder(folder)
        put_in_place(folder / name, text or f"{time.time():.3f}\n")


def _modified_at_s(path: Path) -> float | None:
    """When a file was written, as Unix time; None where there is none, or it cannot be asked."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _remove(path: Path) -> None:
    with suppress(OSError):  # it is not believed all the same
        path.unlink()


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() else default


def _positive(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value > 0 and math.isfinite(value) else None
