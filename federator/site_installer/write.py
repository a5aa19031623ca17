"""Reads the project's trees from disk, and writes a site kit to it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import federator
from federator import data_files
from federator.errors import InvalidRequest
from federator.site_installer.files import KitFile, Tree
from federator.site_installer.helper import HELPER_SOURCE, helper_files

_PACKAGE: Final = Path(federator.__file__).resolve().parent
_SHELL: Final = _PACKAGE / "site_installer" / "shell"
_LEFT_OUT: Final = frozenset({".pyc", ".so", ".o"})


def trees() -> dict[str, Tree]:
    """Return the trees that a kit is made of, by their names in ``contents.kit``.

    Raises:
        ConfigError: this installation lacks one.
    """
    found = {name: _read(data_files.tree(name)) for name in data_files.TREES}
    found["helper"] = helper_files(HELPER_SOURCE.read_text(encoding="utf-8"))
    checkpoint = _read(_PACKAGE / "checkpoint")
    user = {f"checkpoint/{path}": content for path, content in checkpoint.items()}
    found["user"] = {"__init__.py": ((_PACKAGE / "__init__.py").read_bytes(), False)} | user
    return found


def scripts() -> dict[str, bytes]:
    """Return join.sh, leave.sh and what they read, by name."""
    return {path.name: path.read_bytes() for path in sorted(_SHELL.iterdir()) if path.is_file()}


def write(files: Sequence[KitFile], output: Path) -> None:
    """Write a kit into ``output``, which must not be there: nothing is ever written over.

    Raises:
        InvalidRequest: it is there, or cannot be written; nothing is left of it then.
    """
    unfinished = output.with_name(f".{output.name}.part")
    try:
        if output.exists() or output.is_symlink():
            raise InvalidRequest(
                f"--output: {output} is there already; move it away or name another folder"
            )
        shutil.rmtree(unfinished, ignore_errors=True)
        for file in files:
            path = unfinished / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
            path.chmod(file.mode)
        unfinished.rename(output)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise InvalidRequest(f"--output: {output}: cannot be written: {error}") from error


def _read(folder: Path) -> Tree:
    found: Mapping[str, tuple[bytes, bool]] = {
        path.relative_to(folder).as_posix(): (
            path.read_bytes(),
            bool(path.stat().st_mode & 0o100),
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in _LEFT_OUT
    }
    return found
