"""``federator data scan``: finds what lies in a storage domain and is not in the catalogue."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

from federator.cli.data_file import data_file
from federator.cli.data_questions import all_sets, one_page
from federator.cli.data_sets import ask_to_change
from federator.cli.text import counted, my_name, printable
from federator.errors import InvalidRequest
from federator.model.data_use import is_data_name
from federator.model.dataset import (
    DataGiven,
    DataPlace,
    DataReplica,
    DataSet,
    DataSharing,
    DataVerb,
    path_mistake,
)
from federator.model.workload import TenantName
from federator.slurm.site_files import data_mistake
from federator.wire.data_rows import DataCall, DataSetsCall, DomainRow

AT_ONCE: Final = 500  # data sets in one request


class FoundData(NamedTuple):
    """What lies directly below the folder; ``wrong``: why it is no data set, or "" if it is one."""

    name: str
    path: str  # below the root of the domain
    wrong: str = ""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--prefix", default=None, help="Before each name; by default the folder's path.")
@click.option(
    "--share",
    type=click.Choice([each.value for each in DataSharing]),
    default=DataSharing.NONE.value,
    show_default=True,
    help="As of add.",
)
@click.option("--site", default="", help="Whose mounts this host has; by default its site's.")
@click.option("--add", "adds", is_flag=True, help="Add them, and do not only print them.")
def scan(folder: Path, prefix: str | None, share: str, site: str, adds: bool) -> None:
    """Find your data in FOLDER, a part of a storage domain, that is not in the catalogue.

    Each folder and file directly below it that is yours becomes a data set. They are printed as a
    file for federator data import, with their sizes; nothing is changed without --add. What is left
    out is told on stderr, with the reason.

    Example: federator data scan /lustre/fed/vision --prefix vision > sets.yaml
    """
    reply = one_page(DataSetsCall(only_domains=True))
    domain, below = _domain_of(folder, reply.domains, site or reply.site)
    known, _ = all_sets(DataSetsCall(domains=(domain.name,)))
    taken = {r.path: of.label for of in known for r in of.replicas if r.domain == domain.name}
    sets = []
    for found in _found(folder, below, below if prefix is None else prefix):
        wrong = found.wrong
        if not wrong and found.path in taken:
            wrong = f"it is {taken[found.path]}"
        if wrong:
            print(printable(f"{found.path}: left out: {wrong}"), file=sys.stderr)
            continue
        files, size = _extent(os.fsencode(folder / found.path.rpartition("/")[2]))
        replica = DataReplica(domain=domain.name, path=found.path)
        sets.append(
            DataSet(
                name=found.name,
                version="1",
                owner=my_name(),
                tenant=TenantName(""),
                files=files,
                size_bytes=size,
                sharing=DataSharing(share),
                replicas=(replica,),
            )
        )
    if not adds:
        print(data_file(sets))
        return
    _add(sets)
    print(f"{counted(len(sets), 'data set')} added")


def _add(sets: list[DataSet]) -> None:
    given = [
        DataGiven(
            name=of.name,
            version=of.version,
            size_bytes=of.size_bytes,
            files=of.files,
            sharing=of.sharing,
            at=tuple(DataPlace(domain=r.domain, path=r.path) for r in of.replicas),
        )
        for of in sets
    ]
    for first in range(0, len(given), AT_ONCE):
        part = tuple(given[first : first + AT_ONCE])
        ask_to_change(DataCall(verb=DataVerb.ADD.value, sets=part))


def _domain_of(folder: Path, domains: tuple[DomainRow, ...], site: str) -> tuple[DomainRow, str]:
    """The storage domain that a folder is in, and its path below the root, "" at the root.

    Raises:
        InvalidRequest: it is in none that this site mounts, or is reached through a link.
    """
    if not site:
        raise InvalidRequest("run it at a site, or say --site: whose mounts does this host have?")
    here = os.path.abspath(folder)
    for domain in sorted(domains, key=lambda each: -len(each.mounts.get(site, ""))):
        root = domain.mounts.get(site)
        if root is None or not f"{here}/".startswith(f"{root}/"):
            continue
        below = here[len(root) + 1 :]
        wrong = data_mistake(os.fsencode(root), os.fsencode(below), False) if below else ""
        if wrong:
            raise InvalidRequest(printable(f"{folder}: {wrong}"))
        return domain, below
    raise InvalidRequest(printable(f"{folder} is in no storage domain that {site} mounts"))


def _found(folder: Path, below: str, prefix: str) -> Iterator[FoundData]:
    try:
        with os.scandir(folder) as entries:
            seen = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in entries)
    except OSError as error:
        raise InvalidRequest(printable(f"{folder}: {error.strerror}")) from error
    for entry, state in seen:
        name, path = f"{prefix}/{entry}".lstrip("/"), f"{below}/{entry}".lstrip("/")
        wrong = path_mistake(path) and f"its path {path_mistake(path)}"
        if not (stat.S_ISDIR(state.st_mode) or stat.S_ISREG(state.st_mode)):
            wrong = "it is neither a folder nor a file"
        elif state.st_uid != os.getuid():
            wrong = "it is another user's"
        elif not is_data_name(name):
            wrong = "its name is none of a data set"
        yield FoundData(name, path, wrong)


def _extent(path: bytes) -> tuple[int, int]:
    """The number of files, and their bytes; what cannot be read does not count."""
    files = size = 0
    folders = [path]
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        return 1, os.lstat(path).st_size
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        files, size = files + 1, size + entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return files, size
