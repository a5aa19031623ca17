"""``federator whatif``: replays an admin's own history, or the queue of now, as it would be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click
import msgspec
from click.core import ParameterSource

from federator.cli.out_file import out_file, spare_inputs
from federator.cli.progress import progress_bar
from federator.cli.run_options import RunOptions, run_options
from federator.cli.text import counted, printable, slurm_span
from federator.config import FederationConfig, load_config
from federator.errors import InvalidRequest
from federator.model.workload import SiteName
from federator.sim import whatif as sim
from federator.sim.importers.trace_csv import read_pools
from federator.sim.report.before_after import BeforeAfter, Change, compare, write_fates
from federator.sim.report.jobs_file import PARQUET
from federator.sim.report.page import report_page
from federator.sim.report.summary import Spread
from federator.sim.report.whatif_page import page_of
from federator.sim.runs.base import RunFailure, SimRun, results
from federator.sim.runs.whatif import WhatIfTask
from federator.sim.trace import ReplayOptions


@click.command()
@click.option(
    "--live",
    is_flag=True,
    help="Not a history, but the queue as it is: under the first --config, and each other.",
)
@click.option(
    "--drain", multiple=True, metavar="SITE", help="With --live: as if it were drained, too."
)
@click.option(
    "--hours",
    type=click.FloatRange(0.1, 24 * 14),
    default=24.0,
    show_default=True,
    help="With --live: so far ahead.",
)
@click.option(
    "--draws",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="With --live: so many times, each with other run times.",
)
@click.option(
    "--sacct",
    "dumps",
    multiple=True,
    metavar="[SITE=]DUMP",
    help="Of sacct, --parsable2 or --json; may be given several times.",
)
@click.option(
    "--config",
    "config_paths",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="federation.yaml: sites, tenants, policy; may be repeated, for an answer each.",
)
@click.option(
    "--pools",
    type=click.Path(path_type=Path),
    metavar="P.csv",
    help="The GPUs of each SITE, or SITE/PARTITION.",
)
@click.option("--any-gpu", is_flag=True, help="As if nobody had asked for a type of GPU.")
@click.option(
    "--evict", is_flag=True, help="As if the federation evicted, within policy.preemption."
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="Told in the result; nothing here is drawn by chance yet.",
)
@click.option(
    "--jobs-out",
    type=click.Path(path_type=Path),
    metavar="J.csv",
    help="Write where and when each job ran, before and after.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="R.html",
    help="Write it as a page, with plots.",
)
@run_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, a line for each answer.")
def whatif(  # noqa: PLR0913 - an option each
    *,
    live: bool,
    drain: Sequence[str],
    hours: float,
    draws: int,
    dumps: Sequence[str],
    config_paths: Sequence[Path],
    pools: Path | None,
    any_gpu: bool,
    evict: bool,
    seed: int,
    jobs_out: Path | None,
    report: Path | None,
    jobs: int,
    dask: str | None,
    resume: Path | None,
    as_json: bool,
) -> None:
    """Waits, allocation and preemptions of your own history, beside those under the federation.

    With --live the queue as it is now, under another configuration or with a site drained, beside
    what becomes of it as things are. What the files must hold, and what the answer does not tell:
    docs/simulator.md, "What if".

    Example: federator whatif --sacct alpine.txt --config federation.yaml --pools pools.csv
    """
    if live:
        _show_live(config_paths, drain, hours, draws, as_json=as_json)
        return
    _refuse_beside_a_history(dumps, drain)
    configs = [load_config(path) for path in config_paths]
    if pools is None:
        raise InvalidRequest(
            "missing option '--pools': federation.yaml does not say how many GPUs a site has; "
            "expected a CSV with the columns pool,nodes,gpus_per_node and pools named SITE or "
            f"SITE/PARTITION ({', '.join(list(configs[0].sites)[:10])})"
        )
    options = RunOptions(command="whatif", jobs=jobs, dask=dask, resume=resume)
    inputs = [*config_paths, pools, *(dump_of(t, c).path for c in configs for t in dumps)]
    _check_outputs(jobs_out, report, inputs)
    sizes = read_pools(pools)
    questions = [sim.ask([dump_of(t, c) for t in dumps], sizes, c, any_gpu) for c in configs]
    tasks = [
        WhatIfTask(question=question, config=config, evict=evict, seed=seed)
        for question, config in zip(questions, configs, strict=True)
    ]
    if len(tasks) == 1 and options.default:
        _print([("", _answer(tasks[0], jobs_out, report))], as_json)
        return
    if jobs_out is not None or report is not None:
        raise InvalidRequest(
            "--jobs-out and --report: expected one --config, and no --jobs, --dask or --resume"
        )
    _print_all(config_paths, tasks, options, as_json=as_json)


def _print_all(
    paths: Sequence[Path], tasks: Sequence[WhatIfTask], options: RunOptions, *, as_json: bool
) -> None:
    """An answer for each federation.yaml."""
    runs = [
        SimRun(name=str(path), task=task, returns=BeforeAfter)
        for path, task in zip(paths, tasks, strict=True)
    ]
    found = list(options.outcomes(runs, "replaying"))
    named = [(run.name, one) for run, one in zip(runs, found, strict=True)]
    _print([(n, one) for n, one in named if not isinstance(one, RunFailure)], as_json)
    results(found)


_OF_A_HISTORY: Final = frozenset(
    {"dumps", "pools", "any_gpu", "evict", "seed", "jobs_out", "report", "jobs", "dask", "resume"}
)


def _show_live(
    paths: Sequence[Path], drain: Sequence[str], hours: float, draws: int, *, as_json: bool
) -> None:
    from federator.cli.whatif_live import alternatives, show_live  # noqa: PLC0415 - a daemon's parts

    _refuse_beside_live()
    now_s = datetime.now(UTC).timestamp()
    show_live(alternatives(paths, drain), now_s, hours, draws, as_json=as_json)


def _refuse_beside_a_history(dumps: Sequence[str], drain: Sequence[str]) -> None:
    if not dumps:
        raise InvalidRequest("missing option '--sacct': a dump of sacct; or --live: the queue now")
    if drain:
        raise InvalidRequest("--drain: expected --live: a history is replayed with all its sites")


def _refuse_beside_live() -> None:
    """Options that --live does not know."""
    context = click.get_current_context()
    given = [
        option.opts[0]
        for option in context.command.params
        if option.name in _OF_A_HISTORY
        and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise InvalidRequest(f"--live: {given[0]} is for a history; leave one of them out")


def _check_outputs(jobs_out: Path | None, report: Path | None, inputs: Sequence[Path]) -> None:
    """Find out before the work what would stop the files after it."""
    for option, path in (("--jobs-out", jobs_out), ("--report", report)):
        spare_inputs(option, path, *inputs)
    if report is not None and find_spec("matplotlib") is None:
        raise InvalidRequest(
            "--report: needs matplotlib, which is not installed here; install federator[report]"
        )
    if jobs_out is not None and jobs_out.suffix == PARQUET:
        raise InvalidRequest(f"--jobs-out: {jobs_out}: whatif writes CSV; name a .csv file")


def _answer(task: WhatIfTask, jobs_out: Path | None, report: Path | None) -> BeforeAfter:
    """The only answer, made here; its files are written."""
    question, config = task.question, task.config
    gpus = sum(site.gpus for site in question.scenario.sites)
    rules = sim.rules_of(config, gpus if task.evict else 0)
    with out_file(jobs_out, "--jobs-out") as file, out_file(report, "--report") as page:
        with progress_bar("replaying", len(question.scenario.arrivals)) as progress:
            options = ReplayOptions(seed=task.seed, progress=progress)
            lives = sim.live_through(question.scenario, config, rules, options)
        if file is not None:
            write_fates(question, lives, file)
        result = compare(question, lives, config.policy.name, task.seed)
        if page is not None:
            page.write(report_page(page_of(result), "whatif", task.seed))
    return result


def _print(answers: Sequence[tuple[str, BeforeAfter]], as_json: bool) -> None:
    """Each answer; where there are several, below the name of its federation.yaml."""
    for number, (name, result) in enumerate(answers):
        if as_json:
            click.echo(msgspec.json.encode(result))
            continue
        if len(answers) > 1:
            click.echo("\n" * (number > 0) + f"{printable(name)}:")
        click.echo("\n".join(table(result)))


def dump_of(text: str, config: FederationConfig) -> sim.Dump:
    """``SITE=DUMP``, where the first is a site; else all of it is a path."""
    site, equals, path = text.partition("=")
    if equals and site in config.sites:
        return sim.Dump(path=Path(path), site=SiteName(site))
    return sim.Dump(path=Path(text))


def table(result: BeforeAfter) -> list[str]:
    """As Slurm's commands would put it: a line for each tenant, each site, and for all."""
    begin, end = (_day(time_s) for time_s in (result.begin_s, result.end_s))
    names = max(6, *(len(printable(c.name)) for c in (*result.tenants, *result.sites)))
    return [
        f"policy {result.policy}, seed {result.seed}, {begin} to {end} UTC; before > after",
        _head("TENANT", names),
        *(_line(change, names, "") for change in result.tenants),
        _head("SITE", names),
        *(_line(c, names, str(c.gpus)) for c in (*result.sites, result.in_all)),
        *_notes(result),
    ]


def _head(name: str, names: int) -> str:
    waits = " ".join(f"{title:>23}" for title in ("WAITMEAN", "WAITP50", "WAITP95"))
    return (
        f"{name:<{names}} {'GPUS':>6} {'JOBS':>14} {waits} {'ALLOC':>15} {'PREEMPT':>11} "
        f"{'LATER':>6} {'EARLIER':>7}"
    )


def _line(change: Change, names: int, gpus: str) -> str:
    before, after = change.before, change.after
    jobs = str(change.jobs)
    if change.jobs_here != change.jobs:
        jobs += f" > {change.jobs_here}"
    shares = f"{before.allocation_frac:.1%} > {after.allocation_frac:.1%}"
    return (
        f"{printable(change.name):<{names}} {gpus:>6} {jobs:>14} "
        f"{_waits(before.wait_s, after.wait_s)} {shares:>15} "
        f"{f'{before.preemptions} > {after.preemptions}':>11} "
        f"{change.start_later:>6} {change.start_earlier:>7}"
    )


def _waits(before: Spread | None, after: Spread | None) -> str:
    if before is None or after is None:
        return " ".join([f"{'-':>23}"] * 3)
    pairs = ((before.mean, after.mean), (before.median, after.median), (before.p95, after.p95))
    return " ".join(f"{f'{slurm_span(a)} > {slurm_span(b)}':>23}" for a, b in pairs)


def _notes(result: BeforeAfter) -> list[str]:
    """Notes about what the table does not hold."""
    reasons = Counter(job.reason for job in result.left_out_jobs)
    lines = [
        f"left out: {counted(count, 'job')}: {reason}" for reason, count in reasons.most_common()
    ]
    if result.in_all.never_started:
        lines.append(f"never started: {counted(result.in_all.never_started, 'job')}")
    lines += [
        f"{printable(site.name)}: its jobs held up to {site.peak_before_gpus} GPUs at once, and "
        f"--pools says that it has {site.gpus}"
        for site in result.sites
        if site.peak_before_gpus > site.gpus
    ]
    if result.accounts_without_tenant:
        named = ", ".join(printable(name) for name in result.accounts_without_tenant[:10])
        more = len(result.accounts_without_tenant) - 10
        lines.append(
            f"no tenant of federation.yaml, so without quota and last: {named}"
            f"{f' and {more} more' if more > 0 else ''}"
        )
    return lines


def _day(time_s: int) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M")
