"""Reads and writes the files of a spool; all of this runs in the spool's own thread.

Only ``leases`` and ``usage`` may be written by others, who may put anything there under any name.
Names are numbers, contents go in place in one step, and only regular files of the folder's owner
count as leases. What others leave in the way is put aside; it can spoil one name at a time, for a
moment.
"""

from __future__ import annotations

import errno
import json
import os
import pwd
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from federator.agent import node_usage
from federator.agent.lease_wrapper import FOLDER, Starter
from federator.model.workload import AttemptId, WorkloadId

JUNK_AGE_S: Final = 3600.0  # of what is no lease; a prolog may just be making its own
TICKET_LASTS_S: Final = 120.0  # sbatch ends 42 s after it was asked for; hosts' clocks differ
MOST_REMOVED: Final = 1000  # by one look, so that junk without end holds up nobody
_TRIES: Final = 5  # against somebody who puts things in the way again and again
_ASIDE: Final = ".junk."
_WRITABLE: Final = ".writable"  # there for a moment
_SITE: Final = "site"
_MOST_NAME_BYTES: Final = 4096
_NOBODY: Final = 65534
_BOUND: Final = re.compile(rb"\S+ ([1-9][0-9]{0,9})\n")  # cluster and job
_LEASE: Final = re.compile(r"(0|[1-9][0-9]{0,18})\.([1-9][0-9]{0,8})(\.job)?")


class Obstructed(OSError):
    """Something of another's is in the way of one file; the spool is well."""


class AnothersSpool(OSError):
    """The folder is another site's."""


def look(folder: Path, site: str, tickets: frozenset[str], now_s: float) -> list[AttemptId]:
    """Make the folders, remove what does not belong there, and return whose leases there are.

    Args:
        folder: the spool.
        site: whose it is; the first to look makes it its own.
        tickets: those in use; others go when they have run out, since an sbatch may outlive its
            agent and still be on its way.
        now_s: Unix time.

    Raises:
        AnothersSpool: it has another site's name; nothing was touched.
        OSError: it cannot be used.
    """
    if not folder.is_dir():
        raise OSError(errno.ENOENT, "no such folder; make it for the agent's account", str(folder))
    _claim(folder, site)
    _make(folder / "tickets", 0o711)
    _make(folder / "leases", 0o1733)
    _make(folder / "starts", 0o711)
    _make(folder / node_usage.FOLDER, 0o1733)
    _make(folder / FOLDER, 0o711)
    _tidy_tickets(folder / "tickets", tickets, now_s - TICKET_LASTS_S)
    _replace(folder / "tickets", _WRITABLE, "")
    _discard(folder / "tickets" / _WRITABLE)
    return _tidied(folder / "leases", now_s - JUNK_AGE_S)


def tidy_starters(folder: Path, needed: Iterable[AttemptId], now_s: float) -> None:
    """Remove those that are not ``needed``, but for what may just be made.

    Raises:
        OSError: it cannot be done.
    """
    names = {_name(attempt) for attempt in needed}
    for entry in os.scandir(folder / FOLDER):
        with suppress(FileNotFoundError):
            old = entry.stat(follow_symlinks=False).st_mtime < now_s - JUNK_AGE_S
            if old and entry.name not in names:
                _discard(Path(entry.path))


def _tidy_tickets(tickets: Path, used: frozenset[str], over_s: float) -> None:
    """Remove those that nobody uses and that are from before ``over_s``."""
    for entry in os.scandir(tickets):
        with suppress(FileNotFoundError):
            if entry.name not in used and entry.stat(follow_symlinks=False).st_mtime < over_s:
                _discard(tickets / entry.name)


def _claim(folder: Path, site: str) -> None:
    """See to it that ``folder/site`` has this site's name: two would remove each other's leases."""
    name = folder / _SITE
    if not os.path.lexists(name):
        fresh = folder / f".{_SITE}.{secrets.token_hex(8)}"
        _write(fresh, f"{site}\n", 0o644, sync=True)
        try:
            with suppress(FileExistsError):  # another was quicker
                os.link(fresh, name)
        finally:
            fresh.unlink()
    with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        found = file.read(_MOST_NAME_BYTES).decode("utf-8", "replace").strip()
    if found != site:
        what = f"it is site {found[:80]!r}'s, says {name}; each site needs one of its own"
        raise AnothersSpool(errno.EEXIST, what)


def _tidied(leases: Path, old_s: float) -> list[AttemptId]:
    """The attempts that have leases; what is none goes, but what a prolog may just be making."""
    owner = leases.stat().st_uid
    found: dict[str, os.stat_result] = {}
    for entry in os.scandir(leases):
        with suppress(FileNotFoundError):
            found[entry.name] = entry.stat(follow_symlinks=False)
    removed, kept = 0, []
    for name, status in found.items():
        match = _LEASE.fullmatch(name)
        if match is None:
            is_junk = status.st_mtime < old_s
        elif match[3] is None:
            is_junk = not (stat.S_ISREG(status.st_mode) and status.st_uid == owner)
        else:
            is_junk = name.removesuffix(".job") not in found
        if not is_junk:
            if match is not None and match[3] is None:
                kept.append(AttemptId(workload=WorkloadId(int(match[1])), attempt=int(match[2])))
        elif removed < MOST_REMOVED:
            removed += 1
            _discard(leases / name)
    return kept


def _make(folder: Path, mode: int) -> None:
    """A folder of ours with exactly this mode.

    Raises:
        OSError: it cannot be; or it is a link, or another's.
    """
    with suppress(FileExistsError):
        folder.mkdir()
    made = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(made).st_mode & 0o7777 != mode:
            os.fchmod(made, mode)
    finally:
        os.close(made)


def _discard(path: Path) -> None:
    """Remove what does not belong here. The folder is ours, so the files in it are ours to remove,
    and so are empty folders; what others keep in a folder of theirs is not.
    """
    with suppress(FileNotFoundError):
        try:
            path.unlink()
        except (IsADirectoryError, PermissionError):
            with suppress(OSError):
                path.rmdir()


def _clear(path: Path) -> None:
    """Have nothing at ``path``: a file is removed, a folder of another's is put aside."""
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):
        with suppress(FileNotFoundError):
            path.rename(path.with_name(_ASIDE + secrets.token_hex(8)))


def open_up(
    folder: Path,
    attempt: AttemptId,
    user: str,
    token: str,
    now_s: float,
    earlier: Iterable[AttemptId],
) -> None:
    """Make the ticket and the lease of one attempt; the leases of ``earlier`` ones go.

    Raises:
        OSError: it cannot be done.
    """
    remove(folder, earlier)
    if attempt not in lease_all(folder, {attempt: user}, now_s):
        what = f"something of another's is in the way of the lease of {attempt}"
        raise Obstructed(errno.EEXIST, what)
    expires_at_s = int(now_s + TICKET_LASTS_S)
    _write(ticket(folder, token), f"{attempt} {user} {expires_at_s}\n", 0o644)


def put_starters(folder: Path, starters: Mapping[AttemptId, Starter]) -> None:
    """Make the files by which attempts' scripts are started; they go with the leases.

    Raises:
        OSError: it cannot be done.
    """
    for attempt, starter in starters.items():
        _replace(folder / FOLDER, _name(attempt), starter.text)


def lease_all(folder: Path, users: Mapping[AttemptId, str], now_s: float) -> set[AttemptId]:
    """Make leases that are tied to no job yet, whatever lies there; return whose were made.

    Raises:
        OSError: the spool cannot be written.
    """
    made = set()
    for attempt, user in users.items():
        text = json.dumps({"user": user, "made_at_s": int(now_s)}) + "\n"
        with suppress(Obstructed):
            _clear(folder / "leases" / f"{_name(attempt)}.job")
            _replace(folder / "leases", _name(attempt), text)
            made.add(attempt)
    return made


def bound_job(folder: Path, attempt: AttemptId, user: str) -> int:
    """The job that has consumed an attempt's lease; 0: none has.

    What prologs (root, or nobody on a shared file system) or the user's own script have written
    counts; see ``prolog_epilog/fednode/lease.py``.

    Raises:
        OSError: it cannot be told.
    """
    path = folder / "leases" / f"{_name(attempt)}.job"
    writers = {folder.stat().st_uid, 0, _NOBODY, _uid(user)}
    if not _is_file_of(path, writers):  # anybody may put anything there, unreadable too
        return 0
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if not _is_file_of(path, writers):  # somebody has changed it meanwhile
            return 0
        raise Obstructed(error.errno, f"{path}: {error.strerror}") from error
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in writers:
            return 0
        match = _BOUND.fullmatch(os.read(opened, _MOST_NAME_BYTES))
    finally:
        os.close(opened)
    return int(match[1]) if match is not None else 0


def _is_file_of(path: Path, owners: set[int]) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid in owners


def _uid(user: str) -> int:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return 0


def remove(folder: Path, attempts: Iterable[AttemptId]) -> None:
    """Remove leases, what ties them to jobs, and what starts these.

    Raises:
        OSError: some could not be removed; the others are.
    """
    failure: OSError | None = None
    for attempt in attempts:
        (folder / FOLDER / _name(attempt)).unlink(missing_ok=True)
        for name in (_name(attempt), f"{_name(attempt)}.job"):
            try:
                _clear(folder / "leases" / name)
            except OSError as error:
                failure = error
    if failure is not None:
        raise failure


def write_admission(folder: Path, text: str) -> None:
    """Replace admission.tsv.

    Raises:
        OSError: it cannot be done.
    """
    _replace(folder, "admission.tsv", text)


def _name(attempt: AttemptId) -> str:
    return f"{attempt.workload}.{attempt.attempt}"


def ticket(folder: Path, token: str) -> Path:
    """The path of a ticket."""
    return folder / "tickets" / token


def _replace(folder: Path, name: str, text: str) -> None:
    """Put a file in place in one step, so that it survives a crash whole."""
    fresh = folder / f".{name}.{secrets.token_hex(8)}"
    try:
        _write(fresh, text, 0o644, sync=True)
        _rename(fresh, folder / name)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(above)
    finally:
        os.close(above)


def _rename(fresh: Path, path: Path) -> None:
    """Raises: Obstructed: there is a folder each time."""
    for _ in range(_TRIES):
        try:
            fresh.rename(path)
        except IsADirectoryError:
            _clear(path)
        else:
            return
    raise Obstructed(errno.EISDIR, f"{path} is a folder")


def _write(path: Path, text: str, mode: int, *, sync: bool = False) -> None:
    data = text.encode("utf-8", "surrogateescape")  # users' scripts may be in any encoding
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)  # whatever the umask is
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())
