"""Adds to a package the parts of RPM alone: its spec, and the archive the spec is built from.

``rpms`` makes packages of it; files are those of ``package_contents``. The parts of a spec are in
packaging/rpm; what a package is about stands once, in Debian's control file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import PurePosixPath
from textwrap import fill
from typing import Final

from fedbuild.deb_contents import DEBIAN
from fedbuild.package_contents import (
    DAEMON_LIBRARIES,
    MAINTAINER,
    RELEASED_AT_S,
    PackageContents,
    Platform,
    below,
    copied,
)
from federator import __version__
from federator.errors import FederatorError
from federator.testbed.archive import ArchivedFile, pack
from federator.testbed.images import LIBRARIES, LOCK, requirements
from federator.testbed.layout import REPOSITORY

RPM: Final = REPOSITORY / "packaging" / "rpm"
# EL 8 and 9 both have the package python3.11, beside the Python of the system. Libraries are built
# for glibc 2.28, EL 8's, at the latest. So one set of packages is for both.
PLATFORM: Final = Platform(python="3.11", settings="etc/sysconfig", zsh="zsh/site-functions")
_PLUGIN_SOURCES: Final = "opt/federator/share/slurm_plugins"
_PARTS: Final = ("globals", "tags", "build", "install", "scriptlets", "files")
_BUNDLED: Final = {"federator-common": LIBRARIES, "federator-server": DAEMON_LIBRARIES}
_OWNED: Final = ("opt/federator", "usr/share/doc", "usr/share/licenses")  # what is in them is ours
_SPECIAL: Final = re.compile(r"[\s%*?\[\]{}\"\\]")  # a list of files would take them for patterns


def spec(package: PackageContents) -> str:
    """Return the text of the package's spec."""
    summary, description = _about(package.name)
    parts = {part.upper(): _part(package.name, part) for part in _PARTS}
    parts["TAGS"] = "\n".join([parts["TAGS"], *_bundled(package.name)])
    values = {
        **parts,
        "NAME": package.name,
        "VERSION": __version__,
        "SUMMARY": summary,
        "DESCRIPTION": description,
        "MAINTAINER": MAINTAINER,
        "RELEASED_AT_S": str(RELEASED_AT_S),
        "DATE": datetime.fromtimestamp(RELEASED_AT_S, UTC).strftime("%a %b %d %Y"),
        "PYTHON": PLATFORM.python,
    }
    text = (RPM / "skeleton.spec").read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return re.sub(r"\n{3,}", "\n\n", text)


def source_name(package: PackageContents) -> str:
    """Return the name by which the spec knows its archive."""
    return f"{package.name}-{__version__}.tar"


def source(package: PackageContents) -> bytes:
    """Return the archive that the spec is built from: files, list of files, links, plug-in."""
    files = installed(package)
    links = "".join(f"{path} {target}\n" for path, target in package.links)
    return pack(
        [
            *(below("root", file) for file in files),
            *(below("spank", file) for file in package.spank),
            ArchivedFile(path="links", data=links.encode()),
            ArchivedFile(path="files", data=listing(package).encode()),
        ]
    )


def installed(package: PackageContents) -> list[ArchivedFile]:
    """Return every file that the package installs; of the plug-in, the source."""
    licence = copied(REPOSITORY / "LICENSE", f"usr/share/licenses/{package.name}/LICENSE")
    plugin = [below(_PLUGIN_SOURCES, file) for file in package.spank]
    return [*package.files, *plugin, licence]


def listing(package: PackageContents) -> str:
    """Return the list of a spec's %files: folders, files and links, with owner and mode.

    Raises:
        FederatorError: the name of a file has a meaning in such a list.
    """
    files = installed(package)
    paths = [*(file.path for file in files), *(path for path, _ in package.links)]
    if strange := [path for path in paths if _SPECIAL.search(path)]:
        raise FederatorError(f"{package.name}: rpm would misread the name {strange[0]!r}")
    lines = [f"%dir %attr(0755, root, root) /{folder}" for folder in sorted(set(_folders(paths)))]
    lines += [
        f"{_kind(file.path)}%attr({file.mode:04o}, root, root) /{file.path}" for file in files
    ]
    lines += [f"/{path}" for path, _ in package.links]
    return "".join(f"{line}\n" for line in lines)


def _folders(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        for folder in map(str, PurePosixPath(path).parents):
            if folder == "opt/federator" or any(folder.startswith(f"{owned}/") for owned in _OWNED):
                yield folder


def _kind(path: str) -> str:
    if path.startswith("etc/"):
        return "%config(noreplace) "
    if path.startswith("usr/share/licenses/"):
        return "%license "
    return "%doc " if path.startswith("usr/share/doc/") else ""


def _part(name: str, part: str) -> str:
    path = RPM / name / part
    return path.read_text(encoding="utf-8").rstrip("\n") if path.exists() else ""


def _bundled(name: str) -> list[str]:
    """Which libraries the package brings, as scanners for old libraries expect it of an RPM."""
    pins = requirements(LOCK.read_text(encoding="utf-8"), _BUNDLED.get(name, ()))
    split = [pin.lower().partition("==") for pin in sorted(pins, key=str.lower)]
    return [
        f"Provides: bundled(python3dist({library.replace('_', '-')})) = {version}"
        for library, _, version in split
    ]


def _about(name: str) -> tuple[str, str]:
    """What the package is, in a line and in some, without what is said of Debian's Slurm."""
    control = (DEBIAN / name / "control").read_text(encoding="utf-8")
    _, _, text = control.partition("Description: one GPU queue over many Slurm clusters, ")
    text = text.replace(" @SLURM@", "").replace("for this Slurm", "at a site for its Slurm")
    summary, *lines = text.rstrip("\n").split("\n")
    paragraphs = "\n".join(line.strip() for line in lines).split("\n.\n")
    return f"Federator, {summary}", "\n\n".join(fill(text, 78) for text in paragraphs)
