"""Writes mails: subjects as those of Slurm, so that filters go on working.

Names of jobs and addresses are users' words: in a header they have no control characters, and
nothing that a mailer would decode to some.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from federator.model.reason import NAME_ANOTHER, Reason
from federator.sched.state.workload_record import WorkloadRecord

_MOST_NAME: Final = 100  # characters


class Letter(NamedTuple):
    """One mail.

    Attributes:
        user: counts it.
        id: tells this event from all others.
    """

    user: str
    to: str
    subject: str
    body: str
    id: str


class MailEvent(NamedTuple):
    """One thing that befell a job: its type of ``--mail-type``, and how a subject puts it."""

    kind: str
    words: str
    reason: Reason | None = None


def job_letter(event: MailEvent, entry: WorkloadRecord, to: str) -> Letter:
    """Of one job, or one task of an array."""
    w = entry.workload
    heading = f"Job_id={w.id}"
    if w.array is not None:
        heading = f"Array Task Job_id={w.array.array_id}_{w.array.index} ({w.id})"
    return _letter(event, entry, to, heading, f"{w.id}.{entry.attempt}")


def array_letter(event: MailEvent, entry: WorkloadRecord, to: str) -> Letter:
    """Of an array as a whole, of which one task is given."""
    w = entry.workload
    array_id = w.array.array_id if w.array is not None else w.id
    heading = f"Array Summary Job_id={array_id}_* ({array_id})"
    return _letter(event, entry, to, heading, f"{array_id}.array")


def _letter(event: MailEvent, entry: WorkloadRecord, to: str, heading: str, id_: str) -> Letter:
    w, reason = entry.workload, event.reason
    subject = f"Slurm {heading} Name={plain(w.name)[:_MOST_NAME]} {event.words}"
    starts = event.kind in ("BEGIN", "NEW_SITE")
    lines = {
        "Job": f"{w.id} ({plain(w.name)})",
        "User": f"{w.user}, account {w.tenant}",
        "Event": event.kind,
        "Site": str(entry.site or entry.ran_at or "none"),
        "Nodes": ",".join(entry.node_names) if starts else "",
        "Reason": _words(reason) if reason else "",
    }
    body = "".join(f"{name + ':':8}{value}\n" for name, value in lines.items() if value)
    return Letter(w.user, to, subject, body, f"{id_}.{event.kind.lower()}")


def _words(reason: Reason) -> str:
    """The code with its detail, but for the id of another job: a mail may go anywhere."""
    if reason.code in NAME_ANOTHER and reason.detail.isdecimal():
        return reason.code.value
    return f"{reason.code.value} {plain(reason.detail)}".strip()


def plain(text: str) -> str:
    """The same without what ends a header, is not shown, or begins an encoded word (RFC 2047)."""
    return "".join(c if c.isprintable() else "?" for c in text).replace("=?", "= ?")
