"""The spool: tickets, leases and tenants' figures that the agent leaves for its site's hooks.

The spool is a folder that the hosts of agent and slurmctld and all compute nodes see:

* ``tickets/TOKEN`` opens the federation's partition to one submission; there while sbatch runs.
* ``leases/W.A`` says that an attempt may start; made before sbatch, gone when the attempt is over,
  given up or never submitted. The first prolog ties it to its job with ``leases/W.A.job``.
* ``starts/perl-ruby/W.A`` consumes the lease where no prolog does: see ``lease_wrapper``.
* ``usage/JOB.NODE`` says how a job used its GPUs on a node: see ``node_usage``.
* ``admission.tsv`` says what each tenant may have and has, and what GPU models there are.
* ``site`` has the name of the one site whose spool this is.

Anyone on those hosts can read them, and write into ``leases`` and ``usage`` (root of a compute node
may be nobody here): see ``spool_folder``. A file system that does not answer holds up nobody: each
act has a time limit, in a thread of its own, and while one hangs the others fail at once.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from federator.agent import node_usage, spool_folder
from federator.agent.lease_wrapper import Starter
from federator.errors import SiteUnavailable
from federator.model.site import GpuModel
from federator.model.workload import AttemptId
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob, TenantCap

TAKES_S: Final = 3.0  # an act at most, from its turn on, as the helper's with folders
AGAIN_S: Final = 10.0  # between two tries of a spool that failed
TIDY_S: Final = 600.0  # between two looks at all of it
MAX_ADMISSION_BYTES: Final = 2**20
MAX_ADMISSION_LINES: Final = 10_000

_MODEL: Final = re.compile(r"[A-Za-z0-9_.-]+")  # of GPU, as job_submit/federator.lua reads it
LEASES_AT_ONCE: Final = 16  # in one act, so that many on a slow disk are no trouble
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
    """One act at a time in a thread; nobody waits for an act for longer than ``TAKES_S``."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._ended: threading.Event | None = None  # of the last act

    async def __call__(self, act: Callable[[], _T]) -> _T:
        """See ``Acting``."""
        async with self._turn:  # the wait for it is no fault of the disk's
            if self._ended is not None and not self._ended.is_set():
                raise TimeoutError
            async with asyncio.timeout(TAKES_S):
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
        site: whose it is. In a folder that has another's name, nothing is touched.
        clock: returns Unix time.
        acting: does what may take long; by default a ``SlowThread``.
        user_there: says what the site calls a user, as hooks and plug-in do.
    """

    def __init__(
        self,
        folder: Path | None,
        site: str,
        clock: Callable[[], float],
        acting: Acting | None = None,
        user_there: Callable[[str], str] = str,
    ) -> None:
        self._user_there = user_there
        self._folder = folder
        self._site = site
        self._clock = clock
        self._act = acting if acting is not None else SlowThread()
        self._leased: set[AttemptId] = set()  # on disk, as far as is known
        self._tickets: set[str] = set()  # of submissions under way
        self._looked_at_s = -inf  # at all of it
        self._rests_s = 0.0  # until the next look
        self._looked = False  # it is there, and this site's
        self._tidied = False  # since the last look
        self._unwritten_admission: Callable[[], str] | None = None  # what admission.tsv should say
        self.trouble = "" if folder is None else "it has not been looked at yet"
        """Why it cannot be used now; "": it can."""

    @property
    def folder(self) -> Path | None:
        """The spool's folder; None: the site has none."""
        return self._folder

    @property
    def leased(self) -> frozenset[AttemptId]:
        """The attempts that have a lease, as far as is known."""
        return frozenset(self._leased)

    async def look(self) -> None:
        """Make the folders, see which leases there are, and remove what an agent that died left.

        Nothing happens when it was done not long ago. What goes wrong is in ``trouble``.
        """
        if self._folder is None or 0 <= self._clock() - self._looked_at_s < self._rests_s:
            return
        folder, tickets, now_s = self._folder, frozenset(self._tickets), self._clock()
        with suppress(SiteUnavailable):
            found = await self._acted(lambda: spool_folder.look(folder, self._site, tickets, now_s))
            self._leased, self._looked, self.trouble = set(found), True, ""
            self._tidied = False
            self._looked_at_s, self._rests_s = self._clock(), TIDY_S
            await self._write_pending_admission()

    async def examine(self) -> tuple[int, int]:
        """Try it now; return the owner's UID and the mode of the folder.

        Raises:
            SiteUnavailable: it cannot be used.
        """
        assert self._folder is not None
        self._rests_s = 0.0
        await self.look()
        if self.trouble:
            raise SiteUnavailable(self.trouble)
        found = await self._acted(self._folder.stat)
        return found.st_uid, found.st_mode & 0o7777

    async def open(self, attempt: AttemptId, user: str, starter: Starter | None = None) -> str:
        """Make an attempt's lease and a ticket; return the ticket's token, "" without a spool.

        With a ``lease_wrapper`` its script is started by that.

        Leases of earlier attempts of the workload go: whoever orders this one has given them up.

        Raises:
            SiteUnavailable: the spool cannot be used. A lease may have been made all the same.
        """
        if self._folder is None:
            return ""
        if not self._looked:  # it may be another's
            await self.look()
        if not self._looked:
            raise SiteUnavailable(self.trouble)
        folder, now_s, token = self._folder, self._clock(), secrets.token_hex(16)
        earlier = [
            a
            for a in self._leased
            if a.workload == attempt.workload != 0  # probes are no attempts of one workload
            and a.attempt < attempt.attempt
        ]
        self._tickets.add(token)
        self._leased.add(attempt)
        there = self._user_there(user)
        try:
            if starter is not None:
                await self._acted(lambda: spool_folder.put_starters(folder, {attempt: starter}))
            await self._acted(
                lambda: spool_folder.open_up(folder, attempt, there, token, now_s, earlier)
            )
        except BaseException:  # also where nobody waits for it any more
            self._tickets.discard(token)  # what was made goes with the next look
            raise
        self._leased.difference_update(earlier)
        self._leased.add(attempt)  # a look may have come between
        return token

    async def shut(self, token: str) -> None:
        """Remove a ticket: sbatch has returned."""
        if self._folder is None or not token:
            return
        path = spool_folder.ticket(self._folder, token)
        self._tickets.discard(token)
        with suppress(SiteUnavailable):  # it goes with the next look, and runs out before
            await self._acted(lambda: path.unlink(missing_ok=True))

    async def release(self, *attempts: AttemptId) -> bool:
        """Remove leases, whether or not they are known to be there; tell whether none is left.

        What cannot be removed now is tried again by ``settle``.
        """
        if self._folder is None or not attempts:
            return True
        if not self._looked:  # it may be another's
            await self.look()
        if not self._looked:
            return False
        folder = self._folder
        with suppress(SiteUnavailable):
            for some in _parts(attempts):
                await self._acted(partial(spool_folder.remove, folder, some))
                self._leased.difference_update(some)
            return True
        return False

    async def bound_job(self, attempt: AttemptId, user: str) -> int | None:
        """The job that started as this attempt, as the site's hooks have noted.

        Returns:
            Its id; 0: none did; None: that cannot be told now.
        """
        if self._folder is None:
            return 0
        if not self._looked:
            return None
        folder, there = self._folder, self._user_there(user)
        with suppress(SiteUnavailable):
            return await self._acted(lambda: spool_folder.bound_job(folder, attempt, there))
        return None

    async def settle(
        self,
        live: Mapping[AttemptId, str],
        over: Callable[[AttemptId], bool],
        starter: Callable[[AttemptId], Starter | None] = lambda _: None,
    ) -> None:
        """After a sweep: leases of what is over go, and whoever lives and has none gets one.

        Args:
            live: the user of each attempt that has a job here, which may start or run.
            over: tells whether an attempt can never start (again).
            starter: makes that of an attempt again; None: it has none, or it is not known.
        """
        if self._folder is None:
            return
        await self.look()
        if not self._looked:
            return
        await self.release(*(a for a in self._leased if over(a)))
        if self.trouble:
            return
        missing = {a: self._user_there(u) for a, u in live.items() if a not in self._leased}
        with suppress(SiteUnavailable):
            for some in _parts(missing):
                await self._lease_again({a: missing[a] for a in some}, starter)
            if not self._tidied:  # not before: who lost its lease may have its starter yet
                needed, folder, now_s = self._leased.union(live), self._folder, self._clock()
                await self._acted(lambda: spool_folder.tidy_starters(folder, needed, now_s))
                self._tidied = True

    async def _lease_again(
        self, users: Mapping[AttemptId, str], starter: Callable[[AttemptId], Starter | None]
    ) -> None:
        """Raises: SiteUnavailable: it cannot be done."""
        folder, now_s = self._folder, self._clock()
        assert folder is not None
        starters = {a: made for a in users if (made := starter(a)) is not None}
        if starters:
            await self._acted(lambda: spool_folder.put_starters(folder, starters))
        self._leased |= await self._acted(lambda: spool_folder.lease_all(folder, users, now_s))

    async def usage_of(self, jobs: Collection[EndedJob]) -> dict[AttemptId, MeasuredUse]:
        """What nodes have reported of these; nothing if the spool cannot be read now."""
        folder = self._folder
        if folder is None or not self._looked:
            return {}
        with suppress(SiteUnavailable):
            there = self._as_there(jobs)
            return await self._acted(lambda: node_usage.read(folder, there))
        return {}

    def _as_there(self, jobs: Collection[EndedJob]) -> list[EndedJob]:
        return [replace(job, user=self._user_there(job.user)) for job in jobs]

    async def remove_usage(self, jobs: Collection[EndedJob]) -> None:
        """Remove what nodes have reported of these, and what nobody asked about for a day."""
        folder, now_s = self._folder, self._clock()
        if folder is None or not self._looked:
            return
        with suppress(SiteUnavailable):  # it goes with another look
            there = self._as_there(jobs)
            await self._acted(lambda: node_usage.remove(folder, there, now_s))

    async def write_admission(
        self, tenants: Iterable[TenantCap], gpus: Mapping[str, GpuModel]
    ) -> None:
        """Replace admission.tsv, now or as soon as that is possible again."""
        tenants = tuple(tenants)
        self._unwritten_admission = lambda: admission_text(tenants, gpus, self._clock())
        await self._write_pending_admission()

    async def _write_pending_admission(self) -> None:
        text_now = self._unwritten_admission
        if self._folder is None or text_now is None or not self._looked:
            return
        folder, text = self._folder, text_now()
        with suppress(SiteUnavailable):
            await self._acted(lambda: spool_folder.write_admission(folder, text))
            if self._unwritten_admission is text_now:
                self._unwritten_admission = None

    async def _acted(self, act: Callable[[], _T]) -> _T:
        """Act, and remember how it went.

        Raises:
            SiteUnavailable: it failed, or takes too long.
        """
        try:
            result = await self._act(act)
        except spool_folder.Obstructed as error:  # one name; nobody else is to suffer
            raise SiteUnavailable(f"{self._folder}: {error.strerror}") from error
        except TimeoutError:
            why = f"no answer within {TAKES_S:.0f} s"
        except OSError as error:
            why = error.strerror or str(error)
            self._looked = self._looked and not isinstance(error, spool_folder.AnothersSpool)
        else:
            return result
        self.trouble = f"the site's spool {self._folder} cannot be used: {why}"
        # What was begun may have been done, so all of it is looked at again.
        self._looked_at_s, self._rests_s = self._clock(), AGAIN_S
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


def _parts(attempts: Iterable[AttemptId]) -> Iterator[list[AttemptId]]:
    left = iter(sorted(attempts, key=str))
    while some := list(islice(left, LEASES_AT_ONCE)):
        yield some


def _within(lines: Iterable[str]) -> Iterator[str]:
    size = 0
    for number, line in enumerate(lines):
        size += len(line.encode()) + 1
        if number >= MAX_ADMISSION_LINES or size > MAX_ADMISSION_BYTES:
            return
        yield line + "\n"


def _is_word(name: str) -> bool:
    return bool(name) and name.isprintable() and " " not in name
