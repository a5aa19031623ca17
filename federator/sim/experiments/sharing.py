"""``sharing``: measures who gains and who loses when pools share idle GPUs, beside FCFS alone.

Without a trace: SIA's synthetic workload and its variants, some draws of each. With one: all its
pools, all but the two with the most to give, and draws of four pools scaled to a random load. A
pool is a counter of GPUs, for every policy. A policy that asks how long a job will run is told.

Source:
    SIA sec. 4.1 and appendix A.1 (Figure 5), sec. 6.1-6.2 (Figures 13 and 14, Table 12), sec. 6.5
    (Table 17, Figure 18).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from federator.errors import InvalidRequest
from federator.planner.boosted import xgboost
from federator.sim.baselines.hived import HivedReplay
from federator.sim.baselines.sia import Knowledge, SiaReplay
from federator.sim.baselines.themis import ThemisReplay
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
from federator.sim.experiments.pools import drawn_pools, with_pools, without_donors
from federator.sim.experiments.speedup import Comparison, compared
from federator.sim.generate.sia import SIA_VARIANTS, sia_workload
from federator.sim.registry import trace_policy
from federator.sim.runs.base import Progress, SimRun
from federator.sim.trace import ReplayOptions, Timetable, Trace, TracePolicy

BASE_LINE: Final = "pool-fifo-count"  # SIA's FCFS: each pool alone, in order of submission
WANTED: Final = ("maxmin", "ssf", "gssf", "sia", "sia:durations", "sia:perfect", "sia-vc")
_FORECASTING: Final = (Knowledge.LEARNT, Knowledge.DURATIONS)
_DAY_S: Final = 86_400
_MOST_DRAWS: Final = 1000
_METRICS: Final = (
    "speedup_mean",
    "speedup_geometric_mean",
    "speedup_median",
    "speedup_p95",
    "speedup_p5",
    "jct_ratio",
    "slowed_frac",
    "slowed_total_min",
    "slowed_worst_min",
)
_PLOTTED: Final = (
    "speedup_mean",
    "speedup_geometric_mean",
    "slowed_worst_min",
    "slowed_total_min",
)
_ABOUT: Final = (
    "Speed-up of a job: completion time under FCFS / completion time under the policy. "
    "jct_ratio: the same of the mean completion times. slowed_*: jobs that end later than under "
    "FCFS."
)

Comparisons = Mapping[tuple[str, str], Sequence[Comparison]]  # by setting and policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Jobs to replay under every policy.

    ``measured_from_s``: jobs that come earlier only warm up.
    """

    setting: str
    draw: int
    trace: Trace
    measured_from_s: int = 0

    @property
    def measured(self) -> list[int]:
        return [row for row, at_s in enumerate(self.trace.submit_s) if at_s >= self.measured_from_s]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A case under one policy, beside FCFS.

    Attributes:
        pools: of the case.
        jobs: measured, after the warm-up.
        left_out: wider than their pool.
        of_pools: by pool, its GPUs, jobs, and their geometric mean of the speed-up.
    """

    setting: str
    draw: int
    policy: str
    pools: int
    jobs: int
    left_out: int
    comparison: Comparison
    of_pools: dict[str, tuple[int, int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingTask:
    """A case under one policy, and under FCFS."""

    case: Case
    policy: str
    seed: int

    def __call__(self, _: Progress) -> Compared:
        case, options = self.case, ReplayOptions(seed=self.seed)
        rows = case.measured
        base = trace_policy(BASE_LINE).replay(case.trace, options)
        table = compared_policy(self.policy).replay(case.trace, options)
        return Compared(
            setting=case.setting,
            draw=case.draw,
            policy=self.policy,
            pools=len(case.trace.pools),
            jobs=len(rows),
            left_out=len(case.trace.left_out),
            comparison=compared(case.trace, base, table, rows),
            of_pools=dict(_by_pool(case.trace, base, table, rows)),
        )


def _by_pool(
    trace: Trace, base: Timetable, table: Timetable, rows: Sequence[int]
) -> Iterator[tuple[str, tuple[int, int, float]]]:
    by_pool: dict[int, list[int]] = {}
    for row in rows:
        by_pool.setdefault(trace.pool[row], []).append(row)
    for pool in sorted(by_pool):
        own, of_pool = trace.pools[pool], compared(trace, base, table, by_pool[pool])
        yield own.name, (own.gpus, len(by_pool[pool]), of_pool.geometric_mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingExperiment:
    """Parameters.

    Attributes:
        trace: whose pools share; None: the synthetic workload.
        policies: beside FCFS; "default": ``WANTED``. Also ``sia:`` with what it knows, such as
            ``sia:random``, and ``themis:held`` and ``hived:held``, which never preempt.
        variants: of the synthetic workload; "all": every one.
        draws: of each variant, and of four pools.
        pools: in a draw of pools, one number after the other.
        loads: between which a drawn pool's load lies.
        warm_up_days: at the start of a trace, whose jobs are not measured.
        scales: of the GPUs of each pool, where all of a trace share, one after the other.
        donors: pools left out where those with the most to give do not share.
        quantiles: steps of the distributions.
    """

    trace: Trace | None = None
    policies: tuple[str, ...] = ("default",)
    variants: tuple[str, ...] = ("all",)
    draws: int = bounded(10, 1, _MOST_DRAWS)
    pools: tuple[int, ...] = bounded((4,), 1, 1000)
    loads: tuple[float, ...] = bounded((0.6, 1.1), 0.01, 100.0)
    warm_up_days: float = bounded(2.0, 0.0, 3650.0)
    scales: tuple[float, ...] = bounded((1.0,), 0.01, 100.0)
    donors: int = bounded(2, 0, 1000)
    quantiles: int = bounded(100, 1, 10_000)

    def runs(self, seed: int) -> list[SimRun[Compared]]:
        names = self._policy_names()
        return [
            SimRun(
                name=f"{case.setting}, draw {case.draw}, {name}",
                task=SharingTask(case=case, policy=name, seed=seed),
                returns=Compared,
            )
            for case in self._cases(seed)
            for name in names
        ]

    def result(self, found: Sequence[Compared]) -> ExperimentResult:
        by_key: dict[tuple[str, str], list[Comparison]] = {}
        for one in found:
            by_key.setdefault((one.setting, one.policy), []).append(one.comparison)
        rows: list[tuple[Cell, ...]] = [
            (o.setting, o.draw, o.policy, o.pools, o.jobs, o.left_out, *_figures(o.comparison))
            for o in found
        ]
        of_pools: list[tuple[Cell, ...]] = [
            (o.setting, o.draw, pool, o.policy, *figures)
            for o in found
            for pool, figures in o.of_pools.items()
        ]
        return self._result(by_key, rows, of_pools)

    def _policy_names(self) -> tuple[str, ...]:
        names = WANTED if self.policies == ("default",) else self.policies
        for name in names:
            policy = compared_policy(name)  # an unknown one is an error before the work
            if isinstance(policy, SiaReplay) and policy.knowledge in _FORECASTING:
                xgboost()
        for variant in self._variant_names():
            sia_workload(variant)
        if len(self.loads) != 2 or self.loads[0] > self.loads[1]:
            raise InvalidRequest("--set: loads: expected the least and the most, such as 0.6,1.1")
        return names

    def _variant_names(self) -> tuple[str, ...]:
        return tuple(SIA_VARIANTS) if self.variants == ("all",) else self.variants

    def _cases(self, seed: int) -> Iterator[Case]:
        if self.trace is None:
            for variant in self._variant_names():
                for draw in range(self.draws):
                    trace = sia_workload(variant).generate(seed * _MOST_DRAWS + draw)
                    yield Case(setting=variant, draw=draw, trace=trace)
            return
        from_s = min(self.trace.submit_s) + int(self.warm_up_days * _DAY_S)
        for scale in self.scales:
            sizes = {k: max(1, round(p.gpus * scale)) for k, p in enumerate(self.trace.pools)}
            name = "all pools" if scale == 1 else f"all pools x {scale:g}"
            yield _measured(name, 0, with_pools(self.trace, sizes), from_s)
        if len(self.trace.pools) > self.donors:
            fewer = without_donors(self.trace, self.donors)
            yield _measured(f"without {self.donors} donors", 0, fewer, from_s)
        for pools in self.pools:
            for draw in range(self.draws):
                loads = self.loads[0], self.loads[1]
                some = drawn_pools(self.trace, pools, loads, seeded(f"{seed}/{draw}"))
                yield _measured(f"{pools} drawn pools", draw, some, from_s)

    def _result(
        self,
        found: Comparisons,
        runs: Sequence[tuple[Cell, ...]],
        of_pools: Sequence[tuple[Cell, ...]],
    ) -> ExperimentResult:
        settings = list(dict.fromkeys(setting for setting, _ in found))
        shown = settings if self.trace is not None else settings[:1]
        return ExperimentResult(
            title="what sharing is worth, and whom it costs",
            parameters=parameters_of(self),
            notes=_NOTES,
            tables=(
                _summary(found),
                _spread(found),
                *(_distribution(setting, found, self.quantiles) for setting in shown),
                _runs(runs),
                _of_pools(of_pools),
            ),
            plots=(*_PLOTS, *map(_distribution_plot, shown)),
        )


_NOTES: Final = (
    "Each policy replays the same jobs; each job is compared with itself under FCFS, that is "
    f"{BASE_LINE}: each pool alone, strictly in order of submission.",
    "A pool is a counter of GPUs for every policy: no nodes, so nothing is fragmented. Jobs come "
    "when the trace says, whatever became of earlier ones.",
)


def compared_policy(name: str) -> TracePolicy:
    """A policy of the registry, or a variant of one that only a comparison needs.

    Raises:
        InvalidRequest: there is none.
    """
    if name == "themis:held":  # SIA's Themis*, which never preempts
        return ThemisReplay(lease_s=None)
    if name == "hived:held":  # SIA's HiveD*, likewise
        return HivedReplay(preempts=False)
    if name.startswith("sia:"):
        kinds = {kind.value: kind for kind in Knowledge}
        if name[4:] in kinds:
            return SiaReplay(knowledge=kinds[name[4:]])
    return trace_policy(name)


def _measured(setting: str, draw: int, trace: Trace, from_s: int) -> Case:
    case = Case(setting=setting, draw=draw, trace=trace, measured_from_s=from_s)
    if not case.measured:
        raise InvalidRequest(
            f"{setting}: no job comes after the warm-up; expected a longer trace, or a smaller "
            "--set warm_up_days"
        )
    return case


def _figures(one: Comparison) -> tuple[float, ...]:
    """In the order of ``_METRICS``."""
    return (
        one.mean,
        one.geometric_mean,
        one.at(0.5),
        one.at(0.95),
        one.at(0.05),
        one.jct_ratio,
        one.slowed_frac,
        one.slowed_total_min,
        one.slowed_worst_min,
    )


def _runs(rows: Sequence[tuple[Cell, ...]]) -> DataTable:
    return DataTable(
        name="runs",
        title="Each draw and policy",
        columns=("setting", "draw", "policy", "pools", "jobs", "left_out", *_METRICS),
        rows=tuple(rows),
        about=f"jobs: measured, after the warm-up. left_out: wider than their pool. {_ABOUT}",
    )


def _of_pools(rows: Sequence[tuple[Cell, ...]]) -> DataTable:
    return DataTable(
        name="pools",
        title="Geometric mean of the speed-up in each pool",
        columns=("setting", "draw", "pool", "policy", "gpus", "jobs", "speedup_geometric_mean"),
        rows=tuple(rows),
        about="gpus: of the pool. jobs: measured, after the warm-up.",
    )


def _summary(found: Comparisons) -> DataTable:
    rows: list[tuple[Cell, ...]] = []
    for (setting, policy), comparisons in found.items():
        columns = zip(*map(_figures, comparisons), strict=True)
        rows.append((setting, policy, len(comparisons), *map(median, columns)))
    return DataTable(
        name="summary",
        title="Speed-up and slow-down, medians of the draws",
        rows=tuple(rows),
        columns=("setting", "policy", "draws", *_METRICS),
        about=_ABOUT,
    )


def _spread(found: Comparisons) -> DataTable:
    rows: list[tuple[Cell, ...]] = []
    for (setting, policy), comparisons in found.items():
        columns = zip(*map(_figures, comparisons), strict=True)
        for metric, numbers in zip(_METRICS, columns, strict=True):
            if metric in _PLOTTED:
                rows.append((metric, setting, policy, median(numbers), min(numbers), max(numbers)))
    return DataTable(
        name="spread",
        title="How far the draws lie apart",
        rows=tuple(rows),
        columns=("metric", "setting", "policy", "median", "least", "largest"),
        about=_ABOUT,
    )


def _named(setting: str) -> str:
    return "speedup-" + setting.replace(" ", "-")


def _distribution(setting: str, found: Comparisons, steps: int) -> DataTable:
    """Of all draws together."""
    rows: list[tuple[Cell, ...]] = []
    for (where, policy), comparisons in found.items():
        if where == setting:
            speedups = sorted(ratio for one in comparisons for ratio in one.speedups)
            fracs = [step / steps for step in range(steps + 1)]
            rows += [(policy, frac, at_fraction(speedups, frac)) for frac in fracs]
    return DataTable(
        name=_named(setting),
        title=f"Distribution of the speed-up per job: {setting}",
        columns=("policy", "jobs_frac", "speedup"),
        rows=tuple(rows),
        about="speedup: what this fraction of the jobs do not exceed; all draws together.",
    )


def _distribution_plot(setting: str) -> Plot:
    return Plot(
        table=_named(setting),
        title=f"Speed-up per job: {setting}",
        x="speedup",
        y="jobs_frac",
        by="policy",
        x_label="speed-up beside FCFS",
        y_label="fraction of jobs",
        x_least_log=1e-4,
    )


def _range_plot(title: str, metric: str, label: str, least: float) -> Plot:
    return Plot(
        table="spread",
        only=("metric", metric),
        title=title,
        x="setting",
        y="median",
        low="least",
        high="largest",
        by="policy",
        kind=PlotKind.RANGES,
        x_label=" ",
        y_label=label,
        y_least_log=least,
    )


_PLOTS: Final = (
    _range_plot("Mean speed-up per job", "speedup_mean", "mean speed-up", 0.01),
    _range_plot("Geometric mean of the speed-up", "speedup_geometric_mean", "speed-up", 0.01),
    _range_plot("Worst slow-down of a job", "slowed_worst_min", "minutes, at least 1", 1.0),
    _range_plot("Total slow-down of all jobs", "slowed_total_min", "minutes, at least 1", 1.0),
)
