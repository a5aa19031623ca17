"""What smaller or different request would start here now? Told with a refusal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from federator.errors import InvalidRequest
from federator.model.reason import Alternative
from federator.model.workload import Job
from federator.sched.choice import least_share
from federator.sched.placement import Placed, place_job, suitable_nodes
from federator.sched.room import Room


def alternatives(
    jobs: Sequence[Job], room: Room, partitions: Sequence[str]
) -> tuple[Alternative, ...]:
    """What would start now instead, each tried out; the room is not changed.

    Of a workload with one job: as many of the same nodes as are free; as many nodes with fewer
    GPUs on each; GPUs of any kind. Nothing is said of workloads with several jobs.
    """
    if len(jobs) != 1:
        return ()
    found: list[Alternative] = []
    for job in _variants(jobs[0], room, partitions):
        placed = place_job(job, room, partitions)
        if isinstance(placed, Placed):
            other = () if job.gpu_types == jobs[0].gpu_types else tuple(placed.plan.gpu_types)
            gpus = job.gpus_per_node if job.nodes and job.gpus_per_node else job.gpus
            alternative = Alternative(nodes=job.nodes or 0, gpus=gpus, gpu_types=other)
            if alternative not in found:
                found.append(alternative)
    return tuple(found)


def _variants(job: Job, room: Room, partitions: Sequence[str]) -> Iterator[Job]:
    allowed = [p for p in partitions if not job.partitions or p in job.partitions]
    for changes in (
        _fewer_nodes(job, room, allowed),
        _smaller_total(job, room, allowed),
        _fewer_on_each(job, room, allowed),
        {"gpu_types": (), "min_gpu_mem_gib": 0.0, "nvlink": False} if _picky(job) else None,
    ):
        if changes:
            try:
                yield replace(job, **changes)  # type: ignore[arg-type]  # fields of Job
            except InvalidRequest:  # no whole replicas
                continue


def _picky(job: Job) -> bool:
    return bool(job.total_gpus and (job.gpu_types or job.min_gpu_mem_gib or job.nvlink))


def _fewer_nodes(job: Job, room: Room, partitions: Sequence[str]) -> dict[str, object] | None:
    if job.nodes is None or job.gpus or job.cpus:
        return None
    need = least_share(job)
    free = max(
        (
            sum(f.has(need) and (not job.exclusive or f.untouched)
                for f in suitable_nodes(job, room, partition))
            for partition in partitions
        ),
        default=0,
    )  # fmt: skip
    if job.gpus_per_node:  # whole replicas only
        replica = job.tensor_parallel * job.pipeline_stages
        while free and free * job.gpus_per_node % replica:
            free -= 1
    return {"nodes": free} if 0 < free < job.nodes else None


def _smaller_total(job: Job, room: Room, partitions: Sequence[str]) -> dict[str, object] | None:
    if job.nodes is not None or not job.gpus:
        return None
    need, tensor = least_share(job), job.tensor_parallel
    free = max(
        (
            sum(f.gpus - f.gpus % tensor
                for f in suitable_nodes(job, room, partition) if f.has(need))
            for partition in partitions
        ),
        default=0,
    )  # fmt: skip
    free -= free % (tensor * job.pipeline_stages)
    return {"gpus": free} if 0 < free < job.gpus else None


def _fewer_on_each(job: Job, room: Room, partitions: Sequence[str]) -> dict[str, object] | None:
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
