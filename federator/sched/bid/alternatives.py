"""Finds smaller or different requests that would start here now; a refusal carries them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from federator.errors import InvalidRequest
from federator.model.reason import Alternative, Reason
from federator.model.workload import Job
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.placement import Placed, place_job, suitable_nodes


def alternatives(
    jobs: Sequence[Job], reasons: Sequence[Reason], room: FreeCapacity, partitions: Sequence[str]
) -> tuple[Alternative, ...]:
    """Find requests that would start now instead, each tried out; the room is not changed.

    Of a workload with one job: as many of the same nodes as are free, or of a total as much, or
    else as many nodes with fewer GPUs on each; and GPUs of any kind. Nothing is said of workloads
    with several jobs.

    Args:
        jobs: of a workload that found no place.
        reasons: why, in the partition that came nearest.
        room: the site.
        partitions: those the federation may use.
    """
    if len(jobs) != 1:
        return ()
    (asked,) = jobs
    found: list[Alternative] = []
    for job in _variants(asked, reasons[0], room, partitions):
        placed = place_job(job, room, partitions)
        if isinstance(placed, Placed):
            relaxed = _picky(job) != _picky(asked)
            other = tuple(placed.plan.gpu_types) if relaxed else ()
            gpus = job.gpus_per_node if job.nodes and job.gpus_per_node else job.gpus
            found.append(Alternative(nodes=job.nodes or 0, gpus=gpus, gpu_types=other))
    return tuple(found)


def _variants(
    job: Job, reason: Reason, room: FreeCapacity, partitions: Sequence[str]
) -> Iterator[Job]:
    allowed = [p for p in partitions if not job.partitions or p in job.partitions]
    smaller = _less(job, reason) or _fewer_on_each(job, room, allowed)
    any_kind = {"gpu_types": (), "min_gpu_mem_gib": 0.0, "nvlink": False} if _picky(job) else None
    for changes in (smaller, any_kind):
        if changes:
            with suppress(InvalidRequest):  # no whole replicas
                yield replace(job, **changes)  # type: ignore[arg-type]  # fields of Job


def _picky(job: Job) -> bool:
    return bool(job.total_gpus and (job.gpu_types or job.min_gpu_mem_gib or job.nvlink))


def _less(job: Job, reason: Reason) -> dict[str, object] | None:
    """The same request in the replicas that are free: so many nodes, or so much of a total."""
    free, replica = reason.free, job.tensor_parallel * job.pipeline_stages
    if reason.unit == "nodes" and job.nodes and not job.gpus and not job.cpus:
        while free and free * job.gpus_per_node % replica:
            free -= 1
        return {"nodes": free} if 0 < free < job.nodes else None
    if reason.unit == "GPUs" and job.nodes is None and job.gpus:
        free -= free % replica
        return {"gpus": free} if 0 < free < job.gpus else None
    return None


def _fewer_on_each(
    job: Job, room: FreeCapacity, partitions: Sequence[str]
) -> dict[str, object] | None:
    """As many nodes, with as many GPUs on each as the least free of the freest has."""
    if not job.nodes or not job.gpus_per_node or job.gpus or job.exclusive:
        return None
    best = 0
    for partition in partitions:
        nodes = suitable_nodes(job, room, partition)
        free = sorted((f.gpus for f in nodes), reverse=True)
        if len(free) >= job.nodes:
            best = max(best, free[job.nodes - 1])
    best -= best % job.tensor_parallel
    return {"gpus_per_node": best} if 0 < best < job.gpus_per_node else None
