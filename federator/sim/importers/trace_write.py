"""Writes a trace as ``T.csv`` and ``P.csv``, which ``read_trace`` reads back."""

from __future__ import annotations

import csv
from typing import IO

from federator.sim.trace import Trace


def write_pools(trace: Trace, file: IO[str]) -> None:
    """Write the pools, in their order; types of GPU only where any pool has one."""
    typed = any(pool.gpu_type for pool in trace.pools)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("pool", "nodes", "gpus_per_node", "gpus", *["gpu_type"] * typed))
    writer.writerows(
        (p.name, p.nodes, p.gpus_per_node, p.gpus, *[p.gpu_type] * typed) for p in trace.pools
    )


def write_trace(trace: Trace, file: IO[str]) -> None:
    """Write the jobs, in the order of their rows; CPUs and states that are unknown stay so."""
    names = [pool.name for pool in trace.pools]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        ("submit_s", "duration_s", "gpus", "num_nodes", "pool", "user", "status", "cpus", "job_id")
    )
    writer.writerows(
        zip(
            trace.submit_s,
            trace.duration_s,
            trace.gpus,
            trace.num_nodes,
            (names[pool] for pool in trace.pool),
            trace.user,
            [""] * len(trace),
            (n or "" for n in trace.cpus),
            trace.job_id,
            strict=True,
        )
    )
