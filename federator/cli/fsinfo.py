"""fsinfo: the sites, their partitions and what is free; also ``federator sites``."""

from __future__ import annotations

import sys
import time
from typing import Final

import click
import msgspec

from federator import __version__
from federator.cli.client import call
from federator.cli.usage import run
from federator.cli.words import printable, unexpected
from federator.errors import FederatorError, InvalidRequest
from federator.model.partition import PartitionSummary
from federator.sites.calls import ErrorReply, SiteRow, SitesCall, SitesReply

_HEADER: Final = (
    f"{'SITE':<10} {'REGION':<8} {'STATE':<5} {'SLURM':<9} {'PARTITION':<10} {'GPUTYPE':<8} "
    f"{'NODES(A/M/I/O/T)':<18} {'CPUS(A/T)':<12} GPUS(A/I/T)"
)


@click.command(context_settings={"help_option_names": ["--help"]})
@click.option("-h", "--noheader", is_flag=True, help="No header line.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
@click.version_option(__version__, prog_name="fsinfo")
def fsinfo(noheader: bool, as_json: bool) -> None:
    """Show the sites of the federation and what is free there.

    Nodes are counted as allocated / mixed / idle / other / total.

    Example: fsinfo --json
    """
    _show(noheader, as_json)


@click.command()
@click.option("--noheader", is_flag=True, help="No header line.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def sites(noheader: bool, as_json: bool) -> None:
    """The state of every site, as fsinfo shows it.

    Example: federator sites --json
    """
    _show(noheader, as_json)


def _show(noheader: bool, as_json: bool) -> None:
    reply = call(SitesCall())
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    if not isinstance(reply, SitesReply):
        raise unexpected(reply)
    if as_json:
        print(msgspec.json.encode({"schema": 1, "sites": reply.sites}).decode())
        return
    if not noheader:
        print(_HEADER)
    for site in reply.sites:
        for line in _lines(site):
            print(printable(line))


def _lines(site: SiteRow) -> list[str]:
    if not site.up:
        state = f"{site.name:<10} {site.region:<8} down  {site.slurm_version or '-':<9}"
        since = int(time.time() - site.down_since_s) if site.down_since_s else 0
        return [f"{state} not heard for {since} s" if since else f"{state} not heard yet"]
    head = f"{site.name:<10} {site.region:<8} up    {site.slurm_version:<9}"
    return [f"{head} {_partition(p)}" for p in site.partitions]


def _partition(p: PartitionSummary) -> str:
    other = p.nodes_drained + p.nodes_down
    total = p.nodes_allocated + p.nodes_mixed + p.nodes_idle + other
    nodes = f"{p.nodes_allocated}/{p.nodes_mixed}/{p.nodes_idle}/{other}/{total}"
    gpus = f"{p.gpus_alloc}/{p.gpus - p.gpus_alloc}/{p.gpus}" if p.gpus else "-"
    return (
        f"{p.partition:<10} {p.gpu_type or '-':<8} {nodes:<18} "
        f"{f'{p.cpus_alloc}/{p.cpus}':<12} {gpus}"
    )


def main() -> None:
    """Run the command; errors are one line and exit status 1, as sinfo's."""
    try:
        run(fsinfo, "fsinfo", usage_status=1)
    except FederatorError as error:
        print(printable(f"fsinfo: error: {error}"), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
