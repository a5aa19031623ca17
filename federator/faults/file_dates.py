"""Dates a simulated site's files by the site's own clock, not by the host's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


class FileDates:
    """Dates the files of some folders by a clock.

    Args:
        clock: the site's wall clock.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._dated: dict[str, int] = {}  # mtimes that were set here, by path

    def date(self, *folders: Path) -> None:
        """Date what was written in these since the last call; what lies deeper is not."""
        now_ns = int(self._clock() * 1e9)
        for folder in folders:
            if folder.is_dir():
                for entry in os.scandir(folder):
                    self._date(entry, now_ns)

    def _date(self, entry: os.DirEntry[str], now_ns: int) -> None:
        status = entry.stat(follow_symlinks=False)
        if self._dated.get(entry.path) != status.st_mtime_ns:
            os.utime(entry.path, ns=(now_ns, now_ns), follow_symlinks=False)
            self._dated[entry.path] = now_ns
