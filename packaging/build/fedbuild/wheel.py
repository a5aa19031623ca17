"""Builds wheel and source distribution of the working tree; lists and checks what is in a wheel."""

from __future__ import annotations

import configparser
import shutil
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from packaging.metadata import Metadata

from federator import __version__
from federator.data_files import TREES
from federator.errors import FederatorError
from federator.testbed.archive import ArchivedFile
from federator.testbed.commands import run
from federator.testbed.layout import REPOSITORY

_ROOT_FILES: Final = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
_PIP: Final = (sys.executable, "-m", "pip")
_QUIET: Final = ("--quiet", "--disable-pip-version-check")
_MAKE_SOURCE: Final = """\
import os, sys
sys.path.insert(0, {tools!r})
os.chdir({copy!r})
from setuptools.build_meta import build_sdist
build_sdist("dist")
"""
_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")


def build(folder: Path) -> Path:
    """Build the project's wheel into ``write`` and return its path.

    Raises:
        FederatorError: the build failed; the message ends with its output.
    """
    with _copy_of_the_tree() as copy:
        return build_from(copy, folder)


def build_from(source: Path, folder: Path) -> Path:
    """Build the wheel of ``source``, a tree or a source distribution, into ``folder``.

    Raises:
        FederatorError: the build failed; the message ends with its output.
    """
    with tempfile.TemporaryDirectory() as made_in:
        run([*_PIP, "wheel", *_QUIET, "--no-deps", f"--wheel-dir={made_in}", str(source)], "wheel")
        (made,) = Path(made_in).glob("*.whl")
        return _moved(made, folder)


def build_source(folder: Path) -> Path:
    """Build the source distribution into ``folder`` and return its path.

    Raises:
        FederatorError: the build failed; the message ends with its output.
    """
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    with _copy_of_the_tree() as copy, tempfile.TemporaryDirectory() as tools:
        # pip makes no source distributions; it can fetch what makes them.
        wanted = project["build-system"]["requires"]
        run([*_PIP, "install", *_QUIET, f"--target={tools}", *wanted], "setuptools")
        script = _MAKE_SOURCE.format(tools=tools, copy=str(copy))
        run([sys.executable, "-c", script], "source distribution")
        (made,) = Path(copy, "dist").glob("*.tar.gz")
        return _moved(made, folder)


def check(wheel: Path) -> None:
    """See that a package index would accept ``wheel``, and that it is of this version.

    Raises:
        FederatorError: it would not, or it is not; the message says why.
    """
    found = contents(wheel)
    prefix = f"federator-{__version__}.dist-info"
    try:
        about = Metadata.from_email(found[f"{prefix}/METADATA"])
    except KeyError:
        raise FederatorError(f"{wheel.name} is not of version {__version__}") from None
    except ExceptionGroup as error:
        why = "; ".join(map(str, error.exceptions))
        raise FederatorError(f"{wheel.name}: an index would refuse it: {why}") from error
    if about.description_content_type != "text/markdown" or not about.description:
        raise FederatorError(f"{wheel.name}: an index would not show its description")
    listed = {line.split(",")[0] for line in found[f"{prefix}/RECORD"].decode().splitlines()}
    if listed != set(found):
        odd = sorted(listed ^ set(found))
        raise FederatorError(f"{wheel.name}: its list of files is wrong about {odd[0]}")


@contextmanager
def _copy_of_the_tree() -> Iterator[Path]:
    """In a copy setuptools leaves no build/ behind, to put into the next wheel what is gone."""
    with tempfile.TemporaryDirectory() as copy:
        for name in _ROOT_FILES:
            shutil.copy2(REPOSITORY / name, copy)
        for name in ("federator", *TREES.values()):
            shutil.copytree(REPOSITORY / name, Path(copy) / name, ignore=_LEFT_OUT)
        yield Path(copy)


def _moved(made: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.move(made, folder / made.name))


def contents(wheel: Path) -> dict[str, bytes]:
    """Return every file of ``wheel`` by its path in it."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in sorted(archive.namelist())}


def unpacked(wheel: Path, prefix: str) -> list[ArchivedFile]:
    """Return the files of ``wheel`` as they are installed below ``prefix``, a site-packages."""
    with zipfile.ZipFile(wheel) as archive:
        return [
            ArchivedFile(
                path=f"{prefix}/{member.filename}",
                data=archive.read(member),
                mode=0o755 if member.external_attr >> 16 & 0o100 else 0o644,
            )
            for member in archive.infolist()
            if not member.is_dir()
        ]


def programs(wheel: Path) -> dict[str, str]:
    """Return the programs that ``wheel`` brings: name to ``module:function``."""
    found = configparser.ConfigParser()
    for name, data in contents(wheel).items():
        if name.endswith(".dist-info/entry_points.txt"):
            found.read_string(data.decode())
    return dict(found["console_scripts"])
