"""Adds to a package the parts of Debian alone: control, maintainer scripts, documents, versions.

``debs`` makes packages of it; files are those of ``package_contents``. The templates are in
packaging/deb.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from types import MappingProxyType
from typing import Final

from fedbuild.package_contents import (
    MAINTAINER,
    RELEASED_AT_S,
    PackageContents,
    Platform,
    below,
    copied,
    documentation,
)
from federator import __version__
from federator.testbed.archive import ArchivedFile
from federator.testbed.layout import REPOSITORY, SiteLayout

DEBIAN: Final = REPOSITORY / "packaging" / "deb"
_RELEASES: Final[Mapping[str, int]] = MappingProxyType({"bookworm": 12, "trixie": 13, "forky": 14})
_SCRIPTS: Final = ("postinst", "prerm", "postrm")


def platform_of(site: SiteLayout) -> Platform:
    """Return the Debian release of ``site``, as packages see it."""
    return Platform(python=site.python, settings="etc/default", zsh="zsh/vendor-completions")


def version_for(site: SiteLayout) -> str:
    """Return the version of packages that fit one Debian release alone; a later one's is higher."""
    return f"{__version__}+deb{_RELEASES[site.suite]}"


def version_of(package: PackageContents, site: SiteLayout) -> str:
    """Return the version of ``package`` for the Debian release of ``site``."""
    return __version__ if package.portable else version_for(site)


def tree(package: PackageContents, site: SiteLayout, architecture: str) -> list[ArchivedFile]:
    """Return what the build wants of ``package``, below the package's name."""
    control = [
        ArchivedFile(
            path="DEBIAN/control", data=_filled("control", package, site, architecture).encode()
        ),
        *(
            ArchivedFile(path=f"DEBIAN/{script}", data=source.read_bytes(), mode=0o755)
            for script in _SCRIPTS
            if (source := DEBIAN / package.name / script).exists()
        ),
    ]
    if conffiles := [f"/{file.path}" for file in package.files if file.path.startswith("etc/")]:
        control.append(ArchivedFile(path="DEBIAN/conffiles", data=_lines(conffiles)))
    links = ArchivedFile(path="links", data=_lines(f"{p} {t}" for p, t in package.links))
    files = (*package.files, *_documents(package, version_of(package, site)))
    moved = [below("root", file) for file in files]
    inside = [*control, links, *moved, *(below("spank", file) for file in package.spank)]
    return [below(package.name, file) for file in inside]


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _documents(package: PackageContents, version: str) -> list[ArchivedFile]:
    """What Debian wants every package to bring: copyright, changes, excuses for lintian."""
    date = format_datetime(datetime.fromtimestamp(RELEASED_AT_S, UTC))
    changes = (
        f"{package.name} ({version}) unstable; urgency=medium\n\n"
        f"  * Release {__version__}; CHANGELOG.md has what changed.\n\n"
        f" -- {MAINTAINER}  {date}\n"
    )
    compressed = gzip.compress(changes.encode(), mtime=0)
    found = [
        copied(REPOSITORY / "LICENSE", documentation(package.name, "copyright")),
        ArchivedFile(path=documentation(package.name, "changelog.gz"), data=compressed),
    ]
    overrides = DEBIAN / package.name / "lintian-overrides"
    if overrides.exists():
        found.append(copied(overrides, f"usr/share/lintian/overrides/{package.name}"))
    return found


def _filled(template: str, package: PackageContents, site: SiteLayout, architecture: str) -> str:
    """Fill a template's ``@NAMES@``."""
    text = (DEBIAN / package.name / template).read_text()
    values = {
        "VERSION": version_of(package, site),
        "ARCH": architecture,
        "MAINTAINER": MAINTAINER,
        "PYTHON": site.python,
        "NEXT_PYTHON": _next(site.python),
        "SLURM": site.slurm,
        "NEXT_SLURM": _next(site.slurm),
    }
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def _next(version: str) -> str:
    """Return the ``major.minor`` after ``version``, as wide: 22.06 after 22.05."""
    major, _, minor = version.partition(".")
    return f"{major}.{int(minor) + 1:0{len(minor)}d}"
