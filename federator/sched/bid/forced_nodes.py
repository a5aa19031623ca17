"""Proves, by the nodes that each must have, that jobs of a workload cannot all be placed apart.

A job must have a node if it has no place without it; the others then have no place on that node,
and may in turn have to have others. It complements the count of ``distinct_nodes``,
which does not know that a total needs the one large node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from federator.model.reason import Reason, ReasonCode
from federator.model.site import Node
from federator.model.workload import Job
from federator.sched.bid.distinct_nodes import nodes_of_use
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.placement import Placed, fits_somewhere, place_job

FEW: Final = 16  # nodes of use to a job, beyond which it is not asked which it must have
TRIES: Final = 512  # of a job on some of them, of about 50 us each, beyond which nothing is proved


def crowded_out(
    jobs: Sequence[Job], empty: FreeCapacity, partitions: Sequence[str]
) -> Reason | None:
    """A job of several that has no place beside what the others must have; None: not proved."""
    sets = [
        _Nodes(job, [f.node for f in nodes_of_use(job, empty, partitions)], empty, partitions)
        for job in jobs
    ]
    must: list[frozenset[str]] = [frozenset()] * len(jobs)
    waiting, tries = deque(range(len(jobs))), TRIES
    while waiting:
        k = waiting.popleft()
        left = sets[k].without(frozenset().union(*must[:k], *must[k + 1 :]))
        if len(left.nodes) > FEW:
            continue
        tries -= 1 + len(left.nodes)
        if tries < 0:
            return None
        if not left.suffice():
            return left.lack()
        needed = left.needed()
        if needed != must[k]:
            must[k] = needed
            waiting.extend(j for j in range(len(jobs)) if j != k and j not in waiting)
    return None


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Nodes that are of use to a job, empty as they are."""

    job: Job
    nodes: Sequence[Node]
    empty: FreeCapacity
    partitions: Sequence[str]

    def without(self, names: frozenset[str]) -> _Nodes:
        nodes = [node for node in self.nodes if node.name not in names]
        return _Nodes(self.job, nodes, self.empty, self.partitions)

    def suffice(self) -> bool:
        return fits_somewhere(self.job, self._room(), self.partitions)

    def needed(self) -> frozenset[str]:
        """Those without each of which the others do not suffice."""
        names = [frozenset({node.name}) for node in self.nodes]
        return frozenset().union(*(name for name in names if not self.without(name).suffice()))

    def lack(self) -> Reason:
        """The amounts missing on them, which do not suffice."""
        apart = (self.job.name,)
        found = place_job(self.job, self._room(), self.partitions) if self.nodes else ()
        if isinstance(found, Placed) or not found:
            return Reason(
                code=ReasonCode.TOO_FEW_NODES,
                job=self.job.name,
                needed=self.job.nodes or 1,
                unit="nodes",
                apart=apart,
            )
        return replace(found[0], apart=apart)

    def _room(self) -> FreeCapacity:
        return FreeCapacity(
            self.nodes,
            self.empty.fabric,
            licenses=self.empty.licenses,
            order=self.empty.order,
        )
