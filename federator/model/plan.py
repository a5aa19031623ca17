"""Bids: a site's placement plan for a workload, with its score."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from msgspec import Struct

from federator.model.license import Licenses
from federator.model.score import TERMS, Score, with_cost
from federator.model.site import NodeShare
from federator.model.workload import Job, Workload, WorkloadId


class BidRequest(Struct, frozen=True, kw_only=True, gc=False):
    """A workload as a site is asked to bid for it, from the pass to the site's scheduler.

    It travels as it is: its fields are those of the message. ``gc=False``: a pass of a replay makes
    many, and no cycle can lead through one.
    """

    id: WorkloadId
    tenant: str
    user: str
    priority: int  # as ranked now; only strictly lower ones (larger numbers) may be evicted
    jobs: tuple[Job, ...]
    time_limit_s: float  # it may stand in for a reserved gang only if it ends before
    preempt_gpus: float = 0.0  # that victims may hold, at most; 0: nobody may be evicted.
    # Victims without GPUs are not bounded by it.
    in_time: bool = False  # also those may be named who are spared for a while yet: it is a claim
    predicted_run_s: float = inf  # nine of ten of its like are over by then; inf: not known
    # On so many nodes it may start as well, largest first; more than ``jobs`` ask for. Nobody is
    # evicted for these, and an older agent bids for ``jobs``.
    sizes: tuple[int, ...] = ()
    moves: int = 0  # so many jobs may move to other nodes of the site for it; 0: none

    @classmethod
    def of(
        cls,
        workload: Workload,
        priority: int,
        preempt_gpus: float = 0.0,
        in_time: bool = False,
        predicted_run_s: float = inf,
        sizes: tuple[int, ...] = (),
    ) -> BidRequest:
        """The request for a workload at the priority that it has now."""
        return cls(
            id=workload.id,
            tenant=workload.tenant,
            user=workload.user,
            priority=priority,
            jobs=workload.jobs,
            time_limit_s=workload.time_limit_s,
            preempt_gpus=preempt_gpus,
            in_time=in_time,
            predicted_run_s=predicted_run_s,
            sizes=sizes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """The placement of one job: exactly these nodes, with these shares."""

    name: str
    partition: str
    nodes: dict[str, NodeShare]
    gpu_types: dict[str, int] = field(default_factory=dict)  # GPUs by type, where nodes have one
    licenses: Licenses = ()  # that it takes at the site
    reservation: str = ""  # of the site's Slurm, that it is in
    rails: int = 0  # GPUs of each of several nodes, if it has all of every one of them
    whole_mem_mib: int = 0  # memory of its nodes, if nobody else may use them; counts in usage

    @property
    def gpu_type(self) -> str:
        """One type of its GPUs; "": it has none that is known."""
        return next(iter(self.gpu_types), "")


def shared_node(plans: Iterable[JobPlan]) -> str:
    """A node that two jobs of a workload would share, which Slurm never starts; "": there is none.

    Pinned to their nodes, the components of a het job wait for ever if two have one in common.
    """
    seen: set[str] = set()
    for plan in plans:
        shared = seen.intersection(plan.nodes)
        if shared:
            return min(shared)
        seen.update(plan.nodes)
    return ""


class Shrink(NamedTuple):
    """One optional job of a running workload, taken from it; the rest runs on."""

    workload: int
    component: int  # the number of the job: 1, 2, …


class NodeMove(NamedTuple):
    """A running workload of one node that goes on at another node of its site."""

    workload: int
    node: str  # the other one


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """A plan for every job of a workload that could start now."""

    score: Score
    jobs: tuple[JobPlan, ...]
    victims: tuple[int, ...] = ()  # workloads that must go first
    shrinks: tuple[Shrink, ...] = ()  # optional jobs of other workloads that must go first
    # Of its GPUs for an hour, in steps of ``policy.price_weight``; the daemon's own word counts.
    # No term of ``score``: that travels by position, and an older peer knows fewer.
    cost: float = 0.0
    moves: tuple[NodeMove, ...] = ()  # where the victims go on; empty: no place is planned for them
    waits_s: float = 0.0  # with moves: until it is predicted to start without them

    @property
    def terms(self) -> tuple[float, ...]:
        """All that bids are compared by, from left to right; see ``with_cost``."""
        return with_cost(self.score, self.cost)

    def named(self) -> dict[str, float]:
        """The terms that are not 0, by name."""
        named = zip(TERMS, self.terms, strict=True)
        return {name: term for name, term in named if term}
