"""``federator shadow``: what sites' own queues did, and would have done under the federation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path

import click
import msgspec

from federator.cli.shadow_text import report_lines
from federator.cli.slurm_time import parsed_time
from federator.cli.text import printable
from federator.config import FederationConfig, load_config
from federator.errors import InvalidRequest
from federator.model.site_mode import SiteMode
from federator.model.workload import SiteName
from federator.sim.report.local_report import LocalReport

DAYS = 30


@click.group()
def shadow() -> None:
    """Judge by the sites' own jobs what the federation would do: docs/adoption.md.

    Example: federator shadow report --config /etc/federator/federation.yaml
    """


@shadow.command("report")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    required=True,
    help="The daemon's federation.yaml, which names the history.",
)
@click.option("-S", "--since", metavar="TIME", help="Jobs submitted from then on; else 30 days.")
@click.option("-E", "--until", metavar="TIME", help="Until then; by default to the last look.")
@click.option("--site", "sites", multiple=True, metavar="SITE", help="Only these sites' jobs.")
@click.option("--any-gpu", is_flag=True, help="As if every job took any type of GPU.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def report(  # noqa: PLR0913 - an option each
    *,
    config: Path,
    since: str | None,
    until: str | None,
    sites: Sequence[str],
    any_gpu: bool,
    seed: int,
    as_json: bool,
) -> None:
    """How the jobs of the sites' own users waited, and would have waited under the federation.

    It reads the history, where the daemon has kept what the agents of sites in the modes shadow,
    advisory and opt-in have seen. Run it where the daemon's files can be read.

    Example: federator shadow report --config federation.yaml --since now-14days
    """
    now_s = time.time()
    loaded = load_config(config)
    for name in sites:
        if name not in loaded.sites:
            known = ", ".join(list(loaded.sites)[:10])
            raise InvalidRequest(f"--site: unknown site {printable(name)}; expected one of {known}")
    since_s = parsed_time(since, now_s) if since is not None else now_s - DAYS * 86_400.0
    until_s = parsed_time(until, now_s) if until is not None else inf
    if since_s >= until_s:
        raise InvalidRequest("--since is not before --until")
    wanted = [SiteName(name) for name in sites]
    made = report_of(loaded, wanted, since_s, until_s, any_gpu=any_gpu, seed=seed)
    if as_json:
        click.echo(msgspec.json.encode(made))
    else:
        click.echo("\n".join(report_lines(made)))


def report_of(
    config: FederationConfig,
    sites: Sequence[SiteName],
    since_s: float,
    until_s: float,
    *,
    any_gpu: bool = False,
    seed: int = 0,
) -> LocalReport:
    """The report on some sites, or on all that were watched.

    Raises:
        HistoryError: it cannot be read.
        InvalidRequest: none is kept, or nothing was watched.
    """
    from federator.cli.progress import progress_bar  # noqa: PLC0415
    from federator.history.database import open_reader  # noqa: PLC0415
    from federator.history.local_jobs import read  # noqa: PLC0415
    from federator.history.url import NONE, history_url  # noqa: PLC0415
    from federator.sim.importers.local_history import past_records, watched_period  # noqa: PLC0415
    from federator.sim.local_replay import replay  # noqa: PLC0415
    from federator.sim.report.local_report import local_report  # noqa: PLC0415

    url = history_url(config.history.url, config.store)
    if url == NONE:
        raise InvalidRequest("no history is kept (history.url), so no record of the sites' jobs")
    history = read(open_reader(url), since_s, until_s)
    seen = {span.site for span in history.spans} & history.capacities.keys()
    names = [name for name in sites or config.sites if name in seen]
    missing = [name for name in sites if name not in seen]
    if missing or not names:
        which = ", ".join(missing) or "no site"
        modes = ", ".join(mode.value for mode in SiteMode if mode is not SiteMode.ENFORCED)
        raise InvalidRequest(
            f"{which}: not watched since {_day(since_s)}; a site's own jobs are recorded in the "
            f"modes {modes}"
        )
    period = watched_period(history, names, since_s, until_s)
    if period is None:
        raise InvalidRequest("the sites were not watched at one time; choose them with --site")
    records, unseen = past_records(history, names, period, any_gpu=any_gpu)
    capacities = {name: history.capacities[name] for name in names}
    with progress_bar("replaying", 3 * len(records)) as progress:
        replayed = replay(records, capacities, config, period.begin_s, seed, progress)
    modes_of = {name: config.sites[name].mode.value for name in names}
    return local_report(replayed, period, unseen, modes_of, config.policy.name, seed)


def _day(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
