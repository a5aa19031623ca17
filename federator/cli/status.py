"""``federator status``: the federation on one screen."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import click
import msgspec

from federator import __version__
from federator.cli.client import call
from federator.cli.colour import of_site, painted
from federator.cli.fsinfo import drain_line, mode_lines, site_state
from federator.cli.lending_text import lending_lines
from federator.cli.start_text import class_lines, hits_text
from federator.cli.text import counted, printable, refused, span, unexpected
from federator.wire.client_protocol import ErrorReply, SiteRow, StatusCall, StatusReply
from federator.wire.status_rows import BudgetRow, PassRow

MOST_CLAIMS: int = 5  # on the screen
_HEADER = ("SITE", "REGION", "STATE", "SLURM", "GPUS(F/A/O/T)", "NODES(U/O)")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def status(as_json: bool) -> None:
    """The federation on one screen: sites, queue, last pass, evictions, claims, lending, drains.

    GPUs are free/allocated/out/total, nodes usable/out; out are those on nodes that take no jobs.
    A node in two partitions counts in both.

    Example: federator status
    """
    reply = call(StatusCall())
    if isinstance(reply, ErrorReply):
        raise refused(reply)
    if not isinstance(reply, StatusReply):
        raise unexpected(reply)
    if as_json:
        answer = {"schema": 1, **msgspec.to_builtins(reply)}
        answer.pop("type", None)
        print(msgspec.json.encode(answer).decode())
        return
    colours = {site.name: of_site(site) for site in reply.sites}
    for line in lines(reply):
        print(painted(printable(line), colours.get(line.partition(" ")[0])))


def lines(reply: StatusReply) -> Iterator[str]:
    """The screen, line by line."""
    yield from site_lines(reply)
    yield ""
    states = [f"{number} {state}" for state, number in reply.queue.items() if number]
    held = counted(reply.gpus_held, "GPU")
    yield f"Queue:     {', '.join(states) or 'empty'}; {held} held"
    yield f"Pass:      {_pass(reply.last_pass, reply.now_s)}"
    yield f"Evictions: {_evictions(reply.budget)}"
    yield f"Claims:    {len(reply.claims) or 'none'}"
    for claim in reply.claims[:MOST_CLAIMS]:
        in_s = max(0.0, claim.starts_by_s - reply.now_s)
        whose = f"job {claim.id}" if claim.id else "another job"
        yield (
            f"  {whose} at {claim.site}: {counted(claim.gpus, 'GPU')}, "
            f"{claim.to_evict_gpus} still to be evicted; starts within {span(in_s)}"
        )
    if reply.starts is not None:
        yield f"Starts:    {hits_text(reply.starts)}"
        yield from (f"  {line}" for line in class_lines(reply.starts.classes))
    if reply.tenant_modes:
        modes = (f"{row.tenant} in mode {row.mode}" for row in reply.tenant_modes)
        yield f"Tenants:   {', '.join(modes)}"
    first, *more = lending_lines(reply.lending, reply.now_s)
    yield f"Lending:   {first}"
    yield from more


def site_lines(reply: StatusReply) -> Iterator[str]:
    """The federation in a line, and its sites."""
    up = sum(site.up for site in reply.sites)
    yield (
        f"Federation {reply.federation}: {up} of {counted(len(reply.sites), 'site')} up; "
        f"policy {reply.policy}; epoch {reply.epoch}"
    )
    yield ""
    yield from _table([_HEADER, *(_cells(site) for site in reply.sites)])
    for site in reply.sites:
        yield from (f"  {site.name}: {line}" for line in mode_lines(site))
        for drain in site.drains:
            yield f"  {site.name}: {drain_line(drain)}"
    for name, at_s in reply.job_ids_back.items():
        ago = span(max(0.0, reply.now_s - at_s))
        yield (
            f"  {name}: job ids went back {ago} ago "
            "(its slurmctld lost its state, or has that of a backup)"
        )
    up_now = [site for site in reply.sites if site.up]
    if any(site.agent_release != __version__ for site in up_now):
        releases = (f"{site.name} {site.agent_release or 'unknown'}" for site in up_now)
        yield f"Agents' releases, where this is {__version__}: {', '.join(releases)}"
    hosts = [f"{site.name} {site.login_node}" for site in reply.sites if site.login_node]
    if hosts:
        yield f"Login nodes: {', '.join(hosts)}"


def _cells(site: SiteRow) -> tuple[str, ...]:
    rows = site.partitions
    total, alloc = sum(p.gpus for p in rows), sum(p.gpus_alloc for p in rows)
    gpus_out = sum(p.gpus_out for p in rows)
    usable = sum(p.nodes_idle + p.nodes_mixed + p.nodes_allocated for p in rows)
    nodes_out = sum(p.nodes_drained + p.nodes_down for p in rows)
    if site.up:
        state = site_state(site)
    elif site.down_since_s:
        state = f"down {span(max(0.0, time.time() - site.down_since_s))}"
    else:
        state = "down"
    return (
        site.name,
        site.region,
        state,
        site.slurm_version or "-",
        f"{total - alloc - gpus_out}/{alloc}/{gpus_out}/{total}",
        f"{usable}/{nodes_out}",
    )


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield " ".join(map(str.ljust, row, widths)).rstrip()


def _pass(last: PassRow | None, now_s: float) -> str:
    if last is None:
        return "none since the daemon's start"
    numbers = f"{counted(last.rounds, 'round')}, {counted(last.awarded, 'award')}"
    ago = span(max(0.0, now_s - last.began_s))
    if not last.ended_s:
        return f"under way for {ago}: {numbers}"
    return f"{ago} ago, took {last.ended_s - last.began_s:.1f} s: {numbers}"


def _evictions(budget: BudgetRow) -> str:
    if not budget.gpus and not budget.evictions:
        return "off"
    text = (
        f"{budget.evictions} with {counted(budget.evicted_gpus, 'GPU')} in the last "
        f"{span(budget.window_s)}; {budget.left_gpus:g} of {budget.gpus:g} GPUs of the budget left"
    )
    if budget.whole_in_s > budget.window_s:  # for a victim larger than the budget
        text = f"{text}, all in {span(budget.whole_in_s)}"
    if not budget.beyond_gpus:
        return text
    return f"{text}; {counted(budget.beyond_gpus, 'GPU')} beyond it for start objectives"
