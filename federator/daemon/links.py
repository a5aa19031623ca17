"""Keeps one channel to each site open, and retries for ever."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec
import structlog

from federator.daemon.attempt_recall import AttemptRecall
from federator.daemon.handshake import (
    HANDSHAKE_S,
    ServedFolder,
    checked_host,
    checked_release,
    last_of_ours,
    next_message,
    shake_hands,
)
from federator.daemon.shadow_filter import ShadowFilter
from federator.daemon.site_admission import SiteAdmission
from federator.daemon.site_questions import SiteQuestions
from federator.daemon.site_revocations import SiteRevocations
from federator.daemon.site_trouble import SiteTrouble
from federator.errors import FederatorError, InvalidRequest, SiteUnavailable
from federator.model.message import (
    Observation,
    SiteDown,
    SiteSent,
    SiteUp,
)
from federator.model.site_message import Report, SiteNews
from federator.model.tagged import Message
from federator.model.unreadable import UNREADABLE
from federator.model.workload import SiteName
from federator.wire.agent_protocol import (
    CallAnswer,
    CancelFailed,
    ClientCall,
    CopyStatus,
    FromAgent,
    Hello,
    LimitDone,
    LocalJobs,
    NodesTaken,
    OutputStatus,
    Ping,
    Pong,
    RecoverDone,
    SignalDone,
    SnapshotTaken,
    Tidied,
    Trouble,
    UsageTaken,
    VerifyDone,
    Welcome,
)
from federator.wire.client_protocol import ErrorReply, frame
from federator.wire.framing import FrameReader, FrameWriter
from federator.wire.opened_ahead import OpenedAhead
from federator.wire.replies import Reply
from federator.wire.transport import Channel, Transport

PING_S: Final = 2.0
SILENCE_S: Final = 6.0  # a site that says nothing for so long is down
STANDBY_PING_S: Final = 0.5  # where another login node could serve the site
STANDBY_SILENCE_S: Final = 2.5
STANDBY_HANDSHAKE_S: Final = 20.0  # an agent has the old one's lock by then, or does not want it
AGAIN_S: Final = 0.1  # to the other login node, when a channel that was up is lost
_EXPECTED: Final = (FederatorError, OSError, *UNREADABLE, TimeoutError)
RETRY_S: Final = (0.5, 1.0, 2.0, 5.0)

log = structlog.get_logger()


class Desk(Protocol):
    """Answers users' calls; ``origin`` is the site they were made at."""

    def take(self, call: ClientCall, origin: SiteName, answer: Callable[[Reply], None]) -> None: ...


AskedAnswer = Tidied | UsageTaken | CopyStatus | OutputStatus | LocalJobs


def _not_awaited(_answer: AskedAnswer) -> None:
    """Nobody has asked for it."""


def _ignored(_observation: Observation) -> None:
    """The site is the business of another link, or of none."""


class SiteLink:
    """The daemon's end of one site's channel.

    Args:
        site: the site's name.
        transport: opens a channel to its agent.
        welcome: what the agent is told first.
        observe: takes observations in, in the order of the channel.
        desk: takes the calls of users at the site.
        answered: takes the answers that only the daemon itself has asked for.
    """

    def __init__(
        self,
        site: SiteName,
        transport: Transport,
        welcome: Welcome,
        observe: Callable[[Observation], None],
        desk: Desk,
        answered: Callable[[AskedAnswer], None] = _not_awaited,
    ) -> None:
        self.site = site
        self._transport = transport
        self._ahead = transport if isinstance(transport, OpenedAhead) else None
        self._asked_at_s: float | None = None  # by the first ping since the agent was last heard
        self._welcome = welcome
        self._observe = observe
        self._desk = desk
        self._answered = answered
        self.has_standby: Callable[[], bool] = lambda: False
        """Whether another login node could serve the site: then patience is short."""
        self._channel: Channel | None = None
        self._out: FrameWriter | None = None  # of the channel that is up
        self._version = ""
        self.login_node = ""  # where the agent says that it runs
        self._release = ""  # of which it says that it is
        self.dials = False
        """Whether the site opens its channel itself, from whichever login node."""
        self.served_folder = ServedFolder()
        """Of this site; the link that takes the place of this one goes on with it."""
        self._last_epoch = 0
        self._trouble = SiteTrouble(site)
        self._revocations = SiteRevocations(site)
        self._reported = False
        self._stopping = False
        self.filter = ShadowFilter(site, welcome.mode)
        """Of the mode that the site is in; its agent knows only whether anything is done there."""
        # ``stop`` replaces ``_observe``.
        self.recall = AttemptRecall(site, self.send, lambda shown: self._observe(shown))  # noqa: PLW0108
        self.questions = SiteQuestions(site, self.send, self.filter.refuses)
        self.admission = SiteAdmission(self.send, self.filter)
        self.connections = 0  # that came up
        self._swept_at_s = asyncio.get_running_loop().time()  # by its own word

    async def run(self) -> None:
        """Connect and serve until ``stop``."""
        failures, said = 0, ""
        while not self._stopping:
            try:
                await self._serve()
                detail = f"the agent ended; it said: {self._last_words() or 'nothing'}"
            except Exception as error:  # whatever a site does, its link lives on
                detail = str(error) or type(error).__name__
                if not isinstance(error, _EXPECTED):
                    log.exception("link_fault", site=self.site)
            was_up = self._channel is not None
            await self.hang_up()
            if was_up or failures == 0:
                self._observe(SiteDown(site=self.site, detail=detail))
            if was_up or detail != said:  # while it stays away: once for each reason
                log.warning("site_down", site=self.site, detail=detail)
                said = detail
            # An agent that ends before its first report is as good as one that does not start.
            failures = 1 if self._reported else failures + 1
            self._reported = False
            again_s = RETRY_S[min(failures, len(RETRY_S)) - 1]
            await asyncio.sleep(AGAIN_S if failures == 1 and self.has_standby() else again_s)

    def stop(self) -> None:
        """Do not connect again, and send nothing more that was not flushed.

        The task that runs ``run`` is to be cancelled as well.
        """
        self._stopping = True
        self._observe = _ignored
        if self._ahead is not None:
            self._ahead.forget()
        if self._out is not None:
            self._out.drop()

    @property
    def shadow(self) -> bool:
        """Whether nothing is done at the site: orders to it are dropped."""
        return self.filter.shadow

    @property
    def watches(self) -> bool:
        """Whether the agent is told to tell of the site's own jobs."""
        return self._welcome.watches

    def can_measure(self, *, just_ended: bool = False) -> bool:
        """Whether an agent is connected that answers ``UsageAsk``.

        Args:
            just_ended: also about jobs that have just ended.
        """
        word = "usage-end" if just_ended else "usage"
        return self.questions.connected and word in self.questions.answers

    def sweep_age_s(self) -> float:
        """Time since its agent last read its Slurm; if it never said so, since this was made."""
        return asyncio.get_running_loop().time() - self._swept_at_s

    def send(self, message: Message) -> None:
        """Send if the channel is up; else the message is dropped (a reconnect repeats orders).

        An order to a site in shadow mode is dropped in any case. A message leaves with all that is
        sent in the same turn of the event loop, when that ends.

        Raises:
            InvalidRequest: no frame holds it.
        """
        if self._out is not None and self.filter.passes(message):
            self._out.put(frame(message))

    def send_frame(self, message: Message, data: bytes) -> None:
        """As ``send``, of a message whose frame is there already."""
        if self._out is not None and self.filter.passes(message):
            self._out.put(data)

    def flush(self) -> None:
        """Have all that was sent leave now."""
        if self._out is not None:
            self._out.flush()

    async def _serve(self) -> None:
        channel = await self._transport.open()
        try:
            frames, hello = await self._greet(channel)
        except Exception as error:  # whatever it was, the channel must be closed
            await asyncio.sleep(0.1)  # its last words may still be under way
            detail = f"{error}; it said: {channel.last_words() or 'nothing'}"
            await channel.close()
            raise SiteUnavailable(detail) from error
        self._channel, self._version = channel, hello.slurm_version
        self.login_node = checked_host(hello.host)
        self._release = checked_release(hello.release)
        self._trouble.forget()
        self._out = FrameWriter(partial(_write, self.site, channel))
        self.connections += 1
        self.questions.connected, self.questions.answers = True, hello.answers
        log.info("site_up", site=self.site, slurm=hello.slurm_version, host=self.login_node)
        self._last_epoch = last_of_ours(hello, self._welcome)
        self._observe(self._up())
        self.admission.came_up()
        self._asked_at_s = None
        pinging = asyncio.create_task(self._ping())
        try:
            while (message := await next_message(frames, self._silence_s)) is not None:
                self._asked_at_s = None
                self._take(message)
        finally:
            pinging.cancel()

    async def _greet(self, channel: Channel) -> tuple[FrameReader, Hello]:
        """Number the channel, and hear from its agent.

        Raises:
            SiteUnavailable: it is not to be served; see ``handshake.shake_hands``.
        """
        # Of this term's channels, which are opened one after the other, the later has the greater.
        number = int(asyncio.get_running_loop().time() * 1000)
        welcome = msgspec.structs.replace(self._welcome, channel=number)
        standby = self.has_standby()
        if standby or self.dials:
            welcome = self.served_folder.named_in(welcome)
        within_s = STANDBY_HANDSHAKE_S if standby else HANDSHAKE_S
        # To start takes an agent longer than to answer.
        frames, hello = await shake_hands(channel, welcome, SILENCE_S, within_s)
        # Of a site that dials, the one that stood by is the only one when it is served.
        if standby or (self.dials and self.served_folder.is_elsewhere(hello)):
            self.served_folder.check_shares(hello)
        self.served_folder.served(hello, number)
        return frames, hello

    @property
    def _silence_s(self) -> float:
        return STANDBY_SILENCE_S if self.has_standby() else SILENCE_S

    def _up(self) -> SiteUp:
        return SiteUp(
            site=self.site,
            slurm_version=self._version,
            last_epoch=self._last_epoch,
            login_node=self.login_node,
            release=self._release,
        )

    async def _ping(self) -> None:
        while True:
            self.send(Ping())
            self.flush()  # a long turn that begins now is no silence of the agent
            now_s = asyncio.get_running_loop().time()
            if self._asked_at_s is None:
                self._asked_at_s = now_s
            if self._ahead is not None and not self._stopping:
                self._ahead.silent(now_s - self._asked_at_s, now_s)
            await asyncio.sleep(STANDBY_PING_S if self.has_standby() else PING_S)

    def _last_words(self) -> str:
        return self._channel.last_words() if self._channel is not None else ""

    async def hang_up(self) -> None:
        """Close the channel, if one is up."""
        channel, self._channel = self._channel, None
        if self._out is not None:
            self._out.drop()
        self._out = None
        self.questions.hung_up()
        if channel is not None:
            with contextlib.suppress(OSError):
                await channel.close()

    def _take(self, message: FromAgent) -> None:
        match message:
            case Pong() if message.sweep_age_s >= 0:
                now_s = asyncio.get_running_loop().time()
                self._swept_at_s = now_s - message.sweep_age_s
            case Pong() | Hello():
                pass
            case ClientCall():
                answer = partial(self._answer, self._channel, message.call_id)
                self._desk.take(message, self.site, answer)
            case SnapshotTaken() | VerifyDone() | NodesTaken() | SignalDone() | LimitDone():
                self.questions.take(message)
            case RecoverDone():
                self.recall.take(message)
            case Tidied() | UsageTaken() | CopyStatus() | OutputStatus() | LocalJobs():
                self._answered(message)
            case Trouble():
                if self._trouble.begin(message):
                    self._observe(SiteDown(site=self.site, detail=message.detail))
            case CancelFailed():
                log.warning(
                    "cancel_failed",
                    site=self.site,
                    attempt=str(message.attempt),
                    detail=message.detail,
                )
            case _:
                self._observe_message(message)

    def _answer(self, channel: Channel | None, call_id: int, reply: Reply) -> None:
        """Answer a call where it came from: the next agent counts its calls from one again.

        Whoever waited at an agent that is gone knows so, and asks again.
        """
        if channel is not self._channel:
            return
        try:
            self.send(CallAnswer(call_id=call_id, reply=reply))
        except InvalidRequest as error:
            self.send(CallAnswer(call_id=call_id, reply=ErrorReply(message=str(error))))

    def _observe_message(self, message: SiteNews) -> None:
        if isinstance(message, Report):
            self._reported = True
            if self._trouble.end(message):
                self._observe(self._up())
        self._observe(SiteSent(site=self.site, message=message))
        if isinstance(message, Report) and message.revoked is not None:
            for asked in self._revocations.asked(message.revoked, time.time()):
                self._observe(asked)


def _write(site: SiteName, channel: Channel, frames: Sequence[bytes]) -> None:
    try:
        channel.writelines(frames)
    except OSError as error:  # it broke a moment ago; the reader will see it next
        log.info("messages_dropped", site=site, messages=len(frames), detail=str(error))
