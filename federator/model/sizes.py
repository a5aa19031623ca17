"""The sizes of an elastic job: on how many nodes it may start, and its request at one of them.

The jobs of an elastic workload ask for its least size: so it is ranked, bounded and refused by
what it cannot do without. Any other size is another value of the same job.
"""

from __future__ import annotations

from dataclasses import replace

from federator.model.submission import NodeRange
from federator.model.workload import Job, Workload


def jobs_at(jobs: tuple[Job, ...], nodes: int) -> tuple[Job, ...]:
    """The jobs of an elastic workload on so many nodes; it has one job."""
    (job,) = jobs
    return (replace(job, nodes=nodes),)


def larger_sizes(workload: Workload) -> tuple[int, ...]:
    """The numbers of nodes above its least on which it may run, largest first; () if rigid."""
    elastic = workload.elastic
    least = workload.jobs[0].nodes
    if elastic is None or least is None:
        return ()
    return tuple(range(elastic.most, least, -elastic.step))


def asked_nodes(workload: Workload) -> int:
    """As many nodes as an elastic workload asked for; the surplus of more is anybody's."""
    least = workload.jobs[0].nodes or 1
    return max(least, workload.elastic.asked) if workload.elastic is not None else least


def on_grid(elastic: NodeRange, nodes: int) -> bool:
    """Tell whether it can run on so many nodes."""
    return elastic.least <= nodes <= elastic.most and (elastic.most - nodes) % elastic.step == 0
