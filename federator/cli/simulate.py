"""``federator simulate``: replays a trace of jobs under a policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from federator.cli.out_file import out_file, spare_inputs
from federator.cli.progress import progress_bar
from federator.cli.text import printable, slurm_span
from federator.errors import InvalidRequest
from federator.sim.importers.trace_csv import read_pools
from federator.sim.importers.trace_file import read_any_trace
from federator.sim.registry import DEFAULT_POLICY, TRACE_POLICIES, remarks, trace_policy
from federator.sim.report.jobs_file import checked_format, write_jobs_file
from federator.sim.report.summary import PoolSummary, ReplaySummary, Spread, summary
from federator.sim.trace import ReplayOptions, Trace

_LISTED: Final = 10  # jobs left out that are named on stderr


@click.command()
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="The jobs: T.csv[.gz], a dump of sacct, or SWF.",
)
@click.option("--pools", type=click.Path(path_type=Path), help="The GPUs: P.csv.")
@click.option(
    "--policy",
    default=DEFAULT_POLICY,
    show_default=True,
    metavar="NAME",
    help="Whose decisions; 'list' lists the names.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="The same seed gives the same result, byte by byte.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Of mast, global-fifo: a setting of the policy or the sites; docs/simulator.md, Fleets.",
)
@click.option(
    "--jobs-out",
    type=click.Path(path_type=Path),
    metavar="J.csv",
    help="Write when and where each job ran; as Parquet if it is J.parquet.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def simulate(  # noqa: PLR0913 - an option each
    *,
    trace: Path | None,
    pools: Path | None,
    policy: str,
    seed: int,
    changes: tuple[str, ...],
    jobs_out: Path | None,
    as_json: bool,
) -> None:
    """Replay a trace of jobs in virtual time under a policy.

    Files, rules and limits: docs/simulator.md.

    Example: federator simulate --trace jobs.csv.gz --pools pools.csv --policy pool-sjf
    """
    if policy == "list":
        _list(as_json)
        return
    settings = _settings(changes)
    chosen = trace_policy(policy, settings)
    for remark in remarks(chosen, settings):
        click.echo(f"federator simulate: {remark}", err=True)
    if trace is None or pools is None:
        missing = "--trace" if trace is None else "--pools"
        raise InvalidRequest(f"missing option '{missing}'; see federator simulate --help")
    jobs = read_any_trace(trace, read_pools(pools))
    _tell_left_out(jobs, trace)
    spare_inputs("--jobs-out", jobs_out, trace, pools)
    file_format = checked_format(jobs_out)
    with out_file(jobs_out, "--jobs-out", binary=True) as file:
        with progress_bar("replaying", len(jobs)) as progress:
            timetable = chosen.replay(jobs, ReplayOptions(seed=seed, progress=progress))
        if file is not None:
            write_jobs_file(file, file_format, jobs, timetable)
    result = summary(jobs, timetable, policy, seed)
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        click.echo("\n".join(_table(result)))


def _settings(changes: Sequence[str]) -> dict[str, float]:
    settings: dict[str, float] = {}
    for change in changes:
        name, _, text = change.partition("=")
        try:
            settings[name] = float(text)
        except ValueError as error:
            raise InvalidRequest(
                f"--set: {change[:60]!r}: expected NAME=NUMBER, as in save_s=60"
            ) from error
    return settings


def _list(as_json: bool) -> None:
    if as_json:
        policies = [{"name": name, "about": entry.about} for name, entry in TRACE_POLICIES.items()]
        click.echo(msgspec.json.encode({"schema": 1, "policies": policies}))
        return
    for name, entry in TRACE_POLICIES.items():
        click.echo(f"{name:<16} {entry.about}{' (default)' * (name == DEFAULT_POLICY)}")


def _tell_left_out(jobs: Trace, path: Path) -> None:
    """Name on stderr what is not replayed; --json has all of it."""
    for job in jobs.left_out[:_LISTED]:
        where = f"{path}:{job.line}" if job.line else str(path)
        what = f"job {printable(job.job_id)}: {job.gpus} GPUs of {printable(job.pool) or '?'}"
        click.echo(f"federator simulate: left out: {where}: {what}: {job.reason.value}", err=True)
    more = len(jobs.left_out) - _LISTED
    if more > 0:
        click.echo(f"federator simulate: left out: {more} more jobs; --json lists them", err=True)


def _table(result: ReplaySummary) -> list[str]:
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


def _line(pool: PoolSummary, names: int) -> str:
    use = "-" if pool.utilisation_frac is None else f"{pool.utilisation_frac:.1%}"
    return (
        f"{printable(pool.pool):<{names}} {pool.gpus:>7} {pool.jobs:>8} {pool.left_out:>7} "
        f"{pool.gpu_hours:>11.1f} {use:>6} {_spans(pool.wait_s)} "
        f"{slurm_span(pool.jct_s.mean) if pool.jct_s else '-':>11}"
    )


def _spans(spread: Spread | None) -> str:
    if spread is None:
        return " ".join([f"{'-':>11}"] * 4)
    times_s = (spread.mean, spread.median, spread.p95, spread.max)
    return " ".join(f"{slurm_span(time_s):>11}" for time_s in times_s)
