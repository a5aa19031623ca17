"""Slurm's commands about a job: whether it runs, messages to its user, requeue and cancel.

Used by the watch, seldom: only for a job that is to be warned or reclaimed.
"""

import re
from typing import Any, Dict, NamedTuple, Optional

from fednode.run import Ran, run

TIMEOUT_S = 20.0
_OVER = frozenset(
    {
        "COMPLETED",
        "FAILED",
        "TIMEOUT",
        "CANCELLED",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
    }
)
ATTEMPT = re.compile(r"fed:[0-9]{1,20}:[0-9]{1,10}")
_NOTE = re.compile(r"fed-watch:\S*")
_COUNT = re.compile(r"[0-9]{1,10}")
_COMMENT_CHARS = 1024
# Fields that Slurm composes come first, so that no comment can pass for one of them.
_SAFE_FIELDS = (
    "JobID",
    "ArrayJobID",
    "ArrayTaskID",
    "State",
    "UserName",
    "NumNodes",
    "BatchFlag",
    "HetJobID",
)
_FORMAT = ",".join([name + ":|" for name in _SAFE_FIELDS] + [f"Comment:{_COMMENT_CHARS}"])


class JobNow(NamedTuple):
    """A job as Slurm has it now.

    ``name`` is the one by which Slurm's orders meet this job alone. The number does not do: the
    last task of an array has the array's own, and an order for that is one for all its tasks.
    """

    name: str
    running: bool
    user: str
    nodes: int
    batch: bool
    het: bool
    comment: str


class SlurmJobs:
    """Slurm's commands for single jobs, at the paths that node.json names."""

    def __init__(self, shared: "Dict[str, Any]") -> None:
        self._shared = shared
        self.trouble = ""  # why the last command failed

    def look(self, job: int) -> "Optional[JobNow]":
        """Return the job; None where Slurm does not know it or does not answer."""
        argv = ["--noheader", "--states=all", f"--jobs={job}", f"--Format={_FORMAT}"]
        ran = self._run("squeue", *argv)
        return parse_job(ran.out, job) if ran.status == 0 else None

    def is_gone(self, job: int) -> bool:
        """Tell whether Slurm says that the job is over, or that it knows of none."""
        argv = ["--noheader", "--states=all", f"--jobs={job}", "--Format=JobID:|,State:|"]
        ran = self._run("squeue", *argv)
        if ran.status != 0:
            return "invalid job id" in ran.err.lower()
        found = re.search(rf"^{job}\|([A-Z_]+)\|", ran.out, re.MULTILINE)
        return found is None or found[1] in _OVER

    def notify(self, job: int, message: str) -> bool:
        """Write ``message`` where the job's user reads it; tells whether Slurm took it.

        By number: it goes to the one job that has it, and 22.05 reads no more of a task's name.
        """
        return self._run("scontrol", "notify", str(job), message).status == 0

    def requeue(self, name: str) -> bool:
        """Put the job of this ``name`` back into its site's queue; tells whether that was done."""
        return self._run("scontrol", "requeue", name).status == 0

    def cancel(self, name: str) -> bool:
        """End the job of this ``name``; tells whether Slurm took the order."""
        return self._run("scancel", name).status == 0

    def comment(self, name: str, text: str) -> bool:
        """Replace the comment of the job of this ``name``; tells whether that was done."""
        return self._run("scontrol", "update", f"jobid={name}", f"comment={text}").status == 0

    def _run(self, program: str, *arguments: str) -> Ran:
        ran = run([self._shared[program], *arguments], TIMEOUT_S)
        said = (ran.err or ran.out).strip().splitlines() or [f"status {ran.status}"]
        self.trouble = "" if ran.status == 0 else f"{program}: {ran.trouble or said[-1]}"[:200]
        return ran


def parse_job(text: str, job: int) -> "Optional[JobNow]":
    """Read the answer of squeue; None where it does not say what the job is called.

    Other jobs in it (of an array, of a het job) are passed over.
    """
    array = r"([^|\n]*)\|([^|\n]*)\|"
    head = re.compile(rf"{job}\|{array}([A-Z_]+)\|([^|\n]+)\|([0-9]+)\|([01])\|([^|\n]*)\|")
    for start in [0] + [match.end() for match in re.finditer("\n", text)]:
        found = head.match(text, start)
        if found is not None:
            name = _name(job, found[1].strip(), found[2].strip())
            comment = text[found.end() : found.end() + _COMMENT_CHARS].rstrip(" \n")
            return (
                None
                if name is None
                else JobNow(
                    name=name,
                    running=found[3] == "RUNNING",
                    user=found[4],
                    nodes=int(found[5]),
                    batch=found[6] == "1",
                    het=found[7].strip("0") not in ("", "N/A"),
                    comment="" if comment in ("(null)", "N/A") else comment,
                )
            )
    return None


def _name(job: int, array: str, task: str) -> "Optional[str]":
    """Return what to call the job by Slurm's words for its array and task; None: not certain."""
    if task == "N/A":
        return str(job) if array in (str(job), "0", "N/A") else None
    return f"{array}_{task}" if _COUNT.fullmatch(array) and _COUNT.fullmatch(task) else None


def with_note(comment: str, note: str) -> str:
    """Return the comment of a federated job with ``note`` as its second word, for its agent.

    Whoever reads comments for the attempt reads the first word alone.
    """
    first, *others = comment.split()
    kept = [word for word in others if not _NOTE.fullmatch(word)]
    return " ".join([first, f"fed-watch:{note}", *kept])[:_COMMENT_CHARS]


def is_federated(comment: str) -> bool:
    """Tell whether this is the comment of an attempt of the federation."""
    return ATTEMPT.fullmatch(comment.partition(" ")[0]) is not None
