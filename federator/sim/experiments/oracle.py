"""``oracle``: compares policies with the best timetable there is, on cases small enough to find it.

A case is the beginning of a draw of SIA's synthetic workload, its times rounded to whole steps:
the program of ``federator.sim.oracle`` is then exact and small. Two timetables are sought for each
case: the one with the least waiting of all, and the one with the least in which no job starts later
than alone in its pool. The solver's time is limited. Where it ends before the proof, the answer is
the best timetable found, and the bound says how much less there may be.

Source:
    SIA sec. 4.1, Figures 5 and 15b: the oracle beside the policies on "tens of smaller traces",
    whose size the paper does not tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from federator.errors import InvalidRequest
from federator.sim.experiments.base import (
    Cell,
    DataTable,
    ExperimentResult,
    Plot,
    PlotKind,
    bounded,
    parameters_of,
)
from federator.sim.experiments.sharing import BASE_LINE, compared_policy
from federator.sim.experiments.speedup import Comparison, compared
from federator.sim.generate.sia import sia_workload
from federator.sim.importers.trace_csv import TraceBuilder
from federator.sim.oracle import OracleAnswer, best_timetable, wait_s
from federator.sim.registry import trace_policy
from federator.sim.runs.base import Progress, SimRun
from federator.sim.trace import ReplayOptions, Timetable, Trace

ANY_ORDER: Final = "oracle"
NONE_SLOWED: Final = "oracle, none slowed"
_KNOWN: Final = "sia-vc"  # slows no job, so both oracles may begin with it
_WANTED: Final = ("maxmin", "ssf", "gssf", "sia:perfect", _KNOWN, "mast")
_MOST_CASES: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWait:
    """A case under a policy, or as an oracle has it.

    Attributes:
        policy: its name.
        wait_s: of all jobs together.
        bound_s: of an oracle: no timetable that it may choose has less; else ``wait_s``.
        comparison: with each pool alone.
    """

    policy: str
    wait_s: int
    bound_s: int
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleCase:
    """A case under all policies. ``alone_s``: waiting of all jobs, each pool alone."""

    setting: str
    case: int
    jobs: int
    alone_s: int
    found: tuple[PolicyWait, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleTask:
    """A case: both oracles, and every policy."""

    setting: str
    case: int
    trace: Trace
    policies: tuple[str, ...]
    limit_s: float
    seed: int

    def __call__(self, progress: Progress) -> OracleCase:
        trace, options = self.trace, ReplayOptions(seed=self.seed)
        alone = trace_policy(BASE_LINE).replay(trace, options)
        names = dict.fromkeys((*self.policies, _KNOWN))
        tables = {name: compared_policy(name).replay(trace, options) for name in names}
        for name, table in tables.items():
            if any(table.preemptions):
                raise InvalidRequest(
                    f"--set: policies: {name} stops jobs before their end, and the oracle does "
                    "not; expected policies that preempt nothing"
                )
        known = min(tables.values(), key=lambda table: wait_s(trace, table))
        progress(0.1)
        oracle = best_timetable(trace, known, limit_s=self.limit_s)
        progress(0.5)
        careful = best_timetable(
            trace, tables[_KNOWN], latest_s=alone.start_s, limit_s=self.limit_s
        )
        found = [self._answer(name, answer, alone) for name, answer in _oracles(oracle, careful)]
        for name in self.policies:
            waits_s = wait_s(trace, tables[name])
            found.append(self._wait(name, tables[name], alone, waits_s))
        return OracleCase(
            setting=self.setting,
            case=self.case,
            jobs=len(trace),
            alone_s=wait_s(trace, alone),
            found=tuple(found),
        )

    def _answer(self, name: str, answer: OracleAnswer, alone: Timetable) -> PolicyWait:
        return self._wait(name, answer.timetable, alone, answer.bound_s)

    def _wait(self, name: str, table: Timetable, alone: Timetable, bound_s: int) -> PolicyWait:
        return PolicyWait(
            policy=name,
            wait_s=wait_s(self.trace, table),
            bound_s=bound_s,
            comparison=compared(self.trace, alone, table, range(len(self.trace))),
        )


def _oracles(any_order: OracleAnswer, careful: OracleAnswer) -> Iterator[tuple[str, OracleAnswer]]:
    yield ANY_ORDER, any_order
    yield NONE_SLOWED, careful


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleExperiment:
    """Parameters.

    Attributes:
        policies: beside the oracles; as of the experiment ``sharing``, without those that preempt.
        variants: of SIA's synthetic workload.
        load_factors: on the load of each variant.
        cases: of each variant and load.
        jobs: the first of a draw.
        step_min: to which times are rounded.
        limit_s: of the solver's time, for each oracle of a case.
    """

    policies: tuple[str, ...] = _WANTED
    variants: tuple[str, ...] = ("base", "fewer-queues")
    load_factors: tuple[float, ...] = bounded((1.0, 2.0), 0.1, 10.0)
    cases: int = bounded(10, 1, _MOST_CASES)
    jobs: int = bounded(40, 1, 200)
    step_min: int = bounded(10, 1, 120)
    limit_s: float = bounded(10.0, 0.0, 3600.0)

    def runs(self, seed: int) -> list[SimRun[OracleCase]]:
        for name in self.policies:
            compared_policy(name)  # an unknown one is an error before the work
        return [
            SimRun(
                name=f"{setting}, case {case}",
                task=OracleTask(
                    setting=setting,
                    case=case,
                    trace=trace,
                    policies=self.policies,
                    limit_s=self.limit_s,
                    seed=seed,
                ),
                returns=OracleCase,
            )
            for setting, case, trace in self._cases(seed)
        ]

    def _cases(self, seed: int) -> Iterator[tuple[str, int, Trace]]:
        for variant in self.variants:
            workload = sia_workload(variant)
            for factor in self.load_factors:
                loaded = replace(workload, load_factor=workload.load_factor * factor)
                for case in range(self.cases):
                    trace = loaded.generate(seed * _MOST_CASES + case).first(self.jobs)
                    yield f"{variant}, load x {factor:g}", case, rounded(trace, 60 * self.step_min)

    def result(self, found: Sequence[OracleCase]) -> ExperimentResult:
        by_setting: dict[str, list[OracleCase]] = {}
        for case in found:
            by_setting.setdefault(case.setting, []).append(case)
        return ExperimentResult(
            title="how far policies are from the best timetable there is",
            parameters=parameters_of(self),
            tables=(_summary(by_setting), _cases(found)),
            plots=(_PLOT,),
            notes=_NOTES,
        )


def rounded(trace: Trace, step_s: int) -> Trace:
    """The same jobs with whole steps: submissions rounded down, durations to the nearest from 1."""
    builder = TraceBuilder(trace.pools)
    for row in range(len(trace)):
        builder.add(
            job_id=trace.job_id[row],
            line=0,
            submit_s=trace.submit_s[row] // step_s * step_s,
            duration_s=max(1, round(trace.duration_s[row] / step_s)) * step_s,
            gpus=trace.gpus[row],
            num_nodes=trace.num_nodes[row],
            cpus=None,
            pool=trace.pools[trace.pool[row]].name,
            user=trace.user[row],
        )
    return builder.trace


def _summary(by_setting: Mapping[str, Sequence[OracleCase]]) -> DataTable:
    rows: list[tuple[Cell, ...]] = []
    for setting, cases in by_setting.items():
        of_policy = [[case.found[k] for case in cases] for k in range(len(cases[0].found))]
        alone_s, jobs = sum(case.alone_s for case in cases), sum(case.jobs for case in cases)
        least_s = {waits[0].policy: sum(one.wait_s for one in waits) for waits in of_policy}
        rows += [
            (setting, waits[0].policy, len(cases), *_figures(waits, alone_s, jobs, least_s))
            for waits in of_policy
        ]
    return DataTable(
        name="summary",
        title="Waiting beside that of the best timetable",
        columns=("setting", "policy", "cases", *_FIGURES),
        rows=tuple(rows),
        about=_ABOUT,
    )


def _figures(
    waits: Sequence[PolicyWait], alone_s: int, jobs: int, least_s: Mapping[str, int]
) -> tuple[Cell, ...]:
    """In the order of ``_FIGURES``."""
    waits_s = sum(one.wait_s for one in waits)
    oracle = waits[0].policy in (ANY_ORDER, NONE_SLOWED)
    ratios = sorted(ratio for one in waits for ratio in one.comparison.speedups)
    late_s = sorted(by_s for one in waits for by_s in one.comparison.slowed_s)
    together = Comparison(speedups=ratios, jct_ratio=1.0, slowed_s=late_s)
    return (
        sum(one.wait_s == one.bound_s for one in waits) if oracle else None,
        waits_s / jobs / 60,
        sum(one.bound_s for one in waits) / jobs / 60 if oracle else None,
        _part(alone_s - waits_s, alone_s - least_s[NONE_SLOWED]),
        _part(alone_s - waits_s, alone_s - least_s[ANY_ORDER]),
        together.geometric_mean,
        together.at(0.95),
        together.slowed_frac,
        together.slowed_worst_min,
    )


def _part(gain_s: int, most_s: int) -> float | None:
    return gain_s / most_s if most_s else None


def _cases(found: Sequence[OracleCase]) -> DataTable:
    return DataTable(
        name="cases",
        title="Each case",
        columns=("setting", "case", "jobs", "alone_min", "policy", "wait_min", "bound_min"),
        rows=tuple(
            (
                case.setting,
                case.case,
                case.jobs,
                case.alone_s / 60,
                one.policy,
                one.wait_s / 60,
                one.bound_s / 60 if one.policy in (ANY_ORDER, NONE_SLOWED) else None,
            )
            for case in found
            for one in case.found
        ),
        about="Minutes of all jobs of the case. alone: each pool by itself, in strict order.",
    )


_FIGURES: Final = (
    "proven",
    "wait_min",
    "wait_bound_min",
    "gain_of_careful_frac",
    "gain_of_best_frac",
    "speedup_geometric_mean",
    "speedup_p95",
    "slowed_frac",
    "slowed_worst_min",
)
_ABOUT: Final = (
    f"wait_min: mean of a job. proven: cases in which no better timetable is possible; "
    "wait_bound_min: what a mean wait cannot be below. gain_of_best_frac: how much less is waited "
    f"than with each pool alone, beside how much less by '{ANY_ORDER}'; gain_of_careful_frac: "
    f"beside '{NONE_SLOWED}'. Speed-up and slowed: as in the experiment sharing."
)
_NOTES: Final = (
    f"'{ANY_ORDER}' has the least waiting of all timetables without preemption; '{NONE_SLOWED}' of "
    "those in which no job starts later than alone in its pool. Both know all that is to come.",
    "A pool is a counter of GPUs for the oracles and all policies but mast, which places a job on "
    "the nodes of one pool.",
    "Cases that are not proven may come out differently on another machine: the solver stops by "
    "the clock. The others are the same everywhere.",
)
_PLOT: Final = Plot(
    table="summary",
    title="Gain beside that of the best timetable",
    x="setting",
    y="gain_of_best_frac",
    low="gain_of_best_frac",
    high="gain_of_best_frac",
    by="policy",
    kind=PlotKind.RANGES,
    x_label=" ",
    y_label="part of the possible gain",
)
