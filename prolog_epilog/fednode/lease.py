"""Consumes a federation job's lease at the site's spool: only one start of an attempt gets it.

The agent writes ``leases/<workload>.<attempt>`` before it submits. The first prolog binds the
lease to its job, by a file that is made complete and then linked into place: of two jobs that
both claim an attempt exactly one gets it, whichever node asks first. Anyone may make files in the
folder (compute nodes may write to it as nobody only), so a file counts only if it is of the
folder's owner, root or nobody. A binding may be the job's user's, too: where scripts consume leases
(the agent's ``consume_lease: wrapper``) they make it, and it is about that user's attempt alone.
Formats: docs/formats.md.
"""

import contextlib
import errno
import json
import os
import pwd
import re
import stat
import threading
from typing import Callable, List, NamedTuple, Optional

from fednode import unforeseen

_ATTEMPT = re.compile(r"fed:([0-9]{1,19}):([0-9]{1,19})(?: |\Z)")
_MOST_BYTES = 4096
_NOBODY = 65534
_TRIES = 3


class LeaseVerdict(NamedTuple):
    """``ok``: True, False, or None where it cannot be told; ``why`` not True, and in one word."""

    ok: "Optional[bool]"
    why: str = ""
    word: str = "lease-unreadable"


class Claim(NamedTuple):
    """A job that says it is the start of an attempt."""

    attempt: str  # "<workload>.<attempt>"
    user: str
    cluster: str
    leader: str  # job id; of a het job its leader's
    node: str


def attempt_of(comment: str) -> "Optional[str]":
    """Return the attempt that a job's comment names in its first word; None for local jobs."""
    found = _ATTEMPT.match(comment)
    return f"{found.group(1)}.{found.group(2)}" if found else None


def check(folder: str, claim: Claim) -> LeaseVerdict:
    """Tell whether the lease in ``write`` (``<spool>/leases``) is this job's; bind it if free."""
    try:
        owner = os.stat(folder).st_uid
        lease = _read(os.path.join(folder, claim.attempt), (owner, 0))
        if lease is None:
            return LeaseVerdict(False, "there is no lease for this attempt", "no-lease")
        holder = _user(lease)
        if holder != claim.user:
            return LeaseVerdict(
                False, f"the lease is another user's than {claim.user}", "other-user"
            )
        bound = _bind(folder, claim, owner)
    except (OSError, ValueError, RecursionError) as error:
        return LeaseVerdict(None, f"{folder}: {error}")
    if bound == f"{claim.cluster} {claim.leader}\n":
        return LeaseVerdict(True)
    why = f"the attempt has started as job {bound.strip()[:60]} already"
    return LeaseVerdict(False, why, "other-job")


def check_in_time(
    folder: str,
    claim: Claim,
    timeout_s: float,
    look: "Callable[[str, Claim], LeaseVerdict]" = check,
) -> LeaseVerdict:
    """As ``check``, for at most ``timeout_s``: a shared file system may hang."""
    found: "List[LeaseVerdict]" = []
    thread = threading.Thread(target=lambda: found.append(look(folder, claim)), daemon=True)
    thread.start()
    thread.join(timeout_s)
    return found[0] if found else LeaseVerdict(None, f"{folder} does not answer")


def _user(lease: str) -> str:
    found = json.loads(lease)
    if not isinstance(found, dict) or not isinstance(found.get("user"), str):
        raise ValueError("the lease is no JSON object with a user")
    user = found["user"]
    assert isinstance(user, str)
    return user


def _bind(folder: str, claim: Claim, owner: int) -> str:
    """Return what the lease is bound to; ``claim``'s job if it was free."""
    bound = os.path.join(folder, claim.attempt + ".job")
    trusted = (owner, 0, _NOBODY, os.geteuid(), *_uid(claim.user))
    for _ in range(_TRIES):
        with contextlib.suppress(ValueError, IsADirectoryError):
            return _bind_once(folder, claim, bound, trusted)
        _remove_foreign(bound, trusted)
    return _bind_once(folder, claim, bound, trusted)


def _uid(user: str) -> "List[int]":
    """The user's UID; none where the node does not know the name."""
    try:
        return [pwd.getpwnam(user).pw_uid]
    except KeyError:
        return []


def _remove_foreign(file: str, trusted: "tuple[int, ...]") -> None:
    """Take away what a user put where the binding belongs, as root may.

    It is moved to a name that nobody knows first: if it has become another prolog's meanwhile it
    goes back.

    Raises:
        OSError: it cannot be moved.
    """
    aside = os.path.join(os.path.dirname(file), "." + unforeseen.name())
    try:
        os.rename(file, aside)
    except FileNotFoundError:
        return
    status = os.lstat(aside)
    if stat.S_ISREG(status.st_mode) and status.st_uid in trusted:
        with contextlib.suppress(FileExistsError):
            os.link(aside, file)
    with contextlib.suppress(OSError):  # a folder that is not empty stays aside
        os.rmdir(aside) if stat.S_ISDIR(status.st_mode) else os.unlink(aside)


def _bind_once(folder: str, claim: Claim, bound: str, trusted: "tuple[int, ...]") -> str:
    known = _read(bound, trusted)
    if known is not None:
        return known
    # A name that nobody can foresee: the folder is open to all.
    part = os.path.join(folder, f".{claim.attempt}.{claim.node}.{unforeseen.name()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            os.fchmod(descriptor, 0o644)  # the agent reads it, whatever slurmd's umask is
            stream.write(f"{claim.cluster} {claim.leader}\n")
        with contextlib.suppress(FileExistsError):  # another was quicker; or NFS told us twice
            os.link(part, bound)
    finally:
        os.unlink(part)
    known = _read(bound, trusted)
    if known is None:
        raise ValueError("the lease could not be bound")
    return known


def _read(file: str, owners: "tuple[int, ...]") -> "Optional[str]":
    """Return the text of a small regular file; None if there is none.

    Raises:
        OSError: it cannot be read.
        ValueError: it is of another owner than ``owners``, or no such file.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(f"{file} is a link") from error
        raise
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in owners:
            raise ValueError(f"{file} is not the agent's nor a node's")
        return stream.read(_MOST_BYTES).decode("utf-8", "replace")
