"""Shrinks a workload's plan: what its optional jobs hold, and what is left without them.

A plan keeps its length: a job that was taken is on no nodes any more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from federator.model.plan import JobPlan


def gpus_of(plan: Sequence[JobPlan], components: Collection[int]) -> int:
    """GPUs that these jobs hold; numbers that the plan has not count nothing."""
    return sum(
        share.gpus for k, job in enumerate(plan) if k in components for share in job.nodes.values()
    )


def nodes_of(plan: Sequence[JobPlan], components: Collection[int]) -> set[str]:
    """The nodes that these jobs are on."""
    return {name for k, job in enumerate(plan) if k in components for name in job.nodes}


def without(plan: Sequence[JobPlan], components: Collection[int]) -> tuple[JobPlan, ...]:
    """The plan when these jobs have been taken."""
    return tuple(
        replace(job, nodes={}, gpu_types={}, rails=0, whole_mem_mib=0) if k in components else job
        for k, job in enumerate(plan)
    )
