"""What do researchers see of the federation? Rows for fsqueue and fsinfo, made on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadState
from federator.model.reason import Reason, ReasonCode
from federator.model.workload import Job, SiteName, WorkloadId
from federator.sched.federation import Federation
from federator.sched.ledger import Entry, Ledger
from federator.sched.site_view import SiteView
from federator.sites.protocol import QueueCall, QueueRow, SiteRow


def queue_rows(
    federation: Federation, call: QueueCall, limit: int
) -> tuple[tuple[QueueRow, ...], int]:
    """The workloads a call asks for, by id; the newest ``limit``, and how many are left off."""
    ledger = federation.ledger
    if call.ids:
        ids = sorted({id_ for name in call.ids for id_ in find(ledger, name)})
        entries = [ledger.entries[id_] for id_ in ids]
    elif call.ended:
        entries = list(ledger.entries.values())
    else:
        live = (state for state in WorkloadState if state not in TERMINAL)
        entries = sorted(ledger.in_state(*live), key=lambda e: e.workload.id)
    wanted = [
        entry
        for entry in entries
        if (call.ended or entry.state not in TERMINAL)
        and (not call.users or entry.workload.user in call.users)
    ]
    left_off = max(0, len(wanted) - limit)
    rows = tuple(_row(e, federation.sites.get(e.site)) for e in wanted[left_off:])
    return rows, left_off


def find(ledger: Ledger, name: str) -> Sequence[WorkloadId]:
    """The workloads a user calls ``ID``, ``ARRAY`` (all its tasks) or ``ARRAY_INDEX``."""
    head, _, index = name.partition("_")
    if not (head.isascii() and head.isdecimal() and len(head) < 20):
        return ()
    id_ = WorkloadId(int(head))
    tasks = ledger.array_tasks.get(id_)
    if tasks is None:
        return () if index or id_ not in ledger.entries else (id_,)
    if not index:
        return tuple(tasks.values())
    known = index.isascii() and index.isdecimal() and len(index) < 10
    task = tasks.get(int(index)) if known else None
    return () if task is None else (task,)


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
