"""The ledger: the state of every workload, rebuilt by applying the event log in order.

What tenants hold and what waits are kept along with it, in the one place through which every
change comes: a workload is charged when it enters a site and released when it has left, once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import inf

from federator.errors import StoreError
from federator.model.eligibility import Hold
from federator.model.event import (
    Amended,
    Awarded,
    Changed,
    CheckpointCopied,
    Claimed,
    ClaimEnded,
    DataPlanned,
    DataRecord,
    DataSetKept,
    DrainRecord,
    EpochBegan,
    Forgotten,
    LogRecord,
    OutputNoted,
    Planned,
    QuotaLoan,
    SiteDrained,
    SiteWrittenOff,
    SnapshotDone,
    SnapshotRecord,
    Submitted,
)
from federator.model.lifecycle import AT_SITE, TERMINAL, Effect, WorkloadEvent, WorkloadState, step
from federator.model.plan import JobPlan
from federator.model.reason import ReasonCode
from federator.model.tenant import Tenancy
from federator.model.workload import FIRST_WORKLOAD_ID, SiteName, WorkloadId
from federator.sched.state.amendment import amend
from federator.sched.state.backlog import Backlog
from federator.sched.state.backoff import RETRY_AFTER_S
from federator.sched.state.catalogue import Catalogue
from federator.sched.state.change_watches import ChangeWatches
from federator.sched.state.data_moves import DataMoves
from federator.sched.state.dependents import Dependents
from federator.sched.state.drains import DrainedSites, lose_checkpoints
from federator.sched.state.eligibility import record_of
from federator.sched.state.eviction_costs import EvictionCosts
from federator.sched.state.evictions import EvictionHistory
from federator.sched.state.failures import NodeFailures
from federator.sched.state.holdings import Holdings
from federator.sched.state.job_counts import JobCounts
from federator.sched.state.learned_durations import LearnedDurations
from federator.sched.state.moves import Moves
from federator.sched.state.outputs import Outputs
from federator.sched.state.preemption_cost import PreemptionTax
from federator.sched.state.promised_nodes import PromisedNodes
from federator.sched.state.quota_loans import QuotaLoans
from federator.sched.state.requeue import (
    blames_its_nodes,
    copy_is_over,
    forgive,
    is_stall,
    left_unasked,
    mark_progress,
    note_interruption,
    set_back,
)
from federator.sched.state.resizes import note_stint, note_worked, was_too_large
from federator.sched.state.save_times import SaveTimes
from federator.sched.state.saved_workloads import SavedWorkloads
from federator.sched.state.scaling_curves import ScalingCurves
from federator.sched.state.shrink import without
from federator.sched.state.snapshot import restore
from federator.sched.state.state_index import StateIndex
from federator.sched.state.submission_keys import SubmissionKeys
from federator.sched.state.usage import UsageAverage, UsageMemory
from federator.sched.state.workload_record import WorkloadRecord

__all__ = ("Ledger", "WorkloadRecord")

_WAITS_FOR_VICTIMS = (WorkloadState.AWARDED, WorkloadState.LAUNCHING)
_ON_NODES = frozenset({WorkloadState.RUNNING, WorkloadState.PREEMPTING, WorkloadState.CANCELLING})


class Ledger:
    """All workloads by id, with an index by state. ``apply`` is the only way to change it.

    Args:
        tenancy: the tenants, as configured now.
        usage: empty; by default an average over a week.
    """

    def __init__(self, tenancy: Tenancy | None = None, usage: UsageAverage | None = None) -> None:
        self.tenancy = Tenancy() if tenancy is None else tenancy
        self.holdings = Holdings(self.tenancy, usage or UsageMemory().average())
        self.backlog = Backlog(self.tenancy)
        self.entries: dict[WorkloadId, WorkloadRecord] = {}
        self.epoch = 0
        self.log_began = 0  # the epoch by which sites tell this log from others; 0: it is empty
        self.next_id = FIRST_WORKLOAD_ID
        self.array_tasks: dict[WorkloadId, dict[int, WorkloadId]] = {}  # by array id and index
        self.keys = SubmissionKeys()
        self.evictions = EvictionHistory()
        self.failures = NodeFailures()
        self.saves = SaveTimes()
        self.durations = LearnedDurations()
        self.scaling = ScalingCurves()
        self.tax = PreemptionTax()
        self._costs = EvictionCosts(self.entries, self.evictions, self.saves, self.tax)
        self.elastic: dict[WorkloadId, None] = {}  # workloads of several sizes
        self.claims: dict[WorkloadId, Claimed] = {}  # of those that wait, oldest first
        self.planned: Planned | None = None  # the latest lending plan; it may have expired
        self.loans = QuotaLoans()
        self.data_moves = DataMoves()
        self.drains = DrainedSites()
        self.catalogue = Catalogue()
        self.outputs = Outputs()
        self.promised = PromisedNodes(self.entries)
        self.moves = Moves(self.entries)
        self.unsettled: dict[WorkloadId, None] = {}  # that may have to leave, or join, the queue
        self.dependents = Dependents(self.entries, self.array_tasks, self.unsettled)
        self.saved = SavedWorkloads()
        self.counts = JobCounts()
        self.latest_s = 0.0  # the time of the latest event
        self.tail = 0  # events since the snapshot, or since the log began; refused ones count too
        self.by_state = StateIndex(self.entries)
        self._half_restored = False  # a snapshot has begun and is not done
        self.watches = ChangeWatches(self.entries)

    @property
    def is_new(self) -> bool:
        """Whether nothing has been applied yet."""
        return not (self.tail or self._half_restored or self.epoch or self.entries)

    def in_state(self, *states: WorkloadState) -> Iterator[WorkloadRecord]:
        """Entries in these states, in whatever order they are named; see ``StateIndex.records``."""
        return self.by_state.records(*states)

    def apply(self, event: LogRecord) -> tuple[Effect, ...]:
        """Take one event in; return the effects of its edge.

        Raises:
            InvalidTransition: the event does not follow from the state; nothing was changed.
            StoreError: it is of a snapshot that is not whole, or out of place.
        """
        if isinstance(event, SnapshotRecord):
            restore(self, event)
            self._half_restored = not isinstance(event, SnapshotDone)
            return ()
        if self._half_restored:
            raise StoreError("the snapshot before this record is cut short")
        self.tail += 1
        self.latest_s = max(self.latest_s, event.at_s)
        if isinstance(event, Changed):
            return self._change(event)
        if isinstance(event, EpochBegan):
            self.epoch = event.epoch
            self.log_began = self.log_began or event.log_began or event.epoch
            self.next_id = max(self.next_id, event.first_id)
            return ()
        if isinstance(event, Submitted):
            self._submit(event)
            return (Effect.RANK_AGAIN,)
        if isinstance(event, Awarded):
            return self._award(event)
        self._take_in(event)
        return ()

    def _take_in(
        self,
        event: (
            Claimed
            | ClaimEnded
            | Planned
            | DataPlanned
            | QuotaLoan
            | Amended
            | DrainRecord
            | DataRecord
            | CheckpointCopied
            | OutputNoted
            | Forgotten
        ),
    ) -> None:
        """Those that are no step of one workload's life."""
        if isinstance(event, Claimed | ClaimEnded | Planned):
            self._look_ahead(event)
        elif isinstance(event, Amended):
            self._amend(event)
        elif isinstance(event, DrainRecord):
            self._drained(event)
        elif isinstance(event, DataPlanned):
            self.data_moves.apply(event)
        elif isinstance(event, DataRecord):
            self.catalogue.apply(event)
            if isinstance(event, DataSetKept):
                self.outputs.registered(event)
                self.data_moves.apply(event)
        elif isinstance(event, OutputNoted):
            self.outputs.apply(event)
        elif isinstance(event, CheckpointCopied):
            self.entries[event.workload].copied_to = event.site
            self.watches.add(event.workload)
        elif isinstance(event, QuotaLoan):
            self.loans.apply(event)
        else:
            self._forget(event)

    def _submit(self, event: Submitted) -> None:
        for workload in event.workloads():
            self.entries[workload.id] = entry = record_of(workload, event)
            if entry.state is WorkloadState.PENDING:
                self.backlog.add(workload, entry.ranks_since_s)
            if entry.state is not WorkloadState.PENDING or workload.starts_by_s < inf:
                self.unsettled[workload.id] = None
            self.by_state.add(workload.id, entry.state)
            self.counts.came(workload, entry.state)
            self.next_id = max(self.next_id, WorkloadId(workload.id + 1))
            if workload.elastic is not None:
                self.elastic[workload.id] = None
            if workload.array is not None:
                tasks = self.array_tasks.setdefault(workload.array.array_id, {})
                tasks[workload.array.index] = workload.id
            self.dependents.came(entry)
            if entry.state is WorkloadState.INELIGIBLE:
                self.dependents.watch(entry)
        self.keys.add(event.key, event.array_id or event.first_id)

    def _award(self, event: Awarded) -> tuple[Effect, ...]:
        entry = self.entries[event.attempt.workload]
        effects = self._move(entry, WorkloadEvent.AWARDED, event.at_s)
        self.saved.changed(entry)
        self.watches.add(entry.workload.id)
        entry.attempt = event.attempt.attempt
        entry.site, entry.plan, entry.award = SiteName(event.site), event.jobs, event
        self._charge(entry, event.jobs, event.within_quota, event.at_s)
        self.promised.promise(event)
        self.moves.awarded(event, self.tenancy)
        if event.data:
            self.catalogue.awarded(event)
        self.outputs.awarded(entry.workload, event)
        entry.site_job_id, entry.withdrawing, entry.reason = 0, False, None
        entry.work_dir = None
        entry.started_at_s = entry.ended_at_s = 0.0
        return effects

    def _look_ahead(self, event: Claimed | ClaimEnded | Planned) -> None:
        """Only who waits has a claim; one that moves keeps its place."""
        if isinstance(event, Planned):
            self.planned = event
        elif isinstance(event, ClaimEnded):
            self.claims.pop(event.workload, None)
        elif self.entries[event.workload].state is WorkloadState.PENDING:
            self.claims[event.workload] = event

    def _amend(self, event: Amended) -> None:
        amend(self, event)
        for id_ in event.workloads:
            self.watches.add(id_)
            self.unsettled[id_] = None

    def _drained(self, event: DrainRecord) -> None:
        self.drains.apply(event)
        self.moves.drained(self.drains)
        if isinstance(event, SiteWrittenOff):
            lose_checkpoints(self.entries.values(), event.unreadable)
        elif isinstance(event, SiteDrained):
            self.drains.withdraw(self.in_state(WorkloadState.AWARDED))

    def _forget(self, event: Forgotten) -> None:
        """Know no more of workloads that nobody refers to; see ``sched.state.expiry``."""
        gone = set(event.ids)
        for id_ in event.ids:
            self.watches.add(id_)
            entry = self.entries.pop(id_)
            self.by_state.drop(id_, entry.state)
            self.elastic.pop(id_, None)
            self.saved.drop(id_)
            if entry.workload.array is not None:
                gone.add(entry.workload.array.array_id)
                self.array_tasks.pop(entry.workload.array.array_id, None)
        self.keys.forget(gone)
        self.outputs.forget(event.ids)

    def _change(self, event: Changed) -> tuple[Effect, ...]:
        entry = self.entries[event.workload]
        was_at_its_limit = entry.at_its_limit
        before = entry.state
        if event.winner is not None and event.happening is WorkloadEvent.EVICTED:
            entry.promised_to = event.winner
        step(entry.state, event.happening)  # nothing is changed by what cannot follow
        if entry.state is WorkloadState.PREEMPTING:
            self._costs.left(entry, event)
        effects = self._move(entry, event.happening, event.at_s)
        self.watches.add(entry.workload.id)
        if event.failed_nodes:
            entry.bad_nodes = entry.bad_nodes.blamed(entry.site, event.failed_nodes, event.at_s)
        if before in _ON_NODES and entry.state not in _ON_NODES:
            self._left_nodes(entry, event)
        entry.site_job_id = event.site_job_id or entry.site_job_id
        entry.work_dir = entry.work_dir if event.work_dir is None else sys.intern(event.work_dir)
        entry.started_at_s = event.started_at_s or entry.started_at_s
        entry.ended_at_s = event.ended_at_s or entry.ended_at_s
        entry.exit_code, entry.signal = event.exit_code, event.signal
        entry.site_state = event.site_state or entry.site_state
        entry.reason = event.reason
        self._mark(entry, event)
        self.saved.changed(entry)
        if event.happening is WorkloadEvent.SHRUNK:
            self._shrink(entry, event)
        elif event.happening is WorkloadEvent.SHRINK_DONE:
            self.promised.jobs_left(entry, event.components, event.at_s)
        mark_progress(entry, event, was_at_its_limit)
        if entry.state is WorkloadState.PENDING and entry.workload.starts_by_s < inf:
            self.unsettled[entry.workload.id] = None
        if entry.state is WorkloadState.PENDING and before in AT_SITE:
            unasked = event.happening not in (WorkloadEvent.PREEMPTED, WorkloadEvent.LIMIT_STRUCK)
            if unasked and not was_too_large(entry, event):
                set_back(entry, event.at_s)
            entry.site, entry.plan, entry.site_job_id = SiteName(""), (), 0
            entry.work_dir = None
            entry.started_at_s = entry.ended_at_s = 0.0
            entry.withdrawing, entry.taken_jobs = False, frozenset()
        return effects

    def _mark(self, entry: WorkloadRecord, event: Changed) -> None:
        """Take down what later decisions ask for."""
        copy_is_over(entry, event)
        left_unasked(entry, event)
        note_worked(entry, event)
        if event.happening is WorkloadEvent.ACCEPTED:
            entry.lease_from_s = event.at_s
        elif event.happening in (WorkloadEvent.LEASE_OVER, WorkloadEvent.SITE_REQUEUED):
            entry.withdrawing = True
            if event.reason is not None and event.reason.code is ReasonCode.REQUEUED:
                entry.saved_at = entry.site  # what puts itself back has saved
        elif event.happening is WorkloadEvent.CHECKPOINTED:
            entry.saved_at = entry.site
            until_s = event.at_s + RETRY_AFTER_S  # it may do nothing else
            entry.avoid_until_s = {**entry.avoid_until_s, entry.site: until_s}
        elif event.happening is WorkloadEvent.EVICTED:
            self._costs.evicted(entry, event)
        elif event.happening is WorkloadEvent.REQUEUE_ASKED:
            entry.evicted_at_s, entry.evicted_for = event.at_s, None  # no eviction, but a grace
            entry.stalls += is_stall(event.reason)
        elif event.happening is WorkloadEvent.STARTED:
            entry.began_to_run()
            forgive(entry, event.at_s)
            self.durations.started(entry, event.at_s)
        elif event.happening is WorkloadEvent.HELD and event.reason is not None:
            entry.held_for = event.reason.detail

    def _left_nodes(self, entry: WorkloadRecord, event: Changed) -> None:
        """An attempt that ran is over, or waits in its site's queue: what of its nodes?"""
        self.durations.left(entry, event)
        note_interruption(entry, event)
        note_stint(entry, event, self.scaling)
        failed = event.happening is WorkloadEvent.NODE_FAILED or bool(event.failed_nodes)
        if entry.started_at_s:
            run_s = (event.ended_at_s or event.at_s) - entry.started_at_s
            self.failures.ran(entry.site, len(entry.node_names), run_s, failed=failed)
            if entry.bad_nodes:
                entry.bad_nodes = entry.bad_nodes.after_run(
                    entry.site, entry.node_names, event.at_s
                )
        if blames_its_nodes(entry.reason):  # what it was told to leave for
            entry.bad_nodes = entry.bad_nodes.blamed(entry.site, entry.node_names, event.at_s)
        entry.started_at_s = 0.0 if entry.state is WorkloadState.LAUNCHING else entry.started_at_s

    def _shrink(self, entry: WorkloadRecord, event: Changed) -> None:
        """It loses optional jobs: they hold nothing any more, as far as quota is concerned."""
        for k in event.components:
            winner = self.promised.take_job(entry, k, event.winner)
            self._costs.job_taken(entry, k, winner, event)
        entry.taken_jobs |= frozenset(event.components)
        entry.plan = without(entry.plan, event.components)
        if entry.award is not None:
            self._release(entry, event.at_s)
            self._charge(entry, entry.plan, entry.award.within_quota, event.at_s)

    def _charge(
        self, entry: WorkloadRecord, plan: tuple[JobPlan, ...], within_quota: bool, at_s: float
    ) -> None:
        row = self.tenancy.row(entry.workload.tenant)
        entry.charge = self.holdings.charge_for(row, plan, lent=entry.is_lent)
        self.holdings.add(entry.charge, within_quota, at_s)
        self.backlog.touch(row)

    def _release(self, entry: WorkloadRecord, at_s: float) -> None:
        if entry.charge is not None and entry.award is not None:
            self.holdings.release(entry.charge, entry.award.within_quota, at_s)
            self.backlog.touch(entry.charge.row)
        entry.charge = None

    def _move(self, entry: WorkloadRecord, event: WorkloadEvent, at_s: float) -> tuple[Effect, ...]:
        edge = step(entry.state, event)
        self.by_state.move(entry.workload.id, entry.state, edge.to)
        if entry.state is WorkloadState.PENDING:
            self.backlog.remove(entry.workload, entry.ranks_since_s)
            self.claims.pop(entry.workload.id, None)
        if event is WorkloadEvent.ELIGIBLE:
            entry.eligible_at_s = at_s
        if edge.to is WorkloadState.PENDING:
            self.backlog.add(entry.workload, entry.ranks_since_s)
        if entry.hold is not Hold.NONE:
            self.unsettled[entry.workload.id] = None
        if edge.to not in AT_SITE:
            self._release(entry, at_s)
            self.promised.victim_left(entry, at_s)
            claim = self.moves.left(entry, edge.to, at_s)
            if claim is not None:
                self.claims[claim.workload] = claim
        if entry.displaces and edge.to not in _WAITS_FOR_VICTIMS and entry.award is not None:
            self.promised.spare(entry.award)
            self.moves.spared(entry.award)
        if edge.to in TERMINAL:
            entry.over_at_s = at_s
            self.durations.over(entry.workload.id)
            completed = edge.to is WorkloadState.COMPLETED
            self.outputs.over(entry.workload.id, at_s, completed=completed)
        before, entry.state = entry.state, edge.to
        self.counts.left(entry.workload, before)
        self.counts.came(entry.workload, entry.state)
        self.dependents.moved(entry, before)
        return edge.effects

    # ---- snapshots ----

    def restore_entry(self, entry: WorkloadRecord) -> None:
        """Know a workload as a snapshot has it; ``restore_order`` says since when.

        What it holds is counted as the tenants are configured now.
        """
        workload = entry.workload
        self.entries[workload.id] = entry
        if workload.elastic is not None:
            self.elastic[workload.id] = None
        if workload.array is not None:
            tasks = self.array_tasks.setdefault(workload.array.array_id, {})
            tasks[workload.array.index] = workload.id
        self.counts.came(workload, entry.state)
        self.saved.changed(entry)
        self.count(entry)

    def count(self, entry: WorkloadRecord) -> None:
        """Add a workload to the queue, or to what is held; it is in neither."""
        self.watches.add(entry.workload.id)
        if entry.state is WorkloadState.PENDING:
            self.backlog.add(entry.workload, entry.ranks_since_s)
        elif entry.state in AT_SITE and entry.award is not None:
            row = self.tenancy.row(entry.workload.tenant)
            entry.charge = self.holdings.charge_for(row, entry.plan, lent=entry.is_lent)
            self.holdings.restore(entry.charge, entry.award.within_quota)
            self.backlog.touch(row)
