"""Keeps what was learned of estimated starts in a file beside the log, from one term to the next.

Nothing depends on it. Where it is missing, cannot be read or cannot be written, that is logged, and
learning starts anew.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec
import structlog

from federator.history.url import SQLITE
from federator.sched.starts.calibration import Calibration, SavedCalibration

SCHEMA: Final = 2
MOST_BYTES: Final = 4 * 2**20
SAVE_S: Final = 60.0  # between two writings beside turns at the least

log = structlog.get_logger()


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    schema: int
    calibration: SavedCalibration


class StartsFile:
    """The file.

    Args:
        path: None: nothing is kept.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._is_in_trouble = False
        self._writing = Lock()
        self._judged = 0  # of the latest that was written

    def read(self) -> SavedCalibration:
        """What was kept; nothing where there is none, or none that can be read."""
        nothing = SavedCalibration()
        if self._path is None:
            return nothing
        try:
            with self._path.open("rb") as file:
                text = file.read(MOST_BYTES + 1)
            if len(text) > MOST_BYTES:
                raise ValueError(f"larger than {MOST_BYTES} bytes")
            kept = msgspec.json.decode(text, type=_Kept)
            if kept.schema != SCHEMA:
                raise ValueError(f"schema {kept.schema} is not known")
        except FileNotFoundError:
            return nothing
        except (OSError, ValueError) as error:  # msgspec's are ValueErrors
            log.warning("starts_file_unread", path=str(self._path), detail=str(error))
            return nothing
        return kept.calibration

    def write(self, calibration: SavedCalibration) -> None:
        """Put this in its place: readers see all of it, or what was there before.

        It may be called in any thread; what was learned before what is there already is dropped.
        """
        if self._path is None:
            return
        with self._writing:
            if calibration.judged >= self._judged:
                self._put(self._path, calibration)

    def _put(self, path: Path, calibration: SavedCalibration) -> None:
        unfinished = path.with_name(f"{path.name}.new")
        text = msgspec.json.encode(_Kept(schema=SCHEMA, calibration=calibration))
        try:
            opened = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(opened, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())  # else a crash may leave an empty file in its place
            unfinished.replace(path)
        except OSError as error:
            if not self._is_in_trouble:
                log.warning("starts_file_unwritten", path=str(path), detail=str(error))
            self._is_in_trouble = True
        else:
            self._is_in_trouble, self._judged = False, calibration.judged


NOWHERE: Final = StartsFile(None)


class LearnedStarts:
    """What one term learns, and writes to the file where that is more than it holds.

    Args:
        learned: is given what the file holds, and grows.
        file: where it is kept.
    """

    def __init__(self, learned: Calibration, file: StartsFile) -> None:
        learned.restore(file.read())
        self._learned, self._file = learned, file
        self._judged = learned.judged  # of the latest that was to be written
        self._save_at_s = 0.0  # as ``elapsed_s`` of ``save_beside``

    def save(self) -> None:
        """Keep what was learned since the last time, for the next term."""
        unsaved = self._unsaved()
        if unsaved is not None:
            self._file.write(unsaved)

    async def save_beside(self, elapsed_s: float) -> bool:
        """As ``save``, now and then, in a thread; tell whether time was given to others.

        Ten thousand classes and a slow disk hold up no turn.
        """
        if elapsed_s < self._save_at_s:
            return False
        self._save_at_s = elapsed_s + SAVE_S
        unsaved = self._unsaved()
        if unsaved is None:
            return False
        await asyncio.to_thread(self._file.write, unsaved)
        return True

    def _unsaved(self) -> SavedCalibration | None:
        if self._learned.judged == self._judged:
            return None
        self._judged = self._learned.judged
        return self._learned.saved()


def starts_file(store_url: str) -> StartsFile:
    """The file beside a log that is a file; else nothing is kept."""
    if not store_url.startswith(SQLITE):
        return NOWHERE
    path = Path(store_url.removeprefix("sqlite://"))
    return StartsFile(path.with_name(f"{path.stem}-starts.json"))
