"""Compares the pins of requirements.lock with known weaknesses, from a file and offline.

The file is OSV's dump for PyPI, ``all.zip`` of https://osv.dev, or a folder of its JSON records.
Nothing is fetched: where a release is made without a network, an admin brings the file.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
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
            texts: Iterable[bytes] = (each.read_bytes() for each in sorted(path.glob("*.json")))
            yield from map(json.loads, texts)
            return
        with zipfile.ZipFile(path) as dump:
            for name in dump.namelist():
                if name.endswith(".json"):
                    yield json.loads(dump.read(name))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path}: no dump of OSV: {error}") from error


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
                summary = " ".join(record.get("summary", "").split())[:120]
                found.add(Advisory(name, version, record["id"], _fixed(affected), summary))
    return sorted(found)


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
    """Name the libraries of requirements.lock that DUMP, OSV's all.zip for PyPI, has advisories on.

    Exit status 1: there are some.

    Example: PYTHONPATH=packaging/build .venv/bin/python -m fedbuild.advisories all.zip
    """
    pins = {name: version for name, (_, version) in libraries.pinned().items()}
    found = found_in(records_of(dump), pins)
    for each in found:
        print(each)
    print(f"{len(pins)} libraries, {len(found)} advisories", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
