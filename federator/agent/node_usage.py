"""Reads the files by which nodes report how jobs used their GPUs.

``prolog_epilog/fednode/use_report.py`` writes them. Anyone may put files there: those of root, of
nobody (root of a node on a shared file system) and of the agent count, if they name the job's user.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Final

import msgspec

from federator.model.unreadable import UNREADABLE
from federator.model.workload import AttemptId
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob

FOLDER: Final = "usage"  # of the spool
KEPT_S: Final = 86_400.0  # a file that nobody asks about
MOST_REMOVED: Final = 1_000  # at once
MOST_FIGURE: Final = 1e12  # that a report may hold
MOST_GPUS: Final = 1_000_000  # likewise, of a node
_MOST_BYTES: Final = 4_096
_NOBODY: Final = 65534
_CLOCKS_DIFFER_S: Final = 120.0
_EPILOG_TAKES_S: Final = 600.0  # after Slurm's end of the job, with its turn in the queue
_NAME: Final = re.compile(r"([1-9][0-9]{0,9})\.(.+)", re.DOTALL)


class _Figures(msgspec.Struct):
    """What the watch of a node has seen; see ``prolog_epilog/fednode/summary.py``."""

    gpu_busy_mean_frac: float | None = None
    memory_most_mib: float | None = None
    memory_total_mib: float | None = None
    gpu_power_mean_frac: float | None = None
    swing_looks: float | None = None
    gpu_busy_spread_frac: float | None = None
    gpu_low_frac: float | None = None
    gpu_high_frac: float | None = None
    gpu_falls: float | None = None
    gpu_low_longest_frac: float | None = None


class _NodeReport(msgspec.Struct):
    """One file."""

    user: str
    gpus: int
    at_s: float
    usage: _Figures


_decode: Final = msgspec.json.Decoder(_NodeReport).decode


def read(folder: Path, jobs: Collection[EndedJob]) -> dict[AttemptId, MeasuredUse]:
    """What nodes have reported of these.

    Args:
        folder: the spool.
        jobs: those that are asked about.

    Raises:
        OSError: the folder cannot be read.
    """
    wanted = _by_id(jobs)
    found: dict[AttemptId, list[_NodeReport]] = {}
    for id_, path in _files(folder):
        report = _report(path, folder) if id_ in wanted else None
        job = _whose(report, wanted[id_]) if report is not None else None
        if report is not None and job is not None:
            found.setdefault(job.attempt, []).append(report)
    return {attempt: _summed(reports) for attempt, reports in found.items()}


def remove(folder: Path, jobs: Collection[EndedJob], now_s: float) -> None:
    """Remove the reports of these jobs, and files that are too old, so many at once.

    Raises:
        OSError: the folder cannot be read.
    """
    answered = _by_id(jobs)
    removed = 0
    for entry in os.scandir(folder / FOLDER):
        match = _NAME.fullmatch(entry.name)
        with suppress(OSError):
            is_old = entry.stat(follow_symlinks=False).st_mtime < now_s - KEPT_S
            its = answered.get(int(match[1]), ()) if match is not None else ()
            report = _report(Path(entry.path), folder) if its and not is_old else None
            if is_old or (report is not None and _whose(report, its) is not None):
                os.unlink(entry.path)
                removed += 1
        if removed >= MOST_REMOVED:
            return


def _by_id(jobs: Collection[EndedJob]) -> dict[int, list[EndedJob]]:
    """Of one id there may be several: a site may give it again."""
    found: dict[int, list[EndedJob]] = {}
    for job in jobs:
        found.setdefault(job.site_job_id, []).append(job)
    return found


def _files(folder: Path) -> Iterable[tuple[int, Path]]:
    for entry in os.scandir(folder / FOLDER):
        match = _NAME.fullmatch(entry.name)
        if match is not None:
            yield int(match[1]), Path(entry.path)


def _report(path: Path, folder: Path) -> _NodeReport | None:
    """The content, if who wrote it may be believed."""
    with suppress(OSError, *UNREADABLE):
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(opened)
            writers = {0, _NOBODY, folder.stat().st_uid}
            if stat.S_ISREG(status.st_mode) and status.st_uid in writers:
                return _decode(os.read(opened, _MOST_BYTES))
        finally:
            os.close(opened)
    return None


def _whose(report: _NodeReport, jobs: Iterable[EndedJob]) -> EndedJob | None:
    """Which of these jobs of one id it is about: of several the one that ended next to it."""
    its = (job for job in jobs if _is_its(report, job))
    return min(its, key=lambda job: abs(report.at_s - job.ended_at_s), default=None)


def _is_its(report: _NodeReport, job: EndedJob) -> bool:
    """A site that lost its state, or has it from a backup, gives the same job ids again."""
    over_s = job.ended_at_s + _EPILOG_TAKES_S if job.ended_at_s else inf
    its_time = job.started_at_s - _CLOCKS_DIFFER_S <= report.at_s <= over_s + _CLOCKS_DIFFER_S
    return report.user == job.user and its_time


def _summed(reports: Iterable[_NodeReport]) -> MeasuredUse:
    """Parts are averaged by GPUs; of amounts the most on one node counts."""
    found = [each for each in reports if _is_sound(each)]

    def mean(name: str) -> float | None:
        known = [(value, e.gpus) for e in found if (value := _of(e, name)) is not None]
        gpus = sum(weight for _, weight in known)
        return min(1.0, sum(value * weight for value, weight in known) / gpus) if gpus else None

    def most(name: str) -> float | None:
        return max((value for e in found if (value := _of(e, name)) is not None), default=None)

    return MeasuredUse(
        gpu_util_frac=mean("gpu_busy_mean_frac"),
        gpu_mem_mib=most("memory_most_mib"),
        gpu_total_mib=most("memory_total_mib"),
        gpu_power_frac=mean("gpu_power_mean_frac"),
        gpu_looks=most("swing_looks"),
        gpu_spread_frac=mean("gpu_busy_spread_frac"),
        gpu_low_frac=mean("gpu_low_frac"),
        gpu_high_frac=mean("gpu_high_frac"),
        gpu_falls=most("gpu_falls"),
        gpu_longest_low_frac=mean("gpu_low_longest_frac"),
    )


def _of(report: _NodeReport, name: str) -> float | None:
    value: float | None = getattr(report.usage, name)
    return value


def _is_sound(report: _NodeReport) -> bool:
    """No figure is below nothing, or no number: a report is a file."""
    figures = [_of(report, name) for name in _Figures.__struct_fields__]
    is_weight = 0 <= report.gpus <= MOST_GPUS
    return is_weight and all(v is None or 0 <= v < MOST_FIGURE for v in figures)
