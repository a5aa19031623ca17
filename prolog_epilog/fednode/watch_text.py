"""Texts of the watch for a job's user, and for the federation."""

from fednode.records import JobRecord
from fednode.slurm_jobs import is_federated
from fednode.watching import ZOMBIE, Finding

OPT_OUT = "fed-watch=off"
_WHAT = {
    "requeue": "the job is put back into the queue",
    "cancel": "the job is cancelled",
}


def duration(seconds: float) -> str:
    """Return a length of time in words that are easy to read: 45 s, 10 min, 2 h 5 min."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def condition(finding: Finding) -> str:
    """Return what was seen, without a subject."""
    lasted = duration(finding.at_s - finding.since_s)
    if finding.condition == ZOMBIE:
        return f"held GPU memory and computed nothing for {lasted}"
    return f"did not use its GPUs for {lasted}"


def warning(
    record: JobRecord, finding: Finding, action: str, left_s: float, may_opt_out: bool
) -> str:
    """Return the line a user is warned with.

    Args:
        action: "none", "requeue" or "cancel".
        left_s: until that is done, if the job goes on like this.
    """
    gpus = ",".join(map(str, record.gpus))
    line = f"fed-watch: job {record.job} {condition(finding)} on {record.node} (GPU {gpus})."
    if action in _WHAT:
        line += f" If this goes on for {duration(left_s)} more, {_WHAT[action]}."
    else:
        line += " Please end the job if it needs them no more."
    if may_opt_out and action in _WHAT:
        first = record.comment.partition(" ")[0]
        comment = f"{first} {OPT_OUT}" if is_federated(record.comment) else OPT_OUT
        line += f' To be left alone: scontrol update jobid={record.job} comment="{comment}"'
    return line


def farewell(record: JobRecord, finding: Finding, action: str) -> str:
    """Return the line that says what is done now, and why."""
    return (
        f"fed-watch: job {record.job} {condition(finding)} on {record.node}: {_WHAT[action]} now."
    )


def note(finding: Finding) -> str:
    """Return the reason as one word, for the comment of a federated job."""
    return f"{finding.condition}-{round(finding.at_s - finding.since_s)}s"
