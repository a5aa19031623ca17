"""Resizes elastic jobs that run: larger while GPUs are idle, back when somebody waits for them.

A job is resized as it is requeued: it saves within the grace, leaves, and its next attempt starts
at the size that ``elastic_sizes`` allows then. It takes nothing of the eviction budget.

* *Larger*: nobody waits, nothing starts or leaves at its site, whole nodes of its kind are idle
  there, its cooldown is over, and it pays (``scaling``). One that did not come back larger is not
  tried again from that size.
* *Back to what it asked for*: it has more nodes than that, and with its surplus a waiting workload
  that its site has refused for want of room could start: it fits there, and its tenant's limits
  allow it. At most once in a cooldown. Nobody else is evicted for want of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from math import inf
from typing import Final

from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import Wake
from federator.model.node_names import jobs_at
from federator.model.plan import Bid
from federator.model.reason import Reason, ReasonCode, Refusal
from federator.model.site import Capacity
from federator.model.sizes import asked_nodes, tried_sizes
from federator.model.workload import SiteName, WorkloadId
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.workload_plan import place_all
from federator.sched.passes.continuation import is_near_its_limit, limit_at_s
from federator.sched.passes.elastic_sizes import is_covered, nodes_of
from federator.sched.passes.save_slots import saves_left
from federator.sched.passes.scaling import pays
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.transaction import Transaction
from federator.sched.state.backlog import Lane
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules
from federator.sched.state.save_times import family_of

LOOKS_EVERY_S: Final = 10.0
MOST_SHAPES: Final = 32  # of those: what they ask for is planned on the surplus
MOST_WAITING: Final = 1_000  # workloads that are looked at for one that a surplus would let start
RESIZED: Final = ReasonCode.RESIZED
_UNDER_WAY: Final = (
    WorkloadState.AWARDED,
    WorkloadState.LAUNCHING,
    WorkloadState.PREEMPTING,
    WorkloadState.CANCELLING,
)


class Growth:
    """Resizes elastic jobs. What it remembers is volatile, and spares vain tries only.

    Args:
        sites: as they last were.
        rules: see ``Rules``.
        ledger: the queue.
        refusals_of: why a workload waits, by site.
    """

    def __init__(
        self,
        sites: Mapping[SiteName, SiteView],
        rules: Rules,
        ledger: Ledger,
        refusals_of: Callable[[WorkloadRecord], Mapping[SiteName, Refusal]],
    ) -> None:
        self._sites = sites
        self.rules = rules
        self._ledger = ledger
        self._refusals_of = refusals_of
        self._next_look_s = 0.0
        self._grown_from: dict[WorkloadId, int] = {}  # at its last try, so many nodes
        self._gave_back_at_s: dict[WorkloadId, float] = {}  # last

    def settle(self, turn: Transaction) -> None:
        """Tell whoever is to be resized now, and see to the next look."""
        if not self._ledger.elastic:
            self._grown_from.clear()
            self._gave_back_at_s.clear()
        if not self._ledger.elastic or turn.now_s < self._next_look_s:
            return
        entries, tenancy = self._ledger.entries, self._ledger.tenancy
        running = [
            entry
            for id_ in self._ledger.elastic
            if (entry := entries[id_]).state is WorkloadState.RUNNING
            and entry.workload.preemptible
            and entry.promised_to is None
            and self._sites[entry.site].ready
            and tenancy.mode(tenancy.row(entry.workload.tenant)).acts  # else it would not come back
        ]
        self._next_look_s = turn.now_s + LOOKS_EVERY_S
        self._forget(running)
        if not running:
            return
        turn.commands.append(Wake(at_s=self._next_look_s))
        under_way = [*self._ledger.in_state(*_UNDER_WAY)]
        busy = {entry.site for entry in under_way}
        # One elastic job at a time gives back at a site: two would for the same one that waits.
        giving = {entry.site for entry in under_way if entry.workload.elastic is not None}
        for entry in running:
            may_grow = entry.site not in busy
            if entry.site not in giving and self._is_resized(turn, entry, may_grow=may_grow):
                busy.add(entry.site)
                giving.add(entry.site)

    def _forget(self, running: Iterable[WorkloadRecord]) -> None:
        """Drop what concerns jobs that did come back larger, or are gone."""
        nodes = {entry.workload.id: nodes_of(entry.plan) for entry in running}
        self._grown_from = {
            id_: before
            for id_, before in self._grown_from.items()
            if id_ in self._ledger.elastic and nodes.get(id_, 0) <= before
        }
        self._gave_back_at_s = {
            id_: at_s for id_, at_s in self._gave_back_at_s.items() if id_ in self._ledger.elastic
        }

    def _is_resized(self, turn: Transaction, entry: WorkloadRecord, *, may_grow: bool) -> bool:
        if saves_left(self._ledger, self.rules, entry.site) < 1:
            return False
        if is_near_its_limit(entry, self.rules, turn.now_s):
            return False
        nodes = nodes_of(entry.plan)
        target, id_ = 0, entry.workload.id
        if self._is_wanted(entry, nodes, turn.now_s):
            target = asked_nodes(entry.workload)
            self._gave_back_at_s[id_] = turn.now_s
        elif may_grow and not self._ledger.backlog.startable:
            target = self._larger(entry, nodes, turn.now_s)
            if target:
                self._grown_from[id_] = nodes
        if not target:
            return False
        reason = Reason(code=RESIZED, needed=target, free=nodes, unit="nodes")
        return turn.change(entry, WorkloadEvent.REQUEUE_ASKED, reason=reason)

    # ---- back ----

    def _is_wanted(self, entry: WorkloadRecord, nodes: int, now_s: float) -> bool:
        """Tell whether somebody who waits could start with what it has beyond what it asked for."""
        surplus = nodes - asked_nodes(entry.workload)
        capacity = self._sites[entry.site].capacity
        if surplus <= 0 or capacity is None or not self._ledger.backlog.startable:
            return False
        if now_s < self._gave_back_at_s.get(entry.workload.id, -inf) + self.rules.cooldown_s:
            return False
        room: FreeCapacity | None = None
        shapes: set[int] = set()
        for waiting in islice(self._ledger.in_state(WorkloadState.PENDING), MOST_WAITING):
            lane = self._allowed_lane(waiting, entry.site)
            if lane is None or lane.shape.number in shapes:
                continue
            if len(shapes) == MOST_SHAPES:
                return False
            shapes.add(lane.shape.number)
            room = room or self._room_with_surplus(entry, surplus, capacity)
            jobs = jobs_at(waiting.workload.jobs, entry.site)
            if isinstance(place_all(jobs, room, self._sites[entry.site].partitions), Bid):
                return True
        return False

    def _allowed_lane(self, waiting: WorkloadRecord, site: SiteName) -> Lane | None:
        """The lane of one that waits for room at a site, and for nothing else; else None."""
        ledger = self._ledger
        if waiting.workload.id in ledger.claims or not self._waits_for_room(waiting, site):
            return None
        return ledger.backlog.lane_of(waiting.workload)

    def _waits_for_room(self, waiting: WorkloadRecord, site: SiteName) -> bool:
        refusals = self._refusals_of(waiting)
        refusal = None if SiteName("") in refusals else refusals.get(site)
        reasons = refusal.reasons if refusal is not None else ()
        return any(reason.code is ReasonCode.RESOURCES for reason in reasons)

    def _room_with_surplus(
        self, entry: WorkloadRecord, surplus: int, capacity: Capacity
    ) -> FreeCapacity:
        """As much as its surplus, and as many idle nodes of its kind as its site has.

        Which nodes it will leave is not known, nor which are idle: some of its partition and types.
        """
        (plan,) = entry.plan
        slow = self._ledger.drains.limping.get(entry.site, {})
        alike = [
            node
            for node in capacity.nodes
            if node.name not in slow
            and plan.partition in node.partitions
            and (not plan.gpu_types or node.gpu_type in plan.gpu_types)
        ]
        left = [node for node in alike if node.name in plan.nodes][-surplus:]
        idle = [node for node in alike if node.name not in plan.nodes][: self._idle_nodes(entry)]
        return FreeCapacity((*left, *idle), licenses=capacity.licenses)

    # ---- larger ----

    def _larger(self, entry: WorkloadRecord, nodes: int, now_s: float) -> int:
        """The nodes that it could have instead; 0: it stays as it is."""
        id_, ledger = entry.workload.id, self._ledger
        if ledger.claims or ledger.drains or now_s < entry.started_at_s + self.rules.cooldown_s:
            return 0
        if self._grown_from.get(id_) == nodes:
            return 0
        idle = self._idle_nodes(entry)
        within = entry.award is not None and entry.award.within_quota
        most = entry.most_nodes or inf
        for size in tried_sizes(entry.workload):
            if size > most:
                continue
            more = size - nodes
            if 0 < more <= idle and is_covered(
                entry.workload, more, ledger.holdings, within=within
            ):
                left_s, lost_s = self._left_s(entry, now_s), self._lost_s(entry, now_s)
                gain = ledger.scaling.gain(family_of(entry.workload))
                return size if pays(nodes, size, left_s, lost_s, gain) else 0
        return 0

    def _idle_nodes(self, entry: WorkloadRecord) -> int:
        """Whole idle nodes of its partition with GPUs of its types, as its site last told.

        Which they are is not told: all slow nodes but its own are taken to be among them.
        """
        (plan,) = entry.plan
        types = set(plan.gpu_types)
        slow = self._ledger.drains.limping.get(entry.site, {}).keys() - plan.nodes.keys()
        idle = sum(
            row.nodes_idle
            for row in self._sites[entry.site].summary
            if row.partition == plan.partition and (not types or row.gpu_type in types)
        )
        return max(0, idle - len(slow))

    def _left_s(self, entry: WorkloadRecord, now_s: float) -> float:
        """For so long it is expected to run on: as its like did, or until its limit."""
        found = self._ledger.durations.remaining(entry, now_s)
        return found.expected_s if found is not None else max(0.0, limit_at_s(entry) - now_s)

    def _lost_s(self, entry: WorkloadRecord, now_s: float) -> float:
        """Its unsaved work: none of a family that is known to save in time, else all since then."""
        known_s = self._ledger.saves.p95_s(family_of(entry.workload))
        saves = known_s is not None and known_s < inf and known_s <= self.rules.grace_s
        return 0.0 if saves else now_s - entry.started_at_s
