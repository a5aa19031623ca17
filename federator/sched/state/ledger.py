"""The ledger: the state of every workload, rebuilt by applying the event log in order.

What tenants hold and what waits are kept along with it, in the one place through which every
change comes: a workload is charged when it enters a site and released when it has left, once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from federator.errors import StoreError
from federator.model.eligibility import Hold
from federator.model.event import (
    Amended,
    Awarded,
    Changed,
    Claimed,
    ClaimEnded,
    DrainRecord,
    EpochBegan,
    Forgotten,
    LogRecord,
    Planned,
    SiteDrained,
    SiteWrittenOff,
    SnapshotDone,
    SnapshotRecord,
    Submitted,
)
from federator.model.lifecycle import AT_SITE, TERMINAL, Effect, WorkloadEvent, WorkloadState, step
from federator.model.mappings import NOTHING, without_key
from federator.model.plan import JobPlan
from federator.model.reason import ReasonCode
from federator.model.tenant import Tenancy
from federator.model.workload import FIRST_WORKLOAD_ID, SiteName, Workload, WorkloadId
from federator.sched.state.amendment import amend
from federator.sched.state.backlog import Backlog
from federator.sched.state.backoff import RETRY_AFTER_S
from federator.sched.state.dependents import Dependents
from federator.sched.state.drains import DrainedSites, lose_checkpoints
from federator.sched.state.eligibility import record_of
from federator.sched.state.evictions import EvictionHistory
from federator.sched.state.failures import NodeFailures
from federator.sched.state.holdings import Holdings
from federator.sched.state.job_counts import JobCounts
from federator.sched.state.learned_durations import LearnedDurations
from federator.sched.state.preemption_cost import PreemptionTax, destroyed_gpu_s
from federator.sched.state.requeue import forgive, left_unasked, mark_progress, set_back
from federator.sched.state.save_times import SaveTimes, family_of
from federator.sched.state.shrink import gpus_of, without
from federator.sched.state.snapshot import restore
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
        self.id_of_key: dict[str, WorkloadId] = {}
        self._key_of_id: dict[WorkloadId, str] = {}  # of an array: of its own id
        self.evictions = EvictionHistory()
        self.failures = NodeFailures()
        self.saves = SaveTimes()
        self.durations = LearnedDurations()
        self.tax = PreemptionTax()
        self.claims: dict[WorkloadId, Claimed] = {}  # of those that wait, oldest first
        self.planned: Planned | None = None  # the latest lending plan; it may have expired
        self.drains = DrainedSites()
        self.shrinking: dict[WorkloadId, None] = {}  # those with optional jobs that must leave
        self.unsettled: dict[WorkloadId, None] = {}  # that may have to leave, or join, the queue
        self.dependents = Dependents(self.entries, self.array_tasks, self.unsettled)
        self.counts = JobCounts()
        self.latest_s = 0.0  # the time of the latest event
        self.tail = 0  # events since the snapshot, or since the log began; refused ones count too
        self._by_state: dict[WorkloadState, dict[WorkloadId, None]] = {s: {} for s in WorkloadState}
        self._half_restored = False  # a snapshot has begun and is not done
        self._watches: list[set[WorkloadId]] = []

    @property
    def is_new(self) -> bool:
        """Whether nothing has been applied yet."""
        return not (self.tail or self._half_restored or self.epoch or self.entries)

    def key_of(self, workload: Workload) -> str:
        """The key of the submission it is of; "" where it has none."""
        id_ = workload.array.array_id if workload.array is not None else workload.id
        if id_ not in self._key_of_id:  # once after a replay
            self._key_of_id = {known: key for key, known in self.id_of_key.items()}
        return self._key_of_id.setdefault(id_, "")

    def in_state(self, *states: WorkloadState) -> Iterator[WorkloadRecord]:
        """Entries in these states, oldest change first within each."""
        for state in states:
            for id_ in list(self._by_state[state]):
                yield self.entries[id_]

    def count_in(self, state: WorkloadState) -> int:
        """The number of workloads in a state."""
        return len(self._by_state[state])

    def watch(self) -> set[WorkloadId]:
        """A set to which every workload is added that changes from now on; its reader clears it.

        All that are known now are in it.
        """
        watch = set(self.entries)
        self._watches.append(watch)
        return watch

    def unwatch(self, watch: set[WorkloadId]) -> None:
        """Add no more to a set that ``watch`` gave."""
        self._watches = [each for each in self._watches if each is not watch]

    def _tell(self, id_: WorkloadId) -> None:
        for watch in self._watches:
            watch.add(id_)

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
        if isinstance(event, Claimed | ClaimEnded | Planned):
            self._look_ahead(event)
        elif isinstance(event, Amended):
            self._amend(event)
        elif isinstance(event, DrainRecord):
            self._drained(event)
        else:
            self._forget(event)
        return ()

    def _submit(self, event: Submitted) -> None:
        for workload in event.workloads():
            self.entries[workload.id] = entry = record_of(workload, event)
            if entry.state is WorkloadState.PENDING:
                self.backlog.add(workload, entry.ranks_since_s)
            else:
                self.unsettled[workload.id] = None
            self._by_state[entry.state][workload.id] = None
            self.counts.came(workload, entry.state)
            self.next_id = max(self.next_id, WorkloadId(workload.id + 1))
            if workload.array is not None:
                tasks = self.array_tasks.setdefault(workload.array.array_id, {})
                tasks[workload.array.index] = workload.id
            self.dependents.came(entry)
            if entry.state is WorkloadState.INELIGIBLE:
                self.dependents.watch(entry)
        id_ = event.array_id or event.first_id
        self.id_of_key[event.key] = id_
        self._key_of_id[id_] = event.key

    def _award(self, event: Awarded) -> tuple[Effect, ...]:
        entry = self.entries[event.attempt.workload]
        effects = self._move(entry, WorkloadEvent.AWARDED, event.at_s)
        self._tell(entry.workload.id)
        entry.attempt = event.attempt.attempt
        entry.site, entry.plan, entry.award = SiteName(event.site), event.jobs, event
        self._charge(entry, event.jobs, event.within_quota, event.at_s)
        self._promise(event)
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
            self._tell(id_)
            self.unsettled[id_] = None

    def _drained(self, event: DrainRecord) -> None:
        self.drains.apply(event)
        if isinstance(event, SiteWrittenOff):
            lose_checkpoints(self.entries.values(), event.unreadable)
        elif isinstance(event, SiteDrained):
            self.drains.withdraw(self.in_state(WorkloadState.AWARDED))

    def _forget(self, event: Forgotten) -> None:
        """Know no more of workloads that nobody refers to; see ``sched.state.expiry``."""
        gone = set(event.ids)
        for id_ in event.ids:
            self._tell(id_)
            entry = self.entries.pop(id_)
            del self._by_state[entry.state][id_]
            if entry.workload.array is not None:
                gone.add(entry.workload.array.array_id)
                self.array_tasks.pop(entry.workload.array.array_id, None)
        self._key_of_id = {}
        self.id_of_key = {key: id_ for key, id_ in self.id_of_key.items() if id_ not in gone}

    def _change(self, event: Changed) -> tuple[Effect, ...]:
        entry = self.entries[event.workload]
        was_at_its_limit = entry.at_its_limit
        before = entry.state
        if event.winner is not None and event.happening is WorkloadEvent.EVICTED:
            entry.promised_to = event.winner
        step(entry.state, event.happening)  # nothing is changed by what cannot follow
        if entry.state is WorkloadState.PREEMPTING:
            self._account(entry, event)
        effects = self._move(entry, event.happening, event.at_s)
        self._tell(entry.workload.id)
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
        if event.happening is WorkloadEvent.SHRUNK:
            self._shrink(entry, event)
        elif event.happening is WorkloadEvent.SHRINK_DONE:
            self._jobs_gone(entry, event.components, event.at_s)
        mark_progress(entry, event, was_at_its_limit)
        if entry.state is WorkloadState.PENDING and before in AT_SITE:
            if event.happening not in (WorkloadEvent.PREEMPTED, WorkloadEvent.LIMIT_STRUCK):
                set_back(entry, event.at_s)
            entry.site, entry.plan, entry.site_job_id = SiteName(""), (), 0
            entry.work_dir = None
            entry.started_at_s = entry.ended_at_s = 0.0
            entry.withdrawing, entry.taken_jobs = False, frozenset()
        return effects

    def _mark(self, entry: WorkloadRecord, event: Changed) -> None:
        """Take down what later decisions ask for."""
        left_unasked(entry, event)
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
            entry.evicted_at_s, entry.evicted_for = event.at_s, entry.promised_to
            entry.preemptions += 1
            self.evictions.add(event, entry.held_gpus)
        elif event.happening is WorkloadEvent.REQUEUE_ASKED:
            entry.evicted_at_s, entry.evicted_for = event.at_s, None  # no eviction, but a grace
        elif event.happening is WorkloadEvent.STARTED:
            entry.ran_at = entry.site
            forgive(entry, event.at_s)
            self.durations.started(entry, event.at_s)
        elif event.happening is WorkloadEvent.HELD and event.reason is not None:
            entry.held_for = event.reason.detail

    def _left_nodes(self, entry: WorkloadRecord, event: Changed) -> None:
        """An attempt that ran is over, or waits in its site's queue: what of its nodes?"""
        self.durations.left(entry, event)
        failed = event.happening is WorkloadEvent.NODE_FAILED or bool(event.failed_nodes)
        if entry.started_at_s:
            run_s = (event.ended_at_s or event.at_s) - entry.started_at_s
            self.failures.ran(entry.site, len(entry.node_names), run_s, failed=failed)
            if entry.bad_nodes:
                entry.bad_nodes = entry.bad_nodes.after_run(
                    entry.site, entry.node_names, event.at_s
                )
        entry.started_at_s = 0.0 if entry.state is WorkloadState.LAUNCHING else entry.started_at_s

    def _account(self, victim: WorkloadRecord, event: Changed) -> None:
        """Note what its leaving tells of save times, and what it cost for whom."""
        leave = event.leave
        # No site's numbers are believed beyond what the federation has seen itself.
        whole_s = event.at_s - (victim.award.at_s if victim.award is not None else event.at_s)
        started_s = event.started_at_s or victim.started_at_s
        if leave is not None:
            if leave.saved or not victim.at_its_limit:
                self.saves.learn(family_of(victim.workload), leave, started_s, whole_s)
            if leave.saved_at_s:
                victim.saved_at = victim.site
        evicted = event.happening is WorkloadEvent.PREEMPTED and not victim.at_its_limit
        if evicted and victim.evicted_for is not None:
            lost = destroyed_gpu_s(victim.held_gpus, started_s, event.ended_at_s, leave)
            lost = min(lost, victim.held_gpus * whole_s)
            winner = self.entries[victim.evicted_for]
            victim.lost_gpu_s += lost
            winner.evictions += 1
            winner.destroyed_gpu_s += lost
            self.tax.add(winner.workload.tenant, victim.workload.tenant, lost)

    def _promise(self, award: Awarded) -> None:
        """Nobody else may have these victims."""
        for id_ in award.victims:
            self.entries[id_].promised_to = award.attempt.workload
        for other, component in award.shrinks:
            entry = self.entries[WorkloadId(other)]
            entry.promised_jobs = {**entry.promised_jobs, component: award.attempt.workload}

    def _made_room(self, victim: WorkloadRecord, at_s: float) -> None:
        """It has left its site: whom it was promised to should start soon."""
        if victim.promised_to is not None:
            self._lease_anew(victim.promised_to, at_s)
        for winner_id in victim.promised_jobs.values():
            self._lease_anew(winner_id, at_s)
        victim.promised_to, victim.promised_jobs = None, NOTHING
        self._jobs_gone(victim, tuple(victim.leaving_jobs), at_s)

    def _lease_anew(self, winner_id: WorkloadId, at_s: float) -> None:
        winner = self.entries[winner_id]
        if winner.state is WorkloadState.LAUNCHING:
            winner.lease_from_s = at_s

    def _shrink(self, entry: WorkloadRecord, event: Changed) -> None:
        """It loses optional jobs: they hold nothing any more, as far as quota is concerned."""
        for k in event.components:
            gpus = gpus_of(entry.plan, (k,))
            winner_id = event.winner or entry.promised_jobs[k]
            if k in entry.promised_jobs:
                entry.promised_jobs = without_key(entry.promised_jobs, k)
            entry.leaving_jobs = {**entry.leaving_jobs, k: winner_id}
            lost = destroyed_gpu_s(gpus, entry.started_at_s, event.at_s, None)
            entry.lost_gpu_s += lost
            self.evictions.add(event, gpus)
            winner = self.entries[winner_id]
            winner.destroyed_gpu_s += lost
            self.tax.add(winner.workload.tenant, entry.workload.tenant, lost)
        self.shrinking[entry.workload.id] = None
        entry.taken_jobs |= frozenset(event.components)
        entry.plan = without(entry.plan, event.components)
        if entry.award is not None:
            self._release(entry, event.at_s)
            self._charge(entry, entry.plan, entry.award.within_quota, event.at_s)

    def _jobs_gone(self, entry: WorkloadRecord, components: tuple[int, ...], at_s: float) -> None:
        """Optional jobs that were taken have left: whom they made room for should start soon."""
        for k in components:
            if k in entry.leaving_jobs:
                self._lease_anew(entry.leaving_jobs[k], at_s)
                entry.leaving_jobs = without_key(entry.leaving_jobs, k)
        if not entry.leaving_jobs:
            self.shrinking.pop(entry.workload.id, None)

    def _spare(self, award: Awarded) -> None:
        """The award came to nothing, or has its nodes: whom it had not evicted yet runs on."""
        for entry in (self.entries[id_] for id_ in award.victims):
            if entry.promised_to == award.attempt.workload:
                entry.promised_to = None
        for id_, component in award.shrinks:
            entry = self.entries[WorkloadId(id_)]
            if entry.promised_jobs.get(component) == award.attempt.workload:
                entry.promised_jobs = without_key(entry.promised_jobs, component)

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
        del self._by_state[entry.state][entry.workload.id]
        self._by_state[edge.to][entry.workload.id] = None
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
            self._made_room(entry, at_s)
        if entry.displaces and edge.to not in _WAITS_FOR_VICTIMS and entry.award is not None:
            self._spare(entry.award)
        if edge.to in TERMINAL:
            entry.over_at_s = at_s
            self.durations.over(entry.workload.id)
        before, entry.state = entry.state, edge.to
        self.counts.left(entry.workload, before)
        self.counts.came(entry.workload, entry.state)
        self.dependents.moved(entry, before)
        return edge.effects

    # ---- snapshots ----

    def order_of(self, state: WorkloadState) -> tuple[WorkloadId, ...]:
        """The workloads in a state, oldest change first."""
        return tuple(self._by_state[state])

    def restore_entry(self, entry: WorkloadRecord) -> None:
        """Know a workload as a snapshot has it; ``restore_order`` says since when.

        What it holds is counted as the tenants are configured now.
        """
        workload = entry.workload
        self.entries[workload.id] = entry
        if workload.array is not None:
            tasks = self.array_tasks.setdefault(workload.array.array_id, {})
            tasks[workload.array.index] = workload.id
        self.counts.came(workload, entry.state)
        self.count(entry)

    def count(self, entry: WorkloadRecord) -> None:
        """Add a workload to the queue, or to what is held; it is in neither."""
        self._tell(entry.workload.id)
        if entry.state is WorkloadState.PENDING:
            self.backlog.add(entry.workload, entry.ranks_since_s)
        elif entry.state in AT_SITE and entry.award is not None:
            row = self.tenancy.row(entry.workload.tenant)
            entry.charge = self.holdings.charge_for(row, entry.plan, lent=entry.is_lent)
            self.holdings.restore(entry.charge, entry.award.within_quota)
            self.backlog.touch(row)

    def restore_order(self, state: WorkloadState, ids: Iterable[WorkloadId]) -> None:
        """These follow those that are known to be in the state."""
        self._by_state[state].update(dict.fromkeys(ids))
