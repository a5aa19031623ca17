"""Compares the pins of requirements.lock with known weaknesses, from a file and offline.

The file is OSV's dump for PyPI, ``all.zip`` of https://osv.dev, an archive of PyPA's advisory
database, which has the same records in YAML, or a folder of either. Nothing is fetched: where a
release is made without a network, an admin brings the file.
"""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec
from packaging.version import InvalidVersion, Version

from fedbuild import libraries
from fedbuild.libraries import normal
from federator.errors import ConfigError

ECOSYSTEM: Final = "PyPI"


class Advisory(NamedTuple):
    """A pin that an advisory is about."""

    library: str
    version: str
    id: str
    fixed: tuple[str, ...]  # in which it is mended; (): in none
    summary: str

    def __str__(self) -> str:
        mended = f"mended in {', '.join(self.fixed)}" if self.fixed else "not mended"
        return f"{self.library} {self.version}: {self.id}: {mended}: {self.summary}"


def records_of(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a dump.

    Raises:
        ConfigError: it is none.
    """
    try:
        if path.is_dir():
            for each in sorted(path.rglob("*")):
                yield from _record(each.name, each.read_bytes)
            return
        with zipfile.ZipFile(path) as dump:
            for name in dump.namelist():
                yield from _record(name, partial(dump.read, name))
    except (OSError, ValueError, zipfile.BadZipFile, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path}: no dump of OSV: {error}") from error


def _record(name: str, read: Callable[[], bytes]) -> Iterator[dict[str, Any]]:
    """What is no record, a licence say, is passed over."""
    if name.endswith((".json", ".yaml")):
        found = json.loads(read()) if name.endswith(".json") else msgspec.yaml.decode(read())
        if isinstance(found, dict) and "affected" in found:
            yield found


def found_in(records: Iterable[Mapping[str, Any]], pins: Mapping[str, str]) -> list[Advisory]:
    """What is known of these versions, by library; what was withdrawn is not.

    Args:
        records: of OSV.
        pins: versions by normalised name.
    """
    found = set[Advisory]()
    for record in records:
        for affected in () if record.get("withdrawn") else record.get("affected", ()):
            package = affected.get("package", {})
            name = normal(package.get("name", ""))
            version = pins.get(name)
            if package.get("ecosystem") != ECOSYSTEM or version is None:
                continue
            if _is_affected(version, affected):
                said = record.get("summary") or record.get("details", "")
                summary = " ".join(said.split())[:120]
                found.add(Advisory(name, version, record["id"], _fixed(affected), summary))
    return sorted(found)


def known_of(dump: Path) -> tuple[list[Advisory], int]:
    """What a dump knows of the versions of requirements.lock; and how many records it has.

    Raises:
        ConfigError: it is none, or has none.
    """
    records = list(records_of(dump))
    if not records:  # an empty answer would look like a good one
        raise ConfigError(f"{dump}: no dump of OSV: it has no records")
    pins = {name: version for name, (_, version) in libraries.pinned().items()}
    return found_in(records, pins), len(records)


def _is_affected(version: str, affected: Mapping[str, Any]) -> bool:
    if version in affected.get("versions", ()):
        return True
    ranges = [r for r in affected.get("ranges", ()) if r.get("type") == "ECOSYSTEM"]
    return any(_is_within(Version(version), each.get("events", ())) for each in ranges)


def _is_within(version: Version, events: Iterable[Mapping[str, str]]) -> bool:
    """OSV's evaluation: the events in order of versions, each of which turns it on or off."""
    steps = [(_version(at), kind) for event in events for kind, at in event.items()]
    within = False
    for at, kind in sorted(step for step in steps if step[1] != "limit"):
        if kind == "introduced" and version >= at:
            within = True
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            within = False
    return within


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:  # of a time before there were rules: older than all that have them
        return Version("0.dev0")


def _fixed(affected: Mapping[str, Any]) -> tuple[str, ...]:
    events = (e for r in affected.get("ranges", ()) for e in r.get("events", ()))
    return tuple(event["fixed"] for event in events if "fixed" in event)


@click.command()
@click.argument("dump", type=click.Path(exists=True, path_type=Path))
def main(dump: Path) -> None:
    """Name the libraries of requirements.lock that DUMP has advisories on.

    DUMP is OSV's all.zip for PyPI, or PyPA's advisory database; packed, or as a folder.
    Exit status 1: there are some.

    Example: PYTHONPATH=packaging/build .venv/bin/python -m fedbuild.advisories all.zip
    """
    try:
        found, records = known_of(dump)
    except ConfigError as error:
        click.echo(f"advisories: {error}", err=True)
        sys.exit(os.EX_CONFIG)
    for each in found:
        print(each)
    print(f"{len(found)} advisories on the pinned libraries, of {records} in all", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
