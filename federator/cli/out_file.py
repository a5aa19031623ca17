"""Writes a command's result whole or not at all, and never over what the command reads."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from federator.errors import InvalidRequest

_KERNEL: Final = (Path("/dev"), Path("/proc"))  # files there are written to, never replaced


def spare_inputs(option: str, path: Path | None, *inputs: Path) -> None:
    """Refuse to write over what is read.

    Raises:
        InvalidRequest: ``path`` is one of the inputs, or cannot be looked at.
    """
    for source in inputs:
        if path is not None and _same(option, path, source):
            raise InvalidRequest(f"{option}: {path}: is the input {source}; name another file")


def _same(option: str, path: Path, source: Path) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise _unwritable(option, path, error) from error
    try:
        return os.path.samestat(found, source.stat())
    except (OSError, ValueError):
        return False  # whoever reads the input says what is wrong with it


@contextmanager
def out_file(path: Path | None, option: str, binary: bool = False) -> Iterator[IO[Any] | None]:
    """Open before the work, so that a mistake costs no time; in its place only when complete.

    Until then, and after a failure, an older file of this name is as it was. A symbolic link is
    replaced, not followed; a device or a pipe is written to as it is.

    Args:
        path: of the file; None: nothing is written.
        option: that named it, for messages.
        binary: else text in UTF-8, its line ends as written.

    Raises:
        InvalidRequest: it cannot be written.
    """
    if path is None:
        yield None
        return
    try:
        direct = _is_special(path)
        written = path if direct else path.with_name(f".federator-{secrets.token_hex(8)}.tmp")
        try:
            with _opened(written, "w" if direct else "x", binary) as file:
                yield file
            if not direct:
                written.replace(path)
        finally:
            if not direct:
                written.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise _unwritable(option, path, error) from error


def _opened(path: Path, mode: str, binary: bool) -> IO[Any]:
    if binary:
        return path.open(mode + "b")
    return path.open(mode, encoding="utf-8", newline="")


def _is_special(path: Path) -> bool:
    """Whether it is there and no regular file. Raises OSError for names that cannot be."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    kernel = any(path.absolute().is_relative_to(folder) for folder in _KERNEL)
    in_memory = path.absolute().is_relative_to("/dev/shm")  # noqa: S108 - a folder like others
    return (kernel and not in_memory) or (path.exists() and not path.is_file())


def _unwritable(option: str, path: Path, error: Exception) -> InvalidRequest:
    said = error.strerror if isinstance(error, OSError) else None
    return InvalidRequest(f"{option}: {path}: cannot be written: {said or error}")
