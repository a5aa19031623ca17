"""The commands of ``federator data`` that only look: list, show, where, usage and export."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import click
import msgspec

from federator.cli.client import call
from federator.cli.data_file import data_file
from federator.cli.data_sets import json_option
from federator.cli.text import counted, listed, printable, refused, size_shown, unexpected
from federator.errors import InvalidRequest
from federator.model.data_use import variable_of
from federator.model.dataset import (
    CopyPhase,
    DataCopy,
    DataRemoval,
    DataReplica,
    DataSet,
    ReplicaState,
)
from federator.wire.client_protocol import ErrorReply
from federator.wire.data_rows import DataSetsCall, DataSetsReply, DomainRow


@click.command("list")
@click.option("--user", default=None, help="Owners, with commas between.")
@click.option("--tenant", default=None, help="Tenants, with commas between.")
@click.option("--domain", default=None, help="Storage domains, with commas between.")
@click.option("--noheader", is_flag=True, help="No header line.")
@json_option
def list_(
    user: str | None, tenant: str | None, domain: str | None, noheader: bool, as_json: bool
) -> None:
    """List the data sets that you may see.

    Example: federator data list --tenant vision
    """
    sets, _ = all_sets(
        DataSetsCall(users=listed(user), tenants=listed(tenant), domains=listed(domain))
    )
    if as_json:
        print(msgspec.json.encode({"schema": 1, "data_sets": sets}).decode())
        return
    header = ("NAME", "OWNER", "TENANT", "CLASS", "SHARE", "SIZE", "FILES", "READY", "DOMAINS")
    _print_table([] if noheader else [header], map(_row, sets))


def _row(of: DataSet) -> tuple[str, ...]:
    ready = [r.domain for r in of.replicas if r.state is ReplicaState.READY]
    return (
        of.label,
        of.owner,
        of.tenant or "-",
        of.kind.value,
        of.sharing.value,
        size_shown(of.size_bytes),
        str(of.files or "-"),
        f"{len(ready)}/{len(of.replicas)}",
        ",".join(ready[:_MOST_DOMAINS]) + (",…" if len(ready) > _MOST_DOMAINS else "") or "-",
    )


_MOST_DOMAINS: Final = 4  # that a row names


@click.command()
@click.option("--user", default=None, help="Owners, with commas between.")
@click.option("--tenant", default=None, help="Tenants, with commas between.")
def export(user: str | None, tenant: str | None) -> None:
    """Print the data sets that you may see as a file for federator data import.

    Pins, seals and lost replicas are not in it: the catalogue that imports it learns them anew.

    Example: federator data export > sets.yaml
    """
    sets, _ = all_sets(DataSetsCall(users=listed(user), tenants=listed(tenant)))
    print(data_file(sorted(sets, key=lambda of: (of.name, of.added_at_s))))


@click.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show data set NAME, all its versions, or NAME@VERSION.

    Example: federator data show imagenet@2
    """
    sets, reply = named_sets(name)
    if as_json:
        print(msgspec.json.encode({"schema": 1, "data_sets": sets}).decode())
        return
    for of in sets:
        size = size_shown(of.size_bytes)
        print(printable(f"{of.label} of {of.owner} ({of.tenant or 'no tenant'})"))
        print(f"   {of.kind.value}, share {of.sharing.value}, {size}, {of.files or '-'} files")
        print(printable(f"   digest {of.digest or '-'}; in a job {variable_of(of.name)}"))
        for replica in of.replicas:
            marks = _marks(replica, of.size_bytes, reply.now_s)
            print(printable(f"   {replica.domain}:{replica.path} {marks}"))


def _marks(replica: DataReplica, size_bytes: int, now_s: float) -> str:
    marks = [replica.state.value]
    marks += ["sealed"] if replica.digest else []
    marks += ["pinned"] if replica.pinned else []
    marks += [how_far(replica.copy, size_bytes, now_s)] if replica.copy is not None else []
    marks += [_how_gone(replica.removal, now_s)] if replica.removal is not None else []
    return ", ".join(marks)


def _how_gone(removal: DataRemoval, now_s: float) -> str:
    if removal.tries:
        return f"removal failed {counted(removal.tries, 'time')}, is tried again: {removal.detail}"
    if removal.begun:
        return "its files are being removed"
    left_h = max(0.0, removal.due_at_s - now_s) / 3600
    who = f"by {removal.by}" if removal.by else "unused for long"
    return f"{who}; its files go in {left_h:.1f} h"


def how_far(copy: DataCopy, size_bytes: int, now_s: float) -> str:
    """How far a copy is, in words."""
    if copy.phase is CopyPhase.FAILED:
        return f"failed {counted(copy.tries, 'time')}, is tried again: {copy.detail}"
    if copy.phase is CopyPhase.CHECKING:
        return "its digest is computed"
    if copy.phase is CopyPhase.NONE or not size_bytes:
        return "waits for its turn" if copy.phase is CopyPhase.NONE else "is being copied"
    eta_s = copy.eta_s(size_bytes)
    left = f", about {max(0.0, eta_s - now_s):.0f} s left" if eta_s else ""
    return f"{100 * min(1.0, copy.copied_bytes / size_bytes):.0f} % copied{left}"


@click.command()
@click.argument("name")
@json_option
def where(name: str, as_json: bool) -> None:
    """Show at which sites jobs find data set NAME[@VERSION], and the path there.

    Example: federator data where imagenet@2
    """
    sets, reply = named_sets(name)
    found = [
        {
            "data_set": of.label,
            "site": site,
            "domain": domain.name,
            "path": f"{root}/{replica.path}",
            "state": replica.state.value,
        }
        for of in sets
        for domain in reply.domains
        if (replica := of.replica_in(domain.name)) is not None
        for site, root in domain.mounts.items()
    ]
    if as_json:
        print(msgspec.json.encode({"schema": 1, "replicas": found}).decode())
        return
    _print_table([("DATA SET", "SITE", "DOMAIN", "PATH", "STATE")], (r.values() for r in found))


@click.command()
@json_option
def usage(as_json: bool) -> None:
    """Show how full storage domains are with data sets of the catalogue.

    Only what the catalogue has is counted, not all that lies there.

    Example: federator data usage
    """
    reply = one_page(DataSetsCall(only_domains=True))
    if as_json:
        print(msgspec.json.encode({"schema": 1, "domains": reply.domains}).decode())
        return
    header = ("DOMAIN", "CAPACITY", "DATA SETS", "SIZE", *_COUNTS, "USED%", "SITES")
    _print_table([header], (_domain_row(row) for row in reply.domains))
    for row in reply.domains:
        for tenant, used in sorted(row.by_tenant.items()):
            print(printable(f"{row.name}: {tenant or 'no tenant'} {size_shown(used)}"))


_COUNTS: Final = ("UNSIZED", "COPYING", "LOST")


def _domain_row(row: DomainRow) -> tuple[str, ...]:
    used = 100 * row.used_bytes / row.capacity_bytes if row.capacity_bytes else None
    return (
        row.name,
        size_shown(row.capacity_bytes),
        str(row.sets),
        size_shown(row.used_bytes),
        str(row.unsized),
        str(row.copying),
        str(row.lost),
        "-" if used is None else f"{used:.1f}",
        ",".join(row.mounts) or row.rclone,
    )


def named_sets(name: str) -> tuple[list[DataSet], DataSetsReply]:
    """The versions of NAME, or NAME@VERSION.

    Raises:
        InvalidRequest: there is none that the user may see.
    """
    sets, reply = all_sets(DataSetsCall(names=(name,)))
    if reply.unknown:
        raise InvalidRequest(f"{printable(name[:200])}: no such data set, or not yours to see")
    return sets, reply


def all_sets(message: DataSetsCall) -> tuple[list[DataSet], DataSetsReply]:
    """All pages of an answer, and the last.

    Raises:
        FederatorError: as of ``one_page``.
    """
    reply = one_page(message)
    found = [*reply.sets]
    while reply.after is not None:
        reply = one_page(msgspec.structs.replace(message, after=reply.after))
        found += reply.sets
    return found, reply


def one_page(message: DataSetsCall) -> DataSetsReply:
    """One page of an answer.

    Raises:
        FederatorError: the call was refused, or nobody answers.
    """
    reply = call(message)
    if isinstance(reply, ErrorReply):
        raise refused(reply)
    if not isinstance(reply, DataSetsReply):
        raise unexpected(reply)
    return reply


def _print_table(header: Sequence[Sequence[str]], rows: Iterable[Iterable[str]]) -> None:
    lines = [[printable(cell) for cell in row] for row in (*header, *rows)]
    if not lines:
        return
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print(" ".join(map(str.ljust, line, widths)).rstrip())


QUESTIONS: Final = (list_, show, where, usage, export)
