"""Keeps one channel to each site open, and retries for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

import msgspec
import structlog

from federator.daemon.attempt_recall import AttemptRecall
from federator.daemon.shadow_filter import ShadowFilter
from federator.daemon.site_questions import SiteQuestions
from federator.errors import FederatorError, InvalidRequest, SiteUnavailable
from federator.model.message import (
    Observation,
    SiteDown,
    SiteSent,
    SiteUp,
)
from federator.model.site_message import Report, SiteNews
from federator.model.site_mode import SiteMode
from federator.model.tagged import Message
from federator.model.workload import SiteName
from federator.wire.agent_protocol import (
    PROTOCOL_VERSION,
    Admission,
    CallAnswer,
    CancelFailed,
    ClientCall,
    CopyStatus,
    FromAgent,
    Hello,
    LocalJobs,
    NodesTaken,
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
    from_agent_decoder,
)
from federator.wire.client_protocol import ErrorReply, frame
from federator.wire.framing import FrameReader, FrameWriter, skip_to_banner
from federator.wire.replies import Reply
from federator.wire.transport import Channel, Transport

PING_S: Final = 2.0
SILENCE_S: Final = 6.0  # a site that says nothing for so long is down
GREETING_S: Final = 75.0  # an older agent may have to finish its launches first
_EXPECTED: Final = (FederatorError, OSError, msgspec.MsgspecError, TimeoutError)
RETRY_S: Final = (0.5, 1.0, 2.0, 5.0)

log = structlog.get_logger()


class Desk(Protocol):
    """Answers users' calls; ``origin`` is the site they were made at."""

    def take(self, call: ClientCall, origin: SiteName, answer: Callable[[Reply], None]) -> None: ...


AskedAnswer = Tidied | UsageTaken | CopyStatus | LocalJobs


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
        self._welcome = welcome
        self._observe = observe
        self._desk = desk
        self._answered = answered
        self._channel: Channel | None = None
        self._out: FrameWriter | None = None  # of the channel that is up
        self._version = ""
        self._last_epoch = 0
        self._troubled = False
        self._problems: tuple[str, ...] = ()
        self._reported = False
        self._stopping = False
        self._filter = ShadowFilter(site, shadow=welcome.mode is SiteMode.SHADOW)
        # ``stop`` replaces ``_observe``.
        self.recall = AttemptRecall(site, self.send, lambda shown: self._observe(shown))  # noqa: PLW0108
        self.questions = SiteQuestions(site, self.send, self._filter.refuses)
        self.connections = 0  # that came up
        self._swept_at_s = asyncio.get_running_loop().time()  # by its own word
        self.admission: Admission | None = None
        """What its admission rules are told when it comes up."""

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
            await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S)) - 1])

    def stop(self) -> None:
        """Do not connect again, and send nothing more that was not flushed.

        The task that runs ``run`` is to be cancelled as well.
        """
        self._stopping = True
        self._observe = _ignored
        if self._out is not None:
            self._out.drop()

    @property
    def shadow(self) -> bool:
        """Whether the site is in shadow mode: orders to it are dropped."""
        return self._filter.shadow

    @property
    def watches(self) -> bool:
        """Whether the agent is told to tell of the site's own jobs."""
        return self._welcome.watches

    def can_measure(self) -> bool:
        """Whether an agent is connected that answers ``UsageAsk``."""
        return self.questions.connected and "usage" in self.questions.answers

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
        if self._out is not None and self._filter.passes(message):
            self._out.put(frame(message))

    def send_frame(self, message: Message, data: bytes) -> None:
        """As ``send``, of a message whose frame is there already."""
        if self._out is not None and self._filter.passes(message):
            self._out.put(data)

    def flush(self) -> None:
        """Have all that was sent leave now."""
        if self._out is not None:
            self._out.flush()

    def _write(self, frames: Sequence[bytes]) -> None:
        if self._channel is None:
            return
        try:
            self._channel.writelines(frames)
        except OSError as error:  # it broke a moment ago; the reader will see it next
            log.info("messages_dropped", site=self.site, messages=len(frames), detail=str(error))

    async def _serve(self) -> None:
        channel = await self._transport.open()
        try:
            await asyncio.wait_for(skip_to_banner(channel.reader), SILENCE_S)
            channel.write(frame(self._welcome))
            frames = FrameReader(channel.reader)
            hello = await _next(frames, GREETING_S)
            if not isinstance(hello, Hello) or hello.site != self.site:
                raise SiteUnavailable(f"expected the agent of {self.site}, got {hello}")
            check_hello(hello, self._welcome)
        except Exception as error:  # whatever it was, the channel must be closed
            await asyncio.sleep(0.1)  # its last words may still be under way
            detail = f"{error}; it said: {channel.last_words() or 'nothing'}"
            await channel.close()
            raise SiteUnavailable(detail) from error
        self._channel, self._version, self._troubled = channel, hello.slurm_version, False
        self._out = FrameWriter(self._write)
        self.connections += 1
        self.questions.connected, self.questions.answers = True, hello.answers
        log.info("site_up", site=self.site, slurm=hello.slurm_version)
        self._last_epoch = _last_of_ours(hello, self._welcome)
        self._observe(self._up())
        if self.admission is not None:
            self.send(self.admission)
        pinging = asyncio.create_task(self._ping())
        try:
            while (message := await _next(frames, SILENCE_S)) is not None:
                self._take(message)
        finally:
            pinging.cancel()

    def _up(self) -> SiteUp:
        return SiteUp(site=self.site, slurm_version=self._version, last_epoch=self._last_epoch)

    async def _ping(self) -> None:
        while True:
            self.send(Ping())
            await asyncio.sleep(PING_S)

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
            case SnapshotTaken() | VerifyDone() | NodesTaken() | SignalDone():
                self.questions.take(message)
            case RecoverDone():
                self.recall.take(message)
            case Tidied() | UsageTaken() | CopyStatus() | LocalJobs():
                self._answered(message)
            case Trouble():
                if not self._troubled:
                    log.warning("site_trouble", site=self.site, detail=message.detail)
                    self._observe(SiteDown(site=self.site, detail=message.detail))
                self._troubled = True
            case CancelFailed():
                log.warning(
                    "cancel_failed",
                    site=self.site,
                    attempt=str(message.attempt),
                    detail=message.detail,
                )
            case _:
                self._observe_message(message)

    def send_admission(self, admission: Admission) -> None:
        """Tell what the site's admission rules need to know, now and whenever it comes up."""
        self.admission = admission
        self.send(admission)

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
            if self._troubled:
                self._troubled = False
                log.info("site_answers_again", site=self.site)
                self._observe(self._up())
            if message.problems != self._problems:
                self._problems = message.problems
                log.warning("site_problems", site=self.site, problems=list(message.problems))
        self._observe(SiteSent(site=self.site, message=message))


async def _next(frames: FrameReader, patience_s: float) -> FromAgent | None:
    body = await frames.next(patience_s)
    return None if body is None else from_agent_decoder.decode(body)


def check_hello(hello: Hello, welcome: Welcome) -> None:
    """Raises: SiteUnavailable: the agent is of another release, or serves another daemon."""
    if hello.protocol != PROTOCOL_VERSION:
        raise SiteUnavailable(
            f"agent speaks protocol {hello.protocol}, the daemon {PROTOCOL_VERSION}; "
            "install the same release"
        )
    if welcome.names and "names" not in hello.answers:
        raise SiteUnavailable(
            "agent is of an earlier release, which does not know sites.NAME.names; install the "
            "same release"
        )
    if welcome.mode is SiteMode.SHADOW and "shadow" not in hello.answers:
        raise SiteUnavailable(
            "agent is of an earlier release, which does not know sites.NAME.mode; install the "
            "same release"
        )
    if hello.other_log:
        raise SiteUnavailable(
            f"the site serves {_other_log(hello)}, and the log of this daemon began "
            f"{_date(welcome.log_began)}: nothing was changed there. If that log is lost, build it "
            "anew with federator recover; to take the site from it, start this daemon once with "
            "--displace"
        )
    if hello.last_epoch > welcome.epoch:
        raise SiteUnavailable(
            f"the site has served epoch {hello.last_epoch}, this daemon is of epoch "
            f"{welcome.epoch}: another daemon leads, or this one's log is an older copy or its "
            "clock is behind"
        )


def _other_log(hello: Hello) -> str:
    whose = f" of federation {hello.federation}" if hello.federation else ""
    since = f", begun {_date(hello.log_began)}" if hello.log_began else ""
    return f"another event log{whose}{since}, last {_date(hello.last_epoch)}"


def _date(epoch: int) -> str:
    """The date at which a daemon of the epoch began to lead; its number grows with Unix time."""
    return datetime.fromtimestamp(epoch, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")


def _last_of_ours(hello: Hello, welcome: Welcome) -> int:
    """The site's newest epoch; that of another federation or log says nothing about our log."""
    is_ours = hello.federation in ("", welcome.federation)
    is_ours = is_ours and hello.log_began in (0, welcome.log_began)
    return hello.last_epoch if is_ours else 0
