"""The calls of ``federator usage`` and ``federator doctor``, and their answers."""

from __future__ import annotations

from typing import Final

from federator.model.tagged import Message
from federator.usage.diagnosis import Diagnosis
from federator.usage.rows import UsageReport
from federator.wire.audit_messages import AuditCall, AuditReply


class UsageCall(Message, frozen=True, kw_only=True, tag="usage_report"):
    """Asks for a report of usage, over whole days (UTC); an empty tuple asks for any."""

    start_s: float  # Unix time, as the next; the day that it lies in is the first
    end_s: float  # the day that it lies in is the last; at a midnight, the one before
    by: tuple[str, ...] = ()  # columns of ``federator.usage.report``
    tenants: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()


class UsageReply(Message, frozen=True, kw_only=True, tag="usage_report_is"):
    """A report of what the asker may see."""

    report: UsageReport
    federation: str
    is_whole: bool = True  # False: of the asker's own part, so without supply and idle time


class DoctorCall(Message, frozen=True, kw_only=True, tag="doctor"):
    """Asks what jobs waste; an empty tuple asks for any."""

    start_s: float  # Unix time, as the next: of the ends of attempts
    end_s: float
    tenants: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    quotas: bool = False  # reviews quotas instead, for those who see all


class DoctorReply(Message, frozen=True, kw_only=True, tag="doctor_is"):
    """What was found, of what the asker may see."""

    findings: tuple[Diagnosis, ...]
    federation: str
    at_s: float  # the history has all until then
    attempts: int = 0  # that were judged
    measured: int = 0  # of those, whose use is known in part at least
    days: int = 0  # whole ones that a review of quotas read
    is_whole: bool = True  # False: there are more attempts, earlier ones
    left_off: int = 0  # findings that one answer does not hold


ReportCall = UsageCall | DoctorCall | AuditCall
"""What asks for what has been."""
USAGE_ANSWERS: Final[dict[type[Message], type[Message]]] = {
    UsageCall: UsageReply,
    DoctorCall: DoctorReply,
    AuditCall: AuditReply,
}
"""What each is answered with unless it is refused."""
