"""Simulates the fleet's own last month with more GPUs of a type, for ``federator capacity advise``.

Workloads are those of the history; each may run where its type of GPU is. The same month is lived
through twice, as the fleet is and with more nodes, so that both have the same arrivals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

import numpy as np

from federator.config import FederationConfig
from federator.history.past_work import PastWork
from federator.model.workload import Job, SiteName
from federator.sim.importers.whatif_workload import History, PastWorkload
from federator.sim.report.bootstrap import DRAWS, FEWEST_DAYS, Interval
from federator.sim.trace import ReplayOptions, TracePool
from federator.sim.whatif import live_through, question_of, rules_of

P95: Final = 95.0
_DAY_S: Final = 86_400.0
_SIDES: Final = (5.0, 95.0)
_LOOKS_EVERY_S: Final = 3600.0
"""Passes follow each change; the rest of the daemon's, every five minutes, are most of a month."""
_NO_TYPE: Final = "gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedNodes:
    """The nodes of one GPU type at a site, as far as the federation's work could have them."""

    site: str
    gpu_type: str
    nodes: int
    gpus_per_node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedWait:
    """How long a workload of some type waits; ``day``: when it came."""

    day: int
    wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """P95 waits as the fleet is and with more; ``ratio`` is None where nobody waits.

    ``workloads``: that started in both; 0: none could be simulated, and nothing is known.
    """

    workloads: int
    before_s: float
    after_s: float
    ratio: float | None
    interval: Interval | None  # None: too few days


def with_more(nodes: Sequence[TypedNodes], gpu_type: str, gpus: int) -> tuple[TypedNodes, ...]:
    """The fleet with whole nodes more of a type, at the site that has most of it."""
    own = [each for each in nodes if each.gpu_type == gpu_type]
    most = max(own, key=lambda each: (each.nodes * each.gpus_per_node, each.site))
    more = TypedNodes(
        site=most.site,
        gpu_type=gpu_type,
        nodes=most.nodes + ceil(gpus / most.gpus_per_node),
        gpus_per_node=most.gpus_per_node,
    )
    return tuple(more if each is most else each for each in nodes)


def replayed(
    work: Sequence[PastWork],
    nodes: Sequence[TypedNodes],
    config: FederationConfig,
    since_s: float,
) -> dict[int, SimulatedWait]:
    """The waits of what came since a time, by id; what no site could ever run is left out."""
    of_site = _pools(nodes, config)
    past = tuple(sorted(map(_past, work), key=lambda each: (each.came_s, int(each.job_id))))
    question = question_of(History(workloads=past, left_out=()), of_site, config)
    gpus = sum(site.gpus for site in question.scenario.sites)
    rules = replace(rules_of(config, gpus), pass_interval_s=_LOOKS_EVERY_S)
    lives = live_through(question.scenario, config, rules, ReplayOptions())
    return {
        int(each.job_id): SimulatedWait(
            day=int(each.came_s // _DAY_S),
            wait_s=max(0.0, question.begin_s + life.first_start_s - each.came_s),
        )
        for each, life in zip(question.history.workloads, lives, strict=True)
        if each.came_s >= since_s and life.first_start_s >= 0
    }


def gain(
    before: Mapping[int, SimulatedWait], after: Mapping[int, SimulatedWait], seed: int = 0
) -> Gain:
    """P95 of the same workloads in both, and how far the ratio depends on which days were seen."""
    both = sorted(before.keys() & after.keys())
    days: dict[int, list[tuple[float, float]]] = {}
    for id_ in both:
        days.setdefault(before[id_].day, []).append((before[id_].wait_s, after[id_].wait_s))
    parts = [np.array(days[day]) for day in sorted(days)]
    if not parts:
        return Gain(workloads=0, before_s=0.0, after_s=0.0, ratio=None, interval=None)
    old_s, new_s = np.percentile(np.concatenate(parts), P95, axis=0)
    drawn = np.random.default_rng(seed).integers(0, len(parts), size=(DRAWS, len(parts)))
    ratios = []
    for draw in drawn if len(parts) >= FEWEST_DAYS and old_s > 0 else ():
        a, b = np.percentile(np.concatenate([parts[k] for k in draw]), P95, axis=0)
        if a > 0:
            ratios.append(b / a)
    sides = np.percentile(ratios, _SIDES) if ratios else None
    return Gain(
        workloads=len(both),
        before_s=float(old_s),
        after_s=float(new_s),
        ratio=float(new_s / old_s) if old_s > 0 else None,
        interval=None if sides is None else Interval(float(sides[0]), float(sides[1])),
    )


def _pools(
    nodes: Sequence[TypedNodes], config: FederationConfig
) -> dict[SiteName, tuple[TracePool, ...]]:
    found: dict[SiteName, tuple[TracePool, ...]] = {}
    for name in config.sites:
        own = tuple(
            TracePool(
                name=f"{name}/{each.gpu_type or _NO_TYPE}",
                nodes=each.nodes,
                gpus_per_node=each.gpus_per_node,
                gpu_type=each.gpu_type,
            )
            for each in nodes
            if each.site == name and each.nodes > 0
        )
        if own:
            found[name] = own
    return found


def _past(work: PastWork) -> PastWorkload:
    even = work.gpus % work.nodes == 0
    job = Job(
        name="job",
        nodes=work.nodes if even else None,
        gpus_per_node=work.gpus // work.nodes if even else 0,
        gpus=0 if even else work.gpus,
        gpu_types=work.gpu_types,
    )
    start_s, ran_s = round(work.start_s), max(1, round(work.ran_s))
    return PastWorkload(
        job_id=str(work.id),
        site=SiteName(work.site),
        line=0,
        account=work.tenant,
        user=work.user,
        submitted_s=round(work.came_s),
        came_s=round(work.came_s),
        start_s=start_s,
        duration_s=ran_s,
        limit_s=work.limit_s,
        preemptions=0,
        held=((start_s, start_s + ran_s, work.gpus),),
        jobs=(job,),
    )
