"""What do researchers see of the federation? Rows for fsqueue and fsinfo, made on demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadState
from federator.model.reason import Reason, ReasonCode
from federator.model.workload import Job, SiteName, WorkloadId
from federator.sched.federation import Federation, SiteView
from federator.sched.ledger import Entry, Ledger
from federator.sites.protocol import QueueCall, QueueRow, SiteRow


def queue_rows(federation: Federation, call: QueueCall) -> tuple[QueueRow, ...]:
    """The workloads a call asks for, by id."""
    ledger = federation.ledger
    if call.ids:
        ids = sorted({id_ for name in call.ids for id_ in find(ledger, name)})
        entries = [ledger.entries[id_] for id_ in ids]
    elif call.ended:
        entries = list(ledger.entries.values())
    else:
        live = (state for state in WorkloadState if state not in TERMINAL)
        entries = sorted(ledger.in_state(*live), key=lambda e: e.workload.id)
    return tuple(
        _row(entry, federation.sites.get(entry.site))
        for entry in entries
        if (call.ended or entry.state not in TERMINAL)
        and (not call.users or entry.workload.user in call.users)
    )


def find(ledger: Ledger, name: str) -> list[WorkloadId]:
    """The workloads a user calls ``ID``, ``ARRAY`` (all its tasks) or ``ARRAY_INDEX``."""
    head, _, index = name.partition("_")
    if not (head.isascii() and head.isdecimal() and len(head) < 20):
        return []
    first = ledger.entries.get(WorkloadId(int(head)))
    if first is None:
        return []
    array = first.workload.array
    if array is None or array.array_id != first.workload.id:
        return [] if index else [first.workload.id]
    tasks = _tasks(ledger, array.array_id)
    return [id_ for id_, number in tasks if index in ("", str(number))]


def _tasks(ledger: Ledger, array_id: WorkloadId) -> Iterator[tuple[WorkloadId, int]]:
    """Id and index of each of an array's tasks; the ids follow one another."""
    for number in count(array_id):
        entry = ledger.entries.get(WorkloadId(number))
        array = None if entry is None else entry.workload.array
        if entry is None or array is None or array.array_id != array_id:
            return
        yield entry.workload.id, array.index


def _row(entry: Entry, site: SiteView | None) -> QueueRow:
    w = entry.workload
    planned = tuple(name for plan in entry.plan for name in plan.nodes)
    unknown = site is not None and not site.ready and entry.state in AT_SITE
    return QueueRow(
        id=w.id,
        name=w.name,
        user=w.user,
        tenant=w.tenant,
        priority=w.priority,
        state=entry.state.value,
        attempt=entry.attempt,
        submitted_at_s=w.submitted_at_s,
        array_id=w.array.array_id if w.array is not None else 0,
        array_index=w.array.index if w.array is not None else 0,
        jobs=len(w.jobs),
        nodes=len(planned) or sum(_nodes(job) for job in w.jobs),
        gpus=sum(s.gpus for p in entry.plan for s in p.nodes.values()) or w.total_gpus,
        time_limit_s=w.time_limit_s,
        site=entry.site,
        site_job_id=entry.site_job_id,
        node_names=planned,
        started_at_s=entry.started_at_s,
        ended_at_s=entry.ended_at_s,
        unknown_since_s=site.since_s if unknown and site is not None else 0.0,
        exit_code=entry.exit_code,
        signal=entry.signal,
        reason=_reason(entry),
        refusals={str(s): r for s, r in entry.refusals.items()},
        offers=entry.offers,
        site_state=entry.site_state,
    )


def _nodes(job: Job) -> int:
    return job.nodes or 0


def _reason(entry: Entry) -> Reason | None:
    """Why it is where it is, in one reason; the sites' own are in ``refusals``."""
    if entry.state is not WorkloadState.PENDING:
        return entry.reason
    for refusal in entry.refusals.values():
        if refusal.reasons[0].code in (ReasonCode.RESOURCES, ReasonCode.ARRAY_LIMIT):
            return refusal.reasons[0]
    for refusal in entry.refusals.values():
        return refusal.reasons[0]
    return entry.reason or Reason(code=ReasonCode.NOT_TRIED)


def site_rows(federation: Federation, regions: Mapping[SiteName, str]) -> tuple[SiteRow, ...]:
    return tuple(
        SiteRow(
            name=name,
            region=regions[name],
            up=site.ready,
            slurm_version=site.slurm_version,
            down_since_s=0.0 if site.ready else site.since_s,
            partitions=site.summary,
        )
        for name, site in federation.sites.items()
    )
