"""Selects nodes under no more leaf switches than a job wants (``--switches``)."""

from __future__ import annotations

from federator.model.constraint import Way
from federator.model.reason import Reason, ReasonCode
from federator.model.workload import Job
from federator.sched.bid.fabric import Fabric
from federator.sched.bid.free_capacity import FreeNode
from federator.sched.bid.node_selection import choose, least_share, nodes_fitting
from federator.sched.bid.racks import Racks


def under_few_switches(
    job: Job, suitable: list[FreeNode], chosen: list[FreeNode], fabric: Fabric, way: Way
) -> list[FreeNode] | Reason:
    """The nodes as chosen, if they are under few enough switches; else others, or why not.

    Those switches are tried that have most of what the job wants, beginning with those above nodes
    that it names. For a job of so many nodes alike that finds nodes whenever there are some; one
    with totals over so many nodes, or that counts features, may wait in vain until it gives up.

    Args:
        job: with ``switches``.
        suitable: as of ``choose``.
        chosen: by it.
        fabric: how nodes are connected.
        way: as of ``choose``.
    """
    spread = _switches(chosen)
    if spread <= job.switches:
        return chosen
    racks: Racks = {}
    for f in nodes_fitting(job, least_share(job), suitable):
        racks.setdefault(f.node.switch, []).append(f)
    named = frozenset(job.nodelist)

    def worth(rack: list[FreeNode]) -> tuple[int, int, str]:
        asked = sum(f.node.name in named for f in rack)
        return -asked, -_worth(job, rack), rack[0].node.switch

    best = sorted(racks.values(), key=worth)[: job.switches]
    found = choose(job, [f for rack in best for f in rack], fabric, way)
    if not isinstance(found, Reason):
        return found
    return Reason(
        code=ReasonCode.SWITCHES,
        job=job.name,
        needed=job.switches,
        free=spread,
        unit="leaf switches",
    )


def _switches(nodes: list[FreeNode]) -> int:
    return len({f.node.switch for f in nodes})


def _worth(job: Job, rack: list[FreeNode]) -> int:
    """What a rack has of that of which the job needs so much in all."""
    if job.nodes is None or job.gpus or job.cpus:
        return sum(max(0, f.gpus) if job.gpus else max(0, f.cpus) for f in rack)
    return len(rack)
