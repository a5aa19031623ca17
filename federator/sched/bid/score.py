"""Scores a bid: every term, the order of the terms, and their sum over a workload's jobs.

The smaller score wins; scores are compared term by term, in this order:

| term | computed by |
|---|---|
| ``preempts``, ``victims_priority``, ``victims``, ``lost_work_gpu_s`` | ``harm_of_victims`` |
| ``gpus_unasked`` | ``score_of_places`` |
| ``cost`` | ``cost_of_places``; the daemon counts it again: ``cost_of_plans`` |
| ``locality_cost``, ``gpu_worth``, ``fragmentation`` | ``score_of_places`` |
| ``bytes_to_move`` | nothing: ``sched.passes.staging`` weighs copies before a site is asked |

A job that evicts nobody has the first four terms 0. The log and the wire carry scores, so the
record itself, ``Score``, stands in the model; ``cost`` stands beside it, in ``Bid``. What each
term means: docs/placement.md, "Score".
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from federator.model.plan import JobPlan
from federator.model.score import Score
from federator.model.site import NodeShare
from federator.model.workload import Job
from federator.sched.bid.fabric import Fabric
from federator.sched.bid.fragmentation import rack_key
from federator.sched.bid.free_capacity import FreeCapacity, FreeNode
from federator.sched.bid.running_jobs import Occupant

PERFECT: Final = Score()  # nothing without GPUs can be better
_GRID: Final = 2.0**20

Harm = tuple[int, int, int, float]
"""The first terms of a score: evicts, whose priority, how many, how much work they lose."""


def total(scores: Iterable[Score], *, with_gpus: bool) -> Score:
    """The sum over a workload's jobs; ``with_gpus``: one of them has GPUs.

    Then a gang's racks must not be chosen by the node of a job that goes with it.
    """
    summed = Score(*(sum(terms) for terms in zip(*scores, strict=True)))
    return summed._replace(gpus_unasked=0) if with_gpus else summed


# ---- the terms of the victims ----


def harm_of_victims(victims: Sequence[Occupant], now_s: float) -> Harm:
    """The cost of evicting these. Those without GPUs count as holding one, as in the budget."""
    importance = max((victim.importance for victim in victims), default=0)
    lost = sum(v.cost_gpus * v.loss_s(now_s) for v in victims)
    return (1, importance, len(victims), on_grid(lost))


def harm_of(score: Score) -> Harm:
    """The part of a score that its victims make."""
    return score.preempts, score.victims_priority, score.victims, score.lost_work_gpu_s


def with_harm(score: Score, harm: Harm) -> Score:
    """The score of a placement that some must leave for."""
    return Score._make((*harm, *score[len(harm) :]))


# ---- the terms of the places ----


def score_of_places(
    job: Job, chosen: Sequence[FreeNode], shares: Sequence[NodeShare], room: FreeCapacity
) -> Score:
    """The score of one job on these nodes, with these shares of them, which nobody must leave."""
    return Score(
        gpus_unasked=0 if job.total_gpus else sum([max(0, f.gpus) for f in chosen]),
        locality_cost=locality_cost(chosen, shares, room.fabric),
        gpu_worth=on_grid(
            sum(s.gpus * f.node.gpu_worth for f, s in zip(chosen, shares, strict=True))
        ),
        fragmentation=_stranded_more(chosen, shares, room),
    )


Prices = Mapping[str, Mapping[str, float]]
"""What a GPU costs for an hour, by partition and GPU type; what is not there costs nothing."""


def cost_of_places(
    partition: str, chosen: Sequence[FreeNode], shares: Sequence[NodeShare], prices: Prices
) -> float:
    """What the GPUs of one job on these nodes cost for an hour; see ``Bid.cost``."""
    by_type = prices.get(partition)
    if not by_type:
        return 0.0
    pairs = zip(chosen, shares, strict=True)
    return sum(s.gpus * by_type.get(f.node.gpu_type or "", 0.0) for f, s in pairs if s.gpus)


def cost_of_plans(plans: Iterable[JobPlan], prices: Prices, types: Container[str]) -> float:
    """The same of the plan of a whole workload, whoever made it.

    GPUs of which the plan says no type, or one that is none of the site's ``types``, cost as much
    as the dearest of their partition.
    """
    cost = 0.0
    for plan in plans:
        by_type = prices.get(plan.partition)
        if not by_type:
            continue
        dearest = max(by_type.values())
        untyped = sum(share.gpus for share in plan.nodes.values()) - sum(plan.gpu_types.values())
        cost += untyped * dearest
        cost += sum(
            gpus * (by_type.get(name, 0.0) if name and name in types else dearest)
            for name, gpus in plan.gpu_types.items()
        )
    return cost


def locality_cost(chosen: Sequence[FreeNode], shares: Sequence[NodeShare], fabric: Fabric) -> float:
    """Sum of w(d) over all pairs of GPUs (of nodes, for a job without GPUs); see ``Fabric``."""
    if len(chosen) == 1:
        return 0.0
    units: dict[str, list[int]] = {}
    for f, share in zip(chosen, shares, strict=True):
        units.setdefault(f.node.switch, []).append(share.gpus)
    if not any(any(gpus) for gpus in units.values()):
        units = {leaf: [1] * len(gpus) for leaf, gpus in units.items()}
    return fabric.locality_cost(units)


def _stranded_more(
    chosen: Sequence[FreeNode], shares: Sequence[NodeShare], room: FreeCapacity
) -> float:
    """By how many GPUs those of no use in the racks of a plan become more; negative: fewer.

    A free GPU needs its part of the node's CPUs: without it is of no use to anybody.
    """
    taken: dict[int, list[tuple[FreeNode, NodeShare]]] = {}
    for f, share in zip(chosen, shares, strict=True):
        if f.node.gpus:  # nodes without a switch are no rack
            taken.setdefault(id(f.rack if f.node.switch else f), []).append((f, share))
    more = 0.0
    for of_rack in taken.values():
        first = of_rack[0][0]
        if first.node.switch:
            usable, before = first.rack.usable()
        else:
            usable = {id(first): first.usable_gpus}
            before = rack_key(usable.values())
        after, starved = usable.copy(), 0
        for f, share in of_rack:
            node, key = f.node, id(f)
            left = min(f.gpus - share.gpus, (f.cpus - share.cpus) * node.gpus // (node.cpus or 1))
            starved += after[key] - share.gpus - left
            after[key] = left
        more += starved + room.mix.stranded(rack_key(after.values())) - room.mix.stranded(before)
    return on_grid(more)


# ---- exact sums ----


def on_grid(amount: float) -> float:
    """A multiple of 2**-20, whose sums are exact.

    What is equal must compare as equal, in whatever order it was added up: otherwise noise in the
    last digit would decide between sites, before their order does.
    """
    return round(amount * _GRID) / _GRID
