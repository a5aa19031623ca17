"""What does one site bid? Nodes in, bids and refusals out; the same for agent and simulator.

Nodes come from the last sweep. What the federation has ordered and Slurm does not show yet is a
*hold*, so the site never offers the same GPUs twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from federator.model.message import SiteAnswer
from federator.model.plan import Bid, BidRequest, JobPlan, Score
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site import Capacity, Node, NodeState, PartitionSummary, RunningJob
from federator.model.workload import AttemptId, Job
from federator.sched.negative_cache import NegativeCache, Rights, as_for
from federator.sched.placement import Placed, Room, place_job
from federator.sched.preemption import Claim, plan_with_victims, undo
from federator.sched.running import Occupants

FEWEST_ORDERS: Final = 4  # in which the jobs of one workload are tried, when one finds no place
_UNKNOWN: Final = Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=ReasonCode.NOT_TRIED),))
SHAPES_KEPT: Final = 4096  # for which it is known whether they could ever fit
PLACEMENTS: Final = 256  # of the jobs of one workload, beyond which no more orders are tried
Reasons = tuple[Reason, ...]


def capacity_of(nodes: Iterable[Node]) -> Capacity:
    """The site as if every node were up and idle, and every partition open."""
    empty = (
        replace(n, state=NodeState.IDLE, cpus_alloc=0, mem_mib_alloc=0, gpus_alloc=0,
                partitions=n.partitions + n.closed_partitions, closed_partitions=())
        for n in nodes
    )  # fmt: skip
    return Capacity(nodes=tuple(empty))


def place_all(jobs: Sequence[Job], room: Room, partitions: Sequence[str]) -> Bid | Reasons:
    """Place all jobs of a workload or none; on success ``room`` has lost what the bid holds."""
    # The largest first: a small component must not take the node that a gang needs. Whoever then
    # finds no place is tried before all others, unless that comes to an order tried before.
    order = sorted(range(len(jobs)), key=lambda k: (-jobs[k].total_gpus, -(jobs[k].nodes or 1), k))
    if len(jobs) > 1 and (short := _short_in_total(jobs, room, partitions)) is not None:
        alone = place_job(jobs[order[0]], room, partitions)
        return (short,) if isinstance(alone, Placed) else alone
    shapes = [replace(job, name="") for job in jobs]
    tried: set[tuple[Job, ...]] = set()
    reasons: Reasons = ()
    for _ in range(orders_to_try(len(jobs))):
        result = _place_in_order(jobs, order, room, partitions)
        if isinstance(result, Bid):
            return result
        unplaced, reasons = result
        tried.add(tuple(shapes[k] for k in order))
        order = [unplaced, *(k for k in order if k != unplaced)]
        if tuple(shapes[k] for k in order) in tried:
            break
    return reasons


def orders_to_try(jobs: int) -> int:
    """As many as there are jobs, so that each may go first; fewer when they are very many."""
    return max(FEWEST_ORDERS, min(jobs, PLACEMENTS // max(1, jobs)))


def _short_in_total(jobs: Sequence[Job], room: Room, partitions: Sequence[str]) -> Reason | None:
    """What all jobs together need at the least and all nodes together have not; None: nothing."""
    nodes = room.nodes_in(tuple(partitions))
    cpus = sum(max(job.cpus, max(1, job.cpus_per_node) * (job.nodes or 1)) for job in jobs)
    for unit, needed, free in (
        ("nodes", sum(job.nodes or 1 for job in jobs if job.exclusive), len(nodes)),
        ("GPUs", sum(job.total_gpus for job in jobs), sum(f.gpus for f in nodes)),
        ("CPUs", cpus, sum(f.cpus for f in nodes)),
    ):
        if needed > free:
            return Reason(code=ReasonCode.TOO_FEW_NODES, needed=needed, free=free, unit=unit)
    return None


def _place_in_order(
    jobs: Sequence[Job], order: Sequence[int], room: Room, partitions: Sequence[str]
) -> Bid | tuple[int, Reasons]:
    """As ``place_all``, in one order; else the first job without a place, and why."""
    found: dict[int, Placed] = {}
    for k in order:
        result = place_job(jobs[k], room, partitions)
        if not isinstance(result, Placed):
            for placed in found.values():
                room.give_back(placed.plan)
            return k, result
        room.take(result.plan)
        found[k] = result
    score = Score(*(sum(terms) for terms in zip(*(p.score for p in found.values()), strict=True)))
    return Bid(score=score, jobs=tuple(found[k].plan for k in range(len(jobs))))


def never_fits(jobs: Sequence[Job], empty: Room, partitions: Sequence[str]) -> Refusal | None:
    """Refuse for good what would not fit even an empty site; None when it would.

    Args:
        jobs: of one workload.
        empty: room on all of the site's ``Capacity``; afterwards it is as it was.
        partitions: those the federation may use.
    """
    result = place_all(jobs, empty, partitions)
    if isinstance(result, Bid):
        for plan in result.jobs:
            empty.give_back(plan)
        return None
    return Refusal(kind=RefusalKind.REJECT, reasons=result)


class SiteScheduler:
    """One site's view of itself, and its bids.

    Args:
        partitions: those the federation may use, in order of preference on equal scores.
    """

    def __init__(self, partitions: Sequence[str]) -> None:
        self.partitions = tuple(partitions)
        self.nodes: tuple[Node, ...] = ()
        self.capacity = Capacity(nodes=())
        self._room = Room(())  # what is free now, less the holds; kept from sweep to sweep
        self._empty = Room(())  # of ``capacity``
        self._never: dict[tuple[Job, ...], Refusal | None] = {}  # against ``_empty``
        self._holds: dict[AttemptId, tuple[JobPlan, ...]] = {}
        self._occupants = Occupants(self._room)

    def update(self, nodes: Iterable[Node], visible: Collection[AttemptId]) -> None:
        """Take a sweep's nodes; ``visible`` attempts are counted in them, so their holds end."""
        before, self.nodes = self.nodes, tuple(nodes)
        for attempt in [a for a in self._holds if a in visible]:
            self.release(attempt)
        changed = changed_nodes(before, self.nodes)
        if changed is None:
            self._rebuild()
        else:
            self._renew(changed)

    def hold(self, attempt: AttemptId, jobs: tuple[JobPlan, ...]) -> None:
        """Keep what a launch order takes until a sweep shows it."""
        self.release(attempt)
        self._holds[attempt] = jobs
        for plan in jobs:
            self._room.take(plan)

    def release(self, attempt: AttemptId) -> None:
        """Forget a hold; harmless when there is none."""
        for plan in self._holds.pop(attempt, ()):
            self._room.give_back(plan)

    def holds(self, jobs: Iterable[JobPlan]) -> Reason | None:
        """Check that a plan still fits; None when it does, else what is in its way."""
        taken: list[JobPlan] = []
        wrong = None
        for plan in jobs:
            wrong = _in_the_way(plan, self._room)
            if wrong is not None:
                break
            self._room.take(plan)
            taken.append(plan)
        for plan in taken:
            self._room.give_back(plan)
        return wrong

    def started(self, job: RunningJob) -> None:
        """A workload of the federation runs here; its nodes' ``*_alloc`` count it already."""
        self._occupants.add(job)

    def ended(self, id_: int) -> None:
        """It runs no more; harmless when it is not known."""
        self._occupants.remove(id_)

    def bid(self, requests: Iterable[BidRequest], now_s: float = 0.0) -> tuple[SiteAnswer, ...]:
        """Answer each request in order, as if all bids made before it had won.

        A bid stays valid when one made before it loses.
        """
        failed: NegativeCache[Refusal] = NegativeCache()
        answers = tuple(self._answer(request, failed, now_s) for request in requests)
        for answer in answers:
            if answer.bid is not None:
                undo(answer.bid, self._room, self._occupants)
        return answers

    def _answer(
        self, asked: BidRequest, failed: NegativeCache[Refusal], now_s: float
    ) -> SiteAnswer:
        never = self._never_fits(asked.jobs)
        if never is not None:
            return SiteAnswer(id=asked.id, refusal=never)
        rights = Rights(asked.priority, asked.preempt_gpus) if asked.preempt_gpus else Rights()
        known = failed.find(asked.jobs, rights)
        if known is not None:
            return SiteAnswer(id=asked.id, refusal=as_for(asked.jobs, known))
        result = place_all(asked.jobs, self._room, self.partitions)
        if isinstance(result, Bid):
            return SiteAnswer(id=asked.id, bid=result)
        if asked.preempt_gpus:
            claim = Claim(priority=asked.priority, budget_gpus=asked.preempt_gpus, now_s=now_s)
            bid = plan_with_victims(asked.jobs, self._room, self.partitions, self._occupants, claim)
            if bid is not None:
                return SiteAnswer(id=asked.id, bid=bid)
        reasons = tuple(replace(r, code=ReasonCode.RESOURCES) for r in result)
        refusal = Refusal(kind=RefusalKind.WAIT, reasons=reasons)
        failed.add(asked.jobs, rights, refusal)
        return SiteAnswer(id=asked.id, refusal=refusal)

    def _never_fits(self, jobs: tuple[Job, ...]) -> Refusal | None:
        """As ``never_fits``; remembered while the site is built as it is."""
        known = self._never.get(jobs, _UNKNOWN)
        if known is not _UNKNOWN:
            return known
        if len(self._never) >= SHAPES_KEPT:
            self._never.clear()
        refusal = self._never[jobs] = never_fits(jobs, self._empty, self.partitions)
        return refusal

    def _rebuild(self) -> None:
        """The site is built differently, or a node has come or gone."""
        capacity = capacity_of(self.nodes)
        if capacity != self.capacity:
            self.capacity, self._empty = capacity, Room(capacity.nodes)
            self._never.clear()
        self._room = Room(n for n in self.nodes if n.state.takes_jobs)
        self._occupants = Occupants(self._room, [o.job for o in self._occupants])
        for plans in self._holds.values():
            for plan in plans:
                self._room.take(plan)

    def _renew(self, changed: Iterable[Node]) -> None:
        """Only what is free on some nodes is new."""
        renewed = {node.name for node in changed}
        for node in changed:
            f = self._room.by_name.get(node.name)
            if f is not None:
                f.renew(node)
        for plans in self._holds.values():
            for plan in plans:
                for name in renewed & plan.nodes.keys():
                    if name in self._room.by_name:
                        self._room.by_name[name].take(plan.nodes[name])


def _in_the_way(plan: JobPlan, room: Room) -> Reason | None:
    for name, share in plan.nodes.items():
        f = room.by_name.get(name)
        if f is None or not f.has(share):
            return Reason(code=ReasonCode.LAUNCH_REFUSED, job=plan.name, unit="GPUs",
                          needed=share.gpus, free=max(0, f.gpus) if f else 0,
                          detail=f"node {name} was taken")  # fmt: skip
    return None


def changed_nodes(before: Sequence[Node], now: Sequence[Node]) -> list[Node] | None:
    """Nodes on which something else is free than before; None when more than that has changed."""
    if len(before) != len(now):
        return None
    changed = []
    for old, new in zip(before, now, strict=True):
        if old is new or old == new:
            continue
        as_before = replace(
            new, state=old.state, cpus_alloc=old.cpus_alloc, mem_mib_alloc=old.mem_mib_alloc,
            gpus_alloc=old.gpus_alloc,
        )  # fmt: skip
        if as_before != old or old.state.takes_jobs != new.state.takes_jobs:
            return None
        changed.append(new)
    return changed


def summarise(nodes: Iterable[Node], partitions: Sequence[str]) -> tuple[PartitionSummary, ...]:
    """Count a site's nodes by partition, GPU type and state, for fsinfo.

    In a partition that takes no jobs, nodes that would take some count as drained.
    """
    rows: dict[tuple[str, str], dict[str, int]] = {}
    for node in nodes:
        for partition in node.partitions + node.closed_partitions:
            if partition not in partitions:
                continue
            closed = partition in node.closed_partitions and node.state.takes_jobs
            state = NodeState.DRAINED if closed else node.state
            row = rows.setdefault((partition, node.gpu_type), {})
            for key, amount in (
                (f"nodes_{state.value}", 1),
                ("cpus", node.cpus),
                ("cpus_alloc", node.cpus_alloc),
                ("gpus", node.gpus),
                ("gpus_alloc", node.gpus_alloc),
            ):
                row[key] = row.get(key, 0) + amount
    return tuple(
        PartitionSummary(partition=partition, gpu_type=gpu_type, **counts)
        for (partition, gpu_type), counts in rows.items()
    )
