"""Collects what one observation leads to: state changes of workloads, and commands.

A ``Transaction`` lasts for one call of ``Federation.handle_all``. Every step is recorded through
it, so that its effects are carried out in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from federator.model.event import Changed, LogRecord
from federator.model.lifecycle import Effect, InvalidTransition, WorkloadEvent, WorkloadState
from federator.model.message import Command, Note, Record, Wake
from federator.model.reason import Reason, ReasonCode
from federator.model.workload import WorkloadId
from federator.sched.passes.continuation import LimitWatch
from federator.sched.passes.eviction import exceeds_budget, prices_of, spared_jobs_yet, spared_yet
from federator.sched.passes.orders import launch_order, lease_end_s, order_to_leave
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules

ORDER_AGAIN_S = 10.0


_EVICTIONS = frozenset({WorkloadEvent.EVICTED, WorkloadEvent.SHRUNK})


@dataclass(slots=True)
class Transaction:
    """The commands of one call of ``handle_all``, as they come.

    Attributes:
        now_s: Unix time.
        ledger: changed by what is recorded.
        rules: see ``Rules``.
        fleet_gpus: of all sites together.
        leave_sent_s: when each workload that must leave was last told so; outlives the turn.
        left_alone: workloads that stand still, as the daemon's log has it; outlives the turn.
        limits: whom to tell that its time limit is near; outlives the turn.
        pass_is_due: called where queue or room has changed.
        accepted: what sbatch at a site has taken; its victims may leave now.
    """

    now_s: float
    ledger: Ledger
    rules: Rules
    fleet_gpus: int
    leave_sent_s: dict[WorkloadId, float]
    left_alone: set[WorkloadId]
    limits: LimitWatch
    pass_is_due: Callable[[Transaction], None]
    commands: list[Command] = field(default_factory=list)
    accepted: list[WorkloadRecord] = field(default_factory=list)  # whose victims may leave now

    def change(self, entry: WorkloadRecord, trigger: WorkloadEvent, **fields: object) -> bool:
        """Record a step of a workload's life; False (and a note) when the table has none."""
        event = Changed(
            at_s=self.now_s,
            workload=entry.workload.id,
            happening=trigger,
            attempt=entry.attempt,
            counts_gpus=self._counts_gpus(entry, trigger, fields.get("components")),
            **fields,  # type: ignore[arg-type]  # keywords of Changed
        )
        waiting = self._waiting_for(entry)
        try:
            self.record(event, entry)
        except InvalidTransition as error:
            note = {"workload": entry.workload.id, "detail": str(error)}
            self.commands.append(Note(event="late_news_dropped", fields=note))
            return False
        if entry.state is not WorkloadState.RUNNING:
            self.left_alone.discard(entry.workload.id)
        if entry.state is WorkloadState.LAUNCHING:
            self.wake_at_lease_end(entry)
        elif trigger is WorkloadEvent.STARTED:
            self.watch_limit(entry)
        for winner in waiting:
            if winner.state is WorkloadState.LAUNCHING and winner.lease_from_s == self.now_s:
                self.wake_at_lease_end(winner)  # its lease has begun anew
        return True

    def _counts_gpus(self, entry: WorkloadRecord, trigger: WorkloadEvent, jobs: object) -> int:
        """The GPUs that the budget counts for an eviction, where lost work may make them more."""
        if trigger not in _EVICTIONS or not self.rules.preempt_lost_gpu_s:
            return 0
        prices = prices_of(self.ledger, self.rules, self.fleet_gpus, self.now_s)
        return prices.counted_gpus(entry, jobs if isinstance(jobs, tuple) and jobs else None)

    def _waiting_for(self, entry: WorkloadRecord) -> list[WorkloadRecord]:
        """The winners that somebody makes room for."""
        ids = {*entry.promised_jobs.values(), *entry.leaving_jobs.values()}
        if entry.promised_to is not None:
            ids.add(entry.promised_to)
        return [self.ledger.entries[id_] for id_ in sorted(ids)]

    def record(self, event: LogRecord, entry: WorkloadRecord | None = None) -> None:
        """Apply an event, have it stored, and carry out what its edge asks for."""
        effects = self.ledger.apply(event)
        self.commands.append(Record(event=event))
        for effect in effects:
            if effect is Effect.RANK_AGAIN:
                self.pass_is_due(self)
            elif entry is not None and effect is Effect.LAUNCH:
                self.commands.append(launch_order(entry, self.ledger))
            elif entry is not None and effect is Effect.EVICT:
                self.accepted.append(entry)
            elif entry is not None:
                self.order_to_leave(entry)

    def adopt(self, event: LogRecord) -> None:
        """Apply and store what has happened already: nothing is to be carried out for it."""
        self.ledger.apply(event)
        self.commands.append(Record(event=event))

    def wake_at_lease_end(self, entry: WorkloadRecord) -> None:
        self.commands.append(Wake(at_s=lease_end_s(entry, self.rules)))

    def watch_limit(self, entry: WorkloadRecord) -> None:
        """A workload has started; if it is to go on at its time limit, it must be told before."""
        at_s = self.limits.watch(entry, self.rules)
        if at_s < inf:
            self.commands.append(Wake(at_s=at_s))

    def evict_for_accepted(self) -> None:
        """Once all that was seen of the winners is known, their victims may leave."""
        for winner in self.accepted:
            self.evict(winner)

    def evict(self, winner: WorkloadRecord) -> None:
        """The winner's job waits at the site: now whoever is in its way must leave.

        If it waited so long that its promises left the budget's window, and others have had the
        budget since, it is withdrawn instead.
        """
        if winner.state is WorkloadState.LAUNCHING and not winner.withdrawing:
            if exceeds_budget(winner, self.ledger, self.rules, self.fleet_gpus, self.now_s):
                self.change(winner, WorkloadEvent.LEASE_OVER)
                return
            moved = winner.award is not None and bool(winner.award.moves)
            code = ReasonCode.MOVED if moved else ReasonCode.PREEMPTED
            reason = Reason(code=code, detail=str(winner.workload.id))
            for victim in spared_yet(winner, self.ledger):
                self.change(victim, WorkloadEvent.EVICTED, reason=reason)
            reason = Reason(code=ReasonCode.SHRUNK, detail=str(winner.workload.id))
            for entry, components in spared_jobs_yet(winner, self.ledger):
                self.change(entry, WorkloadEvent.SHRUNK, components=components, reason=reason)

    def order_to_leave(self, entry: WorkloadRecord) -> None:
        self.leave_sent_s[entry.workload.id] = self.now_s
        self.commands.append(order_to_leave(entry, self.rules, self.now_s))
        self.commands.append(Wake(at_s=self.now_s + ORDER_AGAIN_S))

    def is_drained(self, entry: WorkloadRecord) -> bool:
        """Tell whether the site of a workload, or a node of its plan, is drained or cordoned."""
        return self.ledger.drains.of(entry.site, entry.node_names) is not None

    def to_leave(self) -> list[WorkloadRecord]:
        """Those whose cancel, withdrawal, eviction or shrinking their site has not confirmed.

        One that started as it was withdrawn is not among them: it runs on. One that was awarded to
        a site which was drained since is, even if the drain is over: the site may have been told.
        """
        starting = self.ledger.in_state(WorkloadState.AWARDED, WorkloadState.LAUNCHING)
        leaving = self.ledger.in_state(WorkloadState.PREEMPTING, WorkloadState.CANCELLING)
        shrinking = (self.ledger.entries[id_] for id_ in self.ledger.promised.shrinking)
        return [
            *(e for e in starting if e.withdrawing),
            *leaving,
            *(e for e in shrinking if e.state is WorkloadState.RUNNING),
        ]
