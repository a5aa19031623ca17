"""Reads the records of a dump of Slurm's accounting, text or JSON, in one form.

Either ``sacct -X --parsable2 -o …``, columns in any order, others ignored, or ``sacct --json``, of
Slurm 22.05 and later. A record is one stay of a job at its cluster: a job that was requeued has
several (``sacct --duplicates``; JSON of 22.05 always). Steps are no jobs and are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from federator.errors import InvalidRequest
from federator.sim.importers.trace_csv import MAX_COUNT, MAX_TIME_S, CsvTable, read_text, shown

COMMAND: Final = (
    "SLURM_TIME_FORMAT=%s sacct -a -X -D --parsable2 --noconvert -S 2026-09-01 -E now -o JobID,"
    "Cluster,Account,User,Partition,State,Submit,Eligible,Start,ElapsedRaw,TimelimitRaw,ReqTRES,"
    "AllocTRES,NNodes,NCPUS"
)
"""Gives every column that anything here reads."""

_COLUMNS: Final = (
    "JobID",
    "Partition",
    "State",
    "Submit",
    "ElapsedRaw",
    "AllocTRES",
    "User",
    "NNodes",
    "NCPUS",
    "Cluster",
    "Account",
    "Eligible",
    "Start",
    "TimelimitRaw",
    "ReqTRES",
)
NEEDED: Final = frozenset(_COLUMNS[:6])
_UNKNOWN: Final = ("", "Unknown", "None")
_NO_VALUE: Final = 2**32 - 2  # Slurm's own word for "none" in a time
_GPUS: Final = re.compile(r"(?:^|,)gres/gpu(?::([^=,]+))?=([0-9]{1,9})(?=,|$)")
_MAX_LIMIT_MIN: Final = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class SacctRecord:
    """One stay of a job, or of one component of a het job, in the queue and on nodes.

    Attributes:
        line: of the file, from 1; 0: it has no lines.
        job_id: as sacct shows it: ``7``, ``8_3`` (task of an array), ``14+1`` (het component).
        cluster: "" where the dump does not say it; so for account, user and partition.
        states: Slurm's words, such as COMPLETED.
        submit_s: None where not known; so for all times.
        eligible_s: when nothing of the user's own (begin time, dependency, hold) held it back.
        limit_s: ``inf``: none, or not known.
        ran: it was given resources.
        gpus: in all, that it was given.
        gpu_type: that it asked for; "": any.
    """

    line: int
    job_id: str
    cluster: str
    account: str
    user: str
    partition: str
    states: tuple[str, ...]
    submit_s: int | None
    eligible_s: int | None
    start_s: int | None
    elapsed_s: int | None
    limit_s: float
    ran: bool
    gpus: int
    gpu_type: str
    nodes: int | None
    cpus: int | None


def read_records(
    path: Path, more: frozenset[str] = frozenset(), text: str | None = None
) -> list[SacctRecord]:
    """Read a dump, plain or gzipped, of either format.

    Args:
        path: of the file.
        more: columns of text that are needed besides ``NEEDED``; JSON has them all.
        text: of the file, if it has been read: a pipe can be read only once.

    Raises:
        InvalidRequest: one line with the file, the place in it, and what was expected.
    """
    text = read_text(path) if text is None else text
    if text[:65_536].lstrip().startswith("{"):
        return list(_json_records(path, text))
    try:
        return list(_text_records(path, text, NEEDED | more))
    except InvalidRequest as error:
        hint = f"; see this command: {COMMAND}" if "this name in the header" in str(error) else ""
        if re.search(r"expected \d+ fields, found \d+$", str(error)):
            hint = "; leave out columns that may hold a '|', such as JobName and Comment"
        raise InvalidRequest(f"{error}{hint}") from error


# ---- text ----


class _Row(NamedTuple):
    """The cells of a line, in the order of ``_COLUMNS``."""

    job_id: str
    partition: str
    state: str
    submit: str
    elapsed: str
    tres: str
    user: str
    nodes: str
    cpus: str
    cluster: str
    account: str
    eligible: str
    start: str
    limit: str
    asked: str


def _text_records(path: Path, text: str, needed: frozenset[str]) -> Iterator[SacctRecord]:
    table = CsvTable(path, _COLUMNS, needed, delimiter="|", text=text)
    for row in table.rows():
        of = _Row(*row)
        if "." in of.job_id:
            continue
        texts = (("Submit", of.submit), ("Eligible", of.eligible), ("Start", of.start))
        times = [_time(table, *at) for at in texts]
        elapsed_s = table.whole("ElapsedRaw", of.elapsed, 0, MAX_TIME_S)
        if max(at or 0 for at in times) + (elapsed_s or 0) > MAX_TIME_S:
            raise table.mistake("ElapsedRaw", f"expected an end by {MAX_TIME_S}, the year 9999")
        yield SacctRecord(
            line=table.line,
            job_id=of.job_id,
            cluster=of.cluster,
            account=of.account,
            user=of.user,
            partition=of.partition,
            states=tuple(of.state.split()[:1]),
            submit_s=times[0],
            eligible_s=times[1],
            start_s=times[2],
            elapsed_s=elapsed_s,
            limit_s=_limit_s(table, of.limit),
            ran=bool(of.tres),
            gpus=_gpus(of.tres),
            gpu_type=_gpu_type([kind for kind, _ in _GPUS.findall(of.asked)]),
            nodes=table.whole("NNodes", of.nodes, 0, MAX_COUNT),
            cpus=table.whole("NCPUS", of.cpus, 0, MAX_COUNT),
        )


def _gpus(tres: str) -> int:
    """All GPUs of ``cpu=8,gres/gpu=4,gres/gpu:a100=4``: the untyped count holds the typed ones."""
    found = _GPUS.findall(tres)
    untyped = [int(count) for kind, count in found if not kind]
    return untyped[0] if untyped else sum(int(count) for _, count in found)


def _gpu_type(asked: Sequence[str]) -> str:
    """The type of GPU that a job insists on; of several, none can be told."""
    types = {kind for kind in asked if kind}
    return types.pop() if len(types) == 1 else ""


def _time(table: CsvTable, column: str, text: str) -> int | None:
    """Seconds since 1970 of ``2026-11-21T20:37:49``, or of seconds (SLURM_TIME_FORMAT=%s).

    Times without an offset from UTC are taken as UTC.
    """
    if text in _UNKNOWN:
        return None
    if text.isdigit():
        return _known(table.whole(column, text, 0, MAX_TIME_S))
    try:
        at = datetime.fromisoformat(text)
        seconds = int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError) as error:
        message = f"expected a time such as 2026-11-21T20:37:49, found {shown(text)}"
        raise table.mistake(column, message) from error
    if seconds < 0:
        raise table.mistake(column, f"expected a time since 1970, found {shown(text)}")
    return seconds


def _limit_s(table: CsvTable, text: str) -> float:
    """Of minutes; UNLIMITED and Partition_Limit (it is not known which) are none."""
    if text in ("UNLIMITED", "Partition_Limit", *_UNKNOWN):
        return inf
    minutes = table.whole("TimelimitRaw", text, 0, _MAX_LIMIT_MIN)
    return 60.0 * minutes if minutes else inf


def _known(seconds: int | None) -> int | None:
    """None for each of Slurm's ways to say that there is no such time."""
    return None if seconds is None or seconds in (0, _NO_VALUE, _NO_VALUE + 1) else seconds


# ---- JSON ----


class SacctNumber(Struct):
    """How Slurm 24.11 and later write a number that may be missing."""

    set: bool = False
    infinite: bool = False
    number: int = 0


_Number = int | SacctNumber | None  # a number, or null, in Slurm 22.05


class _Times(Struct):
    submission: int
    elapsed: int
    start: int = 0
    eligible: int = 0
    limit: _Number = None


class _Tres(Struct):
    type: str
    name: str | None = None
    count: int | None = None


class _TresOf(Struct):
    allocated: list[_Tres] = []
    requested: list[_Tres] = []


class _State(Struct):
    current: str | list[str]  # a string in Slurm 22.05


class _Array(Struct):
    job_id: int = 0
    task_id: _Number = None


class _Het(Struct):
    job_id: int = 0
    job_offset: _Number = None


class SacctJob(Struct):
    """What is used of a job of ``sacct --json``."""

    job_id: int
    time: _Times
    state: _State
    tres: _TresOf
    partition: str | None = None
    user: str | None = None
    account: str | None = None
    cluster: str | None = None
    allocation_nodes: int | None = None
    array: _Array = msgspec.field(default_factory=_Array)
    het: _Het = msgspec.field(default_factory=_Het)


class SacctDump(Struct):
    """The document."""

    jobs: list[SacctJob]


def _json_records(path: Path, text: str) -> Iterator[SacctRecord]:
    try:
        dump = msgspec.json.decode(text, type=SacctDump)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"{path}: not the output of sacct --json: {error}") from error
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{path}: not the output of sacct --json: half a character") from error
    for at, job in enumerate(dump.jobs):
        given, asked = _counts(job.tres.allocated), _counts(job.tres.requested)
        typed = [count for name, count in given.items() if name.startswith("gres/gpu:")]
        limit = job.time.limit
        minutes = _number(limit)
        times = (job.time.submission, job.time.eligible, job.time.start, job.time.elapsed)
        counts = (given.get("gres/gpu", 0), job.allocation_nodes or 0, sum(typed), minutes or 0)
        ends_s = max(times[:3]) + max(0, job.time.elapsed)
        if ends_s > MAX_TIME_S or max(counts) > MAX_COUNT:
            raise InvalidRequest(f"{path}: jobs[{at}]: expected smaller numbers")
        yield SacctRecord(
            line=0,
            job_id=_json_id(job),
            cluster=job.cluster or "",
            account=job.account or "",
            user=job.user or "",
            partition=job.partition or "",
            states=_states(job.state.current),
            submit_s=_known(max(0, job.time.submission)),
            eligible_s=_known(max(0, job.time.eligible)),
            start_s=_known(max(0, job.time.start)),
            elapsed_s=job.time.elapsed if job.time.elapsed >= 0 else None,
            limit_s=60.0 * minutes if minutes else inf,
            ran=bool(given),
            gpus=given.get("gres/gpu", sum(typed)),
            gpu_type=_gpu_type([name.partition(":")[2] for name in asked if _is_gpu(name)]),
            nodes=job.allocation_nodes,
            cpus=given.get("cpu"),
        )


def _counts(entries: Sequence[_Tres]) -> dict[str, int]:
    """TRES by the name that sacct gives them in text; an unknown count is 0."""
    return {
        f"{tres.type}/{tres.name}" if tres.name else tres.type: max(0, tres.count or 0)
        for tres in entries
    }


def _is_gpu(tres: str) -> bool:
    return tres == "gres/gpu" or tres.startswith("gres/gpu:")


def _states(current: str | list[str]) -> tuple[str, ...]:
    return (current,) if isinstance(current, str) else tuple(current)


def _number(value: _Number) -> int | None:
    """None where nothing is set, or all there is."""
    if isinstance(value, SacctNumber):
        return value.number if value.set and not value.infinite else None
    return value


def _json_id(job: SacctJob) -> str:
    """``7_3`` for a task of an array, ``14+1`` for a component of a het job, as in text."""
    task, offset = _number(job.array.task_id), _number(job.het.job_offset)
    if job.array.job_id and task is not None:
        return f"{job.array.job_id}_{task}"
    if job.het.job_id and offset is not None:
        return f"{job.het.job_id}+{offset}"
    return str(job.job_id)
