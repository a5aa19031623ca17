"""What does an agent do? It stands between one Slurm and the daemon: sweeps, bids, launches.

One task reads orders, one sweeps, one serves the researchers' socket; launches run beside them.
All decisions are ``SiteScheduler``'s. The agent ends when its channel does: what runs runs on.
"""

from __future__ import annotations

import asyncio
import contextlib
import pwd
import socket as sockets
import struct
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

from federator.errors import FederatorError, SiteRefused, SiteUnavailable, StaleState
from federator.model.reason import Reason, ReasonCode
from federator.model.site import AttemptReport, Capacity, PartitionSummary, SiteJobState
from federator.model.workload import AttemptId, WorkloadId
from federator.sched.site_scheduler import SiteScheduler, summarise
from federator.sites.base import SiteDriver, Sweep
from federator.sites.journal import Journal, Mark
from federator.sites.protocol import (
    BANNER,
    PROTOCOL_VERSION,
    Answer,
    Ask,
    AttemptAbsent,
    BidsMade,
    ByteReader,
    CallAnswer,
    CancelFailed,
    CancelOrder,
    ClientCall,
    ErrorReply,
    Hello,
    LaunchAccepted,
    LaunchDeclined,
    LaunchOrder,
    Message,
    Ping,
    Pong,
    Reply,
    Report,
    ToAgent,
    Trouble,
    Welcome,
    call_decoder,
    frame,
    read_frame,
    to_agent_decoder,
)

SILENCE_S: Final = 15.0  # without a word of the daemon the agent ends
INTENT_HORIZON_S: Final = 45.0  # an sbatch older than this has succeeded or never will
WATCH_S: Final = 0.25  # sweep interval while a launch is on its way
WATCH_FOR_S: Final = 8.0
FRESH_S: Final = 1.0  # bids are made on a sweep no older than this
LAUNCHES_AT_ONCE: Final = 8


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """agent.yaml of a site."""

    site: str
    socket: str  # researchers' commands connect here
    state_dir: str  # the journal's folder, writable by the agent alone


class Agent:
    """One connection's worth of agent.

    Args:
        config: see ``AgentConfig``.
        driver: this site's Slurm.
        journal: held by this agent alone.
        write: sends bytes to the daemon.
        clock: returns Unix time.
    """

    def __init__(
        self,
        config: AgentConfig,
        driver: SiteDriver,
        journal: Journal,
        write: Callable[[bytes], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._driver = driver
        self._journal = journal
        self._write = write
        self._clock = clock
        self._scheduler = SiteScheduler(())
        self._poll_interval_s = 10.0
        self._swept_at_s = 0.0
        self._watch_until_s = 0.0
        self._sweep_lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(LAUNCHES_AT_ONCE)
        self._attempt_locks: dict[AttemptId, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._known: dict[AttemptId, AttemptReport] = {}
        self._told: dict[AttemptId, AttemptReport] | None = None  # None: tell all
        self._told_capacity: Capacity | None = None
        self._told_partitions: tuple[PartitionSummary, ...] = ()
        self._accepted_lately: dict[AttemptId, tuple[str, int]] = {}  # user and job id, since
        # the last sweep began
        self._calls: dict[int, asyncio.Future[Reply]] = {}
        self._next_call = 0

    # ---- life ----

    async def run(self, reader: ByteReader) -> None:
        """Serve one daemon until its channel ends; launches under way are finished first.

        Raises:
            StaleState: the daemon's epoch is over.
            SiteUnavailable: Slurm does not answer at all, or the daemon fell silent.
        """
        welcome = await self._greet(reader)
        self._scheduler = SiteScheduler(welcome.partitions)
        self._poll_interval_s = welcome.poll_interval_s
        await self._sweep()
        jobs = [asyncio.create_task(self._sweep_for_ever())]
        server = await self._serve_researchers()
        try:
            await self._obey(reader)
        finally:
            server.close()
            with contextlib.suppress(FileNotFoundError):
                Path(self._config.socket).unlink()
            for job in jobs:
                job.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=INTENT_HORIZON_S)

    async def _greet(self, reader: ByteReader) -> Welcome:
        self._write(BANNER)
        body = await asyncio.wait_for(read_frame(reader), SILENCE_S)
        welcome = to_agent_decoder.decode(body) if body is not None else None
        if not isinstance(welcome, Welcome):
            raise SiteUnavailable("the daemon did not introduce itself")
        version = await self._driver.version()
        self._send(Hello(protocol=PROTOCOL_VERSION, site=self._config.site, slurm_version=version))
        if welcome.protocol != PROTOCOL_VERSION or welcome.site != self._config.site:
            raise StaleState(
                f"the daemon speaks protocol {welcome.protocol} to site {welcome.site!r}; "
                f"this is protocol {PROTOCOL_VERSION} at site {self._config.site!r}"
            )
        self._journal.accept_epoch(welcome.epoch)
        return welcome

    async def _obey(self, reader: ByteReader) -> None:
        while True:
            try:
                body = await asyncio.wait_for(read_frame(reader), SILENCE_S)
            except TimeoutError as error:
                raise SiteUnavailable(f"no word of the daemon for {SILENCE_S:.0f} s") from error
            if body is None:
                return
            await self._do(to_agent_decoder.decode(body))

    async def _do(self, message: ToAgent) -> None:
        match message:
            case Ping():
                self._send(Pong())
            case Ask():
                await self._bid(message)
            case LaunchOrder():
                self._take_order(message)
            case CancelOrder():
                self._start(self._cancel(message))
            case CallAnswer():
                future = self._calls.pop(message.call_id, None)
                if future is not None and not future.done():
                    future.set_result(message.reply)
            case Welcome():
                raise StaleState("the daemon introduced itself twice")

    def _send(self, message: Message) -> None:
        self._write(frame(message))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- sweeps ----

    async def _sweep_for_ever(self) -> None:
        while True:
            watching = self._clock() < self._watch_until_s
            pause_s = min(WATCH_S, self._poll_interval_s) if watching else self._poll_interval_s
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause_s)
            self._wake.clear()
            await self._sweep()

    async def _sweep(self) -> bool:
        """Look at Slurm once and report what is new; False when it did not answer."""
        async with self._sweep_lock:
            self._accepted_lately.clear()
            try:
                sweep = await self._driver.sweep()
            except SiteUnavailable as error:
                self._told = None  # after trouble everything is told again
                self._send(Trouble(detail=str(error)))
                return False
            self._swept_at_s = self._clock()
            self._known = self._genuine(sweep.attempts)
            self._scheduler.update(sweep.nodes, self._visible())
            self._report(sweep)
            return True

    def _genuine(self, reports: tuple[AttemptReport, ...]) -> dict[AttemptId, AttemptReport]:
        """By attempt, without jobs whose comment only pretends: the journal knows the job id.

        Where the journal knows none (it was lost, or sbatch is under way) the earliest job counts;
        whoever uses its report compares the user.
        """
        known: dict[AttemptId, AttemptReport] = {}
        for report in reports:
            mark = self._journal.get(report.attempt)
            job_id = mark.job_id if mark is not None else 0
            if job_id in (0, report.site_job_id):
                known.setdefault(report.attempt, report)
        return known

    def _visible(self) -> set[AttemptId]:
        """Attempts that the nodes already show, or no longer hold."""
        return {a for a, r in self._known.items() if r.state is not SiteJobState.PENDING}

    def _report(self, sweep: Sweep) -> None:
        told = self._told
        news = [r for a, r in self._known.items() if told is None or told.get(a) != r]
        if told is None:  # a complete report must not miss what was accepted as it was made
            news += [
                AttemptReport(attempt=a, user=user, site_job_id=j, state=SiteJobState.PENDING)
                for a, (user, j) in self._accepted_lately.items()
                if a not in self._known
            ]
        gone = [] if told is None else [a for a, r in told.items()
                                        if a not in self._known and not r.state.ended]  # fmt: skip
        capacity = self._scheduler.capacity
        partitions = summarise(sweep.nodes, self._scheduler.partitions)
        new_capacity = capacity if capacity != self._told_capacity or told is None else None
        changed = partitions != self._told_partitions or told is None
        if told is None or news or gone or new_capacity is not None or changed:
            self._send(
                Report(
                    attempts=tuple(news),
                    gone=tuple(gone),
                    complete=told is None,
                    capacity=new_capacity,
                    partitions=partitions if changed else (),
                )
            )
        self._told, self._told_capacity, self._told_partitions = (
            dict(self._known),
            capacity,
            partitions,
        )

    # ---- bids ----

    async def _bid(self, ask: Ask) -> None:
        if self._clock() - self._swept_at_s > FRESH_S:
            await self._sweep()
        requests = [(WorkloadId(r.id), r.jobs) for r in ask.requests]
        answers = self._scheduler.bid(requests)
        made = tuple(Answer(id=a.id, bid=a.bid, refusal=a.refusal) for a in answers)
        self._send(BidsMade(pass_id=ask.pass_id, answers=made))

    # ---- launches ----

    def _take_order(self, order: LaunchOrder) -> None:
        """Check the plan and hold its nodes at once, before the next message is read."""
        obstacle = None
        if self._journal.get(order.attempt) is None:
            obstacle = self._scheduler.holds(order.jobs)
        if obstacle is None:
            self._scheduler.hold(order.attempt, order.jobs)
        self._start(self._launch(order, obstacle))

    async def _launch(self, order: LaunchOrder, obstacle: Reason | None) -> None:
        async with self._lock_of(order.attempt), self._slots:
            mark = self._journal.get(order.attempt)
            if mark is not None and mark.what == "intent":
                mark = await self._find(order, mark)
            if mark is not None and mark.what == "job":
                self._accepted(order, mark.job_id)
            elif mark is not None and mark.what == "void":
                self._declined(order.attempt, "given up before")
            elif obstacle is not None:
                self._void(order.attempt)
                self._send(LaunchDeclined(attempt=order.attempt, reason=obstacle))
            else:
                await self._submit(order)

    async def _submit(self, order: LaunchOrder) -> None:
        intent = Mark(what="intent", at_s=self._clock())
        self._journal.put(order.attempt, intent)
        try:
            job_id = await self._driver.launch(order)
        except SiteRefused as error:
            self._declined(order.attempt, str(error))
            return
        except SiteUnavailable as error:
            mark = await self._find(order, intent)
            if mark is None:
                self._declined(order.attempt, str(error))
                return
            job_id = mark.job_id
        self._accepted(order, job_id)

    def _accepted(self, order: LaunchOrder, job_id: int) -> None:
        self._journal.put(order.attempt, Mark(what="job", at_s=self._clock(), job_id=job_id))
        self._accepted_lately[order.attempt] = (order.user, job_id)
        self._send(LaunchAccepted(attempt=order.attempt, site_job_id=job_id))
        self._watch_until_s = self._clock() + WATCH_FOR_S
        self._wake.set()

    def _declined(self, attempt: AttemptId, detail: str) -> None:
        self._void(attempt)
        reason = Reason(code=ReasonCode.LAUNCH_REFUSED, detail=detail[:500])
        self._send(LaunchDeclined(attempt=attempt, reason=reason))

    def _void(self, attempt: AttemptId) -> None:
        self._journal.put(attempt, Mark(what="void", at_s=self._clock()))
        self._scheduler.release(attempt)

    async def _find(self, order: LaunchOrder | CancelOrder, intent: Mark) -> Mark | None:
        """Look in Slurm for an attempt that was begun; wait until the answer is certain."""
        while True:
            swept = await self._sweep()
            report = self._known.get(order.attempt)
            if report is not None and report.user == order.user:
                return Mark(what="job", at_s=self._clock(), job_id=report.site_job_id)
            if swept and self._clock() > intent.at_s + INTENT_HORIZON_S:
                return None
            await asyncio.sleep(1.0)

    # ---- cancels ----

    async def _cancel(self, order: CancelOrder) -> None:
        async with self._lock_of(order.attempt):
            job_id = await self._job_of(order)
            if job_id is None:
                self._void(order.attempt)
                self._send(AttemptAbsent(attempt=order.attempt))
                return
            try:
                await self._driver.cancel(order.user, job_id, pending_only=order.pending_only)
            except FederatorError as error:
                self._send(CancelFailed(attempt=order.attempt, detail=str(error)))
            self._watch_until_s = self._clock() + WATCH_FOR_S
            self._wake.set()

    async def _job_of(self, order: CancelOrder) -> int | None:
        """The job to cancel; None when the site has none and must never have one."""
        if order.site_job_id:
            return order.site_job_id
        report = self._known.get(order.attempt)
        if report is not None and report.user == order.user:
            return report.site_job_id
        mark = self._journal.get(order.attempt)
        if mark is not None and mark.what == "intent":
            mark = await self._find(order, mark)
        if mark is not None and mark.what == "job":
            return mark.job_id
        return None

    def _lock_of(self, attempt: AttemptId) -> asyncio.Lock:
        return self._attempt_locks.setdefault(attempt, asyncio.Lock())

    # ---- researchers at this site ----

    async def _serve_researchers(self) -> asyncio.Server:
        path = Path(self._config.socket)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        server = await asyncio.start_unix_server(self._serve_one, path)
        path.chmod(0o666)  # who calls is told by the kernel, not by the file's mode
        return server

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            user = peer_user(writer)
            writer.write(BANNER)
            while (body := await read_frame(reader)) is not None:
                writer.write(frame(await self._relay(user, body)))
                await writer.drain()
        except (OSError, SiteUnavailable):
            pass  # the researcher hung up
        finally:
            writer.close()

    async def _relay(self, user: str, body: bytes) -> Reply:
        try:
            call = call_decoder.decode(body)
        except msgspec.MsgspecError as error:
            return ErrorReply(message=f"the request cannot be read: {error}")
        self._next_call += 1
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._calls[self._next_call] = future
        self._send(ClientCall(call_id=self._next_call, user=user, call=call))
        return await future


def peer_user(writer: asyncio.StreamWriter) -> str:
    """The user name of the process at the other end of a unix socket; "#UID" when it has none."""
    peer: sockets.socket = writer.get_extra_info("socket")
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", peer.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, size))
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"
