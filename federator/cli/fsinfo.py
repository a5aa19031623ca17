"""fsinfo: the sites, their partitions and what is free; also ``federator sites``."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from federator.cli import flags
from federator.cli.client import call
from federator.cli.flags import Flag, Given, Program
from federator.cli.text import printable, unexpected
from federator.errors import InvalidRequest
from federator.model.partition import PartitionSummary
from federator.wire.client_protocol import ErrorReply, SiteRow, SitesCall, SitesReply

PROGRAM: Final = Program(
    "fsinfo",
    "",
    "Show the sites of the federation and what is free there.\n\n"
    "Nodes are counted as allocated / mixed / idle / other / total.\n\n"
    "Example: fsinfo --json",
    (
        Flag("noheader", "h", about="No header line."),
        Flag("json", about="Print JSON (docs/formats.md)."),
    ),
)
_HEADER: Final = (
    f"{'SITE':<10} {'REGION':<8} {'STATE':<5} {'SLURM':<9} {'PARTITION':<10} {'GPUTYPE':<8} "
    f"{'NODES(A/M/I/O/T)':<18} {'CPUS(A/T)':<12} GPUS(A/I/T)"
)


def fsinfo(given: Given) -> int:
    """Show the table, or the same as JSON."""
    show(header="noheader" not in given, as_json="json" in given)
    return 0


def show(*, header: bool, as_json: bool) -> None:
    """Print what every site has, and what is free there."""
    reply = call(SitesCall())
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    if not isinstance(reply, SitesReply):
        raise unexpected(reply)
    if as_json:
        print(msgspec.json.encode({"schema": 1, "sites": reply.sites}).decode())
        return
    if header:
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
    """Entry point of the command."""
    flags.main(PROGRAM, fsinfo)


if __name__ == "__main__":
    main()
