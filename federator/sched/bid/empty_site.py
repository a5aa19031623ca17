"""A site as if nothing ran there: all that it could ever give, and what would not fit even then."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from federator.model.license import SiteLicense, totals
from federator.model.reason import Refusal
from federator.model.site import Capacity, Node, NodeState
from federator.model.workload import Job
from federator.sched.bid.free_capacity import SINGLE_NODE, FreeCapacity
from federator.sched.bid.workload_plan import never_fits, no_such_qos


def capacity_of(
    nodes: Iterable[Node],
    licenses: Iterable[SiteLicense] = (),
    qos: Collection[str] | None = None,
) -> Capacity:
    """The site as if every node were up, well and idle, and every partition open."""
    empty = (
        replace(
            n,
            state=NodeState.IDLE,
            cpus_alloc=0,
            mem_mib_alloc=0,
            gpus_alloc=0,
            gres_alloc=(),
            partitions=n.partitions + n.closed_partitions,
            closed_partitions=(),
            drain_reason="",
            drained_by="",
            drained_at_s=0.0,
            reserved=False,
            features=tuple(name for name in n.features if name != SINGLE_NODE),
        )
        for n in nodes
    )
    return Capacity(
        nodes=tuple(empty),
        licenses=totals(licenses),
        qos=None if qos is None else tuple(sorted(qos)),
    )


class EmptySite:
    """The room of a site's capacity; nothing is ever taken from it.

    Args:
        capacity: all that the site could give.

    Attributes:
        room: its free nodes and licences.
    """

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.room = FreeCapacity(capacity.nodes, licenses=capacity.licenses)

    def never_fits(self, jobs: Sequence[Job], partitions: Sequence[str]) -> Refusal | None:
        """The reason why the site would refuse the jobs for good; None when they may fit."""
        refusal = no_such_qos(jobs, self.capacity.qos)
        return refusal or never_fits(jobs, self.room, partitions)
