"""Selects the pools of a trace that share in an experiment, with their GPUs.

Source:
    SIA sec. 6.1: queues picked at random, each with "an average load number uniformly at random
    between 0.6 and 1.1", its quota scaled accordingly; and sec. 6.5, Table 17: all pools as they
    are, and all but the two that contribute the most free resources. A pool is a quota there, so
    a counter of GPUs here. Of a job that is wider than its scaled pool nothing is said: it is left
    out.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from federator.sim.importers.trace_csv import TraceBuilder
from federator.sim.trace import Trace, TracePool


def demands_gpu_s(trace: Trace) -> list[int]:
    """GPU-seconds of all jobs of each pool."""
    demand = [0] * len(trace.pools)
    for pool, gpus, duration_s in zip(trace.pool, trace.gpus, trace.duration_s, strict=True):
        demand[pool] += gpus * duration_s
    return demand


def span_s(trace: Trace) -> int:
    """From the first submission to the last; at least 1."""
    return max(1, max(trace.submit_s, default=0) - min(trace.submit_s, default=0))


def with_pools(trace: Trace, gpus: Mapping[int, int]) -> Trace:
    """The jobs of some pools, each of so many GPUs; rows in the order of the trace."""
    counters = {
        pool: TracePool(name=trace.pools[pool].name, nodes=count, gpus_per_node=1)
        for pool, count in gpus.items()
    }
    builder = TraceBuilder(tuple(counters.values()))
    for row, pool in enumerate(trace.pool):
        if pool in counters:
            builder.add(
                job_id=trace.job_id[row],
                line=0,
                submit_s=trace.submit_s[row],
                duration_s=trace.duration_s[row],
                gpus=trace.gpus[row],
                num_nodes=trace.num_nodes[row],
                cpus=trace.cpus[row],
                pool=counters[pool].name,
                user=trace.user[row],
            )
    return builder.trace


def without_donors(trace: Trace, donors: int) -> Trace:
    """All pools but those with the most idle GPU time; ties go to the pool named first."""
    demand, span = demands_gpu_s(trace), span_s(trace)
    idle = [pool.gpus * span - used for pool, used in zip(trace.pools, demand, strict=True)]
    gone = sorted(range(len(idle)), key=lambda pool: (-idle[pool], pool))[:donors]
    kept = {k: pool.gpus for k, pool in enumerate(trace.pools) if k not in gone}
    return with_pools(trace, kept)


def drawn_pools(trace: Trace, count: int, loads: tuple[float, float], draw: Random) -> Trace:
    """Some pools at random, with as many GPUs as make a load drawn for each; all, if too few.

    Args:
        trace: pools without demand are not drawn.
        count: of pools.
        loads: between which each load is drawn uniformly.
        draw: from which all is drawn.
    """
    demand, span = demands_gpu_s(trace), span_s(trace)
    used = [pool for pool, gpu_s in enumerate(demand) if gpu_s]
    chosen = sorted(draw.sample(used, min(count, len(used))))
    sizes = {pool: demand[pool] / (draw.uniform(*loads) * span) for pool in chosen}
    return with_pools(trace, {pool: max(1, round(size)) for pool, size in sizes.items()})
