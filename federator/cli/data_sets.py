"""The commands of ``federator data`` that ask the daemon: the catalogue of data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from federator.cli.client import call
from federator.cli.data_file import read_data_file, size_bytes, size_shown
from federator.cli.text import counted, listed, printable, refused, unexpected
from federator.errors import InvalidRequest
from federator.model.data_use import variable_of
from federator.model.dataset import (
    DataClass,
    DataGiven,
    DataPlace,
    DataReplica,
    DataSet,
    DataSharing,
    DataVerb,
    ReplicaState,
)
from federator.model.workload import TenantName
from federator.wire.client_protocol import ErrorReply
from federator.wire.data_rows import DataCall, DataReply, DataSetsCall, DataSetsReply, DomainRow

AT_ONCE: Final = 500  # data sets of an import, in one request
_F = TypeVar("_F", bound=Callable[..., Any])


# ---- changes ----


def _json(command: _F) -> _F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")(
        command
    )


def _at(about: str) -> Callable[[_F], _F]:
    return click.option("--at", multiple=True, metavar="DOMAIN", help=about)


@click.command()
@click.argument("name")
@click.option("--at", multiple=True, metavar="DOMAIN:PATH", help="Where it lies; may be repeated.")
@click.option("--size", default=None, help="E.g. 1.5T, 412GiB, or bytes.")
@click.option("--files", type=click.IntRange(0), default=None, help="How many it has.")
@click.option("--digest", default=None, help="Of its content, ALGORITHM:HEX.")
@click.option(
    "--class",
    "kind",
    type=click.Choice([each.value for each in DataClass]),
    help="Made where it is (fresh), copied from elsewhere, or for jobs to write to.",
)
@click.option(
    "--share",
    type=click.Choice([each.value for each in DataSharing]),
    help="Who may see and use it beside its owner: nobody (none), its tenant's users, all.",
)
@click.option("--tenant", default=None, help="Whose it is; by default its owner's first.")
@click.option("--owner", default=None, help="A user; only an operator names another.")
@_json
def add(  # noqa: PLR0913, PLR0917 - one for each option
    name: str,
    at: tuple[str, ...],
    size: str | None,
    files: int | None,
    digest: str | None,
    kind: str | None,
    share: str | None,
    tenant: str | None,
    owner: str | None,
    as_json: bool,
) -> None:
    """Tell the catalogue of data set NAME[@VERSION], and where it lies; nothing is copied.

    PATH is below the domain's root, or absolute as a site sees it. Given again it adds replicas,
    and says what was not said before. A version is one content: what has changed is another one.

    Example: federator data add imagenet@2 --at west-flash:vision/imagenet --size 150G --share all
    """
    named, version = _split(name)
    given = DataGiven(
        name=named,
        version=version,
        owner=owner,
        tenant=None if tenant is None else TenantName(tenant),
        size_bytes=None if size is None else size_bytes(size),
        files=files,
        digest=digest,
        kind=None if kind is None else DataClass(kind),
        sharing=None if share is None else DataSharing(share),
        at=tuple(map(_place, at)),
    )
    _changed(DataVerb.ADD, [given], "is in the catalogue", as_json=as_json)


@click.command()
@click.argument("name")
@_at("Only its replica there; by default all.")
@_json
def pin(name: str, at: tuple[str, ...], as_json: bool) -> None:
    """Have replicas of NAME[@VERSION] stay where they are.

    Example: federator data pin imagenet@2 --at west-flash
    """
    _changed(DataVerb.PIN, [_named(name, at)], "is pinned", as_json=as_json)


@click.command()
@click.argument("name")
@_at("Only its replica there; by default all.")
@_json
def unpin(name: str, at: tuple[str, ...], as_json: bool) -> None:
    """End what pin began.

    Example: federator data unpin imagenet@2
    """
    _changed(DataVerb.UNPIN, [_named(name, at)], "is not pinned", as_json=as_json)


@click.command()
@click.argument("name")
@_at("Only its replica there; by default all of it.")
@_json
def rm(name: str, at: tuple[str, ...], as_json: bool) -> None:
    """Take NAME[@VERSION], or replicas of it, out of the catalogue; its files stay.

    Refused for what is pinned, and for the last replica while jobs that have not ended name it.

    Example: federator data rm imagenet@1
    """
    _changed(DataVerb.REMOVE, [_named(name, at)], "is out of the catalogue there", as_json=as_json)


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@_json
def import_(file: Path, as_json: bool) -> None:
    """Add all data sets of FILE, in YAML (docs/formats.md); what is known already stays.

    It may be repeated. 500 are added at a time, all or none of them.

    Example: federator data import sets.yaml
    """
    given = read_data_file(file)
    done: list[DataSet] = []
    for first in range(0, len(given), AT_ONCE):
        try:
            reply = _ask(DataCall(verb="add", sets=tuple(given[first : first + AT_ONCE])))
        except InvalidRequest as error:
            raise InvalidRequest(f"{error} ({len(done)} were added before)") from error
        done += reply.sets
    if as_json:
        print(msgspec.json.encode({"schema": 1, "data_sets": done}).decode())
    else:
        print(f"{counted(len(done), 'data set')} of {printable(str(file))} in the catalogue")


def _split(name: str) -> tuple[str, str]:
    named, mark, version = name.partition("@")
    if mark and not version:
        raise InvalidRequest(f"expected NAME or NAME@VERSION, got {printable(name[:100])!r}")
    return named, version


def _place(text: str) -> DataPlace:
    domain, mark, path = text.partition(":")
    if not (domain and mark and path):
        raise InvalidRequest(f"--at: expected DOMAIN:PATH, got {printable(text[:100])!r}")
    return DataPlace(domain=domain, path=path)


def _named(name: str, at: Iterable[str]) -> DataGiven:
    named, version = _split(name)
    return DataGiven(
        name=named, version=version, at=tuple(DataPlace(domain=domain) for domain in at)
    )


def _changed(verb: DataVerb, sets: Sequence[DataGiven], done: str, *, as_json: bool) -> None:
    reply = _ask(DataCall(verb=verb.value, sets=tuple(sets)))
    if as_json:
        answer = {"schema": 1, "data_sets": reply.sets, "dropped": reply.dropped}
        print(msgspec.json.encode(answer).decode())
        return
    for label in (*(of.label for of in reply.sets), *reply.dropped):
        print(printable(f"{label} {done}"))


def _ask(message: DataCall) -> DataReply:
    reply = call(message)
    if isinstance(reply, ErrorReply):
        raise refused(reply)
    if not isinstance(reply, DataReply):
        raise unexpected(reply)
    return reply


# ---- questions ----


@click.command("list")
@click.option("--user", default=None, help="Owners, with commas between.")
@click.option("--tenant", default=None, help="Tenants, with commas between.")
@click.option("--domain", default=None, help="Storage domains, with commas between.")
@click.option("--noheader", is_flag=True, help="No header line.")
@_json
def list_(
    user: str | None, tenant: str | None, domain: str | None, noheader: bool, as_json: bool
) -> None:
    """List the data sets that you may see.

    Example: federator data list --tenant vision
    """
    sets, _ = _all(DataSetsCall(users=listed(user), tenants=listed(tenant), domains=listed(domain)))
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
@click.argument("name")
@_json
def show(name: str, as_json: bool) -> None:
    """Show data set NAME, all its versions, or NAME@VERSION.

    Example: federator data show imagenet@2
    """
    sets, _ = _one(name)
    if as_json:
        print(msgspec.json.encode({"schema": 1, "data_sets": sets}).decode())
        return
    for of in sets:
        size = size_shown(of.size_bytes)
        print(printable(f"{of.label} of {of.owner} ({of.tenant or 'no tenant'})"))
        print(f"   {of.kind.value}, share {of.sharing.value}, {size}, {of.files or '-'} files")
        print(printable(f"   digest {of.digest or '-'}; in a job {variable_of(of.name)}"))
        for replica in of.replicas:
            print(printable(f"   {replica.domain}:{replica.path} {_marks(replica)}"))


def _marks(replica: DataReplica) -> str:
    marks = [replica.state.value]
    marks += ["sealed"] if replica.digest else []
    marks += ["pinned"] if replica.pinned else []
    return ", ".join(marks)


@click.command()
@click.argument("name")
@_json
def where(name: str, as_json: bool) -> None:
    """Show at which sites jobs find data set NAME[@VERSION], and the path there.

    Example: federator data where imagenet@2
    """
    sets, domains = _one(name)
    found = [
        {
            "data_set": of.label,
            "site": site,
            "domain": domain.name,
            "path": f"{root}/{replica.path}",
            "state": replica.state.value,
        }
        for of in sets
        for domain in domains
        if (replica := of.replica_in(domain.name)) is not None
        for site, root in domain.mounts.items()
    ]
    if as_json:
        print(msgspec.json.encode({"schema": 1, "replicas": found}).decode())
        return
    _print_table([("DATA SET", "SITE", "DOMAIN", "PATH", "STATE")], (r.values() for r in found))


@click.command()
@_json
def usage(as_json: bool) -> None:
    """Show how full storage domains are with data sets of the catalogue.

    Only what the catalogue has is counted, not all that lies there.

    Example: federator data usage
    """
    reply = _page(DataSetsCall(only_domains=True))
    if as_json:
        print(msgspec.json.encode({"schema": 1, "domains": reply.domains}).decode())
        return
    header = ("DOMAIN", "CAPACITY", "DATA SETS", "SIZE", "UNSIZED", "USED%", "SITES")
    _print_table([header], (_domain_row(row) for row in reply.domains))
    for row in reply.domains:
        for tenant, used in sorted(row.by_tenant.items()):
            print(printable(f"{row.name}: {tenant or 'no tenant'} {size_shown(used)}"))


def _domain_row(row: DomainRow) -> tuple[str, ...]:
    used = 100 * row.used_bytes / row.capacity_bytes if row.capacity_bytes else None
    return (
        row.name,
        size_shown(row.capacity_bytes),
        str(row.sets),
        size_shown(row.used_bytes),
        str(row.unsized),
        "-" if used is None else f"{used:.1f}",
        ",".join(row.mounts),
    )


def _one(name: str) -> tuple[list[DataSet], tuple[DomainRow, ...]]:
    sets, reply = _all(DataSetsCall(names=(name,)))
    if reply.unknown:
        raise InvalidRequest(f"{printable(name[:200])}: no such data set, or not yours to see")
    return sets, reply.domains


def _all(message: DataSetsCall) -> tuple[list[DataSet], DataSetsReply]:
    """All pages of an answer, and the last."""
    reply = _page(message)
    found = [*reply.sets]
    while reply.after is not None:
        reply = _page(msgspec.structs.replace(message, after=reply.after))
        found += reply.sets
    return found, reply


def _page(message: DataSetsCall) -> DataSetsReply:
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


COMMANDS: Final = (add, show, list_, where, pin, unpin, rm, usage, import_)
