"""``federator data verify``: reads replicas where they lie, and seals them in the catalogue."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import click
import msgspec

from federator.cli.data_digest import ALGORITHM, TreeDigest, tree_digest
from federator.cli.data_questions import named_sets
from federator.cli.data_sets import ask_to_change
from federator.cli.text import counted, printable, size_shown
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One replica, and what was read of it."""

    domain: DomainRow
    site: str
    path: str  # below the root of its domain
    read: TreeDigest | None = None
    wrong: str = ""

    @property
    def root(self) -> str:
        return self.domain.mounts[self.site]


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

    All are read before anything is changed. If the data set has no digest yet, it gets that of its
    copies, which must agree. One that is gone, or holds something else, is lost to the catalogue:
    no job is sent there until it is verified again. Run it as a user who may read all of it and may
    change the data set.

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
    _refuse_unsealable(of)
    chosen = [
        _Found(domain=domain, site=here, path=replica.path)
        for domain in reply.domains
        if (not at or domain.name in at) and here in domain.mounts
        if (replica := of.replica_in(domain.name)) is not None
    ]
    if not chosen:
        raise InvalidRequest(f"{of.label} has no replica in a storage domain that {here} mounts")
    read = [_read(of, each, threads) for each in chosen]  # all, before anything is changed
    if not of.digest:
        _refuse_disagreement(of, read)
    found = [_reported(of, each) for each in read]
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


def _read(of: DataSet, found: _Found, threads: int) -> _Found:
    """Read one replica; nothing is told yet.

    Raises:
        InvalidRequest: it is not certain what it holds.
    """
    root, path = os.fsencode(found.root), os.fsencode(found.path)
    wrong = data_mistake(root, path, False)
    if wrong == ABSENT:
        return replace(found, wrong=wrong)
    if wrong:
        raise InvalidRequest(f"{of.label} in {found.domain.name}: {wrong}")
    with_progress = _progress(of) if sys.stderr.isatty() else lambda _bytes: None
    read = tree_digest(os.path.join(root, path), threads, with_progress)
    if of.digest and read.digest != of.digest:
        wrong = f"its digest is {read.digest}, and should be {of.digest}"
    return replace(found, read=read, wrong=wrong)


def _refuse_disagreement(of: DataSet, found: Iterable[_Found]) -> None:
    """Without a digest each copy is as good as another: none says which of them is damaged."""
    held = {each.domain.name: each.read.digest for each in found if each.read is not None}
    if len(set(held.values())) > 1:
        each = "; ".join(f"{domain}: {digest}" for domain, digest in held.items())
        raise InvalidRequest(
            f"the copies of {of.label} differ, and the catalogue has no digest of it, so nothing "
            f"is changed. {each}. If you know which is right: federator data add {of.label} "
            "--digest ALGORITHM:HEX, then verify again"
        )


def _reported(of: DataSet, found: _Found) -> Verified:
    """Tell the catalogue what one replica holds."""
    read, name = found.read, found.domain.name
    given = DataGiven(name=of.name, version=of.version, at=(DataPlace(domain=name),))
    verb = DataVerb.LOSE
    if read is not None and not found.wrong:
        verb = DataVerb.SEAL
        given = msgspec.structs.replace(
            given, digest=read.digest, files=read.files, size_bytes=read.size_bytes
        )
    ask_to_change(DataCall(verb=verb.value, sets=(given,)))
    return Verified(
        data_set=of.label,
        domain=name,
        path=f"{found.root}/{found.path}",
        sound=not found.wrong,
        digest=read.digest if read is not None else "",
        files=read.files if read is not None else 0,
        size_bytes=read.size_bytes if read is not None else 0,
        detail=found.wrong,
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
