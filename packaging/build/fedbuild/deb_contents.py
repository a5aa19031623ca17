"""The contents of the Debian packages: files, links and control data, as values.

``debs`` makes packages of them. What is Debian's alone (control, maintainer scripts) is in
packaging/deb; paths below /opt/federator are those of an installation by hand, docs/packaging.md.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final

from fedbuild import wheel
from federator import __version__
from federator.cli.reference.files import shared_files
from federator.site_installer.helper import HELPER_SOURCE
from federator.testbed.archive import ArchivedFile, files_below, installed_libraries
from federator.testbed.layout import REPOSITORY, SiteLayout
from federator.testbed.package import helper_text

DEBIAN: Final = REPOSITORY / "packaging" / "deb"
MAINTAINER: Final = "Federator maintainers <maintainers@federator.invalid>"
RELEASED_AT_S: Final = 1_795_305_600  # 2026-11-22; time of all files, so that equal is equal
# One list for all releases of Debian: a library that one of them alone needs (async-timeout,
# of redis, before Python 3.11.3: bookworm) is small, and the others never import it.
DAEMON_LIBRARIES: Final = (
    *("asyncssh", "cryptography", "cffi", "pycparser", "typing_extensions", "numpy"),
    *("pydantic", "pydantic_core", "annotated-types", "typing-inspection"),
    *(
        "prometheus_client",
        "redis",
        "async-timeout",
        "hiredis",
        "rich",
        "markdown-it-py",
        "mdurl",
        "Pygments",
    ),
    *("structlog", "SQLAlchemy", "psycopg", "psycopg-binary"),
    *("jinja2", "MarkupSafe", "starlette", "uvicorn", "anyio", "h11", "idna"),
)
_RELEASES: Final[Mapping[str, int]] = MappingProxyType({"bookworm": 12, "trixie": 13, "forky": 14})
_OPT: Final = "opt/federator"
_UNITS: Final = "usr/lib/systemd/system"
_SCRIPTS: Final = ("postinst", "prerm", "postrm")
_LAUNCHER: Final = """\
#!/opt/federator/bin/python3 -I
import sys

from {module} import {function}

sys.exit({function}())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What packages are made of, for one suite: the wheel, and libraries for its Python."""

    wheel: Path
    agent_libraries: Path
    daemon_libraries: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DebContents:
    """One package before it is built; paths have no leading slash.

    ``spank`` is the source of Slurm's plug-in, compiled when the package is built.
    """

    name: str
    version: str
    files: tuple[ArchivedFile, ...]
    links: tuple[tuple[str, str], ...] = ()
    spank: tuple[ArchivedFile, ...] = ()

    def tree(self, site: SiteLayout, architecture: str) -> list[ArchivedFile]:
        """Return what the build wants of it, below the package's name."""
        control = [
            ArchivedFile(
                path="DEBIAN/control", data=_filled("control", self, site, architecture).encode()
            ),
            *(
                ArchivedFile(path=f"DEBIAN/{script}", data=source.read_bytes(), mode=0o755)
                for script in _SCRIPTS
                if (source := DEBIAN / self.name / script).exists()
            ),
        ]
        if conffiles := [f"/{file.path}" for file in self.files if file.path.startswith("etc/")]:
            control.append(ArchivedFile(path="DEBIAN/conffiles", data=_lines(conffiles)))
        links = ArchivedFile(path="links", data=_lines(f"{p} {t}" for p, t in self.links))
        moved = [_below("root", file) for file in (*self.files, *_documents(self))]
        inside = [*control, links, *moved, *(_below("spank", file) for file in self.spank)]
        return [_below(self.name, file) for file in inside]


def contents(site: SiteLayout, sources: Sources) -> list[DebContents]:
    """Return every package for the Debian release of ``site``."""
    makers: list[Callable[[SiteLayout, Sources], DebContents]]
    makers = [_common, _server, _site, _node, _slurm]
    return [make(site, sources) for make in makers]


def version_for(site: SiteLayout) -> str:
    """Return the version of packages that fit one Debian release alone; a later one's is higher."""
    return f"{__version__}+deb{_RELEASES[site.suite]}"


def _common(site: SiteLayout, sources: Sources) -> DebContents:
    """A virtual environment without pip, as ``python3 -m venv`` would lay it out."""
    programs = wheel.programs(sources.wheel)
    settings = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {site.python}\n"
    launchers = [
        ArchivedFile(path=f"{_OPT}/bin/{name}", data=_launcher(target), mode=0o755)
        for name, target in programs.items()
    ]
    return DebContents(
        name="federator-common",
        version=version_for(site),
        files=(
            ArchivedFile(path=f"{_OPT}/pyvenv.cfg", data=settings.encode()),
            *launchers,
            *wheel.unpacked(sources.wheel, _site_packages(site)),
            *_libraries(sources.agent_libraries, site),
            *_reference(),
        ),
        links=(
            (f"{_OPT}/bin/python3", f"/usr/bin/python{site.python}"),
            *((f"usr/bin/{name}", f"/{_OPT}/bin/{name}") for name in programs),
        ),
    )


def _reference() -> Iterator[ArchivedFile]:
    """Man pages, compressed, and completion, where Debian has them."""
    for name, text in shared_files(at_sites=False).items():
        path = f"usr/share/{name.replace('zsh/site-functions', 'zsh/vendor-completions')}"
        if name.startswith("man/"):
            yield ArchivedFile(path=f"{path}.gz", data=gzip.compress(text.encode(), mtime=0))
        else:
            yield ArchivedFile(path=path, data=text.encode())


def _server(site: SiteLayout, sources: Sources) -> DebContents:
    own = DEBIAN / "federator-server"
    return DebContents(
        name="federator-server",
        version=version_for(site),
        files=(
            *_libraries(sources.daemon_libraries, site),
            _unit("federator-daemon.service"),
            _unit("federator-web.service"),
            _copy(own / "federator-daemon.default", "etc/default/federator-daemon"),
            _copy(own / "federation.yaml", _doc("federator-server", "examples/federation.yaml")),
            *files_below(REPOSITORY / "packaging" / "prometheus", f"{_OPT}/share/prometheus"),
            *files_below(REPOSITORY / "packaging" / "grafana", f"{_OPT}/share/grafana"),
            *(
                _copy(REPOSITORY / "docs" / page, _doc("federator-server", page))
                for page in ("metrics.md", "alerts.md")
            ),
        ),
    )


def _site(site: SiteLayout, sources: Sources) -> DebContents:  # noqa: ARG001
    helper = helper_text(HELPER_SOURCE.read_text(encoding="utf-8")).encode()
    examples = files_below(DEBIAN / "federator-site" / "examples", "examples")
    return DebContents(
        name="federator-site",
        version=version_for(site),
        files=(
            ArchivedFile(path=f"{_OPT}/libexec/fed-site-exec", data=helper, mode=0o755),
            *(_below(_doc("federator-site", ""), file) for file in examples),
        ),
    )


def _node(site: SiteLayout, sources: Sources) -> DebContents:  # noqa: ARG001
    """One package for all releases: the hooks run on any Python from 3.6."""
    hooks = REPOSITORY / "prolog_epilog"
    checkpoint = REPOSITORY / "federator" / "checkpoint"
    return DebContents(
        name="federator-node",
        version=__version__,
        files=(
            *files_below(hooks / "libexec", f"{_OPT}/libexec"),
            *files_below(hooks / "fednode", f"{_OPT}/libexec/fednode"),
            *files_below(hooks / "checks.d", f"{_OPT}/share/checks.d"),
            *files_below(hooks / "prolog.d", f"{_OPT}/share/prolog.d"),
            *files_below(hooks / "epilog.d", f"{_OPT}/share/epilog.d"),
            _copy(REPOSITORY / "federator" / "__init__.py", f"{_OPT}/user/federator/__init__.py"),
            *files_below(checkpoint, f"{_OPT}/user/federator/checkpoint"),
            _unit("fed-watch.service"),
            _unit("fed-watch.timer"),
        ),
    )


def _slurm(site: SiteLayout, sources: Sources) -> DebContents:  # noqa: ARG001
    return DebContents(
        name="federator-slurm",
        version=version_for(site),
        files=tuple(files_below(REPOSITORY / "job_submit", f"{_OPT}/share/job_submit")),
        spank=tuple(files_below(REPOSITORY / "slurm_plugins", "")),
    )


def _site_packages(site: SiteLayout) -> str:
    return f"{_OPT}/lib/python{site.python}/site-packages"


def _libraries(folder: Path, site: SiteLayout) -> list[ArchivedFile]:
    """Without their own tests, which are a third of numpy."""
    found = installed_libraries(folder, _site_packages(site))
    return [file for file in found if "/tests/" not in file.path]


def _doc(package: str, name: str) -> str:
    return f"usr/share/doc/{package}/{name}"


def _unit(name: str) -> ArchivedFile:
    return _copy(REPOSITORY / "packaging" / "systemd" / name, f"{_UNITS}/{name}")


def _copy(source: Path, path: str, mode: int = 0o644) -> ArchivedFile:
    return ArchivedFile(path=path, data=source.read_bytes(), mode=mode)


def _below(folder: str, file: ArchivedFile) -> ArchivedFile:
    path = f"{folder.rstrip('/')}/{file.path.lstrip('/')}"
    return ArchivedFile(path=path, data=file.data, mode=file.mode)


def _launcher(target: str) -> bytes:
    module, _, function = target.partition(":")
    return _LAUNCHER.format(module=module, function=function).encode()


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _documents(package: DebContents) -> list[ArchivedFile]:
    """What Debian wants every package to bring: copyright, changes, excuses for lintian."""
    date = format_datetime(datetime.fromtimestamp(RELEASED_AT_S, UTC))
    changes = (
        f"{package.name} ({package.version}) unstable; urgency=medium\n\n"
        f"  * Release {__version__}; CHANGELOG.md has what changed.\n\n"
        f" -- {MAINTAINER}  {date}\n"
    )
    licence = (REPOSITORY / "LICENSE").read_text()
    found = [
        ArchivedFile(path=_doc(package.name, "copyright"), data=licence.encode()),
        ArchivedFile(
            path=_doc(package.name, "changelog.gz"), data=gzip.compress(changes.encode(), mtime=0)
        ),
    ]
    overrides = DEBIAN / package.name / "lintian-overrides"
    if overrides.exists():
        found.append(_copy(overrides, f"usr/share/lintian/overrides/{package.name}"))
    return found


def _filled(template: str, package: DebContents, site: SiteLayout, architecture: str) -> str:
    """Fill a template's ``@NAMES@``."""
    text = (DEBIAN / package.name / template).read_text()
    values = {
        "VERSION": package.version,
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
