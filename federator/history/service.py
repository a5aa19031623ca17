"""Keeps the history in a thread of its own, and answers questions about it in others.

Nothing waits for it but a compaction of the log. While the database is away it tries again and
again, and goes on where it was.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

import structlog
from sqlalchemy import Engine

from federator.errors import FederatorError, HistoryError, NotCompacted
from federator.history import local_jobs, measured, query, usage_query
from federator.history.database import ANSWER_S, open_reader, open_writer
from federator.history.follower import HistoryFollower
from federator.history.retention import delete_some
from federator.history.supply import SupplyWriter
from federator.history.url import NONE, history_url
from federator.history.usage_query import UsageQuestion
from federator.history.usage_sums import count_some
from federator.model.site import Capacity
from federator.model.workload import SiteName
from federator.store.base import Store
from federator.store.opening import open_store
from federator.usage.report import UsageFound
from federator.usage.supply import SupplyRow
from federator.wire.accounting_rows import AccountingAttempt, MeasuredUse

POLL_S: Final = 1.0  # between two looks at the log
FIRST_PAUSE_S: Final = 1.0  # after a failure; twice that after the next
LONGEST_PAUSE_S: Final = 60.0
TIDY_EVERY_S: Final = 3600.0
REST: Final = 3.0  # so many times as long as it worked, while there is more to write
TAKE_ALL_S: Final = 5.0  # that a compaction waits for it, and with it every decision
_DAY_S: Final = 86_400.0
_QUESTIONS_AT_ONCE: Final = 2

Answer = TypeVar("Answer")

log = structlog.get_logger()


class JobHistory:
    """The history of one federation, as its leading daemon keeps it.

    Args:
        writer: the database, for the one who writes.
        reader: the same, for those who read.
        store: the log; not the object that the leader appends by.
        keep_s: how long a workload is kept once it is over, in seconds.

    Attributes:
        went_back_at_s: Unix time at which job ids last went back, by site, as far as that was in
            what of the log the history has taken since the daemon began to lead.
    """

    def __init__(self, writer: Engine, reader: Engine, store: Store, keep_s: float) -> None:
        self._writer, self._reader, self._keep_s = writer, reader, keep_s
        self._follower = HistoryFollower(store, writer)
        self.went_back_at_s: Mapping[str, float] = self._follower.went_back_at_s
        self._supply = SupplyWriter(writer)
        self._readers = ThreadPoolExecutor(_QUESTIONS_AT_ONCE, thread_name_prefix="history-read")
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._catch_up: Future[None] | None = None
        self._trouble = ""
        self._counted = False  # all attempts are in the sums of usage
        self._tidied_at_s = -TIDY_EVERY_S

    @property
    def at_s(self) -> float:
        """All that had ended before this Unix time is in the history; 0: nothing may be."""
        return self._follower.at_s

    def start(self) -> None:
        """Begin to follow the log."""
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; what is being written is finished by itself, or counts as never written."""
        self._ending.set()
        self._readers.shutdown(wait=False, cancel_futures=True)
        for engine in (self._writer, self._reader):
            engine.dispose(close=False)  # who is at work ends by itself

    def take_all(self) -> None:
        """Bring the history up to date, before the log is compacted.

        A thread of the history's own does it: a database that is frozen answers nothing for as long
        as it likes, and no timeout of its driver ends that. What it holds up is this thread alone.

        Raises:
            NotCompacted: that cannot be done now.
        """
        if self._trouble:  # nobody is to wait for a database that hangs
            raise NotCompacted(f"the history is behind the log: {self._trouble}")
        if self._catch_up is not None and not self._catch_up.done():
            raise NotCompacted("the history is behind the log: its database does not answer")
        done: Future[None] = Future()
        self._catch_up = done
        threading.Thread(
            target=self._take_all, args=(done,), name="history-catch-up", daemon=True
        ).start()
        try:
            done.result(TAKE_ALL_S)
        except NotCompacted:
            raise
        except TimeoutError as error:
            raise NotCompacted(
                f"the history is behind the log: it did not catch up within {TAKE_ALL_S:g} s"
            ) from error

    def _take_all(self, done: Future[None]) -> None:
        try:
            self._follower.take_all(TAKE_ALL_S, time.monotonic)
        except NotCompacted as error:
            done.set_exception(error)
        except Exception:  # a fault of ours must not end the daemon
            log.exception("history_fault")
            done.set_exception(NotCompacted("the history failed; the daemon's log says how"))
        else:
            done.set_result(None)

    async def page(
        self, question: query.HistoryQuestion, after: tuple[float, int] | None, most: int
    ) -> query.HistoryPage:
        """As ``query.page``; nobody else waits for it."""
        loop = asyncio.get_running_loop()
        return await _in_time(
            loop.run_in_executor(self._readers, query.page, self._reader, question, after, most)
        )

    async def attempts_of(self, ids: list[int]) -> dict[int, tuple[AccountingAttempt, ...]]:
        """As ``query.attempts_of``; nobody else waits for it."""
        loop = asyncio.get_running_loop()
        return await _in_time(
            loop.run_in_executor(self._readers, query.attempts_of, self._reader, ids)
        )

    async def use_of(self, ids: list[int]) -> dict[tuple[int, int], measured.KnownUse]:
        """As ``measured.use_of``; nobody else waits for it."""
        loop = asyncio.get_running_loop()
        return await _in_time(
            loop.run_in_executor(self._readers, measured.use_of, self._reader, ids)
        )

    async def unmeasured(self, sites: Sequence[str], most: int) -> list[measured.Unmeasured]:
        """As ``measured.due``; nobody else waits for it."""
        loop = asyncio.get_running_loop()
        now_s = time.time()
        return await _in_time(
            loop.run_in_executor(self._readers, measured.due, self._reader, sites, now_s, most)
        )

    async def put_measured(
        self,
        asked: list[measured.Unmeasured],
        uses: Sequence[MeasuredUse | None],
        again: Collection[int] = (),
    ) -> None:
        """As ``measured.put``; nobody else waits for it."""
        loop = asyncio.get_running_loop()
        now_s = time.time()
        put = partial(measured.put, self._writer, asked, uses, now_s, again)
        await _in_time(loop.run_in_executor(self._readers, put))

    async def usage(
        self, question: UsageQuestion, most: int, make: Callable[[UsageFound], Answer]
    ) -> Answer:
        """What is made of ``usage_query.find``, in the reader's thread; nobody else waits for it.

        Raises:
            HistoryError, InvalidRequest: as it does.
        """
        loop = asyncio.get_running_loop()
        return await _in_time(
            loop.run_in_executor(
                self._readers, lambda: make(usage_query.find(self._reader, question, most))
            )
        )

    async def read(self, read: Callable[[Engine], Answer]) -> Answer:
        """What is read and made of the database, in the reader's thread, as ``usage``.

        Raises:
            HistoryError, InvalidRequest: as ``read`` does.
        """
        loop = asyncio.get_running_loop()
        return await _in_time(loop.run_in_executor(self._readers, read, self._reader))

    async def note_supply(self, seen: Sequence[SupplyRow], at_s: float) -> None:
        """As ``SupplyWriter.note``; nobody else waits for it."""
        loop = asyncio.get_running_loop()
        await _in_time(loop.run_in_executor(self._readers, self._supply.note, seen, at_s))

    async def put_local(self, news: Sequence[local_jobs.LocalBatch]) -> None:
        """As ``local_jobs.put``; nobody else waits for it."""
        loop = asyncio.get_running_loop()
        put = partial(local_jobs.put, self._writer, news)
        await _in_time(loop.run_in_executor(self._readers, put))

    async def note_watched(self, sites: Mapping[SiteName, Capacity | None], now_s: float) -> None:
        """As ``local_jobs.note_watched``; nobody else waits for it."""
        loop = asyncio.get_running_loop()
        note = partial(local_jobs.note_watched, self._writer, sites, now_s)
        await _in_time(loop.run_in_executor(self._readers, note))

    # ---- the thread ----

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._ending.is_set():
            began_s = time.monotonic()
            try:
                up_to_date = self._follower.take()
                if up_to_date and not self._counted:
                    up_to_date = self._counted = not count_some(self._writer)
                self._tidy(began_s)
            except FederatorError as error:
                self._failed(error)
            except Exception:  # a fault of ours must not end the thread
                log.exception("history_fault")
            else:
                self._recovered()
                pause_s = FIRST_PAUSE_S
                # Most of the time is the daemon's, whose turns share the interpreter.
                rest_s = REST * (time.monotonic() - began_s)
                self._ending.wait(max(POLL_S, rest_s) if up_to_date else rest_s)
                continue
            self._ending.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _tidy(self, now_s: float) -> None:
        if now_s < self._tidied_at_s + TIDY_EVERY_S:
            return
        if not delete_some(self._writer, time.time() - self._keep_s):
            self._tidied_at_s = now_s

    def _failed(self, error: FederatorError) -> None:
        """Say so once for each kind of trouble."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            log.warning("history_behind", detail=self._trouble)

    def _recovered(self) -> None:
        if self._trouble:
            self._trouble = ""
            log.info("history_again")


async def _in_time(answer: Awaitable[Answer]) -> Answer:
    """Await what a database says; a frozen one says nothing, whatever its own timeouts.

    Raises:
        HistoryError: it took twice as long as the database has for one statement.
    """
    try:
        return await asyncio.wait_for(answer, 2 * ANSWER_S)
    except TimeoutError as error:
        raise HistoryError("the history's database does not answer") from error


def open_history(url: str, store_url: str, keep_days: float) -> JobHistory | None:
    """The history that the configuration names, or that stands beside the log; None: there is none.

    Args:
        url: ``history.url``; "" where it is not given.
        store_url: of the log, which is opened once more, to be read.
        keep_days: ``history.keep_days``.

    Raises:
        ConfigError: the database's driver is not installed.
        InvalidRequest, StoreError: as ``open_store``.
    """
    url = history_url(url, store_url)
    if url == NONE:
        return None
    return JobHistory(open_writer(url), open_reader(url), open_store(store_url), keep_days * _DAY_S)
