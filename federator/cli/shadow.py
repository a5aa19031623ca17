"""``federator shadow``: what sites' own queues did, and would have done under the federation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf
from pathlib import Path

import click
import msgspec

from federator.cli.shadow_drill import drill
from federator.cli.shadow_record import DAYS, report_of
from federator.cli.shadow_step import step
from federator.cli.shadow_text import report_lines
from federator.cli.slurm_time import parsed_time
from federator.cli.text import printable
from federator.config import load_config
from federator.errors import InvalidRequest
from federator.model.workload import SiteName


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
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="Of the draws of days, from which the intervals are.",
)
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

    It reads the history, where the daemon has kept what agents have seen while their site, or any
    tenant, was in mode shadow, advisory or opt-in. Run it where the daemon's files can be read.

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


shadow.add_command(step)
shadow.add_command(drill)
