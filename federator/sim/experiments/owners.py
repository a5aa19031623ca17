"""``owners``: whether those who lend their idle GPUs have them back in time.

Each pool of a trace is a tenant's quota. Its jobs are replayed by strict FIFO in their own pool,
which is what their owners would have without a federation, and by the federation itself under
several rules. A job is late if it ends more than ``late_s`` later than alone in its pool.

A late job is harmed **by guests** or **by order**. It waits by order at an instant, after its start
alone, at which jobs of its own pool hold so much of their pool that the job would not fit beside
them, had nobody else a GPU there. Then it does not wait for lending, but for credit, backfill, or
an earlier choice among its tenant's own jobs. By order are those that wait so for at least half of
their lateness; all others count as harmed by guests.

Source:
    Chosen here. It counts GPUs, not nodes: a gang kept out by small jobs of its own pool that are
    spread over the nodes counts as harmed by guests.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from federator.planner.boosted import xgboost
from federator.sim.baselines.fifo import FifoReplay
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
from federator.sim.scenario import JobTrace
from federator.sim.trace import ReplayOptions, Timetable, Trace

_HOUR_S: Final = 3600.0
_MADE_UP: Final = "base"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerFigures:
    """What became of a trace under one rule.

    Attributes:
        jobs: of the trace.
        late: of those, the ones that ended late.
        by_guests: of the late ones; the others are harmed by order.
        beyond_2h: ended more than two hours later than alone.
        worst_s: the most that one ended later than alone.
        worst_by_guests_s: the same of those that guests harmed; 0: there are none.
        late_s: all late jobs together.
        completion_s: mean from submission to end.
        alone_s: the same alone.
        claims: that ended with a start.
        claims_broken: of those, with one later than was promised at first.
        evictions: of all jobs.
        lost_frac: GPU time of work that was done again, of the work of all jobs.
    """

    jobs: int
    late: int
    by_guests: int
    beyond_2h: int
    worst_s: float
    worst_by_guests_s: float
    late_s: float
    completion_s: float
    alone_s: float
    claims: int
    claims_broken: int
    evictions: int
    lost_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersTask:
    """A trace under one rule: the federation with some settings."""

    trace: Trace
    replay: FederationReplay
    late_s: float

    def __call__(self, progress: Progress) -> OwnerFigures:
        trace = self.trace
        total = max(1, 2 * len(trace))
        done = 0

        def ended(more: int) -> None:
            nonlocal done
            done += more
            progress(min(1.0, done / total))

        alone = FifoReplay().replay(trace, ReplayOptions())
        lives = self.replay.lives(trace, ReplayOptions(progress=ended))
        return figures(trace, alone, lives, self.late_s)


def figures(
    trace: Trace, alone: Timetable, lives: Sequence[JobTrace], late_s: float
) -> OwnerFigures:
    """Compare the lives of a trace's jobs with their times alone.

    Args:
        trace: its jobs by row.
        alone: their times, by row.
        lives: in the order of submission, as ``Trace.in_order``.
        late_s: more is late.
    """
    held = [_held(trace, pool, lives) for pool in range(len(trace.pools))]
    rows = trace.in_order()
    later = [life.end_s - alone.end_s[row] for row, life in zip(rows, lives, strict=True)]
    late = [k for k, by_s in enumerate(later) if by_s > late_s]
    by_guests = [
        k
        for k in late
        if held[trace.pool[rows[k]]].waits_s(rows[k], alone.start_s[rows[k]], lives[k])
        < later[k] / 2
    ]
    work = sum(g * s for g, s in zip(trace.gpus, trace.duration_s, strict=True))
    return OwnerFigures(
        jobs=len(trace),
        late=len(late),
        by_guests=len(by_guests),
        beyond_2h=sum(by_s > 2 * _HOUR_S for by_s in later),
        worst_s=max(later, default=0.0),
        worst_by_guests_s=max((later[k] for k in by_guests), default=0.0),
        late_s=sum(later[k] for k in late),
        completion_s=mean(e.end_s - trace.submit_s[r] for r, e in zip(rows, lives, strict=True)),
        alone_s=mean(alone.end_s[row] - trace.submit_s[row] for row in rows),
        claims=sum(life.claims_kept + life.claims_broken for life in lives),
        claims_broken=sum(life.claims_broken for life in lives),
        evictions=sum(life.preemptions for life in lives),
        lost_frac=sum(life.lost_gpu_s for life in lives) / max(1, work),
    )


@dataclass(frozen=True, slots=True)
class _HeldByOwn:
    """The GPUs of a pool that its own tenant's jobs hold, over time.

    Attributes:
        trace: whose pool.
        pool: its index.
        times_s: at which that changes; ``gpus[k]`` from ``times_s[k]`` on.
        gpus: as many, and none before the first.
    """

    trace: Trace
    pool: int
    times_s: list[float]
    gpus: list[int]

    def waits_s(self, row: int, from_s: float, life: JobTrace) -> float:
        """How long a job waits from then on while its own tenant's jobs leave it no room."""
        room = self.trace.pools[self.pool].gpus - self.trace.gpus[row]
        ends = [from_s, *(stay.end_s for stay in life.stays)]
        starts = [stay.start_s for stay in life.stays]
        gaps = ((max(from_s, end_s), start_s) for end_s, start_s in zip(ends, starts, strict=False))
        return sum(self._above_s(room, a, b) for a, b in gaps if b > a)

    def _above_s(self, room: int, from_s: float, to_s: float) -> float:
        first = max(0, bisect_right(self.times_s, from_s) - 1)
        last = bisect_right(self.times_s, to_s)
        bounds = [*self.times_s[first:last], to_s]
        return sum(
            max(0.0, b - max(a, from_s))
            for (a, b), gpus in zip(pairwise(bounds), self.gpus[first:last], strict=True)
            if gpus > room
        )


def _held(trace: Trace, pool: int, lives: Sequence[JobTrace]) -> _HeldByOwn:
    name = trace.pools[pool].name
    changes: dict[float, int] = {}
    for row, life in zip(trace.in_order(), lives, strict=True):
        for stay in life.stays if trace.pool[row] == pool else ():
            if stay.site == name:
                changes[stay.start_s] = changes.get(stay.start_s, 0) + trace.gpus[row]
                changes[stay.end_s] = changes.get(stay.end_s, 0) - trace.gpus[row]
    times_s, gpus, held = sorted(changes), [], 0
    for at_s in times_s:
        held += changes[at_s]
        gpus.append(held)
    return _HeldByOwn(trace, pool, times_s, gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersExperiment:
    """Parameters.

    Attributes:
        trace: whose pools lend; None: SIA's synthetic workload.
        budget_frac: of all GPUs, that may be evicted in a window.
        window_s: its length.
        save_s: that a victim needs to save.
        objective_s: within which owners start, where they have a start objective.
        late_s: what ends later than alone by more than that is late.
        most_jobs: of the trace, the first that were submitted.
    """

    trace: Trace | None = None
    budget_frac: float = bounded(0.05, 0.001, 1.0)
    window_s: float = bounded(600.0, 1.0, 86_400.0)
    save_s: float = bounded(60.0, 0.0, 86_400.0)
    objective_s: float = bounded(600.0, 1.0, 1e6)
    late_s: float = bounded(600.0, 0.0, 1e7)
    most_jobs: int = bounded(10_000_000, 1, 10_000_000)

    def runs(self, seed: int) -> list[SimRun[OwnerFigures]]:
        xgboost()  # before the work: some rules forecast
        trace = self.trace if self.trace is not None else sia_workload(_MADE_UP).generate(seed)
        trace = trace.first(self.most_jobs)
        return [
            SimRun(
                name=rule,
                task=OwnersTask(
                    trace=trace, replay=FederationReplay.adjusted(changes), late_s=self.late_s
                ),
                returns=OwnerFigures,
            )
            for rule, changes in self._rules().items()
        ]

    def _rules(self) -> dict[str, dict[str, float]]:
        evicts = {
            "preempt_frac": self.budget_frac,
            "preempt_window_s": self.window_s,
            "save_s": self.save_s,
        }
        soon = {"start_within_s": self.objective_s}
        lends = {"lending": 1.0, "home": 1.0}
        return {
            "lends, evicts nobody": {},
            "evicts": evicts,
            "quotas have a home": {**evicts, "home": 1.0},
            "home, start objective": {**evicts, "home": 1.0, **soon},
            "home, lends by forecasts, evicts nobody": lends,
            "the same, run times known": {**lends, "known_durations": 1.0},
        }

    def result(self, found: Sequence[OwnerFigures]) -> ExperimentResult:
        table = DataTable(
            name="owners",
            title=f"jobs that end more than {self.late_s:g} s later than alone in their pool",
            columns=_COLUMNS,
            rows=tuple(self._rows(found)),
            about=_ABOUT,
        )
        return ExperimentResult(
            title="do owners who lend have their GPUs back in time?",
            parameters=parameters_of(self),
            tables=(table,),
            notes=_NOTES,
        )

    def _rows(self, found: Sequence[OwnerFigures]) -> Iterator[tuple[Cell, ...]]:
        for rule, each in zip(self._rules(), found, strict=True):
            yield (
                rule,
                each.late,
                each.late / max(1, each.jobs),
                each.by_guests,
                each.late - each.by_guests,
                each.beyond_2h,
                each.worst_s / _HOUR_S,
                each.worst_by_guests_s / _HOUR_S,
                each.late_s / _HOUR_S,
                each.completion_s / _HOUR_S,
                each.alone_s / _HOUR_S,
                each.claims,
                each.claims_broken,
                each.evictions,
                each.lost_frac,
            )


_COLUMNS: Final = (
    "rule",
    "late",
    "late_frac",
    "by_guests",
    "by_order",
    "beyond_2h",
    "worst_h",
    "worst_by_guests_h",
    "late_h",
    "completion_h",
    "alone_h",
    "claims",
    "claims_broken",
    "evictions",
    "lost_frac",
)
_ABOUT: Final = (
    "by_order: late jobs that waited for jobs of their own pool for at least half of their "
    "lateness; by_guests: the other late ones. late_h: all late jobs together. completion_h: mean "
    "from submission to end. claims_broken: with a start later than was told at first. lost_frac: "
    "work that was done again, of all work."
)
_NOTES: Final = (
    "Alone: each pool in strict order of submission, on its own nodes, as pool-fifo.",
    "GPUs are counted, not nodes: a gang that small jobs of its own pool keep out by lying on many "
    "nodes is harmed by guests here.",
)
