"""Makes ``JobDetails``: the part of a job's request and plan that only squeue's formats show."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Final

import msgspec

from federator.model.site import NodeShare
from federator.model.submission import Option
from federator.model.workload import MAX_AMOUNT, Job
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
        "exclude",
        "gpus",
        "gpus-per-node",
        "gpus-per-task",
        "gres",
        "licenses",
        "mcs-label",
        "mem-per-gpu",
        "network",
        "nodelist",
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


_MOST_DIGITS: Final = 18
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
    given = {o.name: o.value or "" for o in (components or ((),))[0]}
    memory, memory_of = _memory(given, first)
    return JobDetails(
        partitions=partitions_of(entry),
        cpus=cpus,
        mem_mib=mem_mib,
        min_cpus=_min_cpus(given),
        min_mem_mib=memory,
        min_mem_of=memory_of,
        tasks=_tasks(given, first, sum(len(plan.nodes) for plan in entry.plan[:1])),
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
        options={name: value for name, value in given.items() if name in SHOWN},
    )


def _number(text: str | None) -> int:
    """A count of GPUs may have their type before it."""
    digits = (text or "").rpartition(":")[2]
    return int(digits[:_MOST_DIGITS]) if digits.isascii() and digits.isdecimal() else 0


def _min_cpus(given: Mapping[str, str]) -> int:
    """As slurmctld counts it: of the tasks of a node, where their number is given, else of one."""
    tasks, each = _number(given.get("ntasks-per-node")), _number(given.get("cpus-per-task"))
    cpus = max(1, _number(given.get("mincpus")), max(1, tasks) * max(1, each))
    return min(MAX_AMOUNT, cpus)


def _memory(given: Mapping[str, str], job: Job) -> tuple[int, str]:
    """Memory as it was asked for, in MiB, and of what: a CPU, a GPU, or "" for a node."""
    if "mem-per-cpu" in given:
        each = job.mem_mib_per_cpu or job.mem_mib_per_node // max(1, job.cpus_per_node)
        return each, "cpu"
    if "mem-per-gpu" in given:
        gpus = job.gpus_per_node or -(-job.gpus // (job.nodes or 1))
        return job.mem_mib_per_gpu or job.mem_mib_per_node // max(1, gpus), "gpu"
    return job.mem_mib_per_node, ""


def _tasks(given: Mapping[str, str], job: Job, nodes: int) -> int:
    """The number of tasks, as sbatch reckons it from what was given; ``MAX_AMOUNT`` at most.

    With ``--overcommit`` no CPUs bound it.
    """
    return min(MAX_AMOUNT, _tasks_given(given, job, nodes))


def _tasks_given(given: Mapping[str, str], job: Job, nodes: int) -> int:
    tasks = _number(given.get("ntasks"))
    of_node = _number(given.get("ntasks-per-node"))
    of_gpu, gpus_of = _number(given.get("ntasks-per-gpu")), _number(given.get("gpus-per-task"))
    nodes = job.nodes or nodes or 1
    if tasks or of_node:
        return tasks or of_node * nodes
    if of_gpu:
        return max(1, of_gpu * job.total_gpus)
    return max(1, job.total_gpus // gpus_of) if gpus_of and "gpus" in given else nodes


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
