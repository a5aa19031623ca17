"""The contents of all packages, Debian's and RPM's: files and links, as values.

This is the only list of what goes where. ``deb_contents`` and ``rpm_contents`` add what their kind
of package wants beside it; paths below /opt/federator are those of an installation by hand,
docs/packaging.md.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fedbuild import wheel
from federator.cli.reference.files import shared_files
from federator.site_installer.helper import HELPER_SOURCE, helper_files
from federator.testbed.archive import ArchivedFile, files_below, installed_libraries
from federator.testbed.layout import REPOSITORY

MAINTAINER: Final = "Federator maintainers <maintainers@federator.invalid>"
RELEASED_AT_S: Final = 1_795_305_600  # 2026-11-22; time of all files, so that equal is equal
# One list for all Pythons: a library that one of them alone needs (async-timeout, of redis, before
# Python 3.11.3: bookworm) is small, and the others never import it.
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
_FILES: Final = REPOSITORY / "packaging" / "files"
_OPT: Final = "opt/federator"
_UNITS: Final = "usr/lib/systemd/system"
_LAUNCHER: Final = """\
#!/opt/federator/bin/python3 -I
import sys

from {module} import {function}

sys.exit({function}())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What differs between the distributions that packages are made for."""

    python: str  # major.minor; the interpreter is /usr/bin/pythonMAJOR.MINOR
    settings: str  # folder of the units' EnvironmentFile
    zsh: str  # folder of the shell's completions


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What packages are made of, for one Python: the wheel, and libraries."""

    wheel: Path
    agent_libraries: Path
    daemon_libraries: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageContents:
    """One package before it is built; paths have no leading slash.

    ``spank`` is the source of Slurm's plug-in. A ``portable`` package is the same everywhere.
    """

    name: str
    files: tuple[ArchivedFile, ...]
    links: tuple[tuple[str, str], ...] = ()
    spank: tuple[ArchivedFile, ...] = ()
    portable: bool = False


def contents(platform: Platform, sources: Sources) -> list[PackageContents]:
    """Return every package for ``platform``."""
    makers: list[Callable[[Platform, Sources], PackageContents]]
    makers = [_common, _server, _site, _node, _slurm]
    return [make(platform, sources) for make in makers]


def documentation(package: str, name: str) -> str:
    """Return where a package's document called ``name`` is installed."""
    return f"usr/share/doc/{package}/{name}"


def below(folder: str, file: ArchivedFile) -> ArchivedFile:
    """Return ``file``, moved into ``folder``."""
    path = f"{folder.rstrip('/')}/{file.path.lstrip('/')}"
    return ArchivedFile(path=path, data=file.data, mode=file.mode)


def copied(source: Path, path: str) -> ArchivedFile:
    """Return a file of the checkout, to be installed as ``path``."""
    return ArchivedFile(path=path, data=source.read_bytes())


def _common(platform: Platform, sources: Sources) -> PackageContents:
    """A virtual environment without pip, as ``python3 -m venv`` would lay it out."""
    programs = wheel.programs(sources.wheel)
    settings = (
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {platform.python}\n"
    )
    launchers = [
        ArchivedFile(path=f"{_OPT}/bin/{name}", data=_launcher(target), mode=0o755)
        for name, target in programs.items()
    ]
    return PackageContents(
        name="federator-common",
        files=(
            ArchivedFile(path=f"{_OPT}/pyvenv.cfg", data=settings.encode()),
            *launchers,
            *wheel.unpacked(sources.wheel, _site_packages(platform)),
            *_libraries(sources.agent_libraries, platform),
            *_reference(platform),
        ),
        links=(
            (f"{_OPT}/bin/python3", f"/usr/bin/python{platform.python}"),
            *((f"usr/bin/{name}", f"/{_OPT}/bin/{name}") for name in programs),
        ),
    )


def _reference(platform: Platform) -> Iterator[ArchivedFile]:
    """Man pages, compressed, and completion, where the distribution has them."""
    for name, text in shared_files(at_sites=False).items():
        path = f"usr/share/{name.replace('zsh/site-functions', platform.zsh)}"
        if name.startswith("man/"):
            yield ArchivedFile(path=f"{path}.gz", data=gzip.compress(text.encode(), mtime=0))
        else:
            yield ArchivedFile(path=path, data=text.encode())


def _server(platform: Platform, sources: Sources) -> PackageContents:
    name = "federator-server"
    example = documentation(name, "examples/federation.yaml")
    return PackageContents(
        name=name,
        files=(
            *_libraries(sources.daemon_libraries, platform),
            _unit("federator-daemon.service"),
            _unit("federator-web.service"),
            _unit("federator-planner.service"),
            _unit("federator-usage.service"),
            _unit("federator-usage.timer"),
            copied(_FILES / "federator-daemon.settings", f"{platform.settings}/federator-daemon"),
            copied(_FILES / "federation.yaml", example),
            *files_below(REPOSITORY / "packaging" / "prometheus", f"{_OPT}/share/prometheus"),
            *files_below(REPOSITORY / "packaging" / "grafana", f"{_OPT}/share/grafana"),
            *(
                copied(REPOSITORY / "docs" / page, documentation(name, page))
                for page in ("metrics.md", "alerts.md")
            ),
        ),
    )


def _site(platform: Platform, sources: Sources) -> PackageContents:  # noqa: ARG001
    helper = helper_files(HELPER_SOURCE.read_text(encoding="utf-8"))
    examples = documentation("federator-site", "examples")
    return PackageContents(
        name="federator-site",
        files=(
            *(
                ArchivedFile(
                    path=f"{_OPT}/libexec/{path}", data=data, mode=0o755 if is_program else 0o644
                )
                for path, (data, is_program) in helper.items()
            ),
            _unit("federator-dial.service"),
            *files_below(_FILES / "site-examples", examples),
        ),
    )


def _node(platform: Platform, sources: Sources) -> PackageContents:  # noqa: ARG001
    """One package for all releases: the hooks run on any Python from 3.6."""
    hooks = REPOSITORY / "prolog_epilog"
    checkpoint = REPOSITORY / "federator" / "checkpoint"
    return PackageContents(
        name="federator-node",
        files=(
            *files_below(hooks / "libexec", f"{_OPT}/libexec"),
            *files_below(hooks / "fednode", f"{_OPT}/libexec/fednode"),
            *files_below(hooks / "checks.d", f"{_OPT}/share/checks.d"),
            *files_below(hooks / "prolog.d", f"{_OPT}/share/prolog.d"),
            *files_below(hooks / "epilog.d", f"{_OPT}/share/epilog.d"),
            copied(REPOSITORY / "federator" / "__init__.py", f"{_OPT}/user/federator/__init__.py"),
            *files_below(checkpoint, f"{_OPT}/user/federator/checkpoint"),
            _unit("fed-watch.service"),
            _unit("fed-watch.timer"),
        ),
        portable=True,
    )


def _slurm(platform: Platform, sources: Sources) -> PackageContents:  # noqa: ARG001
    return PackageContents(
        name="federator-slurm",
        files=tuple(files_below(REPOSITORY / "job_submit", f"{_OPT}/share/job_submit")),
        spank=tuple(files_below(REPOSITORY / "slurm_plugins", "")),
    )


def _site_packages(platform: Platform) -> str:
    return f"{_OPT}/lib/python{platform.python}/site-packages"


def _libraries(folder: Path, platform: Platform) -> list[ArchivedFile]:
    """Without their own tests, which are a third of numpy."""
    found = installed_libraries(folder, _site_packages(platform))
    return [file for file in found if "/tests/" not in file.path]


def _unit(name: str) -> ArchivedFile:
    return copied(REPOSITORY / "packaging" / "systemd" / name, f"{_UNITS}/{name}")


def _launcher(target: str) -> bytes:
    module, _, function = target.partition(":")
    return _LAUNCHER.format(module=module, function=function).encode()
