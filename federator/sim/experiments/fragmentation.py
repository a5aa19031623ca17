"""``fragmentation``: measures what it is worth that the score counts stranded GPUs.

The same stream of jobs is placed by the federation's own ``SiteScheduler`` and score, by the same
without the score's fragmentation term, and by plain rules; see ``placers`` and ``stranding``. With
one site the term decides nothing, as all nodes are alike and inside a site the tightest rack and
then node are taken; with several it chooses the site, where a job would be as close together in
each. "federation, cells" is the federation with ``policy.cells``: a job breaks the smallest buddy
cell that holds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median, stdev
from types import MappingProxyType
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
    mean,
    parameters_of,
    seeded,
)
from federator.sim.experiments.placers import (
    NODE_GPUS,
    Layout,
    Placer,
    best_fit,
    federation,
    first_fit,
    in_cells,
    rack_fit,
    random_fit,
    unweighed,
)
from federator.sim.experiments.stranding import Floor, Stranding, Watch
from federator.sim.experiments.stream import StreamJob, StreamOf, of_trace
from federator.sim.runs.base import Progress, SimRun
from federator.sim.trace import Trace

_OURS: Final = "federation"
PLACERS: Final[Mapping[str, Callable[[Layout, Random], Placer]]] = MappingProxyType(
    {
        _OURS: federation,
        "federation, cells": in_cells,
        "federation, no term": unweighed,
        "best fit": best_fit,
        "best fit, racks": rack_fit,
        "first fit": first_fit,
        "random": random_fit,
    }
)
_METRICS: Final = (
    "allocated_frac",
    "stranded_frac",
    "stranded_of_free_frac",
    "wait_mean_min",
    "wait_large_mean_min",
    "wait_large_p95_min",
    "one_rack_frac",
)
_PLOTTED: Final = (
    ("allocated_frac", "Allocated GPUs", "fraction of all GPUs", 0.0),
    ("stranded_frac", "Stranded GPUs", "fraction of all GPUs", 0.0),
    ("wait_large_mean_min", "Mean wait of large jobs", "minutes, at least 0.1", 0.1),
    ("one_rack_frac", "Gangs in one rack", "fraction of those that fit into one", 0.0),
)
_ABOUT: Final = (
    "load: GPU-seconds asked for / those there are. allocated, stranded: means over time. "
    "Stranded: free, and of no use to the mix of sizes. large: of at least 8 GPUs. one_rack_frac: "
    "of the gangs that are no larger than a rack, those that got one."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacerResult:
    """What one rule made of a stream.

    Attributes:
        figures: in the order of ``_METRICS``; None: there was no such job.
        samples: as of ``Stranding``; none where they were not asked for.
    """

    figures: tuple[float | None, ...]
    samples: list[tuple[float, int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSetup:
    """A fleet, and the jobs that come to it; the attributes of ``FragmentationExperiment``."""

    layout: Layout
    load: float
    jobs: int
    sizes: tuple[int, ...]
    shares: tuple[float, ...]
    median_min: float
    sigma: float
    trace: Trace | None = None

    def stream(self, seed: str) -> list[StreamJob]:
        """The jobs of one draw; of a trace there is one."""
        if self.trace is not None:
            return of_trace(self.trace, self.jobs, self.load, self.layout.gpus, NODE_GPUS)
        stream = StreamOf(
            sizes=self.sizes, shares=self.shares, median_s=60 * self.median_min, sigma=self.sigma
        )
        drawn = seeded(f"{seed}/{self.load}")
        return stream.draw(self.jobs, self.load, self.layout.gpus, drawn)

    @property
    def mix(self) -> list[tuple[int, float]]:
        """Sizes with their shares, which sum to 1."""
        if self.trace is not None:
            sizes = Counter(job.gpus for job in self.stream(""))
            return [(size, count / sizes.total()) for size, count in sorted(sizes.items())]
        total = sum(self.shares)
        return [(n, share / total) for n, share in zip(self.sizes, self.shares, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacerTask:
    """One draw of a stream, placed by one rule.

    Attributes:
        jobs: what the stream is drawn from.
        seed: of the draw.
        placer: a name of ``PLACERS``.
        warm_up_frac: of the time of submissions, which is not measured.
        steps: of the samples.
        sampled: whether these are wanted.
    """

    jobs: StreamSetup
    seed: str
    placer: str
    warm_up_frac: float
    steps: int
    sampled: bool

    def __call__(self, _: Progress) -> PlacerResult:
        layout, jobs = self.jobs.layout, self.jobs.stream(self.seed)
        watch = Watch(
            layout,
            Floor(layout, self.jobs.mix),
            PLACERS[self.placer](layout, seeded(self.seed)),
            jobs,
            warm_up_frac=self.warm_up_frac,
            steps=self.steps,
        )
        seen = watch.run()
        samples = seen.samples if self.sampled else []
        return PlacerResult(figures=_figures(layout, jobs, seen), samples=samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentationExperiment:
    """Parameters.

    Attributes:
        trace: whose jobs come; None: drawn ones. Sizes, shares, draws and durations are its own.
        sites: numbers of sites among which the racks are divided, one after the other.
        racks: in all.
        nodes: of a rack, with eight GPUs each.
        loads: that are tried; above 1 the queue only grows, and what is allocated is all that goes.
        sizes: GPU counts of jobs: at most a node's, or whole nodes.
        shares: of the jobs that have each.
        jobs: in a draw; of a trace the first, by submission.
        draws: of each load.
        median_min: of the durations.
        sigma: of the logarithm of the durations.
        warm_up_frac: of the time of submissions, which is not measured.
        steps: of the plot over time.
    """

    trace: Trace | None = None
    sites: tuple[int, ...] = bounded((1, 4), 1, 1000)
    racks: int = bounded(8, 1, 1000)
    nodes: int = bounded(8, 1, 1000)
    loads: tuple[float, ...] = bounded((0.7, 0.85, 1.3), 0.01, 10.0)
    sizes: tuple[int, ...] = bounded((1, 2, 4, 8, 16, 32), 1, 10_000)
    shares: tuple[float, ...] = bounded((0.58, 0.065, 0.075, 0.2, 0.03, 0.05), 0.0, 1e6)
    jobs: int = bounded(3000, 10, 10**6)
    draws: int = bounded(10, 1, 1000)
    median_min: float = bounded(60.0, 0.1, 1e6)
    sigma: float = bounded(1.2, 0.0, 5.0)
    warm_up_frac: float = bounded(0.2, 0.0, 0.9)
    steps: int = bounded(100, 1, 10_000)

    def runs(self, seed: int) -> list[SimRun[PlacerResult]]:
        self._check()
        return [
            SimRun(
                name=f"draw {draw}, {_sites(layout)}, load {load:g}, {name}",
                task=PlacerTask(
                    jobs=self._jobs(layout, load),
                    seed=f"{seed}/{draw}",
                    placer=name,
                    warm_up_frac=self.warm_up_frac,
                    steps=self.steps,
                    sampled=draw == 0,
                ),
                returns=PlacerResult,
            )
            for draw, layout, load, name in self._keys()
        ]

    def result(self, found: Sequence[PlacerResult]) -> ExperimentResult:
        by_key: dict[_Key, list[tuple[float | None, ...]]] = {}
        over_time: list[tuple[Cell, ...]] = []
        for (_, layout, load, name), one in zip(self._keys(), found, strict=True):
            setting = f"{_sites(layout)}, load {load:g}"
            by_key.setdefault((layout.sites, load, name), []).append(one.figures)
            over_time += [(setting, name, at_s / 3600, *gpus) for at_s, *gpus in one.samples]
        return self._result(by_key, over_time)

    def _keys(self) -> Iterator[tuple[int, Layout, float, str]]:
        for draw in range(self.draws if self.trace is None else 1):
            for layout, load in self._settings():
                for name in PLACERS:
                    yield draw, layout, load, name

    def _check(self) -> None:
        if len(self.sizes) != len(self.shares) or not sum(self.shares):
            raise InvalidRequest("--set: shares: expected one for each of sizes, not all 0")
        for sites in self.sites:
            if self.racks % sites:
                raise InvalidRequest(
                    f"--set: sites: {self.racks} racks cannot be divided by {sites}"
                )
        most = NODE_GPUS * self.nodes * self.racks // max(self.sites)
        if self.trace is not None:
            wanted = max(
                (j.gpus for j in self._jobs(*next(self._settings())).stream("")), default=0
            )
            if not wanted:
                raise InvalidRequest("--trace: expected jobs, found none")
            if wanted > most:
                raise InvalidRequest(
                    f"--set: racks: a job asks for {wanted} GPUs; expected sites of as many, "
                    f"found {most}"
                )
        for size in self.sizes:
            if size > most or (size > NODE_GPUS and size % NODE_GPUS) or NODE_GPUS % min(size, 8):
                raise InvalidRequest(
                    f"--set: sizes: {size}: expected 1, 2, 4, or whole nodes of {NODE_GPUS} GPUs, "
                    f"at most a site's {most}"
                )

    def _settings(self) -> Iterator[tuple[Layout, float]]:
        for sites in self.sites:
            layout = Layout(sites=sites, racks=self.racks // sites, nodes=self.nodes)
            for load in self.loads:
                yield layout, load

    def _jobs(self, layout: Layout, load: float) -> StreamSetup:
        return StreamSetup(
            layout=layout,
            load=load,
            jobs=self.jobs,
            sizes=self.sizes,
            shares=self.shares,
            median_min=self.median_min,
            sigma=self.sigma,
            trace=self.trace,
        )

    def _result(
        self,
        found: Mapping[_Key, Sequence[tuple[float | None, ...]]],
        over_time: Sequence[tuple[Cell, ...]],
    ) -> ExperimentResult:
        return ExperimentResult(
            title="does it help to count what a placement strands?",
            parameters=parameters_of(self),
            notes=_NOTES,
            tables=(
                _summary(found),
                _beside(found),
                _spread(found),
                _runs(found),
                _over_time(over_time),
            ),
            plots=(*self._plots(), *self._plots_over_time()),
        )

    def _plots(self) -> Iterator[Plot]:
        for metric, title, label, least in _PLOTTED:
            yield Plot(
                table="spread",
                only=("metric", metric),
                title=title,
                x="setting",
                y="mean",
                low="least",
                high="largest",
                by="placer",
                kind=PlotKind.RANGES,
                x_label=" ",
                y_label=label,
                y_least_log=least,
            )

    def _plots_over_time(self) -> Iterator[Plot]:
        for sites in self.sites:
            load = max((load for load in self.loads if load < 1), default=self.loads[0])
            setting = f"{_sites(Layout(sites=sites, racks=1, nodes=1))}, load {load:g}"
            yield Plot(
                table="over-time",
                only=("setting", setting),
                title=f"Stranded GPUs: {setting}",
                x="time_h",
                y="stranded_gpus",
                by="placer",
                x_label="hours",
                y_label="GPUs",
            )


_Key = tuple[int, float, str]  # sites, load, placer
_NOTES: Final = (
    "One queue in strict order of submission, so that waits tell of placement alone: the first job "
    "that does not fit blocks the rest. Jobs stay in one site. Every rule gets the same jobs.",
    "Stranded GPUs are counted by nodes and sites, not by racks as the score does; the rule that "
    "looks at racks is not judged by its own measure.",
)


def _sites(layout: Layout) -> str:
    return f"{layout.sites} site{'s' * (layout.sites > 1)}"


def _figures(
    layout: Layout, jobs: Sequence[StreamJob], seen: Stranding
) -> tuple[float | None, ...]:
    """In the order of ``_METRICS``; None: there was no such job."""
    all_gpu_s = layout.gpus * seen.lasted_s
    waits = sorted(wait_s / 60 for wait_s in seen.wait_s.values())
    large = sorted(s / 60 for n, s in seen.wait_s.items() if jobs[n].gpus >= NODE_GPUS)
    one, of = seen.one_rack
    return (
        1 - seen.free_gpu_s / all_gpu_s,
        seen.stranded_gpu_s / all_gpu_s,
        seen.stranded_gpu_s / seen.free_gpu_s if seen.free_gpu_s else None,
        mean(waits) if waits else None,
        mean(large) if large else None,
        at_fraction(large, 0.95) if large else None,
        one / of if of else None,
    )


def _known(numbers: Iterable[float | None]) -> list[float]:
    return [number for number in numbers if number is not None]


def _summary(found: Mapping[_Key, Sequence[tuple[float | None, ...]]]) -> DataTable:
    rows: list[tuple[Cell, ...]] = []
    for key, draws in sorted(found.items(), key=_order):
        columns = map(_known, zip(*draws, strict=True))
        rows.append((*key, len(draws), *(mean(c) if c else None for c in columns)))
    return DataTable(
        name="summary",
        title="Means of the draws",
        rows=tuple(rows),
        about=_ABOUT,
        columns=("sites", "load", "placer", "draws", *_METRICS),
    )


def _order(item: tuple[_Key, object]) -> tuple[int, float, int]:
    (sites, load, placer), _ = item
    return sites, load, list(PLACERS).index(placer)


def _spread(found: Mapping[_Key, Sequence[tuple[float | None, ...]]]) -> DataTable:
    rows: list[tuple[Cell, ...]] = []
    for at, metric in enumerate(_METRICS):
        for (sites, load, placer), draws in sorted(found.items(), key=_order):
            numbers = _known(figures[at] for figures in draws)
            if numbers:
                setting = f"{sites} x {load:g}"
                spread = (mean(numbers), median(numbers), min(numbers), max(numbers))
                rows.append((metric, setting, placer, *spread))
    return DataTable(
        name="spread",
        title="How far the draws lie apart",
        rows=tuple(rows),
        columns=("metric", "setting", "placer", "mean", "median", "least", "largest"),
        about="setting: sites x load. " + _ABOUT,
    )


def _beside(found: Mapping[_Key, Sequence[tuple[float | None, ...]]]) -> DataTable:
    """Each rule less the federation, draw by draw: both had the same jobs."""
    rows: list[tuple[Cell, ...]] = []
    for at, metric in enumerate(_METRICS):
        for (sites, load, placer), draws in sorted(found.items(), key=_order):
            own = found[sites, load, _OURS]
            pairs = [(a[at], b[at]) for a, b in zip(draws, own, strict=True)]
            differences = [a - b for a, b in pairs if a is not None and b is not None]
            if placer != _OURS and differences:
                error = (
                    stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else None
                )
                lower = sum(difference < 0 for difference in differences)
                rows.append((metric, sites, load, placer, mean(differences), error, lower))
    return DataTable(
        name="beside",
        title=f"Beside {_OURS}, draw by draw",
        rows=tuple(rows),
        columns=("metric", "sites", "load", "placer", "difference", "standard_error", "lower_in"),
        about=f"difference: the rule less {_OURS}, mean of the draws. lower_in: so many draws.",
    )


def _runs(found: Mapping[_Key, Sequence[tuple[float | None, ...]]]) -> DataTable:
    rows = [
        (*key, draw, *figures)
        for key, draws in sorted(found.items(), key=_order)
        for draw, figures in enumerate(draws)
    ]
    return DataTable(
        name="runs",
        title="Each draw",
        rows=tuple(rows),
        about=_ABOUT,
        columns=("sites", "load", "placer", "draw", *_METRICS),
    )


def _over_time(rows: Sequence[tuple[Cell, ...]]) -> DataTable:
    return DataTable(
        name="over-time",
        title="Free and stranded GPUs over time, in the first draw",
        columns=("setting", "placer", "time_h", "free_gpus", "stranded_gpus"),
        rows=tuple(rows),
    )
