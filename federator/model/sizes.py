"""The sizes of an elastic job: on how many nodes it may start, and its request at one of them.

The jobs of an elastic workload ask for its least size: so it is ranked, bounded and refused by
what it cannot do without. Any other size is another value of the same job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from federator.model.submission import NodeRange
from federator.model.workload import Job, Workload

MOST_TRIED: Final = 16  # sizes of one job, beside the one that it asked for


def jobs_at(jobs: tuple[Job, ...], nodes: int) -> tuple[Job, ...]:
    """The jobs of an elastic workload on so many nodes; it has one job."""
    (job,) = jobs
    return (replace(job, nodes=nodes),)


def larger_sizes(workload: Workload) -> range:
    """The numbers of nodes above its least on which it may run, largest first; none if rigid.

    Nor has one of a record from before there were sizes any: it keeps the nodes it asked for.
    """
    elastic = workload.elastic
    least = workload.jobs[0].nodes
    if elastic is None or least is None or not elastic.asked:
        return range(0)
    return range(elastic.most, least, -elastic.step)


def tried_sizes(workload: Workload) -> Sequence[int]:
    """Those of its larger sizes that are looked at, largest first: each costs time at every site.

    Of many only some, at equal ratios, with the largest and the one that it asked for.
    """
    sizes = larger_sizes(workload)
    if len(sizes) <= MOST_TRIED:
        return sizes
    least, step = workload.jobs[0].nodes or 1, -sizes.step
    ratio = (sizes[0] / least) ** (1 / MOST_TRIED)
    at = (round((sizes[0] - least * ratio**k) / step) for k in range(1, MOST_TRIED + 1))
    found = {sizes[max(0, min(k, len(sizes) - 1))] for k in at} | {sizes[0]}
    return sorted(found | ({asked_nodes(workload)} - {least}), reverse=True)


def asked_nodes(workload: Workload) -> int:
    """As many nodes as an elastic workload asked for; the surplus of more is anybody's."""
    least = workload.jobs[0].nodes or 1
    return max(least, workload.elastic.asked) if workload.elastic is not None else least


def on_grid(elastic: NodeRange, nodes: int) -> bool:
    """Tell whether it can run on so many nodes."""
    return elastic.least <= nodes <= elastic.most and (elastic.most - nodes) % elastic.step == 0
