"""Simulated users: they submit with a key, retry until they have an answer, and cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

import msgspec

from federator.faults.checks.answer_checks import AnswerChecks
from federator.faults.client_scripts import ClientScript
from federator.faults.kinds import FaultKind
from federator.model.lifecycle import TERMINAL, WorkloadState
from federator.model.message import ControlVerb
from federator.model.submission import Submission
from federator.wire.client_protocol import (
    Call,
    CancelCall,
    CancelReply,
    ControlCall,
    ControlReply,
    ErrorKind,
    ErrorReply,
    SessionCall,
    SessionReply,
    SubmitCall,
    SubmitReply,
)
from federator.wire.replies import Reply

PATIENCE_S: Final = 40.0  # of one command
AGAIN_S: Final = (1.0, 4.0)
ASKS_S: Final = 5.0  # a command at a terminal, how its job stands
LOOKS_S: Final = 1.0  # whether the job that its own is to wait for has an id
REFUSED: Final = 0  # in place of an id

Door = Callable[[str, Call], Awaitable[Reply | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBoard:
    """What the users of one history share.

    Attributes:
        doors: the sites' login nodes and the daemon's host; any will do.
        checks: told what was acknowledged.
        struck: told of each fault that befell.
        clock: Unix time, as users' hosts have it.
        ids: of what was submitted, by the script's number; ``REFUSED``: it was not taken.
    """

    doors: Sequence[Door]
    checks: AnswerChecks
    struck: Callable[[FaultKind], None]
    clock: Callable[[], float]
    ids: dict[int, int] = field(default_factory=dict)


class SimulatedUser:
    """Sees one script through.

    Args:
        script: see there.
        board: see there.
        rng: this user's own.
    """

    def __init__(self, script: ClientScript, board: JobBoard, rng: Random) -> None:
        self._script = script
        self._board = board
        self._checks = board.checks
        self._rng = rng
        self._submission = Submission(components=(), script="")  # known when it is submitted
        self.done = False

    @property
    def _known_as(self) -> str:
        return f"{self._script.user}:{self._script.key}"

    async def run(self) -> None:
        script = self._script
        await asyncio.sleep(script.at_s)
        after = await self._id_to_wait_for()
        id_ = REFUSED
        if after != REFUSED or script.waits_for is None:
            self._submission = script.submission(self._board.clock(), after)
            id_ = await self._submit(loses=script.loses_answer)
        self._board.ids[script.number] = id_
        if id_ != REFUSED:
            await self._see_through(id_)
        self.done = True

    async def _see_through(self, id_: int) -> None:
        script = self._script
        self._note_wishes()
        if script.asks_again:
            self._board.struck(FaultKind.CLIENT_RETRY)
            await self._submit(loses=False)
        if script.reuses_key:
            self._board.struck(FaultKind.CLIENT_REUSES_KEY)
            await self._submit_something_else()
        if script.released_after_s is not None:
            await asyncio.sleep(script.released_after_s)
            await self._release(id_)
        if script.terminal_s:
            await self._wait_at_terminal(id_)
        if script.cancel_after_s is not None:
            await asyncio.sleep(script.cancel_after_s)
            for turn in range(1 + script.cancels_twice):
                if turn:
                    self._board.struck(FaultKind.CLIENT_CANCELS_TWICE)
                await self._cancel(id_)

    async def _id_to_wait_for(self) -> int:
        chain = self._script.waits_for
        if chain is None:
            return REFUSED
        while chain.script not in self._board.ids:
            await asyncio.sleep(LOOKS_S)
        return self._board.ids[chain.script]

    def _note_wishes(self) -> None:
        script = self._script
        for kind, is_wished in (
            (FaultKind.CLIENT_NAMES_NODE, script.nodelist),
            (FaultKind.CLIENT_EXCLUDES_NODE, script.exclude),
            (FaultKind.CLIENT_SETS_DEADLINE, script.deadline_s),
            (FaultKind.CLIENT_CHAINS, script.waits_for),
        ):
            if is_wished:
                self._board.struck(kind)

    async def _submit(self, *, loses: bool) -> int:
        at_terminal = self._script.terminal_s > 0
        call = SubmitCall(
            submission=self._submission,
            key=self._script.key,
            interactive=at_terminal,
            watched=at_terminal,
        )
        while True:
            reply = await self._ask(call)
            if isinstance(reply, SubmitReply):
                if not loses:
                    self._checks.acknowledged(self._known_as, reply.id)
                    return reply.id
                loses = False
                self._board.struck(FaultKind.CLIENT_ANSWER_LOST)
            elif _is_refusal(reply):
                may_be_late = self._script.deadline_s > 0
                self._checks.refused(self._known_as, may_be_late=may_be_late)
                return REFUSED
            await asyncio.sleep(self._rng.uniform(*AGAIN_S))

    async def _submit_something_else(self) -> None:
        other = msgspec.structs.replace(self._submission, args=("--another",))
        while True:
            reply = await self._ask(SubmitCall(submission=other, key=self._script.key))
            if isinstance(reply, SubmitReply):
                self._checks.key_reused(self._known_as, reply.id)
                return
            if _is_refusal(reply):
                return
            await asyncio.sleep(self._rng.uniform(*AGAIN_S))

    async def _wait_at_terminal(self, id_: int) -> None:
        """Ask at one door how it stands, until it is over or the command dies."""
        dies_s = self._board.clock() + self._script.terminal_s
        door = self._rng.choice(self._board.doors)
        while self._board.clock() < dies_s:
            asked_at_s = self._board.clock()
            reply = await self._ask(SessionCall(id=id_), door)
            if isinstance(reply, SessionReply):
                self._checks.heard(id_, asked_at_s)
                if WorkloadState(reply.state) in TERMINAL:
                    return
            await asyncio.sleep(ASKS_S)
        self._board.struck(FaultKind.CLIENT_DIES)
        self._checks.died(id_)

    async def _release(self, id_: int) -> None:
        self._checks.release_asked(id_, len(self._script.tasks))
        call = ControlCall(verb=ControlVerb.RELEASE.value, ids=(str(id_),))
        while not isinstance(await self._ask(call), ControlReply):
            await asyncio.sleep(self._rng.uniform(*AGAIN_S))
        self._board.struck(FaultKind.CLIENT_RELEASES)

    async def _cancel(self, id_: int) -> None:
        tasks = self._script.tasks
        name, meant = str(id_), range(id_, id_ + max(1, len(tasks)))
        if tasks and self._script.cancels_one_task:
            self._board.struck(FaultKind.CLIENT_CANCELS_TASK)
            name, meant = f"{id_}_{tasks[-1]}", meant[-1:]
        for each in meant:
            self._checks.cancel_asked(each)
        while True:
            reply = await self._ask(CancelCall(ids=(name,)))
            if isinstance(reply, CancelReply):
                self._checks.cancelled(reply.ids)
                return
            await asyncio.sleep(self._rng.uniform(*AGAIN_S))

    async def _ask(self, call: Call, door: Door | None = None) -> Reply | None:
        door = door or self._rng.choice(self._board.doors)
        try:
            return await asyncio.wait_for(door(self._script.user, call), PATIENCE_S)
        except TimeoutError:
            return None


def _is_refusal(reply: Reply | None) -> bool:
    return isinstance(reply, ErrorReply) and reply.kind is ErrorKind.REQUEST
