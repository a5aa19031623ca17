"""``joint``: measures what a round would gain if it chose the nodes of all its jobs together.

Jobs come and go on a fleet that the federation's own ``SiteScheduler`` and score place on, in order
of submission; one that does not fit is passed over. In each round that leaves a job waiting though
enough GPUs are free, ``joint_round`` is asked twice about the same jobs and the same free GPUs:
what starts at best if an earlier job counts more than all later ones together, and how many GPUs
start at most beside all that the federation starts. The fleet then goes on as the federation
decided.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import product
from math import ceil
from typing import Final

from federator.errors import InvalidRequest
from federator.sim.experiments.base import (
    Cell,
    DataTable,
    ExperimentResult,
    Plot,
    PlotKind,
    at_fraction,
    bounded,
    parameters_of,
    seeded,
)
from federator.sim.experiments.fragmentation import StreamSetup
from federator.sim.experiments.placers import NODE_GPUS, Layout, federation
from federator.sim.experiments.stream import StreamJob
from federator.sim.joint_round import best_round
from federator.sim.runs.base import Progress, SimRun

_MOST_JOBS: Final = 20  # of a round: worth is a power of two


@dataclass(slots=True, kw_only=True)
class JointRounds:
    """What was seen in the rounds of a draw.

    Attributes:
        rounds: in which a job was left although enough GPUs were free.
        earlier: of those, the ones where a joint choice starts an earlier job.
        more: the ones where it starts more beside all that started.
        gained_gpu_s: GPUs that it starts beside, until the next round, over time.
        all_gpu_s: of the fleet, over all the time.
        solver_ms: CPU time of each question to the solver.
    """

    rounds: int = 0
    earlier: int = 0
    more: int = 0
    gained_gpu_s: float = 0.0
    all_gpu_s: float = 0.0
    solver_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class JointTask:
    """One draw of a stream.

    Attributes:
        jobs: what the stream is drawn from.
        seed: of the draw.
        most: jobs of a round that are decided together.
        every_s: from one round to the next; 0: at each submission and end.
    """

    jobs: StreamSetup
    seed: str
    most: int
    every_s: float

    def __call__(self, _: Progress) -> JointRounds:
        layout, jobs = self.jobs.layout, self.jobs.stream(self.seed)
        return _Replay(layout, jobs, self).run()


class _Replay:
    """A stream, placed round by round."""

    def __init__(self, layout: Layout, jobs: Sequence[StreamJob], task: JointTask) -> None:
        self._layout, self._jobs = layout, jobs
        self._most, self._every_s = task.most, task.every_s
        self._placer = federation(layout, seeded(task.seed))
        self._free = [NODE_GPUS] * (layout.sites * layout.site_nodes)
        self._ends: list[tuple[float, int, list[int]]] = []
        self._waiting: list[int] = []
        self._seen = JointRounds()

    def run(self) -> JointRounds:
        at, now_s, gained, seen = 0, 0.0, 0, self._seen
        while at < len(self._jobs):
            next_s = min([self._jobs[at].at_s] + [end[0] for end in self._ends[:1]])
            if self._every_s:
                next_s = max(now_s, ceil(next_s / self._every_s) * self._every_s)
            seen.gained_gpu_s += gained * (next_s - now_s)
            seen.all_gpu_s += self._layout.gpus * (next_s - now_s)
            now_s = next_s
            while self._ends and self._ends[0][0] <= now_s:
                _, job, nodes = heappop(self._ends)
                self._placer.release(job)
                self._take(nodes, -self._jobs[job].gpus)
            while at < len(self._jobs) and self._jobs[at].at_s <= now_s:
                self._waiting.append(at)
                at += 1
            gained = self._round(now_s)
        return seen

    def _round(self, now_s: float) -> int:
        """Start what fits; the GPUs that a joint choice would start beside."""
        asked, free = self._waiting[: self._most], self._free[:]
        for job in self._waiting[:]:
            gpus = self._jobs[job].gpus
            nodes = self._placer.place(job, gpus, self._free)
            if nodes is not None:
                self._take(nodes, gpus)
                heappush(self._ends, (now_s + self._jobs[job].duration_s, job, nodes))
                self._waiting.remove(job)
        return self._beside(asked, free)

    def _beside(self, asked: Sequence[int], free: Sequence[int]) -> int:
        waiting = set(self._waiting)
        gpus = [self._jobs[job].gpus for job in asked]
        started = frozenset(at for at, job in enumerate(asked) if job not in waiting)
        left = [gpus[at] for at in range(len(asked)) if at not in started]
        if not left or min(left) > sum(free) - sum(gpus[at] for at in started):
            return 0
        count, seen = len(asked), self._seen
        earlier = self._ask(free, gpus, [2.0 ** (count - at) for at in range(count)])
        more = self._ask(free, gpus, gpus, started)
        gained = sum(gpus[at] for at in more - started)
        seen.rounds += 1
        seen.earlier += earlier != started and min(earlier ^ started) in earlier
        seen.more += gained > 0
        return gained

    def _ask(
        self,
        free: Sequence[int],
        gpus: Sequence[int],
        worth: Sequence[float],
        kept: frozenset[int] = frozenset(),
    ) -> frozenset[int]:
        began_s = time.process_time()
        found = best_round(self._layout, free, gpus, worth, kept)
        self._seen.solver_ms.append(1000 * (time.process_time() - began_s))
        return found

    def _take(self, nodes: Sequence[int], gpus: int) -> None:
        for node in nodes:
            self._free[node] -= gpus // len(nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class JointExperiment:
    """Parameters.

    Attributes:
        sites: numbers of sites among which the racks are divided, one after the other.
        racks: in all.
        nodes: of a rack, with eight GPUs each.
        loads: that are tried.
        every_min: from one round to the next; 0: at each submission and end.
        sizes: GPU counts of jobs: a part of a node, or whole nodes.
        shares: of the jobs that have each.
        jobs: in a draw.
        draws: of each load.
        most: jobs of a round that are decided together: the first in the queue.
        median_min: of the durations.
        sigma: of the logarithm of the durations.
    """

    sites: tuple[int, ...] = bounded((1, 3), 1, 100)
    racks: int = bounded(6, 1, 100)
    nodes: int = bounded(4, 1, 100)
    loads: tuple[float, ...] = bounded((0.9, 1.2), 0.01, 10.0)
    every_min: tuple[float, ...] = bounded((0.0, 10.0, 60.0), 0.0, 1e4)
    sizes: tuple[int, ...] = bounded((1, 2, 4, 8, 16, 32), 1, 10_000)
    shares: tuple[float, ...] = bounded((0.58, 0.065, 0.075, 0.2, 0.03, 0.05), 0.0, 1e6)
    jobs: int = bounded(1000, 10, 10**5)
    draws: int = bounded(3, 1, 1000)
    most: int = bounded(12, 2, _MOST_JOBS)
    median_min: float = bounded(60.0, 0.1, 1e6)
    sigma: float = bounded(1.2, 0.0, 5.0)

    def runs(self, seed: int) -> list[SimRun[JointRounds]]:
        self._check()
        return [
            SimRun(
                name=f"draw {draw}, {_name(sites, load, every_min)}",
                task=JointTask(
                    jobs=StreamSetup(
                        layout=Layout(sites=sites, racks=self.racks // sites, nodes=self.nodes),
                        load=load,
                        jobs=self.jobs,
                        sizes=self.sizes,
                        shares=self.shares,
                        median_min=self.median_min,
                        sigma=self.sigma,
                    ),
                    seed=f"{seed}/{draw}",
                    most=self.most,
                    every_s=60 * every_min,
                ),
                returns=JointRounds,
            )
            for sites, load, every_min, draw in self._keys()
        ]

    def result(self, found: Sequence[JointRounds]) -> ExperimentResult:
        by_setting: dict[str, list[JointRounds]] = {}
        for (sites, load, every_min, _), one in zip(self._keys(), found, strict=True):
            by_setting.setdefault(_name(sites, load, every_min), []).append(one)
        return ExperimentResult(
            title="what would it gain to place the jobs of a round together?",
            parameters=parameters_of(self),
            tables=(_summary(by_setting),),
            plots=(_PLOT,),
            notes=_NOTES,
        )

    def _keys(self) -> Iterator[tuple[int, float, float, int]]:
        return product(self.sites, self.loads, self.every_min, range(self.draws))

    def _check(self) -> None:
        if len(self.sizes) != len(self.shares) or not sum(self.shares):
            raise InvalidRequest("--set: shares: expected one for each of sizes, not all 0")
        for sites in self.sites:
            if self.racks % sites:
                raise InvalidRequest(
                    f"--set: sites: {self.racks} racks cannot be divided by {sites}"
                )
        most = NODE_GPUS * self.nodes * self.racks // max(self.sites)
        for size in self.sizes:
            if size > most or (size > NODE_GPUS and size % NODE_GPUS):
                raise InvalidRequest(
                    f"--set: sizes: {size}: expected a part of a node, or whole nodes of "
                    f"{NODE_GPUS} GPUs, at most a site's {most}"
                )


def _name(sites: int, load: float, every_min: float) -> str:
    return f"{sites} x {load:g}" + f", each {every_min:g} min" * bool(every_min)


def _summary(found: Mapping[str, Sequence[JointRounds]]) -> DataTable:
    rows: list[tuple[Cell, ...]] = []
    for setting, draws in found.items():
        rounds = sum(one.rounds for one in draws)
        took_ms = sorted(ms for one in draws for ms in one.solver_ms)
        rows.append(
            (
                setting,
                rounds,
                sum(one.earlier for one in draws) / rounds if rounds else None,
                sum(one.more for one in draws) / rounds if rounds else None,
                sum(one.gained_gpu_s for one in draws) / sum(one.all_gpu_s for one in draws),
                at_fraction(took_ms, 0.5) if took_ms else None,
                at_fraction(took_ms, 0.95) if took_ms else None,
                took_ms[-1] if took_ms else None,
            )
        )
    return DataTable(
        name="summary",
        title="Rounds that left a job although enough GPUs were free",
        columns=(
            "setting",
            "rounds",
            "earlier_frac",
            "more_frac",
            "allocated_gain_frac",
            "solver_median_ms",
            "solver_p95_ms",
            "solver_most_ms",
        ),
        rows=tuple(rows),
        about=_ABOUT,
    )


_ABOUT: Final = (
    "setting: sites x load, and how far rounds are apart. earlier_frac: of these rounds, those "
    "where a joint choice starts a job that comes before all that it leaves out instead; "
    "more_frac: where it starts more beside all that the federation starts. allocated_gain_frac: "
    "GPUs of the latter until the next round, of all GPUs over time; what is gained in one round "
    "may be lost in a later one. solver: CPU time."
)
_NOTES: Final = (
    "The joint choice looks at one round: it does not know what comes.",
    "It keeps gangs in a site, but not in as few racks as the federation does: a joint choice by "
    "the federation's score gains no more.",
    "The solver's times differ from call to call; all other figures do not.",
)
_PLOT: Final = Plot(
    table="summary",
    title="GPUs that a joint choice would start beside",
    x="setting",
    y="allocated_gain_frac",
    low="allocated_gain_frac",
    high="allocated_gain_frac",
    by="setting",
    kind=PlotKind.RANGES,
    x_label=" ",
    y_label="of all GPUs, over time",
)
