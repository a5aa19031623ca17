"""``federator simulate``: replays a trace of jobs under one policy, or under several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Final

import click
import msgspec

from federator.cli.out_file import out_file, spare_inputs
from federator.cli.progress import progress_bar
from federator.cli.run_options import RunOptions, run_options
from federator.cli.simulate_text import table, table_of_runs
from federator.cli.text import printable
from federator.errors import InvalidRequest
from federator.sim.importers.trace_csv import read_pools
from federator.sim.importers.trace_file import read_any_trace
from federator.sim.registry import DEFAULT_POLICY, TRACE_POLICIES, remarks, trace_policy
from federator.sim.report.jobs_file import checked_format, write_jobs_file
from federator.sim.report.summary import ReplaySummary, summary
from federator.sim.runs.base import RunFailure, SimRun, results
from federator.sim.runs.replay import ReplayTask
from federator.sim.trace import ReplayOptions, Trace

_LISTED: Final = 10  # jobs left out that are named on stderr
_MOST_RUNS: Final = 10_000

Choice = tuple[str, Mapping[str, float], int]
"""Policy, settings and seed of one run."""


@click.command()
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="The jobs: T.csv[.gz], a dump of sacct, or SWF.",
)
@click.option("--pools", type=click.Path(path_type=Path), help="The GPUs: P.csv.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=[DEFAULT_POLICY],
    show_default=True,
    metavar="NAME",
    help="Whose decisions; may be repeated; 'list' lists the names.",
)
@click.option(
    "--seed",
    "seeds",
    type=click.IntRange(0, 2**63 - 1),
    multiple=True,
    default=[0],
    show_default=True,
    help="May be repeated. The same seed gives the same result, byte by byte.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE[,VALUE]",
    help="Of mast, global-fifo: a setting of the policy or the sites; docs/simulator.md, Fleets.",
)
@click.option(
    "--jobs-out",
    type=click.Path(path_type=Path),
    metavar="J.csv",
    help="Write when and where each job ran; as Parquet if it is J.parquet.",
)
@run_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, a line for each run.")
def simulate(  # noqa: PLR0913 - an option each
    *,
    trace: Path | None,
    pools: Path | None,
    policies: tuple[str, ...],
    seeds: tuple[int, ...],
    changes: tuple[str, ...],
    jobs_out: Path | None,
    jobs: int,
    dask: str | None,
    resume: Path | None,
    as_json: bool,
) -> None:
    """Replay a trace of jobs in virtual time under a policy.

    Files, rules and limits: docs/simulator.md. With several policies, seeds, or values of a setting
    there is a run for each combination.

    Example: federator simulate --trace jobs.csv.gz --pools pools.csv --policy pool-sjf
    """
    if policies == ("list",):
        _list(as_json)
        return
    choices = _choices(policies, seeds, changes)
    options = RunOptions(command="simulate", jobs=jobs, dask=dask, resume=resume)
    if trace is None or pools is None:
        missing = "--trace" if trace is None else "--pools"
        raise InvalidRequest(f"missing option '{missing}'; see federator simulate --help")
    _check_jobs_out(jobs_out, choices, options)
    replayed = read_any_trace(trace, read_pools(pools))
    _tell_left_out(replayed, trace)
    spare_inputs("--jobs-out", jobs_out, trace, pools)
    if len(choices) == 1 and options.default:
        _print_one(_one(replayed, choices[0], jobs_out), as_json)
    else:
        _several(replayed, choices, options, as_json)


def _one(trace: Trace, choice: Choice, jobs_out: Path | None) -> ReplaySummary:
    """The only run, here; its jobs may be written."""
    policy, settings, seed = choice
    file_format = checked_format(jobs_out)
    with out_file(jobs_out, "--jobs-out", binary=True) as file:
        with progress_bar("replaying", len(trace)) as progress:
            options = ReplayOptions(seed=seed, progress=progress)
            timetable = trace_policy(policy, settings).replay(trace, options)
        if file is not None:
            write_jobs_file(file, file_format, trace, timetable)
    return summary(trace, timetable, policy, seed)


def _several(trace: Trace, choices: Sequence[Choice], options: RunOptions, as_json: bool) -> None:
    """Every run, in their order; those that fail are named at the end."""
    runs = [
        SimRun(
            name=_name(choice, choices),
            task=ReplayTask(trace=trace, policy=choice[0], settings=choice[1], seed=choice[2]),
            returns=ReplaySummary,
        )
        for choice in choices
    ]
    found: list[ReplaySummary | RunFailure] = []
    for (_, settings, _), one in zip(choices, options.outcomes(runs, "replaying"), strict=True):
        found.append(one)
        if as_json and not isinstance(one, RunFailure):
            more = {"settings": settings} if len(choices) > 1 else {}
            click.echo(msgspec.json.encode(msgspec.to_builtins(one) | more))
    good = [
        (run.name, one)
        for run, one in zip(runs, found, strict=True)
        if not isinstance(one, RunFailure)
    ]
    if good and not as_json:
        lines = table_of_runs(good) if len(choices) > 1 else table(good[0][1])
        click.echo("\n".join(lines))
    results(found)


def _print_one(result: ReplaySummary, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        click.echo("\n".join(table(result)))


# ---- what to run ----


def _choices(policies: Sequence[str], seeds: Sequence[int], changes: Sequence[str]) -> list[Choice]:
    """Each combination once: by policy, then by settings, then by seed."""
    for option, values in (("--policy", policies), ("--seed", seeds)):
        if len(set(values)) < len(values):
            raise InvalidRequest(f"{option}: expected each value once")
    settings = _settings(changes)
    count = len(policies) * len(settings) * len(seeds)
    if count > _MOST_RUNS:
        raise InvalidRequest(f"{count} runs are asked for; expected at most {_MOST_RUNS}")
    for policy, some in product(policies, settings):
        for remark in remarks(trace_policy(policy, some), some):
            click.echo(f"federator simulate: {remark}", err=True)
    return list(product(policies, settings, seeds))


_SWITCHED: Final = {"off": "0", "on": "1"}


def _settings(changes: Sequence[str]) -> list[dict[str, float]]:
    """Each combination of the values that are given."""
    values: dict[str, list[float]] = {}
    for change in changes:
        name, _, text = change.partition("=")
        try:
            values[name] = [float(_SWITCHED.get(part, part)) for part in text.split(",")]
        except ValueError as error:
            raise InvalidRequest(
                f"--set: {change[:60]!r}: expected NAME=NUMBER, as in save_s=60"
            ) from error
        if len(set(values[name])) < len(values[name]):
            raise InvalidRequest(f"--set: {printable(name[:60])}: expected each value once")
    return [dict(zip(values, some, strict=True)) for some in product(*values.values())]


def _name(choice: Choice, choices: Sequence[Choice]) -> str:
    """What tells a run from the others: its policy, and the settings that are not all the same."""
    policy, settings, seed = choice
    varied = [n for n in settings if len({some[n] for _, some, _ in choices}) > 1]
    return " ".join([policy, *(f"{name}={settings[name]:g}" for name in varied), f"seed={seed}"])


def _check_jobs_out(jobs_out: Path | None, choices: Sequence[Choice], options: RunOptions) -> None:
    if jobs_out is not None and len(choices) > 1:
        raise InvalidRequest(f"--jobs-out: expected one run, and {len(choices)} are asked for")
    if jobs_out is not None and not options.default:
        raise InvalidRequest(
            "--jobs-out: not together with --jobs, --dask or --resume, which keep summaries alone"
        )


# ---- what is said ----


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
