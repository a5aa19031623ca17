"""Makes one tar archive of a tree of files; equal files give an equal archive.

Owner, time and order are fixed, so an archive's digest tells whether anything changed.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_SKIPPED_DIRS = frozenset({"bin", "etc", "share"})  # of pip's target
_SKIPPED_FILES = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """One regular file of an archive; ``path`` is relative to where it is unpacked."""

    path: str
    data: bytes
    mode: int = 0o644


def pack(entries: Iterable[ArchivedFile]) -> bytes:
    """Return a root-owned tar archive of ``entries`` and every directory above them."""
    files = sorted(entries, key=lambda entry: entry.path)
    parents = {
        str(parent)
        for entry in files
        for parent in PurePosixPath(entry.path).parents
        if str(parent) != "."
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(parents):
            folder = tarfile.TarInfo(path)
            folder.type = tarfile.DIRTYPE
            folder.mode = 0o755
            tar.addfile(folder)
        for entry in files:
            member = tarfile.TarInfo(entry.path)
            member.size = len(entry.data)
            member.mode = entry.mode
            tar.addfile(member, io.BytesIO(entry.data))
    return buffer.getvalue()


def digest(*parts: bytes) -> str:
    """Return the SHA-256 of ``parts``, in hexadecimal; where parts meet counts."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big"))
        whole.update(part)
    return whole.hexdigest()


def python_sources(package: Path, prefix: str) -> list[ArchivedFile]:
    """Return every ``*.py`` and ``*.sh`` below ``package``, to be unpacked below ``prefix``."""
    return [
        ArchivedFile(
            path=f"{prefix}/{path.relative_to(package).as_posix()}", data=path.read_bytes()
        )
        for path in sorted([*package.rglob("*.py"), *package.rglob("*.sh")])
    ]


def files_below(folder: Path, prefix: str) -> list[ArchivedFile]:
    """Return every file below ``write`` but byte code, executable if it is; nothing if absent."""
    return [
        ArchivedFile(
            path=f"{prefix}/{path.relative_to(folder).as_posix()}",
            data=path.read_bytes(),
            mode=0o755 if path.stat().st_mode & 0o100 else 0o644,
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    ]


def installed_libraries(target: Path, prefix: str) -> list[ArchivedFile]:
    """Return what ``pip install --target`` left, less scripts and notes about this machine."""
    return [
        ArchivedFile(path=f"{prefix}/{path.relative_to(target).as_posix()}", data=path.read_bytes())
        for path in sorted(target.rglob("*"))
        if path.is_file()
        and path.name not in _SKIPPED_FILES
        and path.relative_to(target).parts[0] not in _SKIPPED_DIRS
    ]
