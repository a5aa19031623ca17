"""What does one site bid? Nodes in, bids and refusals out; the same for agent and simulator.

Nodes come from the last sweep. What the federation has ordered and Slurm does not show yet is a
*hold*, so the site never offers the same GPUs twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from federator.model.message import SiteAnswer
from federator.model.plan import Bid, JobPlan, Score
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site import Capacity, Node, NodeState, PartitionSummary
from federator.model.workload import AttemptId, Job, WorkloadId
from federator.sched.placement import FreeNode, Placed, place_job


def capacity_of(nodes: Iterable[Node]) -> Capacity:
    """The site as if every node were up and idle."""
    empty = (
        replace(n, state=NodeState.IDLE, cpus_alloc=0, mem_mib_alloc=0, gpus_alloc=0) for n in nodes
    )
    return Capacity(nodes=tuple(empty))


def place_all(
    jobs: Sequence[Job], free: Sequence[FreeNode], partitions: Sequence[str]
) -> Bid | tuple[Reason, ...]:
    """Place all jobs of a workload or none; on success ``free`` has lost what the bid holds."""
    # The largest first: a small component must not take the node that a gang needs. Whoever then
    # finds no place is tried before all others.
    order = sorted(range(len(jobs)), key=lambda k: (-jobs[k].total_gpus, -(jobs[k].nodes or 1), k))
    reasons: tuple[Reason, ...] = ()
    for _ in jobs:
        result = _place_in_order(jobs, order, free, partitions)
        if isinstance(result, Bid):
            return result
        unplaced, reasons = result
        if unplaced == order[0]:  # it had all nodes to itself
            break
        order = [unplaced, *(k for k in order if k != unplaced)]
    return reasons


def _place_in_order(
    jobs: Sequence[Job], order: Sequence[int], free: Sequence[FreeNode], partitions: Sequence[str]
) -> Bid | tuple[int, tuple[Reason, ...]]:
    """As ``place_all``, in one order; else the first job without a place, and why."""
    by_name = {f.node.name: f for f in free}
    found: dict[int, Placed] = {}
    for k in order:
        result = place_job(jobs[k], free, partitions)
        if not isinstance(result, Placed):
            _give_back((p.plan for p in found.values()), by_name)
            return k, result
        for name, share in result.plan.nodes.items():
            by_name[name].take(share)
        found[k] = result
    score = Score(*(sum(terms) for terms in zip(*(p.score for p in found.values()), strict=True)))
    return Bid(score=score, jobs=tuple(found[k].plan for k in range(len(jobs))))


def _give_back(plans: Iterable[JobPlan], by_name: dict[str, FreeNode]) -> None:
    for plan in plans:
        for name, share in plan.nodes.items():
            by_name[name].give_back(share)


def never_fits(
    jobs: Sequence[Job], capacity: Capacity, partitions: Sequence[str]
) -> Refusal | None:
    """Refuse for good what would not fit even an empty site; None when it would."""
    result = place_all(jobs, [FreeNode.of(n) for n in capacity.nodes], partitions)
    if isinstance(result, Bid):
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
        self._holds: dict[AttemptId, tuple[JobPlan, ...]] = {}

    def update(self, nodes: Iterable[Node], visible: Collection[AttemptId]) -> None:
        """Take a sweep's nodes; ``visible`` attempts are counted in them, so their holds end."""
        self.nodes = tuple(nodes)
        self.capacity = capacity_of(self.nodes)
        for attempt in [a for a in self._holds if a in visible]:
            del self._holds[attempt]

    def hold(self, attempt: AttemptId, jobs: tuple[JobPlan, ...]) -> None:
        """Keep what a launch order takes until a sweep shows it."""
        self._holds[attempt] = jobs

    def release(self, attempt: AttemptId) -> None:
        """Forget a hold; harmless when there is none."""
        self._holds.pop(attempt, None)

    def holds(self, jobs: Iterable[JobPlan]) -> Reason | None:
        """Check that a plan still fits; None when it does, else what is in its way."""
        free = {f.node.name: f for f in self._free()}
        for plan in jobs:
            for name, share in plan.nodes.items():
                f = free.get(name)
                if f is None or not f.has(share):
                    return Reason(code=ReasonCode.LAUNCH_REFUSED, job=plan.name, unit="GPUs",
                                  needed=share.gpus, free=f.gpus if f else 0,
                                  detail=f"node {name} was taken")  # fmt: skip
                f.take(share)
        return None

    def bid(self, requests: Iterable[tuple[WorkloadId, Sequence[Job]]]) -> tuple[SiteAnswer, ...]:
        """Answer each request in order, as if all bids made before it had won."""
        free = self._free()
        return tuple(self._answer(id_, jobs, free) for id_, jobs in requests)

    def _answer(self, id_: WorkloadId, jobs: Sequence[Job], free: list[FreeNode]) -> SiteAnswer:
        result = place_all(jobs, free, self.partitions)
        if isinstance(result, Bid):
            return SiteAnswer(id=id_, bid=result)
        refusal = never_fits(jobs, self.capacity, self.partitions)
        if refusal is None:
            reasons = tuple(replace(r, code=ReasonCode.RESOURCES) for r in result)
            refusal = Refusal(kind=RefusalKind.WAIT, reasons=reasons)
        return SiteAnswer(id=id_, refusal=refusal)

    def _free(self) -> list[FreeNode]:
        free = [FreeNode.of(n) for n in self.nodes if n.state.takes_jobs]
        by_name = {f.node.name: f for f in free}
        for plans in self._holds.values():
            for plan in plans:
                for name, share in plan.nodes.items():
                    if name in by_name:
                        by_name[name].take(share)
        return free


def summarise(nodes: Iterable[Node], partitions: Sequence[str]) -> tuple[PartitionSummary, ...]:
    """Count a site's nodes by partition, GPU type and state, for fsinfo."""
    rows: dict[tuple[str, str], dict[str, int]] = {}
    for node in nodes:
        for partition in node.partitions:
            if partition not in partitions:
                continue
            row = rows.setdefault((partition, node.gpu_type), {})
            for key, amount in (
                (f"nodes_{node.state.value}", 1),
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
