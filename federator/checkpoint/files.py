"""Writes checkpoints to disk so that a crash at any moment leaves the one before it whole.

A checkpoint is a folder ``ckpt-<number>-step-<step>``: for each rank that writes, ``state-<rank>``
(a file or a folder, as the caller's ``save`` likes) and a seal beside it with the size and CRC-32
of each file. It is written as ``.part-...``, synced file by file, and exists from one rename on.
The number goes up by one with each checkpoint, whatever clocks and steps do; the newest whole one
counts. Everything gets the permission bits of the directory, since another site of the region may
know the user by another UID.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import threading
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    Files = dict[str, list[int | None]]  # path below the state to [bytes, CRC-32 or None]

_NAME = re.compile(r"ckpt-([0-9]{8,18})-step-([0-9]{1,18})")
_PART = ".part-"
_CHUNK_BYTES = 1 << 20
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY)
_CANNOT_SYNC_FOLDERS = (errno.EINVAL, errno.EBADF, errno.ENOTSUP)
_UMASK_LOCK = threading.Lock()
_UMASKS: list[int] = []  # what each of those that share now found


class StoredCheckpoint(NamedTuple):
    """One complete-looking checkpoint of a directory; ``number`` tells which is newer."""

    number: int
    step: int
    path: Path


def state_of(folder: Path, rank: int) -> Path:
    """Return where ``rank`` keeps its state in a checkpoint or a part of one."""
    return folder / f"state-{rank}"


def stored(directory: Path) -> list[StoredCheckpoint]:
    """Return the checkpoints of ``directory``, newest first; no file is opened."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    matches = [match for match in map(_NAME.fullmatch, names) if match]
    found = [StoredCheckpoint(int(m[1]), int(m[2]), directory / m[0]) for m in matches]
    return sorted(found, reverse=True)


def is_whole(checkpoint: StoredCheckpoint, rank: int) -> bool:
    """Tell whether every byte of ``rank`` is as it was written; the unreadable is not whole."""
    try:
        files: Files = _seal_of(checkpoint.path, rank)["files"]
        with_crc = any(crc is not None for _, crc in files.values())
        return _describe(state_of(checkpoint.path, rank), with_crc=with_crc) == files
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def ranks_of(checkpoint: StoredCheckpoint) -> int:
    """Return how many ranks wrote a whole checkpoint."""
    return int(_seal_of(checkpoint.path, 0)["ranks"])


def begin(directory: Path, part: Path) -> None:
    """Make ``part``, empty, to write the next checkpoint in.

    Leftovers of writers that died are removed, of its own name too: one attempt writes at a time.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for leftover in directory.glob(f"{_PART}*"):
        discard(leftover)
    make_folder(part)


def part_of(directory: Path, name: str) -> Path:
    """Return the folder that the checkpoint called ``name`` is written in."""
    return directory / f"{_PART}{name}"


@contextmanager
def shared(part: Path) -> Iterator[None]:
    """Have what is written meanwhile get no less than the permission bits of ``part``.

    So another UID can remove what a writer that died left, folders in folders, too. The umask is
    the whole process's, so threads that write meanwhile share it.
    """
    bits = _bits_of(part)
    with _UMASK_LOCK:
        before = os.umask(0o077)
        os.umask(before & ~bits)
        _UMASKS.append(before)
    try:
        yield
    finally:
        with _UMASK_LOCK:  # whoever ends last puts the first one's back
            os.umask(_UMASKS.pop())


def seal(part: Path, rank: int, *, ranks: int, checksum: bool) -> None:
    """Sync what ``rank`` wrote to disk, and note what it is.

    Args:
        part: the checkpoint that is being written.
        rank: whose state it is.
        ranks: how many write one.
        checksum: note CRC-32s as well, which reads every file once more.

    Raises:
        FileNotFoundError: the caller's ``save`` wrote something else than the path it was given.
        OSError: the file system refused.
    """
    state = state_of(part, rank)
    if not state.exists():
        raise FileNotFoundError(f"save= is to write {state}, a file or a folder, and did not")
    document = {"format": 1, "ranks": ranks, "files": _describe(state, with_crc=checksum)}
    note = _seal_path(part, rank)
    note.write_text(json.dumps(document, indent=1) + "\n")
    for path in (state, note):
        _share_and_sync(path, bits=_bits_of(part))


def commit(part: Path, step: int) -> StoredCheckpoint:
    """Turn a part that all ranks have sealed into the newest checkpoint.

    Until it returns, the one before counts.

    Raises:
        OSError: the file system refused; nothing has been replaced.
    """
    directory = part.parent
    _sync_folder(part)
    newest = stored(directory)[:1]
    number = newest[0].number + 1 if newest else 1
    while True:
        path = directory / f"ckpt-{number:08d}-step-{step:d}"
        try:
            os.rename(part, path)
            break
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            number += 1
    _sync_folder(directory)
    return StoredCheckpoint(number, step, path)


def discard(part: Path) -> None:
    """Remove a part that is not to become a checkpoint, as far as it can be removed."""
    shutil.rmtree(part, ignore_errors=True)


def prune(directory: Path, keep: int, torn: Collection[Path]) -> None:
    """Remove all but the newest ``keep`` checkpoints; ``torn`` ones do not count as kept.

    What cannot be removed, since another site's UID owns it, stays; nobody needs it.
    """
    kept = 0
    for checkpoint in stored(directory):
        if kept >= keep:
            _remove(checkpoint.path)
        elif checkpoint.path not in torn and _seal_path(checkpoint.path, 0).is_file():
            kept += 1


def put_in_place(path: Path, text: str) -> None:
    """Write a small file so that readers see all of it or what was there before."""
    unfinished = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    # Others may write here, and may have put a link or a pipe in the way.
    opened = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(opened, "w") as file:
            file.write(text)
            os.fchmod(opened, _bits_of(path.parent) & 0o666)
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink()
        raise


def make_folder(path: Path) -> None:
    """Make ``path`` unless it is there; its permission bits are those of the folder above."""
    if not path.is_dir():
        path.mkdir(exist_ok=True)
        path.chmod(_bits_of(path.parent))


def _bits_of(folder: Path) -> int:
    """Return the permission bits for what is in ``write``; /tmp's are nobody's wish."""
    mode = folder.stat().st_mode
    return mode & (0o755 if mode & stat.S_ISVTX else 0o777)


def _remove(checkpoint: Path) -> None:
    """Remove a checkpoint; at no moment is half of one to be seen."""
    hidden = checkpoint.with_name(f"{_PART}old-{checkpoint.name}")
    try:
        os.rename(checkpoint, hidden)
    except OSError:
        return
    discard(hidden)


def _seal_path(folder: Path, rank: int) -> Path:
    return folder / f"state-{rank}.seal.json"


def _seal_of(folder: Path, rank: int) -> dict[str, Any]:
    document = json.loads(_seal_path(folder, rank).read_text())
    if not isinstance(document, dict):
        raise TypeError(f"{folder}: the seal of rank {rank} is no object")
    return document


def _walk(state: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Yield each folder of a state with its files, innermost first; a file alone has no folder."""
    for root, _, names in os.walk(state, topdown=False):
        yield Path(root), [Path(root) / name for name in names]


def _files_of(state: Path) -> list[Path]:
    if not state.is_dir():
        return [state]
    return [path for _, paths in _walk(state) for path in paths]


def _describe(state: Path, *, with_crc: bool) -> Files:
    return {
        path.relative_to(state).as_posix(): [
            path.stat().st_size,
            _crc32(path) if with_crc else None,
        ]
        for path in _files_of(state)
    }


def _crc32(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""):
            crc = zlib.crc32(chunk, crc)
    return crc


def _share_and_sync(path: Path, bits: int) -> None:
    for file in _files_of(path):
        file.chmod(bits & 0o666)
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    for folder, _ in _walk(path):
        folder.chmod(bits)
        _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some network file systems sync no folders; their servers do
        if error.errno not in _CANNOT_SYNC_FOLDERS:
            raise
    finally:
        os.close(descriptor)
