"""The call of ``federator usage``, and its answer."""

from __future__ import annotations

from federator.model.tagged import Message
from federator.usage.rows import UsageReport


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
