"""Runs an agent: carries what happens to its core, and has carried out what that decides.

It reads orders, and waits for answers and for time to pass. What concerns no attempt is the
services' (``services/dispatch.py``). It ends when its channel does; what runs runs on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from math import inf
from pathlib import Path
from typing import Any, Final

from federator import __version__
from federator.agent.acts import SiteActs
from federator.agent.agent_log import LoggedChannel
from federator.agent.base import AgentDriver
from federator.agent.config import AgentConfig
from federator.agent.core import AgentCore
from federator.agent.effects import AgentEffect, Sbatch, WakeAt, WriteMark
from federator.agent.journal import Journal
from federator.agent.launch_traces import LaunchTraces
from federator.agent.observations import (
    AgentObservation,
    HungUp,
    Now,
    Ordered,
    SettingsChanged,
    Started,
    Woken,
)
from federator.agent.order_archive import OrderArchive
from federator.agent.services.dispatch import AgentServices
from federator.agent.services.handshake import SILENCE_S, check_greeted, term_of
from federator.agent.services.user_questions import ANSWERS
from federator.agent.spool import Acting, Spool
from federator.errors import SiteUnavailable, StaleState
from federator.model.site_message import Ask
from federator.model.tagged import Message
from federator.wire.agent_protocol import (
    PROTOCOL_VERSION,
    Hello,
    ToAgent,
    Welcome,
    to_agent_decoder,
)
from federator.wire.client_socket import ClientSocket, Listen
from federator.wire.framing import ByteReader, FrameReader

FINISHES_WITHIN_S: Final = 3.0  # meanwhile nobody else can reach the site


class Agent:
    """One connection's worth of agent.

    Args:
        config: see ``AgentConfig``.
        driver: this site's Slurm.
        journal: held by this agent alone.
        write: sends bytes to the daemon.
        clock: returns Unix time.
        knows_user: tells whether a user has an account at this site.
        user_there: says what the site calls a user.
        acting: does what may take long in the spool; by default a thread.
        listen: serves the users' socket; by default a unix one.
        traces: of its launches; None: they are not traced.
    """

    def __init__(  # noqa: PLR0913 - each is one edge of the agent
        self,
        config: AgentConfig,
        driver: AgentDriver,
        journal: Journal,
        write: Callable[[bytes], None],
        *,
        knows_user: Callable[[str], bool],
        user_there: Callable[[str], str] = str,
        clock: Callable[[], float] = time.time,
        acting: Acting | None = None,
        listen: Listen = lambda answer, path: ClientSocket(answer).listen(path),
        traces: LaunchTraces | None = None,
    ) -> None:
        self._traces = traces
        self._config, self._driver = config, driver
        self._journal, self._clock = journal, clock
        self._knows_user, self._listen = knows_user, listen
        self._channel = LoggedChannel(config.site, write)
        spool = Path(config.spool_dir) if config.spool_dir else None
        self._spool = Spool(spool, config.site, clock, acting, user_there)
        self._kept = OrderArchive(Path(config.state_dir), clock(), journal.tenure)
        self._services = AgentServices(
            config,
            driver,
            self._spool,
            knows_user=knows_user,
            clock=clock,
            send=self._send,
            start=self._start,
            settings_changed=lambda: self._observe(SettingsChanged()),
        )
        self._acts = SiteActs(
            driver,
            journal,
            self._kept,
            self._spool,
            self._send,
            probing=self._services.is_probe,
            scripts_consume=config.consume_lease == "wrapper",
        )
        self._core: AgentCore | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sbatches: set[asyncio.Task[None]] = set()  # of them
        self._alarm: asyncio.TimerHandle | None = None  # that wakes the core
        self._durable = 0  # the number of the last write
        self._settled = asyncio.Event()  # something has come to its end
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # ---- life ----

    async def run(self, reader: ByteReader, welcome: Welcome) -> None:
        """Serve one daemon until its channel ends; what is under way has 3 s to be finished.

        Raises:
            StaleState: the daemon's epoch is over, or it takes this site for another.
            SiteUnavailable: Slurm does not answer at all, or the daemon fell silent.
        """
        await self._introduce(welcome)
        core = AgentCore(
            self._config.site, self._journal.index, self._kept.ends(), self._now(), welcome
        )
        self._core = core
        server = await self._services.open(welcome, core.memory.live, self._listen)
        obeying = asyncio.create_task(self._obey(reader))
        self._observe(Started())
        self._services.begin()
        try:
            await asyncio.wait([obeying, self._failure], return_when=asyncio.FIRST_COMPLETED)
        finally:
            server.close()
            self._services.close()
            await self._finish(core)
            obeying.cancel()
        for ended in (self._failure, obeying):
            if ended.done() and not ended.cancelled():
                self._channel.ended(str(ended.exception() or ""))
                ended.result()  # raises what ended it

    async def _finish(self, core: AgentCore) -> None:
        """Let what was begun come to its end, for a moment; the rest is the next agent's.

        That one begins after it. An sbatch that hangs goes on in its helper, whose limits hold
        without an agent; by its intent in the journal the next agent looks for its job.
        """
        self._observe(HungUp())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISHES_WITHIN_S):
                while not self._failed and core.unfinished:
                    self._settled.clear()
                    await self._settled.wait()
                while self._sbatches:  # nobody notes their answers, but their jobs are whole
                    await asyncio.wait(self._sbatches)
        for task in self._tasks:
            task.cancel()
        if self._tasks:  # asyncio never ends a child whose start is cancelled as the loop closes
            await asyncio.wait(self._tasks, timeout=FINISHES_WITHIN_S)
        self._core = None
        if self._alarm is not None:
            self._alarm.cancel()

    async def _introduce(self, welcome: Welcome) -> None:
        version = await self._driver.version()
        served = self._journal.served
        self._send(
            Hello(
                protocol=PROTOCOL_VERSION,
                site=self._config.site,
                slurm_version=version,
                last_epoch=served.epoch,
                federation=served.federation,
                log_began=served.log_began,
                answers=ANSWERS,
                host=self._journal.tenure.host,
                folder_id=self._journal.tenure.folder_id,
                release=__version__,
            )
        )
        check_greeted(welcome, self._config.site)
        self._journal.accept(term_of(welcome), displaces=welcome.displaces)
        self._channel.serving(welcome)

    # ---- the daemon ----

    async def _obey(self, reader: ByteReader) -> None:
        frames = FrameReader(reader)
        while True:
            try:
                body = await frames.next(SILENCE_S)
            except TimeoutError as error:
                raise SiteUnavailable(f"no word of the daemon for {SILENCE_S:.0f} s") from error
            if body is None:
                return
            self._do(to_agent_decoder.decode(body))

    def _do(self, message: ToAgent) -> None:
        self._channel.taken(message)
        if self._services.take(message):
            return
        if isinstance(message, Welcome):
            raise StaleState("the daemon introduced itself twice")
        strangers: frozenset[str] = frozenset()
        if isinstance(message, Ask):
            users = {request.user for request in message.requests}
            strangers = frozenset(user for user in users if not self._knows_user(user))
        self._observe(Ordered(message=message, strangers=strangers))

    def _send(self, message: Message) -> None:
        self._channel.send(message)

    # ---- the core ----

    def _now(self) -> Now:
        return Now(self._clock(), asyncio.get_running_loop().time())

    def _observe(self, observation: AgentObservation, not_before_s: float = -inf) -> None:
        """Tell the core, and carry out what it decides."""
        if (core := self._core) is None:
            return
        now = self._now()
        now = now._replace(elapsed_s=max(now.elapsed_s, not_before_s))
        try:
            for effect in core.handle(observation, now):
                self._carry_out(effect, core)
        except BaseException:  # it knows things now that are not so: nothing may rely on it
            self._core = None
            raise
        finally:
            self._settled.set()

    def _carry_out(self, effect: AgentEffect, core: AgentCore) -> None:
        """In order: what comes ``after`` a write is not begun unless that is durable."""
        assert effect.after <= self._durable, "an effect came before the write that it relies on"
        began_s = self._clock() if self._traces is not None else 0.0
        if isinstance(effect, WakeAt):
            self._wake_at(effect.at_s)
        elif not self._acts.do_at_once(effect):
            task = self._start(self._bring_back(effect, core))
            if isinstance(effect, Sbatch):
                self._sbatches.add(task)
                task.add_done_callback(self._sbatches.discard)
        if isinstance(effect, WriteMark):
            self._durable = effect.number
            if self._traces is not None:
                self._traces.marked(effect, began_s, self._clock())

    async def _bring_back(self, effect: AgentEffect, core: AgentCore) -> None:
        began_s = self._clock() if self._traces is not None else 0.0
        answer = await self._acts.do(effect, core)
        if self._traces is not None:
            self._traces.answered(answer, began_s, self._clock())
        self._observe(answer)

    def _wake_at(self, due_s: float) -> None:
        """Have the core woken then, and not when it asked for before."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_at(due_s, self._wake, due_s)

    def _wake(self, due_s: float) -> None:
        try:
            # Timers fire a little early: the core would ask for the same moment for ever.
            self._observe(Woken(), not_before_s=due_s)
        except BaseException as error:  # there is no task that would end with it
            self._fail(error)

    # ---- tasks ----

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    @property
    def _failed(self) -> bool:
        return self._core is None or self._failure.done()

    def _fail(self, error: BaseException) -> None:
        """End the agent on an unforeseen error: a new one starts from what is on disk."""
        self._settled.set()
        if not self._failure.done():
            self._failure.set_exception(error)
