"""What does a site offer? A placement plan with its score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple, Self

from federator.model.site import NodeShare
from federator.model.workload import Job, WorkloadId


class Score(NamedTuple):
    """Smaller is better, compared from left to right; the sum over a workload's jobs.

    Order of the terms: docs/architecture.md, "Score". ``bytes_to_move`` is 0 until data is
    placed.
    """

    preempts: int = 0  # 1 when victims must go
    victims_priority: int = 0
    victims: int = 0  # an optional job that is taken counts as one
    lost_work_gpu_s: float = 0.0
    gpus_unasked: int = 0  # GPUs of the nodes that a workload without GPUs takes
    locality_cost: float = 0.0  # sum over pairs of GPUs, spec eq. 2
    gpu_worth: float = 0.0  # of all GPUs taken, so that the least capable that do are taken
    fragmentation: float = 0.0  # by how many GPUs it raises those of no use in its racks
    bytes_to_move: float = 0.0

    @classmethod
    def total(cls, scores: Iterable[Score], *, with_gpus: bool) -> Self:
        """The sum over a workload's jobs; ``with_gpus``: one of them has GPUs.

        Then a gang's racks must not be chosen by the node of a job that goes with it.
        """
        summed = cls(*(sum(terms) for terms in zip(*scores, strict=True)))
        return summed._replace(gpus_unasked=0) if with_gpus else summed

    def named(self) -> dict[str, float]:
        """The terms that are not 0, by name: so they keep their meaning in the log."""
        return {name: term for name, term in self._asdict().items() if term}

    @classmethod
    def of(cls, terms: Mapping[str, float] | Sequence[float]) -> Self:
        """What ``named`` gave, here or in another release; the oldest told terms by position."""
        if not isinstance(terms, Mapping):
            terms = dict(zip(_TERMS_ONCE, terms, strict=False))
        return cls._make(terms.get(name, 0) for name in cls._fields)


_TERMS_ONCE: Final = (
    "preempts", "victims_priority", "victims", "lost_work_gpu_s", "locality_cost", "gpu_worth",
    "fragmentation", "bytes_to_move",
)  # fmt: skip
"""The terms while the log told them by position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BidRequest:
    """What a site is asked to bid for."""

    id: WorkloadId
    jobs: tuple[Job, ...]
    priority: int = 7  # as ranked now; only strictly lower ones (larger numbers) may be evicted
    preempt_gpus: float = 0.0  # that victims may hold, at most; 0: nobody may be evicted.
    # Victims without GPUs are not bounded by it.
    time_limit_s: float = inf  # it may stand in for a reserved gang only if it ends before


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """Where one job would run: exactly these nodes, with these shares."""

    name: str
    partition: str
    nodes: dict[str, NodeShare]
    gpu_types: dict[str, int] = field(default_factory=dict)  # GPUs by type, where nodes have one
    rails: int = 0  # GPUs of each of several nodes, if it has all of every one of them


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """A plan for every job of a workload that could start now."""

    score: Score
    jobs: tuple[JobPlan, ...]
    victims: tuple[int, ...] = ()  # workloads that must go first
    shrinks: tuple[Shrink, ...] = ()  # optional jobs of other workloads that must go first
