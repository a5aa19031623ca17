"""Makes the rows of the history from the records of the log; nothing here does I/O.

A row changes while its workload lives, and never again once that is over. So the history keeps two
kinds: the rows of those that live, which only the next records need, and those that users ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from federator.history.node_list import node_list
from federator.model.event import (
    Amended,
    Awarded,
    Changed,
    LogRecord,
    SnapshotBegan,
    SnapshotDone,
    SnapshotSubmission,
    SnapshotWorkload,
    SnapshotWorkloads,
    Submitted,
)
from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadEvent, WorkloadState, step
from federator.model.plan import JobPlan
from federator.model.reason import Reason, ReasonCode
from federator.model.site import SiteJobState
from federator.model.submission import Option
from federator.model.unreadable import UNREADABLE
from federator.model.workload import Job, Workload
from federator.sched.state.eligibility import may_not_start
from federator.sched.state.workload_record import WorkloadRecord
from federator.usage.days import family_name
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow, AttemptFacts

MAX_DETAIL: Final = 300  # characters of a reason's
_NOTICES: Final = frozenset(
    {WorkloadEvent.EVICTED, WorkloadEvent.LIMIT_NEAR, WorkloadEvent.REQUEUE_ASKED}
)
_SITE_STATES: Final = frozenset(state.value for state in SiteJobState)
_ENDED_AS: Final[Mapping[WorkloadEvent, str]] = {
    WorkloadEvent.DECLINED: "CANCELLED",
    WorkloadEvent.WITHDRAWN: "CANCELLED",
    WorkloadEvent.NODE_FAILED: "NODE_FAIL",
    WorkloadEvent.SITE_PREEMPTED: "PREEMPTED",
    WorkloadEvent.PREEMPTED: "PREEMPTED",
    WorkloadEvent.CHECKPOINTED: "REQUEUED",
    WorkloadEvent.LIMIT_STRUCK: "TIMEOUT",
    WorkloadEvent.GREW_IN_VAIN: "FAILED",
    WorkloadEvent.LOST: "NODE_FAIL",
}
"""The state of an attempt that is over while its workload waits for another."""
_PUT_BACK_AS: Final[Mapping[ReasonCode, str]] = {
    ReasonCode.NODE_FAILED: "NODE_FAIL",
    ReasonCode.PREEMPTED: "PREEMPTED",
}
"""The state of an attempt that its site has put back into its own queue, by the reason."""


class _Placed(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a submission that a row needs; script and environment are not decoded."""

    components: tuple[tuple[Option, ...], ...] = ()
    work_dir: str = ""


_decode_placed: Final = msgspec.msgpack.Decoder(_Placed).decode


@dataclass(slots=True)
class HistoryBatch:
    """Some records' worth of rows.

    Args:
        live: the rows of the workloads that these records are about, as they were before.
    """

    live: dict[int, AccountingRow]
    changed: dict[int, AccountingRow] = field(default_factory=dict)  # of these, those still alive
    ended: dict[int, AccountingRow] = field(default_factory=dict)
    attempts: dict[tuple[int, int], AccountingAttempt] = field(default_factory=dict)
    known: dict[int, AccountingRow] = field(default_factory=dict)
    """Ended ones of a snapshot, which says less of them than the records before it did."""
    known_attempts: dict[tuple[int, int], AccountingAttempt] = field(default_factory=dict)
    anew: bool = False  # all that lives follows: rows of live ones from before count no more
    like: AccountingRow | None = None  # of a snapshot: the next may differ from it in little
    within_snapshot: bool = False  # it has begun, and is not done
    job_ids: dict[str, int] = field(default_factory=dict)  # the last that each site has given
    went_back: list[tuple[float, str, int, int]] = field(default_factory=list)
    """When which site gave a job id no higher than one before: that id, and the one before."""

    def take(self, event: LogRecord) -> None:
        """Take in one record; one about a workload that is not known changes nothing."""
        match event:
            case Submitted():
                self._submitted(event)
            case Awarded():
                self._awarded(event)
            case Changed():
                self._changed(event)
            case Amended():
                self._amended(event)
            case SnapshotBegan():
                self.live, self.changed = {}, {}
                self.anew = self.within_snapshot = True
            case SnapshotWorkloads():
                for submission in event.submissions:
                    self._restored(submission)
            case SnapshotDone():
                self.within_snapshot, self.like = False, None
            case _:
                pass

    # ---- events ----

    def _submitted(self, event: Submitted) -> None:
        workloads = event.workloads()
        asked = _asked(workloads[0]) if workloads else {}
        for workload in workloads:
            row = _row(workload, asked)
            if may_not_start(event):
                row.state, row.eligible_at_s = WorkloadState.INELIGIBLE.value, 0.0
            self._lives(row)

    def _awarded(self, event: Awarded) -> None:
        row = self.live.get(event.attempt.workload)
        if row is None:
            return
        row.last = _attempt(event)
        last_id = 0 if event.adopted else self.job_ids.get(event.site, 0)
        row.last.facts = AttemptFacts(over_quota=not event.within_quota, last_job_id=last_id)
        row.state = WorkloadState.AWARDED.value
        row.priority = event.priority or row.priority
        self._lives(row)
        for victim in (self.live[id_] for id_ in event.victims if id_ in self.live):
            _promise(victim, row)
            self._lives(victim)

    def _changed(self, event: Changed) -> None:
        row = self.live.get(event.workload)
        if row is None:
            return
        before = WorkloadState(row.state)
        state = step(before, event.happening).to
        row.state, row.reason = state.value, reason_words(event.reason)
        row.site_state = event.site_state or row.site_state
        row.cancelled_by = event.by or row.cancelled_by
        row.work_dir = event.work_dir or row.work_dir
        row.preemptions += event.happening is WorkloadEvent.EVICTED
        if event.winner is not None and event.winner in self.live:
            _promise(row, self.live[event.winner])
        if event.happening is WorkloadEvent.ELIGIBLE:
            row.eligible_at_s = event.at_s
        elif state is WorkloadState.INELIGIBLE:
            row.eligible_at_s = 0.0
        if row.last is not None and before in AT_SITE:
            self._note_job_id(row.last, event)
            _take_news(row.last, event)
            if before is WorkloadState.RUNNING and event.happening is WorkloadEvent.SITE_REQUEUED:
                _put_back(row.last, event)
            if state not in AT_SITE:
                self._attempt_over(row, row.last, event)
        if state in TERMINAL:
            row.over_at_s = event.at_s
            self._is_over(row)
        else:
            if state not in AT_SITE:
                row.last, row.site_state = None, ""
            self._lives(row)

    def _note_job_id(self, attempt: AccountingAttempt, event: Changed) -> None:
        """Sites give ever higher ids: one that does not has lost its state, or has an older one.

        An attempt's id is given after its award, so it is compared with those known by then.
        """
        job_id = event.site_job_id
        if job_id <= 0 or job_id == attempt.site_job_id:
            return
        site, last_id = attempt.site, attempt.facts.last_job_id if attempt.facts else 0
        if job_id <= last_id:
            self.went_back.append((event.at_s, site, job_id, last_id))
            self.job_ids[site] = job_id
        else:
            self.job_ids[site] = max(self.job_ids.get(site, 0), job_id)

    def _amended(self, event: Amended) -> None:
        options = {option.name: option.value or "" for option in event.options}
        for row in (self.live[id_] for id_ in event.workloads if id_ in self.live):
            row.name = row.name if event.name is None else event.name
            if event.time_limit_s is not None:
                row.time_limit_s = event.time_limit_s
            row.tenant = row.tenant if event.tenant is None else event.tenant
            row.priority = row.priority if event.priority is None else event.priority
            row.qos = options.get("qos", row.qos)
            row.comment = options.get("comment", row.comment)
            for field_name, value in _sizes(event.jobs or ()).items():
                setattr(row, field_name, value)
            self._lives(row)

    def _attempt_over(self, row: AccountingRow, attempt: AccountingAttempt, event: Changed) -> None:
        attempt.ended_at_s = attempt.ended_at_s or event.at_s
        attempt.reason = reason_words(event.reason)
        if attempt.facts is not None:
            attempt.facts.known_at_s = event.at_s
        if not attempt.state:  # else its site put it back before it was withdrawn there
            waits = row.state == WorkloadState.PENDING.value
            attempt.state = _ENDED_AS.get(event.happening, "") if waits else ended_state(row)
            if waits and event.reason is not None and event.reason.code is ReasonCode.REQUEUED:
                attempt.state = "REQUEUED"
        self.attempts[row.id, attempt.attempt] = attempt

    def _lives(self, row: AccountingRow) -> None:
        self.live[row.id] = self.changed[row.id] = row

    def _is_over(self, row: AccountingRow) -> None:
        row.state = ended_state(row)
        self.live.pop(row.id, None)
        self.changed.pop(row.id, None)
        self.ended[row.id] = row

    # ---- snapshots ----

    def _restored(self, submission: SnapshotSubmission) -> None:
        like = submission.like
        if like is not None:
            self.like = _row(like, _asked(like))
        if self.like is None:
            return
        for kept in submission.workloads:
            row = msgspec.structs.replace(self.like, id=kept.id, array_index=kept.index)
            self._restored_one(row, kept)

    def _restored_one(self, row: AccountingRow, kept: SnapshotWorkload) -> None:
        set_standing(row, kept)
        if row.last is not None and kept.award is not None:
            row.last.facts = AttemptFacts(
                over_quota=not kept.award.within_quota, known_at_s=kept.over_at_s
            )
        if kept.state not in TERMINAL:
            self._lives(row)
            return
        self.known[row.id] = row
        if row.last is not None:
            self.known_attempts[row.id, row.last.attempt] = row.last


def touched(event: LogRecord) -> tuple[int, ...]:
    """The workloads whose rows a record changes; none: it needs none that are there."""
    match event:
        case Awarded():
            return (event.attempt.workload, *event.victims)
        case Changed():
            return (event.workload, *(() if event.winner is None else (event.winner,)))
        case Amended():
            return event.workloads
        case _:
            return ()


# ---- rows ----


def ended_state(row: AccountingRow) -> str:
    """A state of Slurm's for a workload that is over: its site's word, if that says more."""
    if row.state == WorkloadState.FAILED.value and row.site_state in _SITE_STATES:
        return row.site_state if row.site_state != SiteJobState.COMPLETED.value else row.state
    return row.state


def _row(workload: Workload, asked: Mapping[str, object]) -> AccountingRow:
    array = workload.array
    return AccountingRow(
        id=workload.id,
        name=workload.name,
        user=workload.user,
        tenant=workload.tenant,
        submitted_at_s=workload.submitted_at_s,
        eligible_at_s=workload.submitted_at_s,
        array_id=array.array_id if array is not None else 0,
        array_index=array.index if array is not None else 0,
        priority=workload.priority,
        time_limit_s=workload.time_limit_s,
        project=workload.project,
        **asked,  # type: ignore[arg-type]
    )


def _asked(workload: Workload) -> dict[str, object]:
    """The fields that all tasks of an array have alike, and that take some work."""
    try:
        placed = _decode_placed(workload.submission)
    except UNREADABLE:  # of a release that packs it otherwise
        placed = _Placed()
    options = {option.name: option.value or "" for option in next(iter(placed.components), ())}
    return {
        "qos": options.get("qos", ""),
        "comment": options.get("comment", ""),
        "work_dir": placed.work_dir,
        **_sizes(workload.jobs),
    }


def _sizes(jobs: Sequence[Job]) -> dict[str, object]:
    if not jobs:
        return {}
    return {
        "asked_nodes": sum(job.nodes or 0 for job in jobs),
        "asked_cpus": sum(job.cpus or job.cpus_per_node * (job.nodes or 1) for job in jobs),
        "asked_gpus": sum(job.total_gpus for job in jobs),
        "asked_mem_mib": sum(job.total_mem_mib for job in jobs),
        "asked_partition": ",".join(dict.fromkeys(name for job in jobs for name in job.partitions)),
    }


def _attempt(event: Awarded) -> AccountingAttempt:
    return AccountingAttempt(
        attempt=event.attempt.attempt,
        site=event.site,
        awarded_at_s=0.0 if event.adopted else event.at_s,
        **_plan(event.jobs),  # type: ignore[arg-type]
    )


def _plan(jobs: tuple[JobPlan, ...]) -> dict[str, object]:
    shares = [share for plan in jobs for share in plan.nodes.values()]
    names = dict.fromkeys(name for plan in jobs for name in plan.nodes)
    types: dict[str, int] = {}
    for plan in jobs:
        for name, count in plan.gpu_types.items():
            types[name] = types.get(name, 0) + count
    return {
        "partition": ",".join(dict.fromkeys(plan.partition for plan in jobs)),
        "node_list": node_list(tuple(names)),
        "nodes": len(names),
        "cpus": sum(share.cpus for share in shares),
        "gpus": sum(share.gpus for share in shares),
        "gpu_types": ",".join(f"{name}={count}" for name, count in sorted(types.items())),
        "mem_mib": sum(share.mem_mib for share in shares),
    }


def _take_news(attempt: AccountingAttempt, event: Changed) -> None:
    attempt.site_job_id = event.site_job_id or attempt.site_job_id
    ran_again = event.ended_at_s > event.started_at_s > attempt.ended_at_s > 0.0
    if event.happening is WorkloadEvent.STARTED or ran_again:  # if its site was quicker
        attempt.state, attempt.ended_at_s = "", 0.0
    if not attempt.state:
        attempt.started_at_s = event.started_at_s or attempt.started_at_s
        attempt.ended_at_s = event.ended_at_s or attempt.ended_at_s
    attempt.exit_code, attempt.signal = event.exit_code, event.signal
    facts = attempt.facts
    if facts is None:
        return
    if event.happening in _NOTICES:
        facts.told_at_s = event.at_s
        facts.evicted = event.happening is WorkloadEvent.EVICTED and bool(facts.evictor_tenant)
    facts.saved_at_s = event.saved_at_s or facts.saved_at_s
    if event.leave is not None:  # by its site's clock, as its start and its end
        facts.told_at_s = event.leave.told_at_s
        facts.saved_at_s = event.leave.saved_at_s or facts.saved_at_s


def _put_back(attempt: AccountingAttempt, event: Changed) -> None:
    """It holds nothing from now on, though it is the attempt until its site has withdrawn it."""
    code = event.reason.code if event.reason is not None else ReasonCode.REQUEUED
    attempt.state = _PUT_BACK_AS.get(code, "REQUEUED")
    attempt.ended_at_s = event.at_s


def _promise(victim: AccountingRow, winner: AccountingRow) -> None:
    """Note for whom a workload would have to leave, should it come to that."""
    if victim.last is None or victim.last.facts is None:
        return
    facts = victim.last.facts
    facts.evictor_tenant, facts.evictor_user = winner.tenant, winner.user
    facts.evictor_project, facts.evictor_family = winner.project, family_name(winner.name)


def reason_words(reason: Reason | None) -> str:
    """A reason as a row has it: its code, and its detail behind a blank."""
    if reason is None:
        return ""
    return f"{reason.code.value} {reason.detail[:MAX_DETAIL]}".rstrip()


def set_standing(row: AccountingRow, kept: SnapshotWorkload | WorkloadRecord) -> None:
    """Write into a row how its workload stands, by a snapshot or by the ledger.

    Neither knows who asked for a cancel, nor attempts before the latest.
    """
    row.state, row.site_state = kept.state.value, kept.site_state
    row.reason, row.over_at_s = reason_words(kept.reason), kept.over_at_s
    row.preemptions = kept.preemptions
    row.eligible_at_s = _eligible_at_s(kept, row.submitted_at_s)
    row.work_dir = kept.work_dir or row.work_dir
    if kept.award is None or not kept.site:
        return
    row.priority = kept.award.priority or row.priority
    row.last = last = _attempt(kept.award)
    last.site_job_id = kept.site_job_id
    last.started_at_s, last.ended_at_s = kept.started_at_s, kept.ended_at_s
    last.exit_code, last.signal = kept.exit_code, kept.signal
    if kept.state in TERMINAL:
        last.ended_at_s = last.ended_at_s or kept.over_at_s
        row.state = last.state = ended_state(row)
        last.reason = row.reason


def _eligible_at_s(kept: SnapshotWorkload | WorkloadRecord, submitted_at_s: float) -> float:
    if kept.state is WorkloadState.INELIGIBLE:
        return 0.0
    return kept.eligible_at_s or submitted_at_s


def row_of(entry: WorkloadRecord) -> AccountingRow:
    """A workload as the ledger has it."""
    row = _row(entry.workload, _asked(entry.workload))
    set_standing(row, entry)
    return row


def glance_of(entry: WorkloadRecord) -> AccountingRow:
    """The fields of ``row_of`` that a question looks at; all of a row takes far longer to make."""
    w = entry.workload
    row = AccountingRow(
        id=w.id,
        name=w.name,
        user=w.user,
        tenant=w.tenant,
        submitted_at_s=w.submitted_at_s,
        eligible_at_s=_eligible_at_s(entry, w.submitted_at_s),
        over_at_s=entry.over_at_s,
        state=entry.state.value,
        site_state=entry.site_state,
    )
    if entry.award is not None and entry.site:
        row.last = AccountingAttempt(
            attempt=entry.award.attempt.attempt, site=entry.site, started_at_s=entry.started_at_s
        )
        if entry.state in TERMINAL:
            row.state = ended_state(row)
    return row
