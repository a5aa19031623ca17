"""Makes a trace of a dump of Slurm's accounting: jobs that ended and had GPUs, by partition.

Formats: ``sacct``; what a job is: ``history``. A pool is a partition, or ``cluster/partition``
where the file of pools names it so. Components of a het job are jobs of their own, as each has a
pool of its own. What has not ended, never ran, had no GPU, or is in no pool of the file of pools,
is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from federator.sim.importers.history import past_jobs
from federator.sim.importers.sacct import read_records
from federator.sim.importers.trace_csv import TraceBuilder
from federator.sim.trace import Trace, TracePool


def read_sacct(path: Path, pools: Sequence[TracePool], text: str | None = None) -> Trace:
    """Read the output of ``sacct``, text or JSON; ``text``: of the file, if it has been read.

    Raises:
        InvalidRequest: one line with the file, the place in it, and what was expected.
    """
    builder = TraceBuilder(pools)
    for job in past_jobs(read_records(path, text=text)):
        first, last, shape = job.first, job.last, job.shape
        pool = f"{last.cluster}/{last.partition}"
        pool = pool if builder.knows(pool) else last.partition
        if job.left_out is not None:
            builder.leave_out(job.left_out, last.job_id, last.line, pool, shape.gpus)
            continue
        builder.add(
            job_id=last.job_id,
            line=last.line,
            submit_s=first.submit_s,
            duration_s=job.duration_s,
            gpus=shape.gpus,
            num_nodes=shape.nodes,
            cpus=shape.cpus,
            pool=pool,
            user=last.user,
        )
    return builder.trace
