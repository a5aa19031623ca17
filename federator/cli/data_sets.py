"""The commands of ``federator data`` that change the catalogue of data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from federator.cli.client import call
from federator.cli.data_file import read_data_file, size_bytes
from federator.cli.text import counted, printable, refused, unexpected
from federator.errors import InvalidRequest
from federator.model.dataset import (
    DataClass,
    DataGiven,
    DataPlace,
    DataSet,
    DataSharing,
    DataVerb,
)
from federator.model.workload import TenantName
from federator.wire.client_protocol import ErrorReply
from federator.wire.data_rows import DataCall, DataReply

AT_ONCE: Final = 500  # data sets of an import, in one request
_F = TypeVar("_F", bound=Callable[..., Any])


# ---- changes ----


def json_option(command: _F) -> _F:
    """Give a command ``--json``."""
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
@json_option
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
@json_option
def pin(name: str, at: tuple[str, ...], as_json: bool) -> None:
    """Have replicas of NAME[@VERSION] stay where they are.

    Example: federator data pin imagenet@2 --at west-flash
    """
    _changed(DataVerb.PIN, [_named(name, at)], "is pinned", as_json=as_json)


@click.command()
@click.argument("name")
@_at("Only its replica there; by default all.")
@json_option
def unpin(name: str, at: tuple[str, ...], as_json: bool) -> None:
    """End what pin began.

    Example: federator data unpin imagenet@2
    """
    _changed(DataVerb.UNPIN, [_named(name, at)], "is not pinned", as_json=as_json)


@click.command()
@click.argument("name")
@_at("Only its replica there; by default all of it.")
@click.option("--force", is_flag=True, help="Also if jobs that wait name it.")
@click.option("--files", is_flag=True, help="Have the files removed, too, after a grace.")
@json_option
def rm(name: str, at: tuple[str, ...], force: bool, files: bool, as_json: bool) -> None:
    """Take NAME[@VERSION], or replicas of it, out of the catalogue; its files stay.

    Refused for what is pinned, and for the last replica while jobs that have not ended name it.
    With --force jobs that wait go on waiting, with reason FedData; those at sites still stand
    against it.

    With --files and --at no job is given these replicas any more, and their files are removed after
    data.removal_grace_h; data pin or data copy takes them back until then. A sealed replica must
    be left elsewhere.

    Example: federator data rm imagenet@1
    """
    given = _named(name, at)
    if files:
        if force:
            raise InvalidRequest("--force does not go with --files: jobs may need them")
        _changed(DataVerb.RETIRE, [given], "is retired there; its files go later", as_json=as_json)
        return
    done = "is out of the catalogue there"
    _changed(DataVerb.REMOVE, [given], done, as_json=as_json, force=force)


@click.command()
@click.argument("name")
@click.option("--to", required=True, metavar="DOMAIN[:PATH]", help="By default at the same path.")
@json_option
def copy(name: str, to: str, as_json: bool) -> None:
    """Have NAME[@VERSION] copied to a storage domain, as its owner; show says how far it is.

    It must be sealed. A replica there that is lost is made anew; one that is ready stays as it is.
    To end it, take the replica out: federator data rm NAME --at DOMAIN.

    Example: federator data copy imagenet@2 --to east-disk
    """
    named, version = _split(name)
    domain, _, path = to.partition(":")
    given = DataGiven(name=named, version=version, at=(DataPlace(domain=domain, path=path),))
    reply = ask_to_change(DataCall(verb=DataVerb.COPY.value, sets=(given,)))
    if as_json:
        answer = {"schema": 1, "data_sets": reply.sets, "dropped": reply.dropped}
        print(msgspec.json.encode(answer).decode())
        return
    for of in reply.sets:
        replica = of.replica_in(domain)
        is_there = replica is not None and replica.copy is None
        done = "is there already" if is_there else "is being copied there"
        print(printable(f"{of.label} in {domain} {done}"))


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def import_(file: Path, as_json: bool) -> None:
    """Add all data sets of FILE, in YAML (docs/formats.md); what is known already stays.

    It may be repeated. 500 are added at a time, all or none of them.

    Example: federator data import sets.yaml
    """
    given = read_data_file(file)
    done: list[DataSet] = []
    for first in range(0, len(given), AT_ONCE):
        try:
            reply = ask_to_change(DataCall(verb="add", sets=tuple(given[first : first + AT_ONCE])))
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


def _changed(
    verb: DataVerb, sets: Sequence[DataGiven], done: str, *, as_json: bool, force: bool = False
) -> None:
    reply = ask_to_change(DataCall(verb=verb.value, sets=tuple(sets), force=force))
    if as_json:
        answer = {"schema": 1, "data_sets": reply.sets, "dropped": reply.dropped}
        print(msgspec.json.encode(answer).decode())
        return
    for label in (*(of.label for of in reply.sets), *reply.dropped):
        print(printable(f"{label} {done}"))


def ask_to_change(message: DataCall) -> DataReply:
    """Have the daemon change the catalogue.

    Raises:
        FederatorError: it was refused, or nobody answers.
    """
    reply = call(message)
    if isinstance(reply, ErrorReply):
        raise refused(reply)
    if not isinstance(reply, DataReply):
        raise unexpected(reply)
    return reply


CHANGES: Final = (add, pin, unpin, rm, copy, import_)
