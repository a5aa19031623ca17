"""``cells``: compares cells that tenants own (HiveD) with what the federation does, on nodes.

Each pool of a trace is a tenant's quota. Its jobs are replayed by strict FIFO in their own pool,
alone; by ``hived``, which gives each pool as many node cells and lends idle ones; by ``hived`` when
nobody is stopped (SIA's HiveD*); and by the federation under some rules, which lends by forecasts
where nobody is stopped. A job is late if it ends more than ``late_s`` later than alone.

Idle GPUs are *fragmented* at an instant at which a job waits that asks for no more than are idle in
all: what keeps it out is which node or pool they are in, or whose turn it is, and not their number.

Source:
    The figures are chosen here. HiveD (OSDI'20): a tenant is never worse off than in a cluster of
    its own. SIA sec. 6.1: HiveD*; sec. 5.5 and 6.4 (Figure 16): forecasts and cells together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, log
from typing import Final

from federator.planner.boosted import xgboost
from federator.sim.baselines.fifo import FifoReplay
from federator.sim.baselines.hived import HivedReplay
from federator.sim.experiments.base import (
    Cell,
    DataTable,
    ExperimentResult,
    bounded,
    mean,
    parameters_of,
)
from federator.sim.federation_replay import FederationReplay
from federator.sim.generate.sia import sia_workload
from federator.sim.runs.base import Progress, SimRun
from federator.sim.trace import ReplayOptions, Stays, Timetable, Trace

_HOUR_S: Final = 3600.0
_MADE_UP: Final = "base"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFigures:
    """What became of a trace under one rule.

    Attributes:
        jobs: of the trace.
        late: of those, the ones that ended late.
        worst_s: the most that one ended later than alone; 0: none did.
        late_s: all late jobs together.
        speedup: geometric mean of the completion time alone / under the rule.
        completion_s: mean from submission to end.
        preemptions: of all jobs.
        gpu_use: of the time from the first submission to the last.
    """

    jobs: int
    late: int
    worst_s: float
    late_s: float
    speedup: float
    completion_s: float
    preemptions: int
    gpu_use: GpuTimeParts


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTimeParts:
    """Of all GPU time, parts.

    Attributes:
        allocated_frac: held by jobs.
        allocated_in_demand_frac: the same while jobs hold and ask for all GPUs, or more; None: they
            never did.
        fragmented_frac: idle, and enough for a job that waited.
    """

    allocated_frac: float
    allocated_in_demand_frac: float | None
    fragmented_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTask:
    """A trace under one rule."""

    trace: Trace
    policy: FifoReplay | HivedReplay | FederationReplay
    late_s: float

    def __call__(self, progress: Progress) -> CellFigures:
        trace, count, done = self.trace, max(1, 2 * len(self.trace)), 0

        def more(jobs: int) -> None:
            nonlocal done
            done += jobs
            progress(min(1.0, done / count))

        options = ReplayOptions(progress=more)
        alone = FifoReplay().replay(trace, ReplayOptions())
        if isinstance(self.policy, FederationReplay):
            lives = self.policy.lives(trace, options)
            stays: Stays = [()] * len(trace)
            for row, life in zip(trace.in_order(), lives, strict=True):
                stays[row] = [(stay.start_s, stay.end_s) for stay in life.stays]
        elif isinstance(self.policy, HivedReplay):
            stays = self.policy.stays(trace, options)
        else:
            table = self.policy.replay(trace, options)
            stays = [[stay] for stay in zip(table.start_s, table.end_s, strict=True)]
        return figures(trace, alone, stays, self.late_s)


def figures(trace: Trace, alone: Timetable, stays: Stays, late_s: float) -> CellFigures:
    """Compare when jobs ran with their times alone; all by row."""
    ends_s = [own[-1][1] for own in stays]
    later_s = [end_s - alone_s for end_s, alone_s in zip(ends_s, alone.end_s, strict=True)]
    late = [by_s for by_s in later_s if by_s > late_s]
    alone_s = [b - a for a, b in zip(trace.submit_s, alone.end_s, strict=True)]
    here_s = [b - a for a, b in zip(trace.submit_s, ends_s, strict=True)]
    return CellFigures(
        jobs=len(trace),
        late=len(late),
        worst_s=max(0.0, *later_s),
        late_s=sum(late),
        speedup=exp(mean(log(a / b) for a, b in zip(alone_s, here_s, strict=True))),
        completion_s=mean(here_s),
        preemptions=sum(len(own) - 1 for own in stays),
        gpu_use=gpu_use(trace, stays),
    )


def gpu_use(trace: Trace, stays: Stays) -> GpuTimeParts:
    """How the GPUs of a trace were used until its last submission."""
    span = min(trace.submit_s), max(trace.submit_s)
    held = in_demand_s = held_in_demand = fragmented = 0.0
    for lasts_s, used, waiting in _instants(trace, stays, span):
        idle = trace.capacity - used
        held += used * lasts_s
        if used + sum(gpus * jobs for gpus, jobs in waiting.items()) >= trace.capacity:
            in_demand_s += lasts_s
            held_in_demand += used * lasts_s
        if any(gpus <= idle for gpus, jobs in waiting.items() if jobs and gpus):
            fragmented += idle * lasts_s
    total = trace.capacity * max(1, span[1] - span[0])
    return GpuTimeParts(
        allocated_frac=held / total,
        allocated_in_demand_frac=(
            held_in_demand / (trace.capacity * in_demand_s) if in_demand_s else None
        ),
        fragmented_frac=fragmented / total,
    )


def _instants(
    trace: Trace, stays: Stays, span: tuple[float, float]
) -> Iterator[tuple[float, int, Mapping[int, int]]]:
    """Stretches in which nothing changes: how long, GPUs in use, jobs that wait by their GPUs."""
    changes: dict[float, list[tuple[int, int, int]]] = {span[0]: [], span[1]: []}
    for row, own in enumerate(stays):
        gpus = trace.gpus[row]
        changes.setdefault(trace.submit_s[row], []).append((gpus, 0, 1))
        for k, (start_s, end_s) in enumerate(own, 1):
            changes.setdefault(start_s, []).append((gpus, gpus, -1))
            changes.setdefault(end_s, []).append((gpus, -gpus, int(k < len(own))))
    used, waiting = 0, Counter[int]()
    for at_s, next_s in pairwise(sorted(changes)):
        for gpus, more, waits in changes[at_s]:
            used += more
            waiting[gpus] += waits
        if at_s >= span[1]:
            return
        yield next_s - at_s, used, waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class CellsExperiment:
    """Parameters.

    Attributes:
        trace: whose pools are quotas; None: SIA's synthetic workload.
        nodes: of 8 GPUs, of each pool of the synthetic workload.
        budget_frac: of all GPUs, that the federation may evict in a window.
        window_s: its length.
        save_s: that a victim of the federation needs to save.
        late_s: what ends later than alone by more than that is late.
        most_jobs: of the trace, the first that were submitted.
    """

    trace: Trace | None = None
    nodes: int = bounded(1, 1, 1000)
    budget_frac: float = bounded(0.05, 0.001, 1.0)
    window_s: float = bounded(600.0, 1.0, 86_400.0)
    save_s: float = bounded(60.0, 0.0, 86_400.0)
    late_s: float = bounded(600.0, 0.0, 1e7)
    most_jobs: int = bounded(10_000_000, 1, 10_000_000)

    def runs(self, seed: int) -> list[SimRun[CellFigures]]:
        xgboost()  # before the work: some rules forecast
        trace = self.trace
        if trace is None:
            made_up = sia_workload(_MADE_UP)
            gpus = made_up.queue_gpus * self.nodes
            trace = replace(made_up, queue_gpus=gpus, queue_nodes=self.nodes).generate(seed)
        trace = trace.first(self.most_jobs)
        return [
            SimRun(
                name=rule,
                task=CellTask(trace=trace, policy=policy, late_s=self.late_s),
                returns=CellFigures,
            )
            for rule, policy in self._rules().items()
        ]

    def _rules(self) -> dict[str, FifoReplay | HivedReplay | FederationReplay]:
        evicts = {
            "preempt_frac": self.budget_frac,
            "preempt_window_s": self.window_s,
            "save_s": self.save_s,
            "home": 1.0,
        }
        lends = {"lending": 1.0, "home": 1.0}
        cells = {**lends, "cells": 1.0}
        known = {**cells, "known_durations": 1.0}
        return {
            "pool-fifo": FifoReplay(),
            "hived": HivedReplay(),
            "hived, preempts nobody": HivedReplay(preempts=False),
            "mast": FederationReplay(),
            "mast, evicts, home": FederationReplay.adjusted(evicts),
            "mast, lends by forecasts": FederationReplay.adjusted(lends),
            "mast, lends by forecasts, cells": FederationReplay.adjusted(cells),
            "mast, the same, run times known": FederationReplay.adjusted(known),
        }

    def result(self, found: Sequence[CellFigures]) -> ExperimentResult:
        table = DataTable(
            name="cells",
            title=f"jobs that end more than {self.late_s:g} s later than alone, and GPUs in use",
            columns=_COLUMNS,
            rows=tuple(_rows(self._rules(), found)),
            about=_ABOUT,
        )
        return ExperimentResult(
            title="cells that tenants own, beside the federation",
            parameters=parameters_of(self),
            tables=(table,),
            notes=_NOTES,
        )


def _rows(rules: Iterable[str], found: Sequence[CellFigures]) -> Iterator[tuple[Cell, ...]]:
    for rule, each in zip(rules, found, strict=True):
        yield (
            rule,
            each.late,
            each.late / max(1, each.jobs),
            each.worst_s / _HOUR_S,
            each.late_s / _HOUR_S,
            each.speedup,
            each.completion_s / _HOUR_S,
            each.preemptions,
            each.gpu_use.allocated_frac,
            each.gpu_use.allocated_in_demand_frac,
            each.gpu_use.fragmented_frac,
        )


_COLUMNS: Final = (
    "rule",
    "late",
    "late_frac",
    "worst_h",
    "late_h",
    "speedup_geometric_mean",
    "completion_h",
    "preemptions",
    "allocated_frac",
    "allocated_in_demand_frac",
    "fragmented_frac",
)
_ABOUT: Final = (
    "late_h: all late jobs together. speedup: completion time alone / under the rule. "
    "completion_h: mean from submission to end. allocated: of all GPU time from the first "
    "submission to the last; in_demand: while jobs hold and ask for all GPUs or more. fragmented: "
    "idle, and at least as many as some job that waited asked for."
)
_NOTES: Final = (
    "Alone: each pool in strict order of submission, on its own nodes, as pool-fifo.",
    "hived has the nodes of all pools as one cluster, and preempts at no cost: a job goes on where "
    "it stopped. Under mast each pool is a site, a job stays in one, and victims save first. Who "
    "lends by forecasts evicts nobody, and each quota has its pool as its home.",
)
