"""Replays as text: one as a table of its pools, several as a table of runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from federator.cli.text import printable, slurm_span
from federator.sim.report.summary import PoolSummary, ReplaySummary, Spread


def table(result: ReplaySummary) -> list[str]:
    """As Slurm's commands would put it: one line for each pool, the last for all."""
    names = max(4, *(len(printable(pool.pool)) for pool in result.pools))
    head = (
        f"{'POOL':<{names}} {'GPUS':>7} {'JOBS':>8} {'LEFTOUT':>7} {'GPUHOURS':>11} {'USE':>6} "
        f"{'WAITMEAN':>11} {'WAITP50':>11} {'WAITP95':>11} {'WAITMAX':>11} {'JCTMEAN':>11}"
    )
    in_all = PoolSummary(
        "ALL",
        result.gpus,
        result.jobs,
        result.left_out,
        result.gpu_hours,
        result.utilisation_frac,
        result.wait_s,
        result.jct_s,
    )
    return [
        f"policy {result.policy}, seed {result.seed}, makespan {slurm_span(result.makespan_s)}, "
        f"{result.preemptions} preemptions",
        head,
        *(_line(pool, names) for pool in (*result.pools, in_all)),
    ]


def table_of_runs(runs: Sequence[tuple[str, ReplaySummary]]) -> Iterator[str]:
    """A line for each run, with the figures of all pools together.

    Args:
        runs: name and result of each, at least one.
    """
    names = max(3, *(len(name) for name, _ in runs))
    yield (
        f"{'RUN':<{names}} {'JOBS':>8} {'LEFTOUT':>7} {'PREEMPT':>7} {'MAKESPAN':>11} {'USE':>6} "
        f"{'WAITMEAN':>11} {'WAITP50':>11} {'WAITP95':>11} {'WAITMAX':>11} {'JCTMEAN':>11}"
    )
    for name, run in runs:
        yield (
            f"{name:<{names}} {run.jobs:>8} {run.left_out:>7} {run.preemptions:>7} "
            f"{slurm_span(run.makespan_s):>11} {_share(run.utilisation_frac):>6} "
            f"{_spans(run.wait_s)} {_mean(run.jct_s):>11}"
        )


def _line(pool: PoolSummary, names: int) -> str:
    return (
        f"{printable(pool.pool):<{names}} {pool.gpus:>7} {pool.jobs:>8} {pool.left_out:>7} "
        f"{pool.gpu_hours:>11.1f} {_share(pool.utilisation_frac):>6} {_spans(pool.wait_s)} "
        f"{_mean(pool.jct_s):>11}"
    )


def _share(frac: float | None) -> str:
    return "-" if frac is None else f"{frac:.1%}"


def _mean(spread: Spread | None) -> str:
    return slurm_span(spread.mean) if spread else "-"


def _spans(spread: Spread | None) -> str:
    if spread is None:
        return " ".join([f"{'-':>11}"] * 4)
    times_s = (spread.mean, spread.median, spread.p95, spread.max)
    return " ".join(f"{slurm_span(time_s):>11}" for time_s in times_s)
