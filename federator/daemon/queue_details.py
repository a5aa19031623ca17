"""Makes ``JobDetails``: the part of a job's request and plan that only squeue's formats show."""

from __future__ import annotations

from math import isfinite
from typing import Final

import msgspec

from federator.model.site import NodeShare
from federator.model.submission import Option
from federator.model.workload import Job
from federator.sched.state.eligibility import dependency_text
from federator.sched.state.ledger import WorkloadRecord
from federator.wire.queue_rows import JobDetails

SHOWN: Final = frozenset(
    {
        "array",
        "comment",
        "constraint",
        "contiguous",
        "core-spec",
        "cores-per-socket",
        "cpus-per-gpu",
        "cpus-per-task",
        "delay-boot",
        "gpus",
        "gpus-per-node",
        "gpus-per-task",
        "gres",
        "licenses",
        "mcs-label",
        "mem-per-gpu",
        "network",
        "nodes",
        "ntasks",
        "ntasks-per-core",
        "ntasks-per-node",
        "ntasks-per-socket",
        "oversubscribe",
        "prefer",
        "profile",
        "qos",
        "reboot",
        "reservation",
        "segment",
        "sockets-per-node",
        "switches",
        "thread-spec",
        "threads-per-core",
        "time-min",
        "tmp",
        "tres-bind",
        "wckey",
    }
)
"""Options whose values everybody may see, as squeue shows them; never the environment."""


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a submission; script and environment are not decoded."""

    components: tuple[tuple[Option, ...], ...]


_decode_asked: Final = msgspec.msgpack.Decoder(_Asked).decode


def partitions_of(entry: WorkloadRecord) -> tuple[str, ...]:
    """The partitions of its plan, or those asked for before; empty: any."""
    if entry.plan:
        return tuple(dict.fromkeys(plan.partition for plan in entry.plan))
    return tuple(dict.fromkeys(name for job in entry.workload.jobs for name in job.partitions))


def job_details(entry: WorkloadRecord) -> JobDetails:
    """The details of one workload."""
    w = entry.workload
    shares = [share for plan in entry.plan for share in plan.nodes.values()]
    cpus, mem_mib = _held(shares) if shares else _asked(w.jobs)
    first = w.jobs[0]
    components = _decode_asked(w.submission).components
    options = {o.name: o.value or "" for o in (components or ((),))[0] if o.name in SHOWN}
    return JobDetails(
        partitions=partitions_of(entry),
        cpus=cpus,
        mem_mib=mem_mib,
        min_cpus=first.cpus_per_node,
        min_mem_mib=first.mem_mib_per_node,
        gpus_per_node=first.gpus_per_node,
        gpu_types=_gpu_types(entry),
        features=(first.constraint,) if first.constraint else first.features,
        exclusive=first.exclusive,
        requeue=w.requeue,
        nice=w.nice,
        restarts=max(0, entry.attempt - 1),
        begin_at_s=entry.begin_at_s,
        eligible_at_s=entry.eligible_at_s,
        deadline_at_s=w.deadline_at_s if isfinite(w.deadline_at_s) else 0.0,
        dependency=dependency_text(entry.waits_for),
        options=options,
    )


def _held(shares: list[NodeShare]) -> tuple[int, int]:
    return sum(share.cpus for share in shares), sum(share.mem_mib for share in shares)


def _asked(jobs: tuple[Job, ...]) -> tuple[int, int]:
    cpus = sum(job.cpus or job.cpus_per_node * (job.nodes or 1) for job in jobs)
    return cpus, sum(job.total_mem_mib for job in jobs)


def _gpu_types(entry: WorkloadRecord) -> dict[str, int]:
    """GPUs by type: of the plan; before it of those jobs that accept one type alone."""
    found: dict[str, int] = {}
    for plan in entry.plan:
        for kind, gpus in plan.gpu_types.items():
            found[kind] = found.get(kind, 0) + gpus
    if not entry.plan:
        for job in entry.workload.jobs:
            if len(job.gpu_types) == 1 and job.total_gpus:
                found[job.gpu_types[0]] = found.get(job.gpu_types[0], 0) + job.total_gpus
    return found
