"""Reads GPU use, and the processes behind it, from nvidia-smi's CSV.

What nvidia-smi says is taken as it comes: a field that is no number is not known, a line that
makes no sense is passed over. Nobody is accused for want of data.
"""

import csv
import math
import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from fednode.run import Ran, run
from fednode.watching import Reading

_LEAST_FIELDS = ("index", "uuid", "memory.used", "utilization.gpu")
_GPU_FIELDS = (*_LEAST_FIELDS, "mig.mode.current", "memory.total", "power.draw", "power.limit")
_OLD_GPU_FIELDS = _GPU_FIELDS[:5]  # of one that refuses a word of the rest
_ALL_GPU_FIELDS = (
    _GPU_FIELDS,
    _OLD_GPU_FIELDS,
    _LEAST_FIELDS,  # drivers before R450 do not know of MIG and refuse the word
)
_APP_FIELDS = ("gpu_uuid", "pid", "used_memory")
_MOST_PID = 1 << 22


class Gpu(NamedTuple):
    """One GPU: its name for the driver and its use."""

    uuid: str
    reading: Reading
    limit_w: "Optional[float]" = None  # that it may draw; None: not known


class App(NamedTuple):
    """One process that holds memory of a GPU."""

    uuid: str
    pid: int
    memory_mib: "Optional[float]"


class GpuQuery:
    """Asks the nvidia-smi at ``program``; every answer is bounded by ``timeout_s``."""

    def __init__(self, program: str, timeout_s: float, node: str = "") -> None:
        self._program = program
        self._timeout_s = timeout_s
        self._extra_env = {"SLURMD_NODENAME": node} if node else {}
        self.trouble = ""  # why the last question had no answer

    def gpus(self) -> "Optional[Dict[int, Gpu]]":
        """Return the GPUs by index; None where nvidia-smi is absent, fails or hangs."""
        for fields in _ALL_GPU_FIELDS:
            ran = self._ask("gpu", fields)
            refused = "not a valid field" in (ran.out + ran.err).lower()
            if ran.status in (0, None) or not refused:
                break
        return parse_gpus(ran.out) if self._well(ran) else None

    def apps(self) -> "Optional[List[App]]":
        """Return the processes that compute on GPUs; None as ``gpus``."""
        ran = self._ask("compute-apps", _APP_FIELDS)
        return parse_apps(ran.out) if self._well(ran) else None

    def _ask(self, what: str, fields: "Sequence[str]") -> Ran:
        argv = [
            self._program,
            f"--query-{what}=" + ",".join(fields),
            "--format=csv,noheader,nounits",
        ]
        return run(argv, self._timeout_s, self._extra_env)

    def _well(self, ran: Ran) -> bool:
        said = (ran.err or ran.out).strip().splitlines()
        words = said[-1] if said else f"{self._program} ended with status {ran.status}"
        self.trouble = "" if ran.status == 0 else (ran.trouble or words)[:200]
        return ran.status == 0


def parse_gpus(text: str) -> "Dict[int, Gpu]":
    """Read ``--query-gpu``; a GPU in MIG mode has no use that could be told apart."""
    found = {}  # type: Dict[int, Gpu]
    for row in _rows(text):
        if len(row) not in map(len, _ALL_GPU_FIELDS) or not _is_count(row[0]):
            continue
        percent = number(row[3])
        mig = len(row) > 4 and row[4].lower() == "enabled"
        busy_frac = None if percent is None or mig else percent / 100
        total_mib, power_frac, limit_w = _size(row[5:]) if not mig else (None, None, None)
        reading = Reading(number(row[2]), busy_frac, total_mib, power_frac)
        found[int(row[0])] = Gpu(row[1], reading, limit_w)
    return found


def _size(row: "List[str]") -> "Tuple[Optional[float], Optional[float], Optional[float]]":
    """Return a GPU's memory, how much of its power it draws, and its power, as far as is known."""
    if len(row) != len(_GPU_FIELDS) - len(_OLD_GPU_FIELDS):
        return None, None, None
    total_mib, draw_w, limit_w = map(number, row)
    power_frac = draw_w / limit_w if draw_w is not None and limit_w else None
    return total_mib, power_frac, limit_w or None


def parse_apps(text: str) -> "List[App]":
    """Read ``--query-compute-apps``."""
    rows = (row for row in _rows(text) if len(row) == len(_APP_FIELDS) and _is_count(row[1]))
    apps = (App(row[0], int(row[1]), number(row[2])) for row in rows)
    return [app for app in apps if 1 < app.pid <= _MOST_PID]


def _rows(text: str) -> "List[List[str]]":
    try:
        lines = text.replace("\0", "").splitlines()
        return [[part.strip() for part in row] for row in csv.reader(lines)]
    except csv.Error:
        return []


def _is_count(text: str) -> bool:
    return re.fullmatch("[0-9]{1,9}", text) is not None


def number(text: str) -> "Optional[float]":
    """Return a finite number that is not negative; None for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None  # "[N/A]", "[Not Supported]", "[Unknown Error]", ...
    return value if math.isfinite(value) and value >= 0 else None
