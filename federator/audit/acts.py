"""The acts that records of the event log tell of: awards, and what somebody asked for."""

from __future__ import annotations

from typing import Any, Final

from msgspec import to_builtins

from federator.audit.chain import AuditAct
from federator.model.dataset import DataSet
from federator.model.event import (
    Amended,
    Awarded,
    Changed,
    DataPlanned,
    DataSetDropped,
    DataSetKept,
    DrainRecord,
    EpochBegan,
    LogRecord,
    Planned,
    QuotaLoan,
    SiteDrained,
    SiteResumed,
    SiteReturned,
    SiteWrittenOff,
    Submitted,
)

MOST_NAMED: Final = 1_000  # workloads, nodes or options of one act
LEAVE_DRILL: Final = "leave-drill"


def act_of(record: LogRecord, position: int) -> AuditAct | None:
    """The act that a record tells of; None: it tells of none."""
    found = _story(record)
    if found is None:
        return None
    act, by, on, why, effect = found
    return AuditAct(
        at_s=record.at_s,
        act=act,
        by=by,
        on=on,
        why=_said(why),
        effect=_said(effect),
        record=position,
    )


_Story = tuple[str, str, str, dict[str, Any], dict[str, Any]]


def _story(record: LogRecord) -> _Story | None:
    found: _Story | None = None
    match record:
        case Awarded():
            found = _award(record)
        case SiteDrained() | SiteResumed() | SiteWrittenOff() | SiteReturned():
            found = _of_site(record)
        case Submitted() if record.by:
            draft = record.draft
            tasks = {"tasks": len(draft.array_indices), "tenant": draft.tenant}
            found = "submit-as", record.by, f"{record.first_id} of {draft.user}", {}, tasks
        case Changed() if record.by:
            found = record.happening.name.lower(), record.by, str(record.workload), {}, {}
        case Amended() if record.by:
            found = _amended(record)
        case DataSetKept() | DataSetDropped() | DataPlanned():
            found = _of_data(record)
        case Planned():
            found = "plan", "", "", {"source": record.plan.source}, {}
        case QuotaLoan():
            found = _of_quota(record)
        case EpochBegan():
            found = "lead", "", "", {}, {"epoch": record.epoch}
        case _:
            pass
    return found


def _of_data(record: DataSetKept | DataSetDropped | DataPlanned) -> _Story | None:
    if isinstance(record, DataPlanned):
        return "data-plan", "", "", {}, {"moves": len(record.plan.moves)}
    if isinstance(record, DataSetKept) and record.moved_to:
        return _moved(record)
    if not record.by:
        return None
    if isinstance(record, DataSetKept):
        return "data-keep", record.by, record.kept.label, {}, _data(record.kept)
    return "data-rm", record.by, f"{record.name}@{record.version}", {}, {}


def _moved(record: DataSetKept) -> _Story:
    """A plan has begun a copy, or has made a replica the home."""
    replica = record.kept.replica_in(record.moved_to)
    copy = None if replica is None else replica.copy
    effect = {
        "to": record.moved_to,
        "bytes": 0 if copy is None else record.kept.size_bytes,
        "home": copy is None or copy.becomes_home,
    }
    return "data-move", "", record.kept.label, {}, effect


def _of_quota(record: QuotaLoan) -> _Story:
    why = {"used_frac": record.used_frac, "days": record.days}
    effect = {"lends_at_s": record.lends_at_s, "until_s": record.until_s}
    return f"quota-{record.step.value}", record.by, record.tenant, why, effect


def _of_site(record: DrainRecord) -> _Story:
    match record:
        case SiteDrained():
            act = "cordon" if record.cordon else "drain"
            effect = {"migrate": record.migrate, "deadline_s": record.deadline_s}
            if record.gangs:
                act, effect = "quarantine", {"until_s": record.until_s}
            return act, record.by, _at(record), {"reason": record.reason}, effect
        case SiteResumed() if record.drill is not None:
            return LEAVE_DRILL, record.by, record.site, {}, to_builtins(record.drill)
        case SiteResumed():
            why = {"reason": record.reason} if record.gangs else {}
            return "resume", record.by, _at(record), why, {}
        case SiteWrittenOff():
            given_up = {"attempts": [str(each.attempt) for each in record.attempts[:MOST_NAMED]]}
            return "write-off", record.by, record.site, {"reason": record.reason}, given_up
        case SiteReturned():
            return "return", "", record.site, {}, {}


def _data(kept: DataSet) -> dict[str, Any]:
    return {
        "owner": kept.owner,
        "tenant": kept.tenant,
        "sharing": kept.sharing.value,
        "at": [f"{r.domain}:{r.path}" for r in kept.replicas[:MOST_NAMED]],
        "pinned": [r.domain for r in kept.replicas if r.pinned],
    }


def _at(record: SiteDrained | SiteResumed) -> str:
    return f"{record.site}:{','.join(record.nodes[:MOST_NAMED])}" if record.nodes else record.site


def _award(record: Awarded) -> _Story:
    nodes = dict.fromkeys(name for plan in record.jobs for name in plan.nodes)
    why = {
        "priority": record.priority,
        "within_quota": record.within_quota,
        "credit": record.credit,
        "offers": record.named_offers,
    }
    effect = {
        "site": record.site,
        "nodes": [*nodes][:MOST_NAMED],
        "gpus": sum(share.gpus for plan in record.jobs for share in plan.nodes.values()),
        "victims": list(record.victims),
        "shrinks": [f"{each.workload}+{each.component}" for each in record.shrinks],
    }
    if record.moves:
        effect["moves"] = {str(move.workload): move.node for move in record.moves}
    return "award", "", str(record.attempt), why, effect


def _amended(record: Amended) -> _Story:
    on = ",".join(map(str, record.workloads[:MOST_NAMED]))
    effect: dict[str, Any] = {
        "options": [*(option.name for option in record.options), *record.without],
        "time_limit_s": record.time_limit_s,
        "try_anew": record.try_anew,
    }
    if record.hold is not None:
        effect["hold"] = record.hold.value or "none"
    return "amend", record.by, on, {}, effect


def _said(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in (None, "", [], {}, 0.0)}
