"""The seeds of the fault histories of every run: two files of tests share them, a half each.

A kind of fault may strike in one half alone, and the halves may be played by two processes. So each
notes in a folder that both know what struck in its own, and whoever finds the other's note there
looks at the sum.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Final

from federator.faults.kinds import FaultKind
from federator.faults.report import FaultReport, run_histories

HISTORIES: Final = 500
PART: Final = 25  # histories of one test


class HistoryHalf:
    """One half of the seeds, and what struck in its histories.

    Args:
        number: 0 or 1.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._size = HISTORIES // 2
        self.parts = range(self._size // PART)
        self._played: dict[int, FaultReport] = {}

    def play(self, part: int) -> FaultReport:
        """Live through the histories of one part."""
        first = self._number * self._size + part * PART
        report = FaultReport()
        for outcome in run_histories(range(first, first + PART)):
            report.add(outcome)
        self._played[part] = report
        return report

    def kinds_that_never_strike(self, folder: Path) -> list[str] | None:
        """The kinds that struck in neither half; None: not all histories were played.

        Of two processes one at least finds both notes: each writes its own before it reads.

        Args:
            folder: that the processes of this run share, and no other run.
        """
        if set(self._played) != set(self.parts):
            return None
        struck = sum((report.struck for report in self._played.values()), Counter())
        _note(folder, self._number, struck)
        halves = [folder / _name(number) for number in (0, 1)]
        if not all(half.exists() for half in halves):
            return None
        names = {name for half in halves for name in json.loads(half.read_text())}
        return [kind.name for kind in FaultKind if kind.name not in names]


def _name(half: int) -> str:
    return f"faults-that-struck-{half}.json"


def _note(folder: Path, half: int, struck: Counter[FaultKind]) -> None:
    """In one step: the other process may read at any time."""
    fresh = folder / f"{_name(half)}.{os.getpid()}"
    fresh.write_text(json.dumps({kind.name: number for kind, number in struck.items() if number}))
    fresh.replace(folder / _name(half))


def folder_of_run(base: Path) -> Path:
    """The folder that all processes of a run of pytest share.

    Args:
        base: where a process has its temporary files: under pytest-xdist each has one of its own
            in the run's.
    """
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
