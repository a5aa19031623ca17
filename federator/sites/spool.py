"""What does an agent leave for its site's own hooks? Tickets, leases, and figures of the tenants.

The spool is a folder that the hosts of agent and slurmctld and all compute nodes see:

* ``tickets/TOKEN`` opens the federation's partition to one submission; there while sbatch runs.
* ``leases/W.A`` says that an attempt may start; made before sbatch, gone when the attempt is over,
  given up or never submitted. The first prolog ties it to its job with ``leases/W.A.job``.
* ``admission.tsv`` says what each tenant may have and has, and what GPU models there are.

Anyone on those hosts can read them, and write into ``leases`` (root of a compute node may be nobody
here): names are numbers or random, contents go in place in one step, and nothing found here is
believed. A file system that does not answer holds up nobody: each act has a time limit, in a thread
of its own, and while one hangs the others fail at once.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar

from federator.errors import SiteUnavailable
from federator.model.site import GpuModel
from federator.model.workload import AttemptId, WorkloadId
from federator.sites.protocol import TenantCap

TAKES_S: Final = 3.0  # an act at most, as the helper's with folders
AGAIN_S: Final = 10.0  # between two tries of a spool that failed
TIDY_S: Final = 600.0  # between two looks at all of it
TICKET_LASTS_S: Final = 120.0  # sbatch ends 42 s after it was asked for; hosts' clocks differ
JUNK_AGE_S: Final = 3600.0  # of what is no lease; a prolog may just be making its own
MAX_ADMISSION_BYTES: Final = 2**20
MAX_ADMISSION_LINES: Final = 10_000

_LEASE: Final = re.compile(r"([0-9]{1,19})\.([0-9]{1,9})(\.job)?")
_MODEL: Final = re.compile(r"[A-Za-z0-9_.-]+")  # of GPU, as job_submit/federator.lua reads it
_WRITABLE: Final = ".writable"  # there for a moment
_T = TypeVar("_T")


class Acting(Protocol):
    """Does what may take long."""

    def __call__(self, act: Callable[[], _T], /) -> Awaitable[_T]:
        """Run ``act`` to its end.

        Raises:
            TimeoutError: it does not end, or one before it has not.
            OSError: it failed.
        """
        ...


class SlowThread:
    """Acts in a thread that nobody waits for longer than ``TAKES_S``."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._ended: threading.Event | None = None  # of the last act

    async def __call__(self, act: Callable[[], _T]) -> _T:
        """See ``Acting``."""
        async with asyncio.timeout(TAKES_S):
            async with self._turn:
                if self._ended is not None and not self._ended.is_set():
                    raise TimeoutError
                return await self._in_thread(act)

    async def _in_thread(self, act: Callable[[], _T]) -> _T:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_T] = loop.create_future()
        ended = self._ended = threading.Event()

        def settle(result: _T | None, error: BaseException | None) -> None:
            if done.cancelled():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]  # it is a _T then

        def work() -> None:
            result, error = None, None
            try:
                result = act()
            except Exception as failure:  # whatever it is, who waits is to know
                error = failure
            ended.set()
            with suppress(RuntimeError):  # nobody is there any more
                loop.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=work, name="spool", daemon=True).start()
        return await done


class Spool:
    """One site's spool, used by one agent at a time.

    Args:
        folder: belongs to the agent's account; None: the site has none, and nothing is done.
        clock: returns Unix time.
        acting: does what may take long; by default a ``SlowThread``.
    """

    def __init__(
        self,
        folder: Path | None,
        clock: Callable[[], float],
        acting: Acting | None = None,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._act = acting if acting is not None else SlowThread()
        self._leased: set[AttemptId] = set()  # on disk, as far as is known
        self._tickets: set[str] = set()  # of submissions under way
        self._look_at_s = 0.0  # at all of it, not before
        self._looked = False
        self.trouble = "" if folder is None else "it has not been looked at yet"
        """Why it cannot be used now; "": it can."""

    @property
    def folder(self) -> Path | None:
        """Where it is; None: the site has none."""
        return self._folder

    @property
    def leased(self) -> frozenset[AttemptId]:
        """Who has a lease, as far as is known."""
        return frozenset(self._leased)

    async def look(self) -> None:
        """Make the folders, see which leases there are, and remove what an agent that died left.

        Nothing happens when it was done not long ago. What goes wrong is in ``trouble``.
        """
        if self._folder is None or self._clock() < self._look_at_s:
            return
        folder, tickets, old_s = self._folder, frozenset(self._tickets), self._clock() - JUNK_AGE_S
        with suppress(SiteUnavailable):
            found = await self._acted(lambda: _look(folder, tickets, old_s))
            self._leased, self._looked, self.trouble = set(found), True, ""
            self._look_at_s = self._clock() + TIDY_S

    async def examine(self) -> tuple[int, int]:
        """Try it now; return the owner's UID and the mode of the folder.

        Raises:
            SiteUnavailable: it cannot be used.
        """
        assert self._folder is not None
        self._look_at_s = 0.0
        await self.look()
        if self.trouble:
            raise SiteUnavailable(self.trouble)
        found = await self._acted(self._folder.stat)
        return found.st_uid, found.st_mode & 0o7777

    async def open(self, attempt: AttemptId, user: str) -> str:
        """Make an attempt's lease and a ticket; return the ticket's token, "" without a spool.

        Leases of earlier attempts of the workload go: whoever orders this one has given them up.

        Raises:
            SiteUnavailable: the spool cannot be used. A lease may have been made all the same.
        """
        if self._folder is None:
            return ""
        folder, now_s, token = self._folder, self._clock(), secrets.token_hex(16)
        same = [a for a in self._leased if a.workload == attempt.workload and a != attempt]
        earlier = same if attempt.workload else []  # probes are no attempts of one workload
        self._tickets.add(token)
        self._leased.add(attempt)
        try:
            await self._acted(lambda: _open(folder, attempt, user, token, now_s, earlier))
        except SiteUnavailable:
            self._tickets.discard(token)  # what was made goes with the next look
            raise
        self._leased.difference_update(earlier)
        self._leased.add(attempt)  # a look may have come between
        return token

    async def shut(self, token: str) -> None:
        """Remove a ticket: sbatch has returned."""
        if self._folder is None or not token:
            return
        path = _ticket(self._folder, token)
        self._tickets.discard(token)
        with suppress(SiteUnavailable):  # it goes with the next look, and runs out before
            await self._acted(lambda: path.unlink(missing_ok=True))

    async def release(self, *attempts: AttemptId) -> None:
        """Remove leases; what cannot be removed now is tried again by ``settle``."""
        gone = self._leased.intersection(attempts)
        if self._folder is None or not gone:
            return
        folder = self._folder
        with suppress(SiteUnavailable):
            await self._acted(lambda: _remove(folder, gone))
            self._leased -= gone

    async def settle(
        self, live: Mapping[AttemptId, str], over: Callable[[AttemptId], bool]
    ) -> None:
        """After a sweep: leases of what is over go, and whoever lives and has none gets one.

        Args:
            live: the user of each attempt that has a job here, which may start or run.
            over: tells whether an attempt can never start (again).
        """
        if self._folder is None:
            return
        await self.look()
        if not self._looked:
            return
        await self.release(*(a for a in self._leased if over(a)))
        folder, now_s = self._folder, self._clock()
        missing = {a: user for a, user in live.items() if a not in self._leased}
        if missing and not self.trouble:
            with suppress(SiteUnavailable):
                await self._acted(lambda: _lease_all(folder, missing, now_s))
                self._leased.update(missing)

    async def write_admission(
        self, tenants: Iterable[TenantCap], gpus: Mapping[str, GpuModel]
    ) -> None:
        """Replace admission.tsv; what goes wrong is in ``trouble``."""
        if self._folder is None:
            return
        folder, text = self._folder, admission_text(tenants, gpus, self._clock())
        with suppress(SiteUnavailable):
            await self._acted(lambda: _replace(folder, "admission.tsv", text))

    async def _acted(self, act: Callable[[], _T]) -> _T:
        """Act, and remember how it went.

        Raises:
            SiteUnavailable: it failed, or takes too long.
        """
        try:
            result = await self._act(act)
        except TimeoutError:
            why = f"no answer within {TAKES_S:.0f} s"
        except OSError as error:
            why = error.strerror or str(error)
        else:
            return result
        self.trouble = f"the site's spool {self._folder} cannot be used: {why}"
        # What was begun may have been done, so all of it is looked at again.
        self._look_at_s = self._clock() + AGAIN_S
        raise SiteUnavailable(self.trouble)


def admission_text(tenants: Iterable[TenantCap], gpus: Mapping[str, GpuModel], now_s: float) -> str:
    """The text of admission.tsv, within its bounds; names that would break a line are left out."""
    lines = [f"federator-admission\t1\t{int(now_s)}"]
    lines += [
        f"gpu\t{kind}\t{model.mem_gib:g}\t{int(model.nvlink)}"
        for kind, model in gpus.items()
        if _MODEL.fullmatch(kind)
    ]
    lines += [
        f"tenant\t{cap.name}\t{'-' if cap.limit_gpus is None else cap.limit_gpus}\t{cap.used_gpus}"
        for cap in tenants
        if _is_word(cap.name)
    ]
    return "".join(_within(lines))


def _within(lines: Iterable[str]) -> Iterator[str]:
    size = 0
    for number, line in enumerate(lines):
        size += len(line.encode()) + 1
        if number >= MAX_ADMISSION_LINES or size > MAX_ADMISSION_BYTES:
            return
        yield line + "\n"


def _is_word(name: str) -> bool:
    return bool(name) and name.isprintable() and " " not in name


# ---- what is done in the thread ----


def _look(folder: Path, tickets: frozenset[str], old_s: float) -> list[AttemptId]:
    """See ``Spool.look``; ``tickets`` are kept, and what is no lease until it is that old."""
    if not folder.is_dir():
        raise OSError(errno.ENOENT, "no such folder; make it for the agent's account", str(folder))
    _make(folder / "tickets", 0o711)
    _make(folder / "leases", 0o1733)
    for name in os.listdir(folder / "tickets"):
        if name not in tickets:
            _discard(folder / "tickets" / name)
    _replace(folder / "tickets", _WRITABLE, "")
    _discard(folder / "tickets" / _WRITABLE)
    names = set(os.listdir(folder / "leases"))
    leases: list[AttemptId] = []
    for name in names:
        match = _LEASE.fullmatch(name)
        if match is not None and match[3] is None:
            leases.append(AttemptId(workload=WorkloadId(int(match[1])), attempt=int(match[2])))
        elif match is not None and name.removesuffix(".job") not in names:
            _discard(folder / "leases" / name)
        elif match is None:
            _discard(folder / "leases" / name, older_than_s=old_s)
    return leases


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


def _discard(path: Path, older_than_s: float | None = None) -> None:
    """Remove what does not belong here. The folder is ours, so the files in it are ours to remove;
    what others keep in a folder of theirs is not.
    """
    with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
        if older_than_s is None or path.lstat().st_mtime < older_than_s:
            path.unlink()


def _open(
    folder: Path, attempt: AttemptId, user: str, token: str, now_s: float,
    earlier: Iterable[AttemptId],
) -> None:  # fmt: skip
    _remove(folder, earlier)
    _lease_all(folder, {attempt: user}, now_s)
    expires_at_s = int(now_s + TICKET_LASTS_S)
    _write(_ticket(folder, token), f"{attempt} {user} {expires_at_s}\n", 0o644)


def _lease_all(folder: Path, users: Mapping[AttemptId, str], now_s: float) -> None:
    """Make leases that are tied to no job yet, whatever lies there."""
    for attempt, user in users.items():
        name = _name(attempt)
        _discard(folder / "leases" / f"{name}.job")
        text = json.dumps({"user": user, "made_at_s": int(now_s)}) + "\n"
        _replace(folder / "leases", name, text)


def _remove(folder: Path, attempts: Iterable[AttemptId]) -> None:
    for attempt in attempts:
        for name in (_name(attempt), f"{_name(attempt)}.job"):
            (folder / "leases" / name).unlink(missing_ok=True)


def _name(attempt: AttemptId) -> str:
    return f"{attempt.workload}.{attempt.attempt}"


def _ticket(folder: Path, token: str) -> Path:
    return folder / "tickets" / token


def _replace(folder: Path, name: str, text: str) -> None:
    """Put a file in place in one step, so that it survives a crash whole."""
    fresh = folder / f".{name}.{secrets.token_hex(8)}"
    try:
        _write(fresh, text, 0o644, sync=True)
        fresh.rename(folder / name)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(above)
    finally:
        os.close(above)


def _write(path: Path, text: str, mode: int, *, sync: bool = False) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), mode)  # whatever the umask is
        file.write(text)
        file.flush()
        if sync:
            os.fsync(file.fileno())
