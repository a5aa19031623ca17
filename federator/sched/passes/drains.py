"""Drains sites: nothing starts there, and running workloads save and go on elsewhere in time.

A cordon and a drain differ in what becomes of running workloads. A drain with ``migrate`` evicts
them as fast as the eviction budget allows. One with a deadline evicts those that are left so that
all have left by then: at the pace of the budget as long as that is enough, else faster. Those whose
time limit lies farthest ahead leave first; the others may end by themselves meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, inf
from typing import Final

from federator.model.drain import DrainRefusal, DrainRefusalCode
from federator.model.event import SiteDrained, SiteResumed
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import (
    AnswerDrained,
    AnswerDrainRefused,
    DrainAsked,
    ResumeAsked,
    Wake,
)
from federator.model.reason import Reason, ReasonCode
from federator.model.workload import SiteName
from federator.sched.passes.checkpoint_moves import CheckpointMoves
from federator.sched.passes.continuation import limit_at_s
from federator.sched.passes.data_places import has_data
from federator.sched.passes.eviction import budget_gpus, prices_of, spared_until_s
from federator.sched.passes.rounds import Rounds
from federator.sched.passes.save_slots import saves_left
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.transaction import Transaction
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import LEAST_GPUS, Rules

LOOKS_EVERY_S: Final = 10.0  # at running workloads of a drain that moves them
LEAVES_EARLY_S: Final = 30.0
"""Before the deadline of a drain all graces are over: notice may be a look late, and a site takes a
few seconds to see and to say that a job is gone."""


class Drains:
    """Carries drains out.

    Args:
        sites: as they last were.
        rules: see ``Rules``.
        ledger: keeps the drains.
        rounds: of the open pass, which a drained site leaves.
        checkpoints: knows which can be had in other regions, too.
    """

    def __init__(
        self,
        sites: Mapping[SiteName, SiteView],
        rules: Rules,
        ledger: Ledger,
        rounds: Rounds,
        checkpoints: CheckpointMoves,
    ) -> None:
        self._sites = sites
        self.rules = rules
        self._ledger = ledger
        self._rounds = rounds
        self._checkpoints = checkpoints
        self._next_look_s = 0.0

    # ---- what operators ask for ----

    def drain(self, turn: Transaction, asked: DrainAsked) -> None:
        """Begin a drain or a cordon, or refuse to; a cordon may become a drain."""
        refusal = self._against(asked, turn.now_s)
        if refusal is not None:
            turn.commands.append(
                AnswerDrainRefused(client=asked.client, site=asked.site, refusal=refusal)
            )
            return
        turn.record(
            SiteDrained(
                at_s=turn.now_s,
                site=asked.site,
                nodes=asked.nodes,
                reason=asked.reason,
                by=asked.by,
                cordon=asked.cordon,
                migrate=asked.migrate,
                deadline_s=asked.deadline_s,
            )
        )
        self._rounds.site_drained(turn, asked.site)
        self._next_look_s = 0.0
        here = self._concerned(WorkloadState.AWARDED, WorkloadState.LAUNCHING)
        waiting = [e for e in here if _is_of(e, asked)]
        running = [e for e in self._concerned(WorkloadState.RUNNING) if _is_of(e, asked)]
        turn.commands.append(
            AnswerDrained(
                client=asked.client,
                site=asked.site,
                running=len(running),
                withdrawn=len(waiting),
                not_requeued=sum(not entry.workload.requeue for entry in running),
            )
        )

    def _against(self, asked: DrainAsked, now_s: float) -> DrainRefusal | None:
        """The reason to refuse a drain; None: there is none."""
        unknown = self._unknown(asked.site, asked.nodes) or self._gone(asked.site)
        if unknown is not None:
            return unknown
        if asked.deadline_s and not asked.revoked:
            earliest_s = now_s + self.rules.grace_s + LEAVES_EARLY_S
            if asked.deadline_s < earliest_s:
                return DrainRefusal(code=DrainRefusalCode.TOO_SOON, earliest_s=earliest_s)
        drains = self._ledger.drains
        names: Sequence[str] = asked.nodes or ("",)
        known = [drains.of(asked.site, (name,)) for name in names]
        found = next((drain for drain in known if drain is not None), None)
        if found is None or (found.cordon and not asked.cordon and found.nodes == asked.nodes):
            return None
        if asked.revoked and bool(found.nodes) == bool(asked.nodes):
            return None  # of the same nodes the later word holds: a notice comes again and again
        return DrainRefusal(
            code=DrainRefusalCode.DRAINED,
            nodes=found.nodes,
            since_s=found.at_s,
            by=found.by,
            reason=found.reason,
            cordon=found.cordon,
        )

    def _gone(self, site: SiteName) -> DrainRefusal | None:
        gone = self._ledger.drains.written_off.get(site)
        if gone is None:
            return None
        code = DrainRefusalCode.WRITTEN_OFF
        return DrainRefusal(code=code, since_s=gone.at_s, by=gone.by, reason=gone.reason)

    def _unknown(self, site: SiteName, nodes: Iterable[str]) -> DrainRefusal | None:
        view = self._sites.get(site)
        if view is None:
            return DrainRefusal(code=DrainRefusalCode.UNKNOWN_SITE)
        unknown = tuple(name for name in nodes if not view.has_node(name))
        return DrainRefusal(code=DrainRefusalCode.UNKNOWN_NODES, nodes=unknown) if unknown else None

    def resume(self, turn: Transaction, asked: ResumeAsked) -> None:
        """End a drain, a cordon or a quarantine, or refuse to."""
        drains = self._ledger.drains
        refusal = self._unknown(asked.site, ()) or self._gone(asked.site)
        drained = {**drains.nodes.get(asked.site, {}), **drains.limping.get(asked.site, {})}
        others = tuple(name for name in asked.nodes if name not in drained)
        if refusal is None and (others or (not asked.nodes and asked.site not in drains.by_site)):
            refusal = DrainRefusal(code=DrainRefusalCode.NOT_DRAINED, nodes=others)
        if refusal is not None:
            turn.commands.append(
                AnswerDrainRefused(client=asked.client, site=asked.site, refusal=refusal)
            )
            return
        turn.record(
            SiteResumed(
                at_s=turn.now_s,
                site=asked.site,
                nodes=asked.nodes,
                by=asked.by,
                drill=asked.drill,
            )
        )
        self._rounds.memory.known.forget(asked.site)
        self._rounds.is_due(turn)
        turn.commands.append(AnswerDrained(client=asked.client, site=asked.site))

    # ---- what is there ----

    def settle(self, turn: Transaction) -> None:
        """Withdraw what is about to start at a drained site, and move what runs there."""
        if not self._ledger.drains:
            return
        for entry in self._concerned(WorkloadState.AWARDED):
            if entry.workload.id not in turn.leave_sent_s:
                turn.order_to_leave(entry)
        for entry in self._concerned(WorkloadState.LAUNCHING):
            if not entry.withdrawing or entry.reason is None:  # None: it was only awarded then
                reason = _why_left(self._drain_of(entry))
                turn.change(entry, WorkloadEvent.LEASE_OVER, reason=reason)
        if turn.now_s >= self._next_look_s:
            self._move(turn)

    def _move(self, turn: Transaction) -> None:
        """Evict who must leave a drained site now, and see to the next look."""
        by_drain: dict[SiteDrained, list[WorkloadRecord]] = {}
        ledger = self._ledger
        moving = [d for d in ledger.drains.saved() if d.migrate or d.deadline_s]
        self._next_look_s = turn.now_s + LOOKS_EVERY_S if moving else inf
        if not moving:
            return
        turn.commands.append(Wake(at_s=self._next_look_s))
        for entry in self._concerned(WorkloadState.RUNNING):
            drain = self._drain_of(entry)
            if (drain.migrate or drain.deadline_s) and self._sites[entry.site].ready:
                by_drain.setdefault(drain, []).append(entry)
        for drain, entries in by_drain.items():
            self._move_all(turn, drain, entries)

    def _move_all(
        self, turn: Transaction, drain: SiteDrained, entries: list[WorkloadRecord]
    ) -> None:
        """Evict as many of one drain's workloads as its deadline and the budget say."""
        rules = self.rules
        prices = prices_of(self._ledger, rules, turn.fleet_gpus, turn.now_s)
        window_gpus = prices.whole_gpus
        free_gpus = budget_gpus(self._ledger, rules, turn.fleet_gpus, turn.now_s)
        must_gpus = self._overdue_gpus(drain, entries, window_gpus, turn.now_s)
        for entry in sorted(entries, key=_leaves_last):
            gpus = prices.counted_gpus(entry)
            in_budget = gpus <= free_gpus or free_gpus >= window_gpus  # a large one leaves alone
            overdue = must_gpus == inf or (must_gpus > 0 and entry.workload.requeue)
            moves = drain.migrate and in_budget and self._may_move(entry, turn.now_s)
            moves = moves and saves_left(self._ledger, rules, entry.site) >= 1
            if not (overdue or moves):
                continue
            self._evict(turn, drain, entry)
            must_gpus -= _gpus(entry)
            free_gpus = max(0.0, free_gpus - gpus) if window_gpus else free_gpus

    def _overdue_gpus(
        self,
        drain: SiteDrained,
        entries: Iterable[WorkloadRecord],
        window_gpus: float,
        now_s: float,
    ) -> float:
        """The GPUs whose workloads must be notified now if all are to leave by the deadline.

        The rest can follow at the pace of the budget: one window's worth when the grace is left
        before the deadline, one a window earlier, and so on. Workloads that may not be requeued do
        not count: they keep their nodes until the last.
        """
        if not drain.deadline_s:
            return 0.0
        last_s = drain.deadline_s - self.rules.grace_s - LEAVES_EARLY_S
        total = sum(_gpus(entry) for entry in entries if entry.workload.requeue)
        if now_s >= last_s:
            return inf
        if not window_gpus:
            return 0.0
        later = ceil((last_s - now_s) / self.rules.preempt_window_s)
        return total - later * window_gpus

    def _may_move(self, entry: WorkloadRecord, now_s: float) -> bool:
        """Tell whether a workload may be moved without need, and another site could go on with it.

        One that is not known to be able to start anywhere else runs on.
        """
        if not entry.workload.preemptible or spared_until_s(entry, self.rules) > now_s:
            return False
        drains = self._ledger.drains
        in_reach = any(
            view.ready
            and name not in drains.by_site
            and self.rules.reaches(name, entry.site)
            and has_data(self._ledger, entry.workload, name)
            for name, view in self._sites.items()
        )
        return in_reach or self._checkpoints.may_move(entry, now_s)

    def _evict(self, turn: Transaction, drain: SiteDrained, entry: WorkloadRecord) -> None:
        """Let it save and leave; one that may not start again ends here."""
        reason = _why_left(drain)
        if entry.workload.requeue:
            turn.change(entry, WorkloadEvent.EVICTED, reason=reason)
        else:
            turn.change(entry, WorkloadEvent.CANCEL_ASKED, reason=reason, by=drain.by)

    def _concerned(self, *states: WorkloadState) -> list[WorkloadRecord]:
        """Workloads in these states that are under a drain."""
        of, entries = self._ledger.drains.of, self._ledger.in_state(*states)
        return [entry for entry in entries if of(entry.site, entry.node_names) is not None]

    def _drain_of(self, entry: WorkloadRecord) -> SiteDrained:
        found = self._ledger.drains.of(entry.site, entry.node_names)
        assert found is not None
        return found


def _is_of(entry: WorkloadRecord, asked: DrainAsked) -> bool:
    is_there = not asked.nodes or not set(asked.nodes).isdisjoint(entry.node_names)
    return entry.site == asked.site and is_there


def _gpus(entry: WorkloadRecord) -> int:
    return max(LEAST_GPUS, entry.held_gpus)


def _leaves_last(entry: WorkloadRecord) -> tuple[bool, bool, float, int]:
    """The order of leaving: of those that may be moved, whoever would stay longest is first."""
    workload = entry.workload
    return (
        not workload.requeue,
        not workload.preemptible,
        -limit_at_s(entry),
        workload.id,
    )


def _why_left(drain: SiteDrained) -> Reason:
    return Reason(code=ReasonCode.DRAINED, detail=f"{drain.site}: {drain.reason}")
