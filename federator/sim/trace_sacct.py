"""What does a dump of Slurm's accounting say? The jobs that ended and had GPUs, by partition.

Either ``sacct -a -X --parsable2 --format=JobID,User,Partition,State,Submit,ElapsedRaw,AllocTRES,
NNodes,NCPUS``, columns in any order, others ignored; or ``sacct -a --json``. A pool is a partition.
Steps are no jobs. What has not ended, never ran, had no GPU, or is in no partition of the file of
pools, is left out. Submissions without an offset from UTC are taken as UTC.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from federator.errors import InvalidRequest
from federator.sim.trace import LeftOutReason, Trace, TracePool
from federator.sim.trace_csv import (
    MAX_COUNT,
    MAX_TIME_S,
    CsvTable,
    TraceBuilder,
    read_text,
    shown,
)

_COLUMNS: Final = (
    "JobID", "Partition", "State", "Submit", "ElapsedRaw", "AllocTRES", "User", "NNodes", "NCPUS",
)  # fmt: skip
_NEEDED: Final = frozenset(_COLUMNS[:6])
_LIVE: Final = frozenset({
    "PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "COMPLETING", "CONFIGURING",
})  # fmt: skip
_UNKNOWN: Final = ("", "Unknown", "None")
_GPUS: Final = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=([0-9]{1,9})(?=,|$)")


def read_sacct(path: Path, pools: Sequence[TracePool]) -> Trace:
    """Read the output of ``sacct --parsable2``.

    Raises:
        InvalidRequest: one line with file, line, column, and what was expected.
    """
    table = CsvTable(path, _COLUMNS, _NEEDED, delimiter="|")
    builder = TraceBuilder(pools)
    for row in table.rows():
        job_id, partition, state, submit, elapsed, tres, user, nodes, cpus = row
        if "." in job_id:
            continue
        gpus = _gpus(tres)
        reason = _why_not(state.split()[:1], bool(tres), gpus)
        if reason is not None:
            builder.leave_out(reason, job_id, table.line, partition, gpus)
            continue
        builder.add(
            job_id=job_id,
            line=table.line,
            submit_s=_time(table, submit),
            duration_s=table.whole("ElapsedRaw", elapsed, 0, MAX_TIME_S),
            gpus=gpus,
            num_nodes=table.whole("NNodes", nodes, 0, MAX_COUNT),
            cpus=table.whole("NCPUS", cpus, 0, MAX_COUNT),
            pool=partition,
            user=user,
        )
    return builder.trace


def _why_not(states: Sequence[str], ran: bool, gpus: int) -> LeftOutReason | None:
    """Why a job says nothing to a replay; None if it does."""
    if not ran or not _LIVE.isdisjoint(states):
        return LeftOutReason.NEVER_RAN
    return None if gpus else LeftOutReason.NO_GPU


def _gpus(tres: str) -> int:
    """All GPUs of ``cpu=8,gres/gpu=4,gres/gpu:a100=4``: the untyped count holds the typed ones."""
    found = _GPUS.findall(tres)
    untyped = [int(count) for kind, count in found if not kind]
    return untyped[0] if untyped else sum(int(count) for _, count in found)


def _time(table: CsvTable, text: str) -> int | None:
    """Seconds since 1970 of ``2026-11-21T20:37:49``, or of seconds (SLURM_TIME_FORMAT=%s)."""
    if text in _UNKNOWN:
        return None
    if text.isdigit():
        return table.whole("Submit", text, 0, MAX_TIME_S)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"expected a time such as 2026-11-21T20:37:49, found {shown(text)}"
        raise table.mistake("Submit", message) from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())


class _Times(Struct):
    submission: int
    elapsed: int


class _Tres(Struct):
    type: str
    name: str | None = None
    count: int | None = None


class _Allocated(Struct):
    allocated: list[_Tres] = []


class _State(Struct):
    current: str | list[str]  # a string in Slurm 22.05


class SacctJob(Struct):
    """What is used of a job of ``sacct --json``."""

    job_id: int
    time: _Times
    state: _State
    tres: _Allocated
    partition: str | None = None
    user: str | None = None
    allocation_nodes: int | None = None
    array: dict[str, Any] = {}


class SacctDump(Struct):
    """The document."""

    jobs: list[SacctJob]


def read_sacct_json(path: Path, pools: Sequence[TracePool]) -> Trace:
    """Read the output of ``sacct --json`` of Slurm 22.05 or later.

    Raises:
        InvalidRequest: one line with the file, the place in it, and what was expected.
    """
    try:
        dump = msgspec.json.decode(read_text(path), type=SacctDump)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{path}: not the output of sacct --json: {error}") from error
    builder = TraceBuilder(pools)
    for job in dump.jobs:
        counts = {
            (tres.type, tres.name or ""): max(0, tres.count or 0) for tres in job.tres.allocated
        }
        typed = [n for (_, name), n in counts.items() if name.startswith("gpu:")]
        gpus = counts.get(("gres", "gpu"), sum(typed))
        states = job.state.current if isinstance(job.state.current, list) else [job.state.current]
        job_id = _json_id(job)
        reason = _why_not(states, bool(counts), gpus)
        if reason is not None:
            builder.leave_out(reason, job_id, 0, job.partition or "", gpus)
            continue
        builder.add(
            job_id=job_id,
            line=0,
            submit_s=job.time.submission if job.time.submission > 0 else None,
            duration_s=job.time.elapsed if job.time.elapsed >= 0 else None,
            gpus=gpus,
            num_nodes=job.allocation_nodes,
            cpus=counts.get(("cpu", "")),
            pool=job.partition or "",
            user=job.user or "",
        )
    return builder.trace


def _json_id(job: SacctJob) -> str:
    """``7_3`` for a task of an array, as sacct prints it; a number may stand in an object."""
    task = job.array.get("task_id")
    if isinstance(task, dict):
        task = task.get("number") if task.get("set") else None
    array = job.array.get("job_id")
    return f"{array}_{task}" if array and task is not None else str(job.job_id)
