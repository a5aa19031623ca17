"""Keeps what was learned of estimated starts in a file beside the log, from one term to the next.

Nothing depends on it. Where it is missing, cannot be read or cannot be written, that is logged, and
learning starts anew.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec
import structlog

from federator.history.url import SQLITE
from federator.sched.starts.calibration import SavedCalibration

SCHEMA: Final = 1
MOST_BYTES: Final = 4 * 2**20

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
        """Put this in its place: readers see all of it, or what was there before."""
        if self._path is None:
            return
        unfinished = self._path.with_name(f"{self._path.name}.new")
        text = msgspec.json.encode(_Kept(schema=SCHEMA, calibration=calibration))
        try:
            opened = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(opened, "wb") as file:
                file.write(text)
            unfinished.replace(self._path)
        except OSError as error:
            if not self._is_in_trouble:
                log.warning("starts_file_unwritten", path=str(self._path), detail=str(error))
            self._is_in_trouble = True
        else:
            self._is_in_trouble = False


NOWHERE: Final = StartsFile(None)


def starts_file(store_url: str) -> StartsFile:
    """The file beside a log that is a file; else nothing is kept."""
    if not store_url.startswith(SQLITE):
        return NOWHERE
    path = Path(store_url.removeprefix("sqlite://"))
    return StartsFile(path.with_name(f"{path.stem}-starts.json"))
