"""What does an agent do? It stands between one Slurm and the daemon: sweeps, bids, launches.

One task reads orders, one sweeps, one serves the researchers' socket; launches (``launching.py``)
run beside them. All decisions are ``SiteScheduler``'s. The agent ends when its channel does: what
runs runs on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec

from federator.errors import (
    InvalidRequest,
    SiteUnavailable,
    StaleState,
)
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site import AttemptReport, GpuModel, SiteJobState
from federator.model.workload import AttemptId, SiteName, WorkloadId
from federator.sched.site_scheduler import SiteScheduler, described, summarise
from federator.sites.agent_log import LoggedChannel
from federator.sites.base import Own, SiteDriver, SiteInspector, Sweep, told_apart
from federator.sites.calls import Message
from federator.sites.greeting import SILENCE_S, term_of
from federator.sites.journal import Journal
from federator.sites.kept_orders import KeptOrders
from federator.sites.last_saves import LastSaves
from federator.sites.launching import INTENT_HORIZON_S, AgentEdges, Launches
from federator.sites.leaving import Departures
from federator.sites.left_behind import LeftBehind
from federator.sites.protocol import (
    PROTOCOL_VERSION,
    Admission,
    Answer,
    Ask,
    BidsMade,
    ByteReader,
    CallAnswer,
    CancelOrder,
    Hello,
    LaunchOrder,
    Ping,
    Pong,
    PreemptOrder,
    RecoverAsk,
    ShrinkOrder,
    SnapshotAsk,
    SnapshotTaken,
    TidyOrder,
    ToAgent,
    Trouble,
    VerifyAsk,
    VerifyDone,
    Welcome,
    packed,
    read_frame,
    to_agent_decoder,
)
from federator.sites.recalling import Recalling
from federator.sites.relay import Relay
from federator.sites.researchers import Listen, ResearcherSocket
from federator.sites.setbacks import Setbacks
from federator.sites.spool import Acting, Spool
from federator.sites.taking import Taking
from federator.sites.tidying import Tidier
from federator.sites.told import Told
from federator.sites.unopened import Unopened
from federator.sites.verifying import Verifier

WATCH_S: Final = 0.25  # sweep interval while a launch is on its way
WATCH_FOR_S: Final = 8.0
FRESH_S: Final = 1.0  # bids are made on a sweep no older than this
REST_PER_SWEEP: Final = 4.0  # however much happens, slurmctld is left alone four times as long


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """agent.yaml of a site."""

    site: str
    socket: str  # researchers' commands connect here
    state_dir: str  # the journal's folder, writable by the agent alone
    spool_dir: str = ""  # for the site's own hooks, see ``sites.spool``; "": there is none
    consume_lease: Literal["gate", "wrapper"] = "gate"  # the site's prolog, or ``sites.starter``
    log_level: Literal["debug", "info", "warning", "error"] = "info"  # of lines in syslog

    def __post_init__(self) -> None:
        if self.consume_lease == "wrapper" and not self.spool_dir:
            raise ValueError("consume_lease: wrapper needs a spool_dir, which has the leases")
        if self.spool_dir and not Path(self.spool_dir).is_absolute():
            raise ValueError(f"spool_dir: expected an absolute path, got {self.spool_dir!r}")


class AgentDriver(SiteDriver, SiteInspector, Protocol):
    """A Slurm to work with, and to be verified."""


class Agent:
    """One connection's worth of agent.

    Args:
        config: see ``AgentConfig``.
        driver: this site's Slurm.
        journal: held by this agent alone.
        write: sends bytes to the daemon.
        clock: returns Unix time.
        knows_user: tells whether a user has an account at this site.
        acting: does what may take long in the spool; by default a thread.
        listen: serves the researchers' socket; by default a unix one.
    """

    def __init__(  # noqa: PLR0913 - each is one edge of the agent
        self,
        config: AgentConfig,
        driver: AgentDriver,
        journal: Journal,
        write: Callable[[bytes], None],
        *,
        knows_user: Callable[[str], bool],
        clock: Callable[[], float] = time.time,
        acting: Acting | None = None,
        listen: Listen = lambda answer, path: ResearcherSocket(answer).listen(path),
    ) -> None:
        self._config = config
        self._listen = listen
        self._driver = driver
        self._journal = journal
        self._channel = LoggedChannel(config.site, write)
        self._clock = clock
        self._knows_user = knows_user
        self._scheduler = SiteScheduler(())
        self._poll_interval_s = 10.0
        self._gpus: Mapping[str, GpuModel] = {}
        self._swept_at_s = self._watch_until_s = -inf
        self._rest_s = 0.0
        self._sweep_lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._departing: set[asyncio.Task[None]] = set()  # not waited for: the journal knows
        self._departures = Departures(
            driver, journal, clock,
            known=lambda: self._known, watch=self._watch,
            start=lambda work: self._start(work, self._departing),
        )  # fmt: skip
        self._last_saves = LastSaves(
            driver, journal, elapsed=self._elapsed_s,
            start=lambda work: self._start(work, self._departing),
        )  # fmt: skip
        self._taking = Taking(driver, known=lambda: self._known, sweep=self._sweep,
                              send=self._send, watch=self._watch)  # fmt: skip
        edges = AgentEdges(
            scheduler=lambda: self._scheduler, known=lambda: self._known, sweep=self._sweep,
            told=self._departures.told, send=self._send, watch=self._watch, start=self._start,
            scripts_consume=config.consume_lease == "wrapper",
        )  # fmt: skip
        spool_dir = Path(config.spool_dir) if config.spool_dir else None
        self._spool = Spool(spool_dir, config.site, clock, acting)
        self._verifier = Verifier(driver, self._spool, clock, knows_user)
        self._kept = KeptOrders(Path(config.state_dir), clock())
        self._launches = Launches(driver, journal, self._kept, self._spool, clock, edges)
        self._recalling = Recalling(journal, self._kept, self._launches,
                                    known=lambda: self._known, sweep=self._sweep,
                                    send=self._send)  # fmt: skip
        self._tidier = Tidier(driver, self._launches.live, knows_user, clock, self._send)
        self._aftermath = (LeftBehind(driver, journal), Unopened(driver, self._kept))
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._known: dict[AttemptId, AttemptReport] = {}
        self._told = Told()
        self._setbacks = Setbacks(self._planned_nodes)
        self._sees_all_nodes = True
        self._relay = Relay(self._send)

    # ---- life ----

    async def run(self, reader: ByteReader, welcome: Welcome) -> None:
        """Serve one daemon until its channel ends; launches under way are finished first.

        Raises:
            StaleState: the daemon's epoch is over, or it takes this site for another.
            SiteUnavailable: Slurm does not answer at all, or the daemon fell silent.
        """
        await self._introduce(welcome)
        self._scheduler = SiteScheduler(welcome.partitions)
        self._poll_interval_s = welcome.poll_interval_s
        self._gpus = welcome.gpus
        server = await self._listen(self._relay.ask, Path(self._config.socket))
        lasting = [
            asyncio.create_task(self._obey(reader)),
            asyncio.create_task(self._sweep_for_ever()),
        ]
        try:
            await asyncio.wait([*lasting, self._failure], return_when=asyncio.FIRST_COMPLETED)
        finally:
            server.close()
            self._relay.hang_up()
            with contextlib.suppress(FileNotFoundError):
                Path(self._config.socket).unlink()
            for task in (*lasting[1:], *self._departing):
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=INTENT_HORIZON_S)
            lasting[0].cancel()
        for ended in (self._failure, *lasting):
            if ended.done() and not ended.cancelled():
                self._channel.ended(str(ended.exception() or ""))
                ended.result()  # raises what ended it

    async def _introduce(self, welcome: Welcome) -> None:
        version = await self._driver.version()
        served = self._journal.served
        self._send(
            Hello(protocol=PROTOCOL_VERSION, site=self._config.site, slurm_version=version,
                  last_epoch=served.epoch, federation=served.federation,
                  log_began=served.log_began)
        )  # fmt: skip
        if welcome.protocol != PROTOCOL_VERSION or welcome.site != self._config.site:
            raise StaleState(
                f"the daemon speaks protocol {welcome.protocol} to site {welcome.site!r}; "
                f"this is protocol {PROTOCOL_VERSION} at site {self._config.site!r}"
            )
        self._journal.accept(term_of(welcome), displaces=welcome.displaces)
        self._channel.serving(welcome)

    async def _obey(self, reader: ByteReader) -> None:
        while True:
            try:
                body = await read_frame(reader, patience_s=SILENCE_S)
            except TimeoutError as error:
                raise SiteUnavailable(f"no word of the daemon for {SILENCE_S:.0f} s") from error
            if body is None:
                return
            self._do(to_agent_decoder.decode(body))

    def _do(self, message: ToAgent) -> None:
        self._channel.taken(message)
        match message:
            case Ping():
                self._send(Pong())
            case Ask():
                self._start(self._bid(message))  # it may sweep first; pings must not wait
            case SnapshotAsk() | VerifyAsk() | Admission() | RecoverAsk() | TidyOrder():
                self._serve(message)
            case LaunchOrder():
                self._launches.take(message)
            case PreemptOrder() | ShrinkOrder():
                self._start(self._preempt(message))
            case CancelOrder():
                self._launches.take_cancel(message)
            case CallAnswer():
                self._relay.pass_on(message)
            case Welcome():
                raise StaleState("the daemon introduced itself twice")

    def _serve(self, message: SnapshotAsk | VerifyAsk | Admission | RecoverAsk | TidyOrder) -> None:
        match message:
            case SnapshotAsk():
                self._show(message)
            case VerifyAsk():  # nobody waits for it at the end
                self._start(self._verify(message), self._departing)
            case RecoverAsk():
                self._start(self._recalling.answer(message), self._departing)
            case TidyOrder():
                self._start(self._tidier.tidy(message), self._departing)
            case Admission():
                self._start(self._spool.write_admission(message.tenants, self._gpus))

    def _send(self, message: Message) -> None:
        self._channel.send(message)

    def _start(
        self, work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]] | None = None
    ) -> None:
        task = asyncio.create_task(work)
        (self._tasks if among is None else among).add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        """What nobody foresaw ends the agent: a new one starts from what is on disk."""
        self._tasks.discard(task)
        self._departing.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failure.done():
            self._failure.set_exception(error)

    # ---- sweeps ----

    @staticmethod
    def _elapsed_s() -> float:
        """For how long anything lasts: unlike Unix time it is never set."""
        return asyncio.get_running_loop().time()

    async def _sweep_for_ever(self) -> None:
        await self._sweep()
        while True:
            await asyncio.sleep(self._rest_s)
            watching = self._elapsed_s() < self._watch_until_s
            pause_s = min(WATCH_S, self._poll_interval_s) if watching else self._poll_interval_s
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.0, pause_s - self._rest_s))
            self._wake.clear()
            await self._sweep()

    def _watch(self) -> None:
        """Something is about to happen: sweep in short order for a while."""
        self._watch_until_s = self._elapsed_s() + WATCH_FOR_S
        self._wake.set()

    async def _sweep(self) -> bool:
        """Look at Slurm once and report what is new; False when it did not answer."""
        async with self._sweep_lock:
            self._launches.sweep_begins(idle=not self._tasks)
            began_s = self._elapsed_s()
            try:
                sweep = await self._driver.sweep(self._own())
            except SiteUnavailable as error:
                self._told.forget()  # after trouble everything is told again
                self._send(Trouble(detail=str(error)))
                return False
            self._swept_at_s = self._elapsed_s()
            self._rest_s = REST_PER_SWEEP * max(0.0, self._swept_at_s - began_s)
            known = self._setbacks.complete(self._journal.genuine(sweep.attempts), sweep.nodes)
            await self._departures.settle(known)
            known = {a: self._departures.told(report) for a, report in known.items()}
            for each in self._aftermath:
                known = await each.complete(known)
            self._known = known
            self._kept.note(self._known.values(), self._clock())
            self._launches.sweep_ends()
            self._launches.keep_live()
            self._sees_all_nodes = sweep.nodes_complete
            genuine = {a: r.site_job_id for a, r in self._known.items()}
            running, local = told_apart(sweep.holders, genuine)
            self._last_saves.refresh(self._known)
            self._scheduler.update(
                described(sweep.nodes, self._gpus), self._visible(),
                switches=sweep.switches, running=self._last_saves.complete(running), local=local,
            )  # fmt: skip
            await self._spool.settle(
                self._launches.live(), self._is_over, self._launches.starter_again
            )
            self._report(sweep)
            return True

    def _own(self) -> Own:
        launched, supposed = self._journal.launched, self._launches.supposed
        return Own(
            launched={**launched, **supposed} if supposed else launched,
            begun=self._journal.begun,
            ended=self._kept.endings(),
        )

    def _is_over(self, attempt: AttemptId) -> bool:
        return attempt not in self._verifier.probing and self._launches.is_over(attempt)

    def _planned_nodes(self, attempt: AttemptId) -> tuple[str, ...]:
        return self._scheduler.held_nodes(attempt)

    def _visible(self) -> set[AttemptId]:
        """Attempts that the nodes already show, or no longer hold."""
        return {a for a, r in self._known.items() if r.state is not SiteJobState.PENDING}

    def _report(self, sweep: Sweep) -> None:
        if self._spool.trouble:
            sweep = replace(sweep, problems=(self._spool.trouble, *sweep.problems))
        news = self._told.news(
            self._known,
            self._launches.accepted_lately,
            self._scheduler.capacity,
            summarise(sweep.nodes, self._scheduler.partitions),
            sweep,
        )
        if news is None:
            return
        gone = news.gone
        if gone:  # how they ended may be known all the same
            self._start(self._launches.gone(gone))
            news = msgspec.structs.replace(news, gone=())
        news = msgspec.structs.replace(news, attempts=self._journal.located(news.attempts))
        if news.attempts or news.complete or news.capacity or news.partitions or not gone:
            self._send(news)

    # ---- bids ----

    async def _bid(self, ask: Ask) -> None:
        if self._elapsed_s() - self._swept_at_s > max(FRESH_S, self._rest_s):
            await self._sweep()
        if self._spool.trouble:  # every launch would be declined
            reason = Reason(code=ReasonCode.LAUNCH_REFUSED, detail=self._spool.trouble[:500])
            no = Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
            refused = tuple(Answer(id=r.id, refusal=no) for r in ask.requests)
            self._send(BidsMade(pass_id=ask.pass_id, answers=refused))
            return
        strangers = {user for user in {r.user for r in ask.requests} if not self._knows_user(user)}
        self._last_saves.evictable = frozenset(ask.victims)
        self._scheduler.rank({WorkloadId(id_): terms for id_, terms in ask.victims.items()})
        requests = [r.bid_request() for r in ask.requests if r.user not in strangers]
        reserve = ask.reserve.bid_request() if ask.reserve is not None else None
        answers = self._scheduler.bid(
            requests, self._clock(), reserve=reserve, reserving=ask.reserving
        )
        made = [
            Answer(id=a.id, bid=a.bid, refusal=self._softened(a.refusal), held_back=a.held_back)
            for a in answers
        ]
        made += [Answer(id=r.id, refusal=_stranger(r.user))
                 for r in ask.requests if r.user in strangers]  # fmt: skip
        try:
            self._send(BidsMade(pass_id=ask.pass_id, answers=tuple(made)))
        except InvalidRequest:  # beyond a frame: no bid is better than no agent
            self._send(BidsMade(pass_id=ask.pass_id, answers=()))

    def _show(self, ask: SnapshotAsk) -> None:
        site, taken, detail = SiteName(self._config.site), b"", "no sweep has been made yet"
        if self._scheduler.nodes:
            taken, detail = packed(self._scheduler.snapshot(site, self._clock())), ""
        try:
            self._send(SnapshotTaken(ask_id=ask.ask_id, snapshot=taken, detail=detail))
        except InvalidRequest as error:
            self._send(SnapshotTaken(ask_id=ask.ask_id, detail=str(error)))

    async def _verify(self, ask: VerifyAsk) -> None:
        found = await self._verifier.verify(ask, self._scheduler.partitions)
        self._send(VerifyDone(ask_id=ask.ask_id, findings=found))

    def _softened(self, refusal: Refusal | None) -> Refusal | None:
        """With nodes that could not be read, *never* cannot be said."""
        if refusal is None or self._sees_all_nodes:
            return refusal
        return msgspec.structs.replace(refusal, kind=RefusalKind.WAIT)

    # ---- evictions ----

    async def _preempt(self, order: PreemptOrder | ShrinkOrder) -> None:
        """Its grace begins now, unless the site knows it no more; optional jobs just go."""
        if isinstance(order, ShrinkOrder):
            await self._taking.take(order)
            return
        swept = order.attempt not in self._known and await self._sweep()
        if order.attempt in self._known:
            self._departures.begin(order)
        elif swept:
            await self._launches.gone((order.attempt,))


def _stranger(user: str) -> Refusal:
    reason = Reason(code=ReasonCode.UNKNOWN_USER, detail=user)
    return Refusal(kind=RefusalKind.REJECT, reasons=(reason,))
