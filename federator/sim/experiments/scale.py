"""``scale``: measures where the daemon's decisions saturate, and how their cost grows.

Sites, GPUs, pending workloads and submissions per second are each varied while the other three stay
at their base. Everything is decided by the federation's own code in virtual time; CPU time is
measured around each decision, see ``scale_fleet``. So the figures differ from machine to machine,
and a little from call to call; the decisions do not.

Source:
    MAST (OSDI'24) sec. 5.4: a pass of the global scheduler takes 34 s for 6,000 to 10,000 workloads
    and is made every 5 minutes, which leaves room for 8.8 times as many; the slowest regional
    scheduler takes 1.3 ms for a workload, 5.5 ms with preemption, at 100,000 attempts a day, which
    with quadratic growth leaves room for 12 times as many.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Final

from federator.sim.experiments.base import (
    ExperimentResult,
    Plot,
    bounded,
    parameters_of,
)
from federator.sim.experiments.scale_fleet import FleetSize, LoadedFleet, PassCosts
from federator.sim.experiments.scale_tables import AXES, Measured, tables
from federator.sim.fleet import seldom_collecting
from federator.sim.runs.base import Progress, SimRun


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePoint:
    """What was measured at one size.

    Attributes:
        size: of fleet and queue.
        machine: processor and Python.
        submit_s: CPU time of a submission, mean of the first ``pending``.
        first: the pass about a queue of which nothing is known.
        passes: those that followed.
    """

    size: FleetSize
    machine: str
    submit_s: float
    first: PassCosts
    passes: list[PassCosts]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTask:
    """Fills a fleet and a queue, and lives through some passes.

    Attributes:
        size: of both.
        tenants: at least 7.
        passes: after the first.
        period_s: virtual time from pass to pass.
        seed: of all that is drawn.
        machine: where it was asked for, so that kept results of another are not taken.
    """

    size: FleetSize
    tenants: int
    passes: int
    period_s: float
    seed: int
    machine: str

    def __call__(self, progress: Progress) -> ScalePoint:
        with seldom_collecting():
            fleet = LoadedFleet(self.size, self.tenants, self.seed)
            progress(0.2)
            first = fleet.first_pass()
            passes: list[PassCosts] = []
            for k in range(self.passes):
                progress(0.2 + 0.8 * (k + 1) / (self.passes + 1))
                passes.append(fleet.live(self.period_s))
        return ScalePoint(
            size=self.size,
            machine=processor(),
            submit_s=fleet.submit_s,
            first=first,
            passes=passes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleExperiment:
    """Parameters.

    Attributes:
        sites: numbers of sites that are tried.
        gpus: of all sites together.
        pending: workloads in the queue.
        per_s: submissions in a second.
        base_sites: while another is varied.
        base_gpus: the same.
        base_pending: the same.
        base_per_s: the same.
        passes: whose mean is taken.
        period_s: virtual time from pass to pass. While things change without pause the daemon makes
            a pass every 2 s, if it can.
        tenants: of the fleet.
        together: 1: also one point with all four at their largest; 0: not.
    """

    sites: tuple[int, ...] = bounded((1, 5, 20, 50, 100, 200), 1, 1000)
    gpus: tuple[int, ...] = bounded((1000, 10_000, 100_000, 1_000_000), 8, 10**7)
    pending: tuple[int, ...] = bounded((100, 1000, 10_000, 100_000, 1_000_000), 1, 10**7)
    per_s: tuple[float, ...] = bounded((1.0, 10.0, 100.0, 1000.0), 0.01, 1e5)
    base_sites: int = bounded(20, 1, 1000)
    base_gpus: int = bounded(100_000, 8, 10**7)
    base_pending: int = bounded(10_000, 1, 10**7)
    base_per_s: float = bounded(10.0, 0.01, 1e5)
    passes: int = bounded(10, 1, 1000)
    period_s: float = bounded(2.0, 0.1, 3600.0)
    tenants: int = bounded(200, 7, 10_000)
    together: int = bounded(1, 0, 1)

    def runs(self, seed: int) -> list[SimRun[ScalePoint]]:
        here = f"{platform.node()}, {processor()}"
        return [
            SimRun(
                name=f"{size.sites} sites, {size.gpus} GPUs, {size.pending} pending, "
                f"{size.per_s:g}/s",
                task=ScaleTask(
                    size=size,
                    tenants=self.tenants,
                    passes=self.passes,
                    period_s=self.period_s,
                    seed=seed,
                    machine=here,
                ),
                returns=ScalePoint,
            )
            for size in self._sizes()
        ]

    def result(self, found: Sequence[ScalePoint]) -> ExperimentResult:
        measured = {point.size: _measured(point, self.period_s) for point in found}
        by_axis = {axis: [measured[size] for size in self._along(axis)] for axis in AXES}
        machines = ", ".join(dict.fromkeys(point.machine for point in found))
        return ExperimentResult(
            title="where decisions saturate, and how their cost grows",
            parameters=parameters_of(self),
            notes=(*_NOTES, f"Measured on: {machines}."),
            tables=tables(list(measured.values()), by_axis),
            plots=tuple(_plots()),
        )

    def _base(self) -> FleetSize:
        return FleetSize(
            sites=self.base_sites,
            gpus=self.base_gpus,
            pending=self.base_pending,
            per_s=self.base_per_s,
        )

    def _along(self, axis: str) -> list[FleetSize]:
        """The points of one axis, the smallest first."""
        return [replace(self._base(), **{axis: value}) for value in sorted(getattr(self, axis))]

    def _sizes(self) -> list[FleetSize]:
        """Every point once, the slow ones first, so that several processes end together."""
        points = dict.fromkeys(size for axis in AXES for size in self._along(axis))
        if self.together:
            largest = {axis: max(getattr(self, axis)) for axis in AXES}
            points[FleetSize(**largest)] = None
        return sorted(points, key=lambda size: -size.sites * size.pending)


_NOTES: Final = (
    "CPU time of decisions alone: Federation.handle and SiteScheduler.bid, in one process, without "
    "log, network or other processes. Sites bid beside each other in fact: theirs is the time of "
    "the one that needs most.",
    "Every GPU is in use, by workloads of MAST's sizes; they end after MAST's mean run time. "
    "Nobody is evicted. Of the queue as much is withdrawn after each pass as came and did not "
    "start.",
    "busy_frac: of one core, with a pass every period_s of virtual time and all that came in "
    "between. From 1 on the daemon makes fewer passes than that; nothing else suffers until "
    "a pass takes longer than 300 s, which is how often there is one when nothing changes.",
)


def processor() -> str:
    """Model of the processor and release of Python."""
    model = platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model n"))
    except (OSError, StopIteration):
        pass
    return f"{model}, Python {platform.python_version()}"


def _measured(point: ScalePoint, period_s: float) -> Measured:
    passes = point.passes
    return Measured(
        size=point.size,
        submit_s=point.submit_s,
        first_pass_s=point.first.pass_s,
        first_bid_s=point.first.bid_s / max(1, point.first.asked),
        passes=tuple(passes),
        pass_s=mean(one.pass_s for one in passes),
        busy_frac=mean(one.daemon_s for one in passes) / period_s,
    )


def _plots() -> Iterator[Plot]:
    for axis, title in AXES.items():
        yield Plot(
            table="costs",
            only=("axis", axis),
            title=f"CPU time of decisions by {title}",
            x="value",
            y="cpu_s",
            low="least",
            high="largest",
            by="part",
            x_label=title,
            y_label="seconds of CPU",
            x_least_log=1e-3,
            y_least_log=1e-6,
        )
