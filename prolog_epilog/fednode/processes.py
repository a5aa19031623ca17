"""Finds the processes that belong to a job, and those it leaves behind, in /proc.

A process is a job's if the environment it started with says so, or the cgroup that Slurm put it
in. Who a process belongs to alone never decides: several jobs of a user may share a node, and in a
testbed several nodes share a machine. Reading /proc can hang at a process that is stuck in the
kernel, so hooks do it in a child that has a time limit.
"""

import os
import re
import signal
import time
from typing import Iterable, List, NamedTuple, Optional, Set, Tuple

PROC = "/proc"
_MAX_BYTES = 1 << 20  # of an environment; Linux allows more, and Slurm's variables come early
_JOB_CGROUP = re.compile(r"/job_([0-9]{1,10})(?:/|$)", re.MULTILINE)


class Process(NamedTuple):
    """One process as it was when looked at; ``start`` tells it from a later one of the same id."""

    pid: int
    uid: int
    start: int  # clock ticks after boot
    job: "Optional[int]"  # that it says it is of; None: of none
    node: str  # that it says it runs on; "" where it does not say
    held: "Optional[int]" = None  # the job whose cgroup it is in


def all_processes(uid: "Optional[int]" = None, proc: str = PROC) -> "List[Process]":
    """Return every process (of ``uid`` alone); those that end meanwhile are left out."""
    found = (look(int(name), uid, proc) for name in os.listdir(proc) if name.isdigit())
    return [process for process in found if process is not None]


def look(pid: int, uid: "Optional[int]" = None, proc: str = PROC) -> "Optional[Process]":
    """Return the process ``pid``; None if it has ended, is of another user, or a kernel thread."""
    folder = os.path.join(proc, str(pid))
    try:
        owner = os.stat(folder).st_uid
        if uid is not None and owner != uid:
            return None
        state, _, start = _stat(folder)
        environment = _read(folder, "environ")
        cgroups = _read(folder, "cgroup").decode("ascii", "replace")
    except (OSError, ValueError):
        return None
    if state in "ZX":
        return None
    node = _variable(environment, b"SLURMD_NODENAME")
    return Process(pid, owner, start, _job(environment), node, _held(cgroups))


def children(parent: int, proc: str = PROC) -> "List[int]":
    """Return the ids of what ``parent`` has started and not yet buried."""
    found = []
    for name in filter(str.isdigit, os.listdir(proc)):
        try:
            if _stat(os.path.join(proc, name))[1] == parent:
                found.append(int(name))
        except (OSError, ValueError, IndexError):
            continue  # it has ended
    return found


def _stat(folder: str) -> "Tuple[str, int, int]":
    """Return state's letter, parent and start; the command's name may hold anything but counts."""
    fields = _read(folder, "stat").rpartition(b")")[2].split()
    return fields[0].decode("ascii"), int(fields[1]), int(fields[19])


def _read(folder: str, name: str) -> bytes:
    with open(os.path.join(folder, name), "rb") as stream:
        return stream.read(_MAX_BYTES)


def _variable(environment: bytes, name: bytes) -> str:
    parts = (b"\0" + environment).partition(b"\0" + name + b"=")
    return parts[2].partition(b"\0")[0].decode("ascii", "replace")


def _job(environment: bytes) -> "Optional[int]":
    word = _variable(environment, b"SLURM_JOB_ID")
    return int(word) if re.fullmatch(r"[0-9]{1,10}", word) else None


def _held(cgroups: str) -> "Optional[int]":
    named = _JOB_CGROUP.search(cgroups)
    return int(named[1]) if named else None


def of_job(found: "Iterable[Process]", job: int, uid: int, node: str) -> "List[Process]":
    """Return the job's processes on ``node``.

    Slurm's cgroup is its own word. Without one, the environment must name this node beside the
    job: the shell that salloc starts on a login node names the job alone, and is not the node's.
    """
    mine = [process for process in found if process.uid == uid]
    return [p for p in mine if p.held == job or (p.held, p.job, p.node) == (None, job, node)]


def other_jobs(
    found: "Iterable[Process]", job: int, uid: int, cgroups_alone: bool = False
) -> "Set[int]":
    """Return the other jobs that processes of the user's on this machine speak of.

    ``cgroups_alone``: only those that Slurm speaks of; anybody can start a process with the
    environment of a job that does not exist.
    """
    mine = [process for process in found if process.uid == uid]
    spoken_of = {p.held for p in mine} | (set() if cgroups_alone else {p.job for p in mine})
    return {other for other in spoken_of if other is not None and other != job}


def kill(victims: "Iterable[Process]", grace_s: float, proc: str = PROC) -> "List[Process]":
    """End them: TERM, and KILL to those that are there after ``grace_s``; return who was there."""
    there = [victim for victim in victims if _send(victim, signal.SIGTERM, proc)]
    deadline = time.monotonic() + grace_s
    left = there
    while left and time.monotonic() < deadline:
        time.sleep(min(0.02, grace_s))
        left = [victim for victim in left if alive(victim, proc)]
    for victim in left:
        _send(victim, signal.SIGKILL, proc)
    return there


def alive(process: Process, proc: str = PROC) -> bool:
    """Tell whether this very process runs, and is not about to be gone."""
    try:
        state, _, start = _stat(os.path.join(proc, str(process.pid)))
    except (OSError, ValueError, IndexError):
        return False
    return start == process.start and state not in "ZX"


def _send(process: Process, number: int, proc: str) -> bool:
    """Signal it, unless its id has gone to another; tells whether it was there."""
    if process.pid <= 1 or not alive(process, proc):
        return False
    try:
        os.kill(process.pid, number)
    except OSError:
        return False
    return True
