"""Answers an agent's questions by pyslurm: a program of its own, which that agent starts.

The one file that imports pyslurm, which is under GPL-2. Nothing imports this file, and it imports
nothing of the package: agent and child exchange lines and bytes over two pipes (docs/pyslurm.md).

A question is a line of JSON, the arguments of a command of Slurm's; the answer is a line of JSON,
``{"bytes": N}`` and N bytes, what the command would print (of each record the fields that
``parse_jobs``, ``parse_nodes`` and ``parse_site`` read), or ``{"cannot": "why"}``. The first line
comes unasked: which pyslurm it is. What cannot be told for certain is not told at all: then the
agent runs the command.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, BinaryIO, Final

NODES: Final = ("scontrol", "-a", "-d", "-o", "show", "nodes")
PARTITIONS: Final = ("scontrol", "-a", "-o", "show", "partitions")
_SQUEUE: Final = ("squeue", "--local", "-h", "-a", "-t")
_FIELD: Final = re.compile(r"([A-Za-z_-]+):(\||\d{1,4})")
# What squeue's filter "R,CF,CG,S" lets pass, by the words that squeue prints.
_ON_NODES: Final = frozenset(
    {
        "RUNNING",
        "CONFIGURING",
        "COMPLETING",
        "SUSPENDED",
        "SIGNALING",
        "STAGE_OUT",
        "STOPPED",
        "RESIZING",
        "POWER_UP_NODE",
        "UPDATE_DB",
    }
)
_BASE_STATE: Final = re.compile(r"^[A-Z]+")
_LOOKS: Final = 3  # at nodes, until two of the same moment are had
# States of jobs whose exit code of 0 may be one of 128.
_MAY_HAVE_FAILED: Final = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "PREEMPTED"})


class CannotTellError(Exception):
    """Pyslurm does not tell this, or not for certain."""


# ---- jobs: squeue -O ----


class ExitCodes:
    """The exit codes of jobs that failed, as far as pyslurm's ordinary answer hides them.

    ``Job.exit_code`` is 3 for 3 and for 131 alike. The older ``job().get()`` has the code, and the
    signal of some other job: so it is asked once after jobs have failed, and for that alone.

    Args:
        slurm: pyslurm.
    """

    def __init__(self, slurm: Any) -> None:
        self._slurm = slurm
        self._known: dict[tuple[int, int | None], int] = {}

    def learn(self, jobs: Sequence[Any]) -> None:
        """Have the codes of these, and of no others."""
        unsure = {(job.id, job.end_time) for job in jobs if _is_unsure(job)}
        self._known = {key: code for key, code in self._known.items() if key in unsure}
        new = unsure - self._known.keys()
        if not new:
            return
        found = self._slurm.job().get()
        for job_id, end_s in new:
            if job_id not in found or found[job_id]["end_time"] != end_s:
                raise CannotTellError("jobs changed while their exit codes were read")
            code = int(found[job_id]["exit_code"].partition(":")[0])
            self._known[job_id, end_s] = code

    def text(self, job: Any) -> str:
        """Exit code and signal, as ``3:0``."""
        if _is_unsure(job):
            return f"{self._known[job.id, job.end_time]}:0"
        return f"{job.exit_code or 0}:{job.exit_code_signal or 0}"


def _is_unsure(job: Any) -> bool:
    return not job.exit_code_signal and (bool(job.exit_code) or job.state in _MAY_HAVE_FAILED)


def _user(job: Any) -> str:
    return _account(job.user_id)


@lru_cache(maxsize=4096)
def _account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError as error:
        raise CannotTellError(f"user id {uid} has no name here") from error


def _task(job: Any) -> str:
    """``2``, ``1-3%1`` of those that wait, ``N/A`` of the rest of an array that never started.

    Pyslurm says 0 by saying nothing. The rest bears the array's own id, and has never had a node.
    """
    if not job.array_id:
        return "N/A"
    if job.array_task_id is not None:
        return str(job.array_task_id)
    if job.array_tasks_waiting:
        return str(job.array_tasks_waiting)
    return "0" if job.id != job.array_id or job.allocated_nodes else "N/A"


def _word(value: object) -> str:
    return "N/A" if value is None else str(value)


def _number(value: object) -> str:
    return "0" if value is None else str(value)


_JOB_FIELDS: Final[dict[str, Callable[[Any], str]]] = {
    "JobID": lambda job: str(job.id),
    "UserName": _user,
    "State": lambda job: str(job.state),
    "HetJobID": lambda job: _word(job.heterogeneous_id or None),
    "HetJobOffset": lambda job: (
        _number(job.heterogeneous_offset) if job.heterogeneous_id else "N/A"
    ),
    "ArrayJobID": lambda job: str(job.array_id or job.id),
    "ArrayTaskID": _task,
    "SubmitTime": lambda job: _word(job.submit_time),
    "StartTime": lambda job: _word(job.start_time),
    "EndTime": lambda job: _word(job.end_time),
    "NodeList": lambda job: str(job.allocated_nodes or ""),
    "Partition": lambda job: str(job.partition),
    "RestartCnt": lambda job: _number(job.requeue_count),
    "PreemptTime": lambda job: _word(job.preempt_time),
    "Account": lambda job: str(job.account or ""),
    "Reason": lambda job: str(job.state_reason or ""),
    "Name": lambda job: str(job.name or ""),
    "Comment": lambda job: str(job.comment or ""),
}


def jobs(slurm: Any, codes: ExitCodes, argv: Sequence[str]) -> bytes:
    """What squeue prints with these arguments.

    Raises:
        CannotTellError: it is asked for what pyslurm does not have.
    """
    states, form, partitions = _squeue_options(argv)
    readers = {**_JOB_FIELDS, "exit_code": codes.text}
    fields = _FIELD.findall(form)
    unknown = [name for name, _ in fields if name not in readers]
    if unknown or ",".join(f"{name}:{width}" for name, width in fields) != form:
        raise CannotTellError(f"no field {','.join(unknown) or form[:40]}")
    shown = [
        job
        for job in slurm.Jobs.load().values()
        if (states == "all" or job.state in _ON_NODES)
        and (not partitions or not partitions.isdisjoint(str(job.partition).split(",")))
    ]
    codes.learn(shown)
    lines = [
        b"".join(_padded(readers[name](job), width) for name, width in fields) + b"\n"
        for job in shown
    ]
    return b"".join(lines)


def _squeue_options(argv: Sequence[str]) -> tuple[str, str, frozenset[str]]:
    """States, format and partitions (none: all)."""
    head, rest = tuple(argv[: len(_SQUEUE)]), list(argv[len(_SQUEUE) :])
    if head != _SQUEUE or len(rest) not in (3, 5) or rest[1] != "-O":
        raise CannotTellError("this is no question for pyslurm")
    if len(rest) == 5 and rest[3] != "-p":
        raise CannotTellError("this is no question for pyslurm")
    named = rest[4].split(",") if len(rest) == 5 else ()
    return rest[0], rest[2], frozenset(named)


def _padded(text: str, width: str) -> bytes:
    """A field that Slurm composes, and its end; or one of users, cut to so many bytes."""
    raw = text.encode("utf-8", "surrogateescape")
    if width == "|":
        if b"|" in raw or b"\n" in raw:
            raise CannotTellError("a field of Slurm's own has a line's end in it")
        return raw + b"|"
    return raw[: int(width)].ljust(int(width))


# ---- nodes: scontrol -d -o show nodes ----


def nodes(slurm: Any) -> bytes:
    """What scontrol prints of nodes.

    Raises:
        CannotTellError: pyslurm does not tell what of a node's gres is in use.
    """
    return "".join(_node_line(node, old) for node, old in _both(slurm)).encode()


def _both(slurm: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Each node by both of pyslurm's ways: one alone has its state, the other its gres.

    They are two looks. When the same CPUs are in use in both, they are of one moment.
    """
    for _ in range(_LOOKS):
        old = slurm.node().get()
        new = {node.name: node for node in slurm.Nodes.load().values()}
        if new.keys() == old.keys() and all(
            node.allocated_cpus == old[name]["alloc_cpus"] for name, node in new.items()
        ):
            return [(new[name], found) for name, found in old.items()]
    raise CannotTellError("nodes change faster than pyslurm reads them")


def _node_line(node: Any, old: dict[str, Any]) -> str:
    gres, used = ",".join(old["gres"] or ()), ",".join(old["gres_used"] or ())
    if gres and not used:
        raise CannotTellError("gres in use are not told")
    cpus = node.effective_cpus or node.total_cpus
    pairs = (
        f"NodeName={node.name}",
        f"CoresPerSocket={_number(node.cores_per_socket)}",
        f"CPUAlloc={node.allocated_cpus}",
        f"CPUEfctv={cpus}",
        f"CPUTot={node.total_cpus}",
        f"ActiveFeatures={','.join(node.active_features or ()) or '(null)'}",
        f"Gres={gres or '(null)'}",
        *([f"GresUsed={used}"] if used else []),
        f"RealMemory={_number(node.real_memory)}",
        f"AllocMem={_number(node.allocated_memory)}",
        f"Sockets={_number(node.sockets)}",
        f"State={_state(node, cpus)}",
        f"ThreadsPerCore={_number(node.threads_per_core)}",
        f"TmpDisk={_number(node.temporary_disk)}",
        f"Partitions={','.join(node.partitions or ())}",
    )
    for pair in pairs:
        if len(pair.split()) != 1:  # only what comes last may hold a blank
            raise CannotTellError(f"{pair[:40]!r} holds a blank")
    return f"{' '.join(pairs)} BootTime=None{_reason(node, old)}\n"


def _state(node: Any, cpus: int) -> str:
    """As scontrol prints it; pyslurm 22.5 calls a node of which a part is in use ALLOCATED."""
    mixed = 0 < node.allocated_cpus < cpus
    return _BASE_STATE.sub("MIXED", node.state) if mixed else str(node.state)


def _reason(node: Any, old: dict[str, Any]) -> str:
    if not node.reason:
        return ""
    words = " ".join(str(node.reason).splitlines())
    uid, at_s = old["reason_uid"], node.reason_time
    who = f" [{_account(uid)}@{at_s}]" if uid is not None and at_s else ""
    return f" Reason={words}{who}"


# ---- partitions: scontrol -o show partitions ----


def partitions(slurm: Any) -> bytes:
    """What scontrol prints of partitions."""
    return "".join(map(_partition_line, slurm.Partitions.load().values())).encode()


def _partition_line(part: Any) -> str:
    pairs = (
        f"PartitionName={part.name}",
        f"Default={'YES' if part.is_default else 'NO'}",
        f"DefaultTime={'NONE' if part.default_time is None else _duration(part.default_time)}",
        f"GraceTime={_number(part.preemption_grace_time)}",
        f"MaxNodes={_number(part.max_nodes)}",
        f"MaxTime={_duration(part.max_time)}",
        f"MinNodes={_number(part.min_nodes)}",
        f"Nodes={part.nodes or '(null)'}",
        f"PriorityTier={_number(part.priority_tier)}",
        f"PreemptMode={part.preempt_mode}",
        f"State={part.state}",
    )
    for pair in pairs:
        if len(pair.split()) != 1:
            raise CannotTellError(f"{pair[:40]!r} holds a blank")
    return " ".join(pairs) + "\n"


def _duration(minutes: object) -> str:
    """Of minutes ``[days-]hh:mm:ss``; ``UNLIMITED`` stays."""
    if not isinstance(minutes, int):
        return "UNLIMITED" if minutes == "UNLIMITED" else "0:00:00"
    days, rest = divmod(minutes, 1440)
    return f"{days}-{rest // 60:02}:{rest % 60:02}:00"


# ---- the program ----


def answer(slurm: Any, codes: ExitCodes, argv: Sequence[str]) -> bytes:
    """What this command would print.

    Raises:
        CannotTellError: see there.
    """
    if tuple(argv) == NODES:
        return nodes(slurm)
    if tuple(argv) == PARTITIONS:
        return partitions(slurm)
    return jobs(slurm, codes, argv)


def serve(slurm: Any, questions: Iterable[bytes], out: BinaryIO) -> None:
    """Answer each question, until there are no more."""
    codes = ExitCodes(slurm)
    for question in questions:
        head: dict[str, object]
        body = b""
        try:
            body = answer(slurm, codes, json.loads(question))
            head = {"bytes": len(body)}
        except Exception as error:  # whatever it is, the command is asked instead
            head = {"cannot": f"{type(error).__name__}: {error}"[:300]}
        out.write(json.dumps(head).encode() + b"\n" + body)
        out.flush()


def main() -> None:
    """Serve on standard input and output; libraries that print do so elsewhere."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import pyslurm  # noqa: PLC0415  # it ends the process where it finds no slurm.conf

    out.write(json.dumps({"pyslurm": str(pyslurm.__version__)}).encode() + b"\n")
    out.flush()
    serve(pyslurm, sys.stdin.buffer, out)


if __name__ == "__main__":
    main()
