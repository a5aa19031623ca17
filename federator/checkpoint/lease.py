"""The progress lease of a training: each step renews it, and a rank that stalls says where.

The federation looks at the time of one small file, ``progress.ATTEMPT`` (``--fed-progress``). Where
no step ends in time, a thread of each rank that can still run one tells what its main thread does:
to the job's output, and in a note beside that file. A rank without a note is frozen, or gone. A
script may give another time: then that is when ranks tell, and the file is renewed all the same.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

    from .job import FederatedJob

RENEWALS = 4  # in the time that a step may take at most; shared storage sees no more of them
_LEAST_WAIT_S = 0.1  # between two looks of the thread
_FRAMES = 3  # of a stack, innermost first
_MOST_BYTES = 300
_TIME = re.compile(r"([0-9]{1,18})(?::([0-5][0-9]))?", re.ASCII)  # as ``model.progress``


def lease_s(environment: Mapping[str, str]) -> float | None:
    """Return the longest time between two steps, as FED_PROGRESS says it; None: none is said."""
    found = _TIME.fullmatch(environment.get("FED_PROGRESS", ""))
    seconds = int(found[1]) * 60 + int(found[2] or 0) if found else 0
    return float(seconds) if seconds else None


class ProgressLease:
    """One rank's part of it; without a time it does nothing.

    Args:
        job: takes the notes.
        within_s: the longest time from one step to the next; None, or not above 0: as ``given_s``.
        rank: of this process.
        ranks: how many there are, as text; "" where nobody says.
        tell: writes a line where the user reads it.
        given_s: the longest time as the federation knows it; None: it knows of none.
    """

    def __init__(
        self,
        job: FederatedJob,
        within_s: float | None,
        rank: int = 0,
        ranks: str = "",
        tell: Callable[[str], object] | None = None,
        *,
        given_s: float | None = None,
    ) -> None:
        within_s = within_s if within_s is not None and within_s > 0 else given_s  # nor NaN
        self._job, self._within_s = job, within_s
        self._renew_s = (given_s or within_s or 0.0) / RENEWALS
        self._name = f"rank {rank} of {ranks}" if ranks else f"rank {rank}"
        self._rank = rank
        self._tell = tell or partial(print, file=sys.stderr, flush=True)
        self._main = threading.get_ident()
        self._step: int | None = None
        self._at_s = self._renewed_s = 0.0
        self._reported = False
        self._lock = threading.Lock()  # a note that is written goes before the step that ends it
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def renew(self, step: int) -> bool:
        """A step is finished; tells whether the lease's file is to be written again."""
        if self._within_s is None:
            return False
        now_s = time.monotonic()
        with self._lock:
            self._step, self._at_s = step, now_s
            self._main = threading.get_ident()
            self._take_back()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._watch, args=(self._within_s,), name="fed-progress", daemon=True
            )
            self._thread.start()
        if now_s - self._renewed_s < self._renew_s:
            return False
        self._renewed_s = now_s
        return True

    def close(self) -> None:
        """Watch no more."""
        self._ends.set()
        with self._lock:
            self._take_back()

    def _watch(self, within_s: float) -> None:
        wait_s = min(max(within_s / RENEWALS, _LEAST_WAIT_S), threading.TIMEOUT_MAX)
        while not self._ends.wait(wait_s):
            self.look()

    def look(self) -> None:
        """Tell of a stall, once, if there is one."""
        with self._lock:
            if self._within_s is None or self._reported or self._step is None:
                return
            since_s = time.monotonic() - self._at_s
            if since_s < self._within_s or self._ends.is_set():
                return
            self._reported = True
            line = f"{self._name} on {_node()}: {self._doing(since_s)}"
        with suppress(OSError, ValueError):  # its output may be closed
            self._tell(f"fed-progress: {line}")
        with self._lock:  # not held meanwhile: an output that is not read delays no step
            if self._reported:
                self._note(line)

    def _take_back(self) -> None:
        if self._reported:
            self._reported = False
            self._note("")

    def _doing(self, since_s: float) -> str:
        frame = sys._current_frames().get(self._main)
        place = " < ".join(_places(frame)) or "nowhere in Python"
        return f"no step since {self._step} for {since_s:.0f} s, in {place}{_kernel_state()}"

    def _note(self, line: str) -> None:
        with suppress(OSError):  # the job's output has it
            self._job.tell_stall(self._rank, line[:_MOST_BYTES])


def _places(frame: FrameType | None) -> list[str]:
    """Where a stack is, innermost first: function, file and line."""
    found: list[str] = []
    while frame is not None and len(found) < _FRAMES:
        code = frame.f_code
        found.append(f"{code.co_name} ({os.path.basename(code.co_filename)}:{frame.f_lineno})")
        frame = frame.f_back
    return found


def _kernel_state() -> str:
    """What the main thread of this process waits for in the kernel, where that can be seen."""
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
        with open("/proc/self/wchan", encoding="ascii", errors="replace") as file:
            waits = file.read().strip()
        return f"; process {state}" + (f" {waits}" if waits.strip("0") else "")
    return ""


def _node() -> str:
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename
