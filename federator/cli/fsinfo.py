"""fsinfo: the sites, their partitions and what is free; also ``federator sites``."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from federator.cli import flags
from federator.cli.client import call
from federator.cli.colour import of_site, painted
from federator.cli.flags import Flag, Given, Program, called_as_slurms
from federator.cli.text import clock, listed, printable, unexpected
from federator.errors import InvalidRequest, SiteUnavailable
from federator.model.partition import PartitionSummary
from federator.model.window import SiteWindow
from federator.wire.client_protocol import ErrorReply, QueueCall, SiteRow, SitesCall, SitesReply
from federator.wire.status_rows import DrainRow

PROGRAM: Final = Program(
    "fsinfo",
    "",
    "Show the sites of the federation and what is free there; with sinfo's options their nodes.\n\n"
    "Without them nodes are counted as allocated / mixed / idle / other / total.\n\n"
    "Examples: fsinfo · fsinfo -N · fsinfo -R · fsinfo -o '%P %G %F' · fsinfo --json",
    (
        Flag("all", "a", about="No effect: no partition is hidden.", variable="SINFO_ALL"),
        Flag("clusters", "M", "NAMES", "Only these sites; 'all', or the federation's name.",
             also=("cluster",), variable="SLURM_CLUSTERS"),
        Flag("dead", "d", about="Only nodes that are down."),
        Flag("exact", "e", about="A row for each amount of CPUs and memory."),
        Flag("federation", about="No effect.", variable="SINFO_FEDERATION"),
        Flag("Format", "O", "FIELDS", "Columns by name: Partition:12,NodeAIOT (--helpFormat)."),
        Flag("format", "o", "TEXT", "Columns by letter: '%P %F' (--helpformat)."),
        Flag("future", "F", about="No effect.", variable="SINFO_FUTURE"),
        Flag("helpformat", about="The letters of --format."),
        Flag("helpFormat", about="The names of --Format."),
        Flag("helpstate", about="The states of --states."),
        Flag("hide", about="No effect."),
        Flag("iterate", "i", "SECONDS", "Repeat for ever."),
        Flag("json", "", "slurm", "Print JSON (docs/formats.md), or as sinfo's --json.",
             optional=True),
        Flag("list-reasons", "R", about="Why nodes are down or drained."),
        Flag("local", about="No effect.", variable="SINFO_LOCAL"),
        Flag("long", "l", about="More columns."),
        Flag("Node", "N", about="A row for each node."),
        Flag("nodes", "n", "NODES", "Only these nodes."),
        Flag("noconvert", about="No effect."),
        Flag("noheader", "h", about="No header line."),
        Flag("partition", "p", "NAMES", "Only these partitions.", variable="SINFO_PARTITION",
             unless=("all",)),
        Flag("responding", "r", about="Only nodes that are not down."),
        Flag("sort", "S", "FIELDS", "Order of the rows: #P,-t.", variable="SINFO_SORT"),
        Flag("states", "t", "STATES", "Only nodes in these states."),
        Flag("summarize", "s", about="A row for each partition."),
        Flag("verbose", "v", about="No effect."),
        Flag("autocomplete", "", "TEXT", instead="complete the words of sinfo"),
        Flag("reservation", "T", instead="a reservation belongs to one site; there 'sinfo -T'"),
        Flag("yaml", "", "VERSION", optional=True, instead="use --json or --json=slurm"),
    ),
)  # fmt: skip
_OF_NODES: Final = frozenset(
    {"dead", "exact", "Format", "format", "list-reasons", "long", "Node", "nodes", "responding",
     "sort", "states", "summarize"}
)  # fmt: skip
_HEADER: Final = (
    f"{'SITE':<10} {'REGION':<8} {'STATE':<5} {'SLURM':<9} {'PARTITION':<10} {'GPUTYPE':<8} "
    f"{'NODES(A/M/I/O/T)':<18} {'CPUS(A/T)':<12} {'GPUS(A/I/T)':<12} STRANDED"
)
_SLURMS_JSON: Final = re.compile(r"slurm|v0\.0\.[0-9]{2}", re.ASCII)


def fsinfo(given: Given) -> int:
    """Show the table, or the same as JSON; with --iterate again and again."""
    pause_s = _pause_s(given.get("iterate"))
    while True:
        status = 0
        try:
            status = _show_once(given, os.environ)
        except SiteUnavailable as error:  # the next daemon will be there soon
            if pause_s is None:
                raise
            print(printable(f"fsinfo: error: {error}"), file=sys.stderr)
        if pause_s is None:
            return status
        print(flush=True)
        time.sleep(pause_s)


def _show_once(given: Given, environment: Mapping[str, str]) -> int:
    as_json = given.get("json")
    if as_json and not _SLURMS_JSON.fullmatch(as_json):
        raise InvalidRequest(f"--json={as_json}: give no value, or slurm")
    helps = {"helpformat", "helpFormat", "helpstate"} & set(given.values)
    of_nodes = set(given.values) & _OF_NODES or "SINFO_FORMAT" in environment
    of_nodes = of_nodes or called_as_slurms(PROGRAM)
    if helps or as_json or (of_nodes and as_json is None):
        from federator.cli import node_table  # noqa: PLC0415  # the plain table needs none of it

        if helps:
            return node_table.show_help(helps)
        if as_json:
            return node_table.show_json(given)
        return node_table.show(given, environment, with_site=not called_as_slurms(PROGRAM))
    if "iterate" in given and "noheader" not in given:
        print(time.strftime("%a %b %d %H:%M:%S %Y"))
    show(
        header="noheader" not in given,
        as_json=as_json is not None,
        sites=listed(given.get("clusters")),
        partitions=listed(given.get("partition")),
    )
    return 0


def _pause_s(text: str | None) -> float | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and int(text[:9]) > 0):
        raise InvalidRequest(f"invalid entry for --iterate={text}")
    return float(text[:9])


def show(
    *, header: bool, as_json: bool, sites: tuple[str, ...] = (), partitions: tuple[str, ...] = ()
) -> None:
    """Print what every site has, and what is free there.

    Args:
        header: with a header line.
        as_json: as JSON instead.
        sites: only these, or the federation's own name.
        partitions: only these.
    """
    reply = call(SitesCall())
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    if not isinstance(reply, SitesReply):
        raise unexpected(reply)
    known = {site.name for site in reply.sites}
    _check_sites(sites, known)
    every = not sites or not known.issuperset(sites)
    rows = [_with_partitions(s, partitions) for s in reply.sites if every or s.name in sites]
    if as_json:
        shown = {"schema": 1, "sites": rows, "licenses": reply.licenses}
        print(msgspec.json.encode(shown).decode())
        return
    if header:
        print(_HEADER)
    for row in rows:
        for line in _lines(row):
            print(painted(printable(line), of_site(row)))


def _check_sites(names: tuple[str, ...], known: set[str]) -> None:
    """Have the daemon refuse a site that there is not: it knows the federation's own name."""
    if known.issuperset(names):
        return
    reply = call(QueueCall(clusters=names, states=("none",), brief=True))  # of no job
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)


def _with_partitions(site: SiteRow, names: Iterable[str]) -> SiteRow:
    wanted = set(names)
    if not wanted:
        return site
    kept = tuple(p for p in site.partitions if p.partition in wanted)
    return msgspec.structs.replace(site, partitions=kept)


def _lines(site: SiteRow) -> list[str]:
    drained = [f"  {line}" for line in mode_lines(site)]
    drained += [f"  {drain_line(drain)}" for drain in site.drains]
    drained += [f"  {window_line(window)}" for window in site.windows]
    if not site.up:
        state = f"{site.name:<10} {site.region:<8} down  {site.slurm_version or '-':<9}"
        since = int(time.time() - site.down_since_s) if site.down_since_s else 0
        said = f"{state} not heard for {since} s" if since else f"{state} not heard yet"
        return [said, *drained]
    head = f"{site.name:<10} {site.region:<8} {site_state(site):<5} {site.slurm_version:<9}"
    return [*(f"{head} {_partition(p)}" for p in site.partitions), *drained]


def site_state(site: SiteRow) -> str:
    """The state of a site that is up, as sinfo abbreviates that of nodes."""
    whole = next((drain for drain in site.drains if not drain.nodes), None)
    if whole is None:
        return "up"
    if whole.written_off:
        return "gone"
    if whole.cordon:
        return "cord"
    return "drng" if whole.left else "drain"


def mode_lines(site: SiteRow) -> list[str]:
    """The mode of a site, unless the federation does there all that it can."""
    if site.mode == "enforced":
        return []
    if site.mode == "opt-in":
        return ["mode opt-in: its own admission rules get no limits"]
    return [f"mode {site.mode}: no job is started there"]


def drain_line(drain: DrainRow) -> str:
    """One drain, cordon or quarantine in words."""
    from federator.cli.node_lists import folded  # noqa: PLC0415  # only few tables need it

    what = "cordoned" if drain.cordon else "drained"
    if drain.written_off:
        left = f"{drain.left} attempt{'' if drain.left == 1 else 's'} to be ended there"
        why = f"{left}: {drain.reason or 'no reason given'}"
        return f"written off since {clock(drain.since_s)} by {drain.by}; {why}"
    nodes = f"{folded(drain.nodes)} " if drain.nodes else ""
    if drain.gangs:
        kept = f"limping since {clock(drain.since_s)}, until {clock(drain.until_s)}"
        return f"{nodes}{kept}, jobs of several nodes do not start there: {drain.reason}"
    until = f", empty by {clock(drain.deadline_s)}" if drain.deadline_s else ""
    moves = ", workloads move" if drain.migrate else ""
    left = f"{drain.left} workload{'' if drain.left == 1 else 's'} left"
    why = f"{left}: {drain.reason or 'no reason given'}"
    return f"{nodes}{what} since {clock(drain.since_s)} by {drain.by}{until}{moves}; {why}"


def window_line(window: SiteWindow) -> str:
    """One window of a site's own reservations in words."""
    from federator.cli.node_lists import folded  # noqa: PLC0415  # only few tables need it

    what = "maintenance" if window.maintenance else "reservation"
    part = "part of " if window.cpus else ""
    times = f"{clock(window.starts_at_s)} until {clock(window.ends_at_s)}"
    again = ", and again" if window.again_s else ""
    return f"{what} {window.name}: {part}{folded(window.nodes)} from {times}{again}"


def _partition(p: PartitionSummary) -> str:
    other = p.nodes_drained + p.nodes_down
    total = p.nodes_allocated + p.nodes_mixed + p.nodes_idle + other
    nodes = f"{p.nodes_allocated}/{p.nodes_mixed}/{p.nodes_idle}/{other}/{total}"
    gpus = f"{p.gpus_alloc}/{p.gpus - p.gpus_alloc}/{p.gpus}" if p.gpus else "-"
    return (
        f"{p.partition:<10} {p.gpu_type or '-':<8} {nodes:<18} "
        f"{f'{p.cpus_alloc}/{p.cpus}':<12} {gpus:<12} {_stranded(p)}"
    )


def _stranded(p: PartitionSummary) -> str:
    """The share of its free GPUs that is of no use to what is usually asked for."""
    free = p.gpus - p.gpus_alloc - p.gpus_out
    if p.gpus_stranded is None or free <= 0:
        return "-"
    return f"{100 * min(1.0, p.gpus_stranded / free):.0f} %"


def say(text: str) -> None:
    """Say something beside the table."""
    print(printable(f"fsinfo: {text}"), file=sys.stderr)


def main() -> None:
    """Entry point of the command."""
    flags.main(PROGRAM, fsinfo)


if __name__ == "__main__":
    main()
