"""Makes the rows of fsqueue and fsinfo, and outcomes for fsbatch --wait, on demand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Final

import msgspec

from federator.daemon.drain_calls import drain_rows
from federator.daemon.output_views import output_row
from federator.daemon.preemption_views import preemption_row
from federator.daemon.queue_details import job_details, partitions_of
from federator.daemon.queue_selection import (
    Group,
    array_tasks,
    collapsed,
    is_seen,
    most_telling,
    selected,
)
from federator.daemon.region_views import with_regions
from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadState
from federator.model.mappings import NOTHING
from federator.model.reason import Reason, ReasonCode, Refusal
from federator.model.site_mode import SiteMode
from federator.model.submission import Option, Submission
from federator.model.viewer import Viewer
from federator.model.workload import Job, SiteName, Workload, WorkloadId
from federator.sched.passes.federation import Federation
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.spoken import Spoken
from federator.sched.queue.quota_status import QuotaReport, QuotaStatus, quota_statuses
from federator.sched.queue.ranked import Ranked
from federator.sched.state.credit import CreditWeights, usage_shares
from federator.sched.state.eligibility import ineligible_reason
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.slurm.options.file_names import FederationIds, files_of
from federator.wire.client_protocol import QueueCall, QueueRow, SiteRow
from federator.wire.queue_rows import (
    PaceRow,
    QueueOutcome,
    QueueRank,
    SetbackRow,
    ShortfallRow,
)

RANKS_KEPT_S: Final = 5.0
_LIVE: Final = tuple(state for state in WorkloadState if state not in TERMINAL)
_SETTLED: Final = TERMINAL | {WorkloadState.HELD}  # nothing more happens soon


class _Placed(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a submission that name its job's files; the rest is not decoded."""

    components: tuple[tuple[Option, ...], ...]
    work_dir: str = "/"
    script_path: str = ""


_decode_placed: Final = msgspec.msgpack.Decoder(_Placed).decode


class RankSnapshot:
    """The ranks of all live workloads at one instant, with the numbers that say why.

    It keeps a copy of what quotas hold and promise: an answer of later must not explain the order
    of then with the numbers of now.

    Args:
        federation: ranked here, once.
        policy: its name in federation.yaml.
        weights: of the credit; None for a policy that knows neither credit nor quota.
        at_s: Unix time.
    """

    def __init__(
        self, federation: Federation, policy: str, weights: CreditWeights | None, at_s: float
    ) -> None:
        self.at_s = at_s
        self.by_quota = weights is not None
        self.policy = policy
        self._weights = weights
        self._tenancy = federation.ledger.tenancy
        with federation.ledger.backlog.unchanged():
            self._look(federation, at_s)

    def _look(self, federation: Federation, at_s: float) -> None:
        ledger = federation.ledger
        self._ranked = federation.ranked(at_s)  # before the lanes are looked at: it scans them
        self._position = {ranked.id: k for k, ranked in enumerate(self._ranked)}
        self._standings = quota_statuses(ledger)
        self._shares = usage_shares(ledger.holdings.averages(at_s))
        self._report = QuotaReport(ledger.holdings.frozen(), ledger.backlog)
        self._report.promised(0)  # sums now what the scan has just promised
        lanes = {row: ledger.backlog.lanes(row) for row in ledger.backlog.rows()}
        self.pending = {  # by tenant's row: all, and those within quota
            row: (sum(map(len, of_row)), sum(lane.within for lane in of_row))
            for row, of_row in lanes.items()
        }

    def rank(self, entry: WorkloadRecord) -> QueueRank | None:
        """The rank of a live workload; None of one that has come to the queue since."""
        if entry.state in AT_SITE:
            return self._at_site(entry)
        k = self._position.get(entry.workload.id)
        if k is None or entry.state is not WorkloadState.PENDING:
            return None
        return self._waiting(entry, self._ranked[k], k + 1)

    def _waiting(self, entry: WorkloadRecord, ranked: Ranked, position: int) -> QueueRank:
        w = entry.workload
        row = self._tenancy.row(w.tenant)
        over = self.by_quota and not ranked.within_quota
        return QueueRank(
            policy=self.policy,
            by_quota=self.by_quota,
            ranked_at_s=self.at_s,
            priority=ranked.priority,
            tenant_priority=self._tenancy.tenants[row].priority,
            asked_priority=w.asked_priority,
            within_quota=ranked.within_quota,
            credit=ranked.credit,
            position=position,
            of=len(self._ranked),
            waited_s=max(0.0, self.at_s - entry.queued_since_s),
            shortfall=self._shortfall(w, row) if over else None,
            age_term=ranked.age_term,
            fair_share_term=ranked.fair_share_term,
            nice_term=ranked.nice_term,
            non_preemptible_term=ranked.non_preemptible_term,
            per_hour_waited=self._weights.per_hour_waited if self._weights else 0.0,
            age_cap_h=self._weights.age_cap_h if self._weights else 0.0,
            usage_share_frac=float(self._shares[row]),
        )

    def _at_site(self, entry: WorkloadRecord) -> QueueRank | None:
        award, w = entry.award, entry.workload
        if award is None:
            return None
        now = self._standings.get(w.id)
        if now is None or not self.by_quota:  # awarded since, or as it will stay
            now = QuotaStatus(
                priority=award.priority or w.priority, within_quota=award.within_quota
            )
        return QueueRank(
            policy=self.policy,
            by_quota=self.by_quota,
            ranked_at_s=self.at_s,
            priority=now.priority,
            tenant_priority=self._tenancy.tenants[self._tenancy.row(w.tenant)].priority,
            asked_priority=w.asked_priority,
            within_quota=now.within_quota,
            credit=award.credit,
            awarded_at_s=award.at_s,
            awarded_priority=award.priority,
            awarded_within_quota=award.within_quota,
            away=not self._tenancy.is_home(self._tenancy.row(w.tenant), entry.site),
        )

    def _shortfall(self, w: Workload, row: int) -> ShortfallRow:
        asked = self._tenancy.resources.request(w.jobs)
        return ShortfallRow(**asdict(self._report.shortfall_of(row, asked)))


class RankView:
    """Ranks for whoever asks why; made when asked for, and kept for ``RANKS_KEPT_S``.

    With 100,000 pending one takes 0.1 to 0.8 s, by how much they differ, and the daemon does
    nothing else meanwhile.
    """

    def __init__(self, federation: Federation, policy: str, weights: CreditWeights | None) -> None:
        self._federation = federation
        self._policy = policy
        self._weights = weights
        self._kept: RankSnapshot | None = None

    def at(self, now_s: float) -> RankSnapshot:
        """The snapshot of now, or one that is not much older."""
        kept = self._kept
        if kept is None or not 0 <= now_s - kept.at_s < RANKS_KEPT_S:
            kept = RankSnapshot(self._federation, self._policy, self._weights, now_s)
            self._kept = kept
        return kept


def queue_rows(
    federation: Federation,
    call: QueueCall,
    limit: int,
    ranks: RankSnapshot | None = None,
    viewer: Viewer | None = None,
) -> tuple[tuple[QueueRow, ...], int]:
    """The workloads a call asks for, by id; at most ``limit`` rows, and how many are left off.

    With ``ranks`` each says why it ranks as it does. What ``viewer`` does not see is no part of it.
    """
    wanted = _wanted(federation.ledger, call, viewer)
    groups = collapsed(wanted) if call.collapsed else [(entry,) for entry in wanted]
    kept = most_telling(groups, limit)
    spoken = Spoken(codes=call.codes) if call.brief else None
    rows = tuple(_row_of(group, call, federation, ranks, spoken) for group in kept)
    if call.why and call.ids:
        rows = with_regions(rows, [group[0] for group in kept], federation)
    return rows, len(wanted) - sum(map(len, kept))


def _wanted(ledger: Ledger, call: QueueCall, viewer: Viewer | None) -> list[WorkloadRecord]:
    if call.ids:
        ids = sorted({id_ for name in set(call.ids) for id_ in find(ledger, name, viewer)})
        return selected((ledger.entries[id_] for id_ in ids), call, viewer)
    if call.ended and not call.states:
        return selected(ledger.entries.values(), call, viewer)
    among = WorkloadState if call.ended else _LIVE
    states = [s for s in among if not call.states or s.value in call.states]
    looked_at = msgspec.structs.replace(call, states=(), ended=True)  # by the states they are in
    found = selected(ledger.in_state(*states), looked_at, viewer)
    return sorted(found, key=lambda entry: entry.workload.id)


def outcome_of(
    federation: Federation, call: QueueCall, limit: int, viewer: Viewer | None = None
) -> tuple[QueueOutcome, tuple[QueueRow, ...]]:
    """The outcome of the workloads a call asks for, and rows of at most ``limit`` that failed.

    Those with a reason come first. While anything may still happen there are no rows.
    """
    wanted = _wanted(federation.ledger, call, viewer)
    unsettled = sum(entry.state not in _SETTLED for entry in wanted)
    if unsettled:
        return QueueOutcome(unsettled=unsettled), ()
    failed = [entry for entry in wanted if entry.state is not WorkloadState.COMPLETED]
    highest = max((1 if e.signal else exit_code_of(e) or 1 for e in failed), default=0)
    shown = sorted(failed, key=lambda entry: entry.reason is None)[:limit]
    rows = tuple(_row(entry, federation, None, None) for entry in shown)
    return QueueOutcome(failed=len(failed), exit_code=highest), rows


def _row_of(
    group: Group,
    call: QueueCall,
    federation: Federation,
    ranks: RankSnapshot | None,
    spoken: Spoken | None,
) -> QueueRow:
    row = _row(group[0], federation, ranks, spoken)
    if call.files:
        row = msgspec.structs.replace(row, **_files(group[0]))
    if call.details:
        row = msgspec.structs.replace(row, details=job_details(group[0]))
    if not call.collapsed or group[0].workload.array is None:
        return row
    if group[0].state in AT_SITE or group[0].state in TERMINAL:
        return row
    return msgspec.structs.replace(row, tasks=len(group), array_tasks=array_tasks(group, call.ids))


def unknown_ids(
    ledger: Ledger, ids: Iterable[str], viewer: Viewer | None = None
) -> tuple[str, ...]:
    """Those of ``ids`` whose workload or array there is not; it may have ended long ago.

    What ``viewer`` does not see is unknown, too.
    """
    return tuple(id_ for id_ in ids if not find(ledger, id_.partition("_")[0], viewer))


def find(ledger: Ledger, name: str, viewer: Viewer | None = None) -> Collection[WorkloadId]:
    """The workloads a user calls ``ID``, ``ARRAY`` (all its tasks) or ``ARRAY_INDEX``.

    Of what ``viewer`` does not see nothing is found, as of an id that there is not. The tasks of an
    array are one user's. They are the ledger's own: made anew for each name, they would cost far
    more.
    """
    found = _called(ledger, name)
    if viewer is None or not found:
        return found
    return found if is_seen(ledger.entries[next(iter(found))], viewer) else ()


def _called(ledger: Ledger, name: str) -> Collection[WorkloadId]:
    head, _, index = name.partition("_")
    if not (head.isascii() and head.isdecimal() and len(head) < 20):
        return ()
    id_ = WorkloadId(int(head))
    tasks = ledger.array_tasks.get(id_)
    if tasks is None:
        return () if index or id_ not in ledger.entries else (id_,)
    if not index:
        return tasks.values()
    known = index.isascii() and index.isdecimal() and len(index) < 10
    task = tasks.get(int(index)) if known else None
    return () if task is None else (task,)


def _row(  # one field a line
    entry: WorkloadRecord,
    federation: Federation,
    ranks: RankSnapshot | None,
    spoken: Spoken | None,
) -> QueueRow:
    """A row; a brief one with ``spoken``."""
    brief = spoken is not None
    w, site = entry.workload, federation.sites.get(entry.site)
    rank = ranks.rank(entry) if ranks is not None else None
    planned = tuple(name for plan in entry.plan for name in plan.nodes)
    unknown = site is not None and not site.ready and entry.state in AT_SITE
    refusals = _refusals(entry, federation, spoken)
    reason = main_reason(entry, refusals)
    if spoken is not None:
        reason = spoken.shown(w.jobs, reason)
        if rank is None and _is_as_submitted(entry):
            return _row_as_submitted(entry, reason)
    return QueueRow(
        id=w.id,
        name=w.name,
        user=w.user,
        tenant=w.tenant,
        priority=_priority(entry, rank),
        state=entry.state.value,
        attempt=entry.attempt,
        submitted_at_s=w.submitted_at_s,
        array_id=w.array.array_id if w.array is not None else 0,
        array_index=w.array.index if w.array is not None else 0,
        jobs=len(w.jobs),
        nodes=len(planned) or sum(_nodes(job) for job in w.jobs),
        gpus=entry.held_gpus if entry.plan else w.total_gpus,
        time_limit_s=w.time_limit_s,
        site=entry.site,
        site_job_id=entry.site_job_id,
        node_names=planned,
        started_at_s=entry.started_at_s,
        ended_at_s=entry.ended_at_s,
        unknown_since_s=site.since_s if unknown and site is not None else 0.0,
        exit_code=exit_code_of(entry),
        signal=entry.signal,
        reason=reason,
        refusals={} if brief else {str(s): r for s, r in refusals.items()},
        offers={} if brief else entry.offers,
        costs={} if brief or entry.award is None else entry.award.costs,
        lending=None if brief or entry.award is None else entry.award.lending,
        site_state=entry.site_state,
        rank=rank,
        setbacks=_setbacks(entry) if ranks is not None else {},
        preemption=None if brief else preemption_row(entry, federation),
        project=w.project,
        datasets=w.datasets,
        elastic=w.elastic,
        spare=w.spare,
        partition=",".join(partitions_of(entry)),
        output=None if brief else output_row(entry, federation.ledger),
        pace=None if brief else _pace(entry, federation),
    )


def _pace(entry: WorkloadRecord, federation: Federation) -> PaceRow | None:
    found = federation.slow_nodes.pace_of(entry)
    if found is None:
        return None
    judged, move = found.judged, found.move
    return PaceRow(
        speed=judged.speed.value,
        factor=judged.factor,
        others=judged.others,
        gain_s=move.gain_s if move is not None else 0.0,
        cost_s=move.cost_s if move is not None else 0.0,
        stays=move.but if move is not None else "",
    )


def _is_as_submitted(entry: WorkloadRecord) -> bool:
    """Whether no site ever had it, and it has none of what few have."""
    w = entry.workload
    ran = entry.state in TERMINAL or entry.attempt or entry.plan
    return not (ran or w.project or w.datasets or w.elastic or w.spare)


def _row_as_submitted(entry: WorkloadRecord, reason: Reason | None) -> QueueRow:
    """The same, in a tenth of the time: a row is made faster the fewer fields are named.

    Of thousands of rows most are of these.
    """
    w = entry.workload
    row = QueueRow(
        id=w.id,
        name=w.name,
        user=w.user,
        tenant=w.tenant,
        priority=w.priority,
        state=entry.state.value,
        attempt=0,
        submitted_at_s=w.submitted_at_s,
        jobs=len(w.jobs),
        nodes=sum(map(_nodes, w.jobs)),
        gpus=w.total_gpus,
        time_limit_s=w.time_limit_s,
        reason=reason,
        partition=",".join(partitions_of(entry)),
    )
    if w.array is None:
        return row
    return msgspec.structs.replace(row, array_id=w.array.array_id, array_index=w.array.index)


def _files(entry: WorkloadRecord) -> dict[str, str]:
    """The files that a workload's batch script reads and writes, as far as they are known."""
    w = entry.workload
    placed = _decode_placed(w.submission)
    if not placed.components:
        return {}
    ids = FederationIds(workload=w.id)
    if w.array is not None:
        ids = FederationIds(workload=w.id, array=w.array.array_id, index=w.array.index)
    found = files_of(
        Submission(components=placed.components, script="", work_dir=placed.work_dir),
        ids,
        user=w.user,
        name=w.name,
        site_job_id=entry.site_job_id,
        work_dir=entry.work_dir if entry.site_job_id else "",
    )
    return {**msgspec.structs.asdict(found), "command": placed.script_path}


def _priority(entry: WorkloadRecord, rank: QueueRank | None) -> int:
    """At which it went to its site; of a pending workload that of its rank, if it was asked for."""
    if entry.state is WorkloadState.PENDING:
        return rank.priority if rank is not None else entry.workload.priority
    awarded = entry.award.priority if entry.award is not None else 0
    return awarded or entry.workload.priority


def _setbacks(entry: WorkloadRecord) -> dict[str, SetbackRow]:
    return {
        str(site): SetbackRow(
            reason=reason,
            failures=entry.failures_at.get(site, 0),
            avoid_until_s=entry.avoid_until_s.get(site, 0.0),
        )
        for site, reason in entry.setbacks.items()
    }


def _nodes(job: Job) -> int:
    return job.nodes or 0


def exit_code_of(entry: WorkloadRecord) -> int | None:
    """None of what has not ended, never ran, or ended without its site's telling how."""
    lost = entry.reason is not None and entry.reason.code is ReasonCode.LOST
    unsaid = entry.state is WorkloadState.CANCELLED and not (entry.exit_code or entry.signal)
    if entry.state not in TERMINAL or not entry.ended_at_s or lost or unsaid:
        return None
    return entry.exit_code


def _refusals(
    entry: WorkloadRecord, federation: Federation, spoken: Spoken | None
) -> Mapping[SiteName, Refusal]:
    waits = entry.state is WorkloadState.PENDING
    return federation.refusals_of(entry, spoken) if waits else NOTHING


def shown_reason(entry: WorkloadRecord, federation: Federation, spoken: Spoken) -> Reason | None:
    """The main reason for its state, as its row in fsqueue's answer has it."""
    return spoken.shown(
        entry.workload.jobs, main_reason(entry, _refusals(entry, federation, spoken))
    )


def main_reason(entry: WorkloadRecord, refusals: Mapping[SiteName, Refusal]) -> Reason | None:
    """The main reason for its state; the sites' own are in ``refusals``."""
    if entry.state is WorkloadState.INELIGIBLE:
        return ineligible_reason(entry)
    if entry.state is not WorkloadState.PENDING:
        return entry.reason
    for refusal in refusals.values():
        if refusal.reasons[0].code in (ReasonCode.RESOURCES, ReasonCode.ARRAY_LIMIT):
            return refusal.reasons[0]
    for refusal in refusals.values():
        return refusal.reasons[0]
    return entry.reason or Reason(code=ReasonCode.NOT_TRIED)


def _mode(site: SiteView, *, is_opt_in: bool) -> SiteMode:
    if site.shadow:
        return SiteMode.ADVISORY if site.advisory else SiteMode.SHADOW
    return SiteMode.OPT_IN if is_opt_in else SiteMode.ENFORCED


def site_rows(federation: Federation, regions: Mapping[SiteName, str]) -> tuple[SiteRow, ...]:
    return tuple(
        SiteRow(
            name=name,
            region=regions[name],
            up=site.ready,
            slurm_version=site.slurm_version,
            down_since_s=0.0 if site.ready else site.since_s,
            partitions=site.summary,
            drains=drain_rows(federation, name),
            # Not who may use them: among their users are the members of a site's groups.
            windows=tuple(msgspec.structs.replace(window, users=()) for window in site.windows),
            mode=_mode(site, is_opt_in=name in federation.rules.opt_in).value,
            login_node=site.login_node if site.ready else "",
            agent_release=site.release if site.ready else "",
            gpus_by_type=dict(site.gpus_by_type),
        )
        for name, site in federation.sites.items()
    )
