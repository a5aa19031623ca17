"""The daemon's log lines about workloads: one for each step of a life that became a record.

The lines are made from records of the event log, once these are durable: nothing is said that did
not happen, and nothing that happened is left out. docs/formats.md lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import structlog
from msgspec import to_builtins

from federator.daemon.views import exit_code_of
from federator.model.event import (
    Amended,
    Awarded,
    Changed,
    DataPlanned,
    DataSetDropped,
    DataSetKept,
    DrainRecord,
    Forgotten,
    LogRecord,
    QuotaLoan,
    SiteDrained,
    SiteResumed,
    SiteReturned,
    SiteWrittenOff,
    Submitted,
)
from federator.model.lifecycle import TERMINAL, WorkloadEvent
from federator.model.workload import SiteName, WorkloadId
from federator.sched.state.ledger import Ledger, WorkloadRecord

log = structlog.get_logger()

_NAMES: Final = {
    WorkloadEvent.ACCEPTED: "launch_accepted",
    WorkloadEvent.DECLINED: "launch_declined",
    WorkloadEvent.LEASE_OVER: "launch_lease_over",
}
_WARNINGS: Final = frozenset(
    {
        WorkloadEvent.DECLINED,
        WorkloadEvent.NODE_FAILED,
        WorkloadEvent.LOST,
        WorkloadEvent.HELD,
    }
)
ENDED: Final = "ended"
"""The last step of a life, whichever it was."""


def event_name(event: WorkloadEvent) -> str:
    """The event of a step that does not end the life, as it stands in the daemon's log."""
    return _NAMES.get(event, event.name.lower())


class LogLine(NamedTuple):
    """One line of the log."""

    event: str
    fields: dict[str, Any]
    warning: bool = False


class TransitionLog:
    """Writes the lines; a launch that a site declines again for the same reason is not repeated.

    Args:
        ledger: read for what a record does not say itself.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._declined: dict[WorkloadId, dict[SiteName, str]] = {}

    def write(self, records: Sequence[LogRecord]) -> None:
        """Write the lines of records that were appended together, in their order."""
        for line in self.lines(records):
            (log.warning if line.warning else log.info)(line.event, **line.fields)

    def lines(self, records: Sequence[LogRecord]) -> list[LogLine]:
        """The lines of records that are applied to the ledger already, all of them."""
        last = {r.workload: number for number, r in enumerate(records) if isinstance(r, Changed)}
        found: list[LogLine] = []
        for number, record in enumerate(records):
            match record:
                case Submitted():
                    found.append(_submitted(record))
                case Awarded():
                    found.append(_awarded(record))
                case Changed():
                    entry = self._ledger.entries.get(record.workload)
                    ends = last[record.workload] == number and _is_over(entry)
                    if ends or not self._is_repeated(record, entry):
                        found.append(_changed(record, entry, ends=ends))
                    if ends:
                        self._declined.pop(record.workload, None)
                case Amended() if record.by:  # else its change follows
                    found.append(_amended(record))
                case SiteDrained() | SiteResumed() | SiteWrittenOff() | SiteReturned():
                    found.append(_of_site(record))
                case Forgotten():
                    found.append(LogLine("forgotten", {"workloads": len(record.ids)}))
                case _:  # the epoch is in "daemon_started"; snapshots are no news
                    found += _of_the_rest(record)
        return found

    def _is_repeated(self, record: Changed, entry: WorkloadRecord | None) -> bool:
        """Whether this site has declined it before, with the same words."""
        if record.happening is WorkloadEvent.STARTED:
            self._declined.pop(record.workload, None)
        if record.happening is not WorkloadEvent.DECLINED or record.reason is None:
            return False
        said = self._declined.setdefault(record.workload, {})
        site, words = _site(record, entry), f"{record.reason.code} {record.reason.detail}"
        repeated = said.get(site) == words
        said[site] = words
        return repeated


def _is_over(entry: WorkloadRecord | None) -> bool:
    return entry is not None and entry.state in TERMINAL


def _of_the_rest(record: LogRecord) -> list[LogLine]:
    """The line of a change of the catalogue, of its plan, or of a loan of a quota; else none."""
    if isinstance(record, QuotaLoan):
        return [_of_quota(record)]
    if isinstance(record, DataPlanned):
        return [LogLine("data_planned", {"moves": len(record.plan.moves)})]
    if isinstance(record, DataSetKept):
        return _of_kept(record)
    if isinstance(record, DataSetDropped):
        data = f"{record.name}@{record.version}"
        return [LogLine("data_dropped", {"data": data, "by": record.by})]
    return []


def _of_kept(record: DataSetKept) -> list[LogLine]:
    data = record.kept.label
    if record.moved_to:
        return [LogLine("data_moved", {"data": data, "domain": record.moved_to})]
    if not record.by:
        return []  # a copy goes on
    return [LogLine("data_kept", {"data": data, "by": record.by})]


def _of_quota(record: QuotaLoan) -> LogLine:
    fields: dict[str, Any] = {
        "tenant": record.tenant,
        "used_frac": round(record.used_frac, 4) if record.days else None,
        "days": record.days or None,
        "lends_at_s": record.lends_at_s or None,
        "until_s": record.until_s or None,
        "by": record.by or None,
    }
    known = {key: value for key, value in fields.items() if value is not None}
    return LogLine(f"quota_{record.step.value}", known)


def _of_site(record: DrainRecord) -> LogLine:
    """The line of an operator's act on a site, of its return, or of slow nodes."""
    fields: dict[str, Any] = {"site": record.site}
    if isinstance(record, SiteDrained | SiteResumed) and record.gangs:
        return _of_slow_nodes(record)
    if isinstance(record, SiteReturned):
        return LogLine("site_returned", fields)
    fields["by"] = record.by
    if isinstance(record, SiteWrittenOff):
        fields |= {"reason": record.reason, "attempts": len(record.attempts)}
        return LogLine("site_written_off", fields, warning=True)
    fields["nodes"] = list(record.nodes)
    if isinstance(record, SiteResumed):
        if record.drill is not None:
            fields["drill"] = to_builtins(record.drill)
        return LogLine("site_resumed", fields)
    fields |= {
        "reason": record.reason,
        "migrate": record.migrate,
        "deadline_s": record.deadline_s or None,
    }
    if record.cordon:
        return LogLine("site_cordoned", fields)
    return LogLine("site_drained", fields)


def _of_slow_nodes(record: SiteDrained | SiteResumed) -> LogLine:
    fields = {"site": record.site, "nodes": list(record.nodes), "reason": record.reason}
    if isinstance(record, SiteResumed):
        return LogLine("slow_nodes_resumed", fields)
    return LogLine("slow_nodes", fields | {"until_s": record.until_s})


def _submitted(record: Submitted) -> LogLine:
    draft = record.draft
    tasks = {"tasks": len(draft.array_indices)} if draft.array_indices else {}
    return LogLine(
        "submitted",
        {
            "workload": record.first_id,
            **tasks,
            "user": draft.user,
            "tenant": draft.tenant,
            "name": draft.name,
            "gpus": sum(job.total_gpus for job in draft.jobs),
            "priority": draft.priority,
        },
    )


def _awarded(record: Awarded) -> LogLine:
    fields: dict[str, Any] = {
        **_ids(record.attempt.workload, record.attempt.attempt, SiteName(record.site)),
        "nodes": list(dict.fromkeys(name for plan in record.jobs for name in plan.nodes)),
        "gpus": sum(share.gpus for plan in record.jobs for share in plan.nodes.values()),
        "priority": record.priority,
        "within_quota": record.within_quota,
    }
    if record.victims:
        fields["victims"] = list(record.victims)
    return LogLine("awarded", fields)


def _amended(record: Amended) -> LogLine:
    fields: dict[str, Any] = {"workloads": list(record.workloads), "user": record.by}
    if record.hold is not None:
        fields["hold"] = record.hold.value or "none"
    fields["options"] = [*(option.name for option in record.options), *record.without]
    if record.array_max_running is not None:
        fields["throttle"] = str(record.array_max_running)
    return LogLine("amended", {key: value for key, value in fields.items() if value})


def _changed(record: Changed, entry: WorkloadRecord | None, *, ends: bool) -> LogLine:
    fields = _ids(record.workload, record.attempt, _site(record, entry))
    if ends and entry is not None:
        fields |= {"state": entry.state.value, "user": entry.workload.user}
        if entry.started_at_s:
            over_s = record.ended_at_s or record.at_s
            fields["ran_s"] = round(max(0.0, over_s - entry.started_at_s))
        if (exit_code := exit_code_of(entry)) is not None:
            fields["exit_code"] = exit_code
    if record.happening is WorkloadEvent.EVICTED and entry is not None and entry.evicted_for:
        fields["for"] = entry.evicted_for
    fields |= _said(record)
    warning = record.happening in _WARNINGS
    return LogLine(ENDED if ends else event_name(record.happening), fields, warning)


def _said(record: Changed) -> dict[str, Any]:
    """The record's fields beyond its ids, as far as it has any."""
    reason = record.reason
    said = {
        "job_id": record.site_job_id,
        "exit_code": record.exit_code,
        "signal": record.signal,
        "site_state": record.site_state,
        "reason": reason.code.value if reason is not None else "",
        "detail": reason.detail if reason is not None else "",
        "by": record.by,
        "components": list(record.components),
        "failed_nodes": list(record.failed_nodes),
    }
    return {key: value for key, value in said.items() if value}


def _ids(workload: WorkloadId, attempt: int, site: SiteName) -> dict[str, Any]:
    found: dict[str, Any] = {"workload": workload, "attempt": attempt, "site": site}
    return {key: value for key, value in found.items() if value}


def _site(record: Changed, entry: WorkloadRecord | None) -> SiteName:
    """The site of the attempt; empty if the workload was at no site."""
    award = entry.award if entry is not None else None
    if award is None or award.attempt.attempt != record.attempt:
        return SiteName("")
    return SiteName(award.site)
