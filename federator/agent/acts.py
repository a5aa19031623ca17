"""Carries out the effects of an agent's core: the one place where an agent touches its site.

What is to be done at once is done in order, and its failure ends the agent. What takes long runs
beside everything else, so many of a kind at a time, and comes back as an observation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from federator.agent.base import (
    CheckpointStatus,
    KnownJobs,
    SbatchRefused,
    SiteDriver,
    SubmittedJob,
    Sweep,
)
from federator.agent.core import AgentCore
from federator.agent.effects import (
    AgentEffect,
    AskAccounts,
    AskKillWait,
    Failure,
    FindBoundJob,
    Inspect,
    KeepAlive,
    KeepOrder,
    Kill,
    Leased,
    MakeSweep,
    NoteEndings,
    Notify,
    OpenLease,
    ReadFolders,
    Release,
    Sbatch,
    Scancel,
    Send,
    SendRemembered,
    SettleLeases,
    Terminate,
    WriteMark,
)
from federator.agent.journal import Journal
from federator.agent.lease_wrapper import Starter, starter_of
from federator.agent.observations import Done, NotDone
from federator.agent.order_archive import OrderArchive
from federator.agent.spool import Spool
from federator.errors import FederatorError, InvalidRequest, SiteRefused, StaleState
from federator.model.reason import ReasonCode
from federator.model.site import AttemptReport
from federator.model.tagged import Message
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import LaunchOrder, RecoverDone, RememberedAttempt, SignalTo

LOOK_TAKES_S: Final = 5.0  # at most; a folder that does not answer is left alone for a while
PART_BYTES: Final = 8 * 2**20  # of an answer; a message has at most MAX_FRAME_BYTES
AT_ONCE: Final[Mapping[str, int]] = MappingProxyType(
    {
        "cancel": 4,
        "end": 8,
        "kill": 8,
        "shrink": 4,
        "tell": 8,
        "endings": 8,
        "saves": 2,
        "progress": 2,
        "inspect": 8,
    }
)
"""So many of a kind; others are as many as there are."""


class SiteActs:
    """The agent's acts at its site.

    Args:
        driver: this site's Slurm.
        journal: makes marks durable.
        kept: orders and endings on disk.
        spool: shows the site's hooks what may start.
        send: sends a message to the daemon.
        probing: probes that are on their way.
        scripts_consume: leases; otherwise the site's prolog does.
    """

    def __init__(  # noqa: PLR0913 - each is one edge of the agent
        self,
        driver: SiteDriver,
        journal: Journal,
        kept: OrderArchive,
        spool: Spool,
        send: Callable[[Message], None],
        *,
        probing: Callable[[AttemptId], bool],
        scripts_consume: bool,
    ) -> None:
        self._driver = driver
        self._journal = journal
        self._kept = kept
        self._spool = spool
        self._send = send
        self._probing = probing
        self._scripts_consume = scripts_consume
        self._lanes = {name: asyncio.Semaphore(count) for name, count in AT_ONCE.items()}
        self._at_once: Mapping[type[AgentEffect], Callable[[Any], None]] = {
            WriteMark: lambda e: journal.write(e.attempt, e.mark),
            KeepOrder: lambda e: kept.put(e.order),
            KeepAlive: lambda e: kept.extend(e.attempt, e.at_s),
            NoteEndings: lambda e: kept.record_ends(e.reports, e.at_s),
            Send: self._tell_daemon,
            SendRemembered: self._send_kept,
        }
        self._slow: Mapping[type[AgentEffect], Callable[[Any, AgentCore], Awaitable[Any]]] = {
            MakeSweep: self._sweep,
            SettleLeases: self._settle_leases,
            OpenLease: self._open_lease,
            Sbatch: self._sbatch,
            FindBoundJob: lambda e, _: spool.bound_job(e.attempt, e.user),
            Release: self._release,
            AskAccounts: self._ask_accounts,
            Scancel: self._scancel,
            Terminate: self._terminate,
            Kill: self._kill,
            Notify: self._notify,
            AskKillWait: lambda _e, _c: driver.kill_wait_s(),
            ReadFolders: self._look,
            Inspect: self._inspect,
        }

    def do_at_once(self, effect: AgentEffect) -> bool:
        """Carry it out, if it is one of those; False: it takes long.

        Raises:
            OSError: the agent's own files cannot be written.
        """
        act = self._at_once.get(type(effect))
        if act is None:
            return False
        act(effect)
        return True

    async def do(self, effect: AgentEffect, core: AgentCore) -> Done | NotDone:
        """Carry out what takes long; ``core`` tells how attempts stand by then.

        Raises:
            StaleState: another agent of this site acts.
        """
        try:
            return Done(effect=effect, value=await self._slow[type(effect)](effect, core))
        except StaleState:
            raise
        except SbatchRefused as error:
            failure = Failure(detail=str(error), refused=error.code)
        except SiteRefused as error:
            failure = Failure(detail=str(error), refused=ReasonCode.LAUNCH_REFUSED)
        except TimeoutError:
            failure = Failure(detail="no answer in time", timed_out=True)
        except FederatorError as error:
            failure = Failure(detail=str(error))
        return NotDone(effect=effect, failure=failure)

    # ---- the daemon ----

    def _tell_daemon(self, effect: Send) -> None:
        try:
            self._send(effect.message)
        except InvalidRequest:  # beyond a frame
            if effect.otherwise is None:
                raise
            self._send(effect.otherwise)

    def _send_kept(self, effect: SendRemembered) -> None:
        for part in _parts(map(self._with_order, effect.kept)):
            self._send(RecoverDone(ask_id=effect.ask_id, kept=part))
        self._send(RecoverDone(ask_id=effect.ask_id, last=True))

    def _with_order(self, kept: RememberedAttempt) -> RememberedAttempt:
        order = self._kept.order(kept.attempt)
        if order is None or order.user != kept.user:
            return kept
        return msgspec.structs.replace(kept, order=order)

    # ---- sweeps ----

    async def _sweep(self, _: MakeSweep, core: AgentCore) -> Sweep:
        index, supposed = self._journal.index, core.memory.supposed
        launched = {**index.launched, **supposed} if supposed else index.launched
        own = KnownJobs(launched=launched, begun=index.begun, ended=self._kept.ends())
        return await self._driver.sweep(own)

    async def _settle_leases(self, _: SettleLeases, core: AgentCore) -> str:
        """By how attempts stand while it is done: some are launched meanwhile.

        An agent that stood still does not know the launches of the one that acts now, and would
        take their leases for left over.
        """
        self._journal.tenure.check()
        memory = core.memory

        def is_over(attempt: AttemptId) -> bool:
            return not self._probing(attempt) and memory.is_over(attempt)

        await self._spool.settle(memory.live(), is_over, self._starter_again)
        return self._spool.trouble

    async def _release(self, effect: Release, _: AgentCore) -> bool:
        self._journal.tenure.check()
        return await self._spool.release(effect.attempt)

    async def _ask_accounts(self, effect: AskAccounts, _: AgentCore) -> tuple[AttemptReport, ...]:
        return tuple((await self._driver.accounts.ends_of(effect.missing)).values())

    # ---- launches ----

    async def _open_lease(self, effect: OpenLease, _: AgentCore) -> Leased:
        order = effect.order
        try:
            starter = self._starter(order)
        except ValueError as error:
            raise InvalidRequest(str(error)) from error
        token = await self._spool.open(order.attempt, order.user, starter)
        return Leased(token=token, start_line=starter.line if starter is not None else "")

    def _starter(self, order: LaunchOrder) -> Starter | None:
        if not self._scripts_consume:
            return None
        script = order.submission.script_bytes.decode("utf-8", "surrogateescape")
        return starter_of(script, order.attempt, str(self._spool.folder))

    def _starter_again(self, attempt: AttemptId) -> Starter | None:
        """The line that starts a begun attempt's script; None: nothing does, or it is lost."""
        order = self._kept.order(attempt) if self._scripts_consume else None
        try:
            return self._starter(order) if order is not None else None
        except (InvalidRequest, ValueError):  # its script is kept no more, say
            return None

    async def _sbatch(self, effect: Sbatch, _: AgentCore) -> SubmittedJob:
        token, start_line = effect.leased.token, effect.leased.start_line
        try:
            return await self._driver.launch(effect.order, token, start_line)
        except asyncio.CancelledError:  # the agent ends; sbatch may still need its ticket
            token = ""
            raise
        finally:
            await self._spool.shut(token)

    # ---- ends ----

    async def _scancel(self, effect: Scancel, _: AgentCore) -> bool:
        async with self._lanes[effect.lane]:
            return await self._driver.cancel(
                effect.user, effect.job_id, pending_only=effect.pending_only
            )

    async def _terminate(self, effect: Terminate, _: AgentCore) -> None:
        async with self._lanes["end"]:
            await self._driver.signal(effect.user, effect.job_id, "TERM", SignalTo.ALL)

    async def _kill(self, effect: Kill, _: AgentCore) -> None:
        try:
            async with self._lanes["kill"]:
                await self._driver.signal(effect.user, effect.job_id, "KILL", SignalTo.ALL)
        finally:
            async with self._lanes["end"]:
                await self._driver.cancel(effect.user, effect.job_id, pending_only=False)

    async def _notify(self, effect: Notify, _: AgentCore) -> None:
        async with self._lanes["tell"]:
            await self._driver.notify(effect.order, effect.leave_by_s)

    # ---- folders ----

    async def _look(self, effect: ReadFolders, _: AgentCore) -> tuple[CheckpointStatus, ...]:
        """Sweeps wait for those that have ended, however many users' folders do not answer."""
        if effect.lane == "endings":
            async with asyncio.timeout(LOOK_TAKES_S), self._lanes["endings"]:
                return tuple(await self._driver.read_checkpoint_status(effect.user, effect.orders))
        if effect.lane in {"saves", "progress"}:  # whose time begins with their turn
            async with self._lanes[effect.lane], asyncio.timeout(LOOK_TAKES_S):
                return tuple(await self._driver.read_checkpoint_status(effect.user, effect.orders))
        async with asyncio.timeout(LOOK_TAKES_S):
            return tuple(await self._driver.read_checkpoint_status(effect.user, effect.orders))

    async def _inspect(self, effect: Inspect, _: AgentCore) -> tuple[str, ...]:
        """One whose turn did not come in time is looked at later; one that hung is not."""
        orders = {a: self._kept.order(a) for a in effect.attempts}
        known = [o for o in orders.values() if o is not None and o.submission.components]
        found: dict[AttemptId, str] = {}
        if known:
            began = False
            try:
                async with asyncio.timeout(LOOK_TAKES_S), self._lanes["inspect"]:
                    began = True
                    seen = await self._driver.inspect(effect.user, known)
            except TimeoutError:
                if not began:
                    raise
            else:
                found = {o.attempt: text for o, text in zip(known, seen, strict=True)}
        return tuple(found.get(a, "") for a in effect.attempts)


def _parts(kept: Iterable[RememberedAttempt]) -> Iterable[tuple[RememberedAttempt, ...]]:
    part: list[RememberedAttempt] = []
    size = 0
    for one in kept:
        bytes_ = len(msgspec.msgpack.encode(one))
        if part and size + bytes_ > PART_BYTES:
            yield tuple(part)
            part, size = [], 0
        part.append(one)
        size += bytes_
    if part:
        yield tuple(part)
