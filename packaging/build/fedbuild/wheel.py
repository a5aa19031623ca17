"""Builds the wheel of the working tree, and lists what is in it."""

from __future__ import annotations

import configparser
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from federator.data_files import TREES
from federator.testbed.archive import ArchivedFile
from federator.testbed.commands import run
from federator.testbed.layout import REPOSITORY

_ROOT_FILES: Final = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")


def build(folder: Path) -> Path:
    """Build the project's wheel into ``write`` and return its path.

    Raises:
        FederatorError: the build failed; the message ends with its output.
    """
    # In a copy: setuptools would leave build/ behind, and put into the next wheel what has been
    # deleted since.
    with tempfile.TemporaryDirectory() as copy:
        for name in _ROOT_FILES:
            shutil.copy2(REPOSITORY / name, copy)
        for name in ("federator", *TREES.values()):
            shutil.copytree(REPOSITORY / name, Path(copy) / name, ignore=_LEFT_OUT)
        argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
        run([*argv, "--no-deps", f"--wheel-dir={copy}/dist", copy], "the wheel")
        (made,) = Path(copy, "dist").glob("*.whl")
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
