"""Changes to what a workload asks for with which it may start sooner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from federator.errors import InvalidRequest
from federator.model.start_estimate import HelpKind
from federator.model.workload import Job, Workload


class AskedChange(NamedTuple):
    """One change alone.

    Attributes:
        amount: as of ``StartHelp``.
        workload: as it would be.
    """

    kind: HelpKind
    amount: int
    workload: Workload


def changes_of(workload: Workload) -> list[AskedChange]:
    """Those that there are for a workload, at most one of each kind.

    A smaller size is half of it, and of a workload of one job alone: what others could do without
    is not known. A shorter time limit is none: a play does not see what it would let pass.
    """
    return list(_changes(workload))


def _changes(w: Workload) -> Iterator[AskedChange]:
    job = w.jobs[0]
    if len(w.jobs) == 1 and not job.nodelist:
        yield from _halves(w, job)
    yield from _all(w, HelpKind.ANY_GPU_TYPE, lambda j: replace(j, gpu_types=()))
    yield from _all(w, HelpKind.ANY_PARTITION, lambda j: replace(j, partitions=()))
    mem = max(j.mem_mib_per_node for j in w.jobs) // 2
    if mem:
        yield from _all(
            w,
            HelpKind.LESS_MEMORY,
            lambda j: replace(j, mem_mib_per_node=min(mem, j.mem_mib_per_node)),
            mem,
        )


def _halves(w: Workload, job: Job) -> Iterator[AskedChange]:
    if job.nodes is not None and job.nodes > 1:
        nodes = job.nodes // 2
        gpus = job.gpus * nodes // job.nodes

        def on_fewer(j: Job) -> Job:
            return replace(j, nodes=nodes, gpus=gpus, cpus=j.cpus * nodes // (j.nodes or 1))

        yield from _all(w, HelpKind.FEWER_NODES, on_fewer, nodes)
    elif job.total_gpus > 1:
        half = job.total_gpus // 2
        of_node = bool(job.gpus_per_node)

        def smaller(j: Job) -> Job:
            return replace(j, gpus_per_node=half) if of_node else replace(j, gpus=half)

        yield from _all(w, HelpKind.FEWER_GPUS, smaller, half)


def _all(
    w: Workload, kind: HelpKind, change: Callable[[Job], Job], amount: int = 0
) -> Iterator[AskedChange]:
    """The change of all jobs; none where it changes nothing, or cannot be asked for."""
    try:
        jobs = tuple(map(change, w.jobs))
    except InvalidRequest:
        return
    if jobs != w.jobs:
        yield AskedChange(kind, amount, replace(w, jobs=jobs))
