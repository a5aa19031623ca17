"""``federator data verify``: reads replicas where they lie, and seals them in the catalogue."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Final

import click
import msgspec

from federator.cli.data_digest import ALGORITHM, TreeDigest, tree_digest
from federator.cli.data_file import size_shown
from federator.cli.data_questions import named_sets
from federator.cli.data_sets import ask_to_change
from federator.cli.text import counted, printable
from federator.errors import InvalidRequest
from federator.model.dataset import DataClass, DataGiven, DataPlace, DataSet, DataVerb
from federator.slurm.site_files import ABSENT, data_mistake
from federator.wire.data_rows import DataCall, DomainRow

PROGRESS_EVERY_S: Final = 5.0


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one replica."""

    data_set: str
    domain: str
    path: str
    sound: bool
    digest: str = ""
    files: int = 0
    size_bytes: int = 0
    detail: str = ""


@click.command()
@click.argument("name")
@click.option("--at", multiple=True, metavar="DOMAIN", help="Only the replica there.")
@click.option("--site", default="", help="Whose mounts this host has; by default its site's.")
@click.option(
    "--threads", type=click.IntRange(1, 64), default=4, show_default=True, help="Files at a time."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def verify(name: str, at: tuple[str, ...], site: str, threads: int, as_json: bool) -> None:
    """Read the replicas of NAME[@VERSION] that this host's site mounts, and seal them.

    The first one that is read gives the data set its digest; each other must have the same. One
    that is gone, or holds something else, is lost to the catalogue: no job is sent there until it
    is verified again. Run it as a user who may read all of it and may change the data set.

    Example: federator data verify imagenet@2 --at west-flash
    """
    sets, reply = named_sets(name)
    if len(sets) > 1:
        versions = ", ".join(of.version for of in sets)
        raise InvalidRequest(f"{printable(name)} has versions {versions}: say which")
    (of,) = sets
    here = site or reply.site
    if not here:
        raise InvalidRequest("run it at a site, or say --site: whose mounts does this host have?")
    found = []
    for domain in reply.domains:
        chosen = (not at or domain.name in at) and here in domain.mounts
        if chosen and of.replica_in(domain.name) is not None:
            of, outcome = _verified(of, domain, here, threads)
            found.append(outcome)
    if not found:
        raise InvalidRequest(f"{of.label} has no replica in a storage domain that {here} mounts")
    if as_json:
        print(msgspec.json.encode({"schema": 1, "replicas": found}).decode())
    else:
        for each in found:
            print(printable(_line(each)))
    sys.exit(0 if all(each.sound for each in found) else 1)


def _line(each: Verified) -> str:
    if not each.sound:
        return f"{each.data_set} in {each.domain} is lost: {each.detail}"
    size = f"{counted(each.files, 'file')}, {size_shown(each.size_bytes)}"
    return f"{each.data_set} in {each.domain} is sealed: {size}, {each.digest}"


def _verified(of: DataSet, domain: DomainRow, site: str, threads: int) -> tuple[DataSet, Verified]:
    """Read one replica and tell the catalogue; the data set as it is then."""
    replica = of.replica_in(domain.name)
    assert replica is not None
    _refuse_unsealable(of)
    root, path = os.fsencode(domain.mounts[site]), os.fsencode(replica.path)
    wrong = data_mistake(root, path, False)
    if wrong and wrong != ABSENT:
        raise InvalidRequest(f"{of.label} in {domain.name}: {wrong}")
    read: TreeDigest | None = None
    if not wrong:
        with_progress = _progress(of) if sys.stderr.isatty() else lambda _bytes: None
        read = tree_digest(os.path.join(root, path), threads, with_progress)
        if of.digest and read.digest != of.digest:
            wrong = f"its digest is {read.digest}, and should be {of.digest}"
    given = DataGiven(name=of.name, version=of.version, at=(DataPlace(domain=domain.name),))
    verb = DataVerb.LOSE
    if read is not None and not wrong:
        verb = DataVerb.SEAL
        given = msgspec.structs.replace(
            given, digest=read.digest, files=read.files, size_bytes=read.size_bytes
        )
    changed = ask_to_change(DataCall(verb=verb.value, sets=(given,)))
    return changed.sets[0], Verified(
        data_set=of.label,
        domain=domain.name,
        path=f"{domain.mounts[site]}/{replica.path}",
        sound=not wrong,
        digest=read.digest if read is not None else "",
        files=read.files if read is not None else 0,
        size_bytes=read.size_bytes if read is not None else 0,
        detail=wrong,
    )


def _refuse_unsealable(of: DataSet) -> None:
    if of.kind is DataClass.SCRATCH:
        raise InvalidRequest(f"{of.label} is scratch, which jobs change: it has no seal")
    if of.digest and not of.digest.startswith(f"{ALGORITHM}:"):
        known = of.digest.partition(":")[0]
        raise InvalidRequest(f"{of.label} has a digest of {known}; only {ALGORITHM} is computed")


def _progress(of: DataSet) -> Callable[[int], None]:
    """Tell now and then how much has been read; a little may be lost where threads meet."""
    read, shown_s = 0, time.monotonic()

    def on_read(size: int) -> None:
        nonlocal read, shown_s
        read += size
        if time.monotonic() - shown_s >= PROGRESS_EVERY_S:
            shown_s = time.monotonic()
            of_all = f" of {size_shown(of.size_bytes)}" if of.size_bytes else ""
            print(f"{size_shown(read)}{of_all} read", file=sys.stderr)

    return on_read
