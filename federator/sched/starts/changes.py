"""Changes to what a workload asks for with which it may start sooner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from federator.errors import InvalidRequest
from federator.model.start_estimate import HelpKind
from federator.model.workload import Job, Workload

_SIZES_TRIED: Final = 64  # from half of it down, until replicas are whole


class AskedChange(NamedTuple):
    """One change alone.

    Attributes:
        amount: as of ``StartHelp``.
        workload: as it would be.
    """

    kind: HelpKind
    amount: int
    workload: Workload


def changes_of(workload: Workload, passing_s: float = 0.0) -> list[AskedChange]:
    """Those that there are for a workload, at most one of each kind.

    A smaller size is half of it, or the next below with whole replicas, and of a workload of one
    job alone: what others could do without is not known. A shorter time limit is one that ends
    before a window closes its nodes. Of an elastic one there are none: a play knows one size of it.

    Args:
        workload: waits.
        passing_s: a limit with which it may be over before a window; 0: none is known.
    """
    return [] if workload.elastic is not None else list(_changes(workload, passing_s))


def _changes(w: Workload, passing_s: float) -> Iterator[AskedChange]:
    minutes = int(passing_s // 60) + 1 if passing_s else 0
    if 0 < minutes * 60 < w.time_limit_s and not w.continues:
        changed = replace(w, time_limit_s=minutes * 60.0)
        yield AskedChange(HelpKind.LESS_TIME, minutes, changed)
    job = w.jobs[0]
    if len(w.jobs) == 1 and not job.nodelist:
        yield from _halves(w, job)
    yield from _all(w, HelpKind.ANY_GPU_TYPE, lambda j: replace(j, gpu_types=()))
    yield from _all(w, HelpKind.ANY_PARTITION, lambda j: replace(j, partitions=()))
    mem = max(j.mem_mib_per_node for j in w.jobs) // 2
    if mem and not any(j.mem_mib_per_cpu or j.mem_mib_per_gpu for j in w.jobs):
        yield from _all(
            w,
            HelpKind.LESS_MEMORY,
            lambda j: replace(j, mem_mib_per_node=min(mem, j.mem_mib_per_node)),
            mem,
        )


def _halves(w: Workload, job: Job) -> Iterator[AskedChange]:
    nodes = job.nodes or 1
    of_nodes = nodes > 1
    kind = HelpKind.FEWER_NODES if of_nodes else HelpKind.FEWER_GPUS
    half = (nodes if of_nodes else job.total_gpus) // 2
    for size in range(half, max(0, half - _SIZES_TRIED), -1):
        change = partial(_on_nodes if of_nodes else _with_gpus, size)
        found = next(_all(w, kind, change, size), None)
        if found is not None:
            yield found
            return


def _on_nodes(nodes: int, job: Job) -> Job:
    of = job.nodes or 1
    return replace(job, nodes=nodes, gpus=job.gpus * nodes // of, cpus=job.cpus * nodes // of)


def _with_gpus(gpus: int, job: Job) -> Job:
    return replace(job, gpus_per_node=gpus) if job.gpus_per_node else replace(job, gpus=gpus)


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
