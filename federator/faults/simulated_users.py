"""Simulated users: they submit with a key, retry until they have an answer, and cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import msgspec

from federator.faults.checks.answer_checks import AnswerChecks
from federator.faults.kinds import FaultKind
from federator.model.submission import Option, Submission
from federator.slurm.options.quantities import array
from federator.wire.client_protocol import (
    Call,
    CancelCall,
    CancelReply,
    ErrorKind,
    ErrorReply,
    SubmitCall,
    SubmitReply,
)
from federator.wire.replies import Reply

PATIENCE_S: Final = 40.0  # of one command
AGAIN_S: Final = (1.0, 4.0)

Door = Callable[[str, Call], Awaitable[Reply | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientScript:
    """One submission, and what its owner does about it."""

    number: int
    at_s: float  # from the beginning
    user: str
    parts: tuple[tuple[int, int], ...]  # of each component: nodes, and GPUs of each; 0: CPUs alone
    time_limit_s: int
    array: str = ""  # as sbatch's --array; "": none
    cancel_after_s: float | None = None
    cancels_one_task: bool = False  # of an array, not all of it
    loses_answer: bool = False
    asks_again: bool = False  # though it knows
    cancels_twice: bool = False
    reuses_key: bool = False  # for something else

    @property
    def key(self) -> str:
        return f"wish-{self.number:04d}"

    @property
    def tasks(self) -> tuple[int, ...]:
        """The indices of its array; empty: it is none."""
        return array(self.array)[0] if self.array else ()

    @property
    def submission(self) -> Submission:
        return Submission(
            components=tuple(self._component(*part) for part in self.parts),
            script="#!/bin/sh\ntrue\n",
        )

    def _component(self, nodes: int, gpus: int) -> tuple[Option, ...]:
        minutes, seconds = divmod(self.time_limit_s, 60)
        asked = {
            "job-name": f"w{self.number}",
            "nodes": str(nodes),
            "time": f"{minutes}:{seconds:02d}",
        }
        asked |= {"gpus-per-node": str(gpus)} if gpus else {"cpus-per-task": "8"}
        asked |= {"array": self.array} if self.array else {}
        return tuple(Option(name=name, value=value) for name, value in asked.items())


class SimulatedUser:
    """Sees one wish through.

    Args:
        wish: see there.
        doors: the sites' login nodes and the daemon's host; any will do.
        model: is told what was acknowledged.
        rng: this user's own.
        struck: told of each fault that befell.
    """

    def __init__(
        self,
        wish: ClientScript,
        doors: Sequence[Door],
        checks: AnswerChecks,
        rng: Random,
        struck: Callable[[FaultKind], None],
    ) -> None:
        self._wish = wish
        self._doors = doors
        self._checks = checks
        self._rng = rng
        self._struck = struck
        self.done = False

    async def run(self) -> None:
        wish = self._wish
        await asyncio.sleep(wish.at_s)
        id_ = await self._submit(loses=wish.loses_answer)
        if wish.asks_again:
            self._struck(FaultKind.CLIENT_RETRY)
            await self._submit(loses=False)
        if wish.reuses_key:
            self._struck(FaultKind.CLIENT_REUSES_KEY)
            await self._submit_something_else()
        if wish.cancel_after_s is not None:
            await asyncio.sleep(wish.cancel_after_s)
            for turn in range(1 + wish.cancels_twice):
                if turn:
                    self._struck(FaultKind.CLIENT_CANCELS_TWICE)
                await self._cancel(id_)
        self.done = True

    async def _submit(self, *, loses: bool) -> int:
        call = SubmitCall(submission=self._wish.submission, key=self._wish.key)
        while True:
            reply = await self._ask(call)
            if isinstance(reply, SubmitReply):
                if not loses:
                    self._checks.acknowledged(f"{self._wish.user}:{self._wish.key}", reply.id)
                    return reply.id
                loses = False
                self._struck(FaultKind.CLIENT_ANSWER_LOST)
            await asyncio.sleep(self._rng.uniform(*AGAIN_S))

    async def _submit_something_else(self) -> None:
        other = msgspec.structs.replace(self._wish.submission, args=("--another",))
        while True:
            reply = await self._ask(SubmitCall(submission=other, key=self._wish.key))
            if isinstance(reply, SubmitReply):
                self._checks.key_reused(f"{self._wish.user}:{self._wish.key}", reply.id)
                return
            if isinstance(reply, ErrorReply) and reply.kind is ErrorKind.REQUEST:
                return
            await asyncio.sleep(self._rng.uniform(*AGAIN_S))

    async def _cancel(self, id_: int) -> None:
        tasks = self._wish.tasks
        name, meant = str(id_), range(id_, id_ + max(1, len(tasks)))
        if tasks and self._wish.cancels_one_task:
            self._struck(FaultKind.CLIENT_CANCELS_TASK)
            name, meant = f"{id_}_{tasks[-1]}", meant[-1:]
        for each in meant:
            self._checks.cancel_asked(each)
        while True:
            reply = await self._ask(CancelCall(ids=(name,)))
            if isinstance(reply, CancelReply):
                self._checks.cancelled(reply.ids)
                return
            await asyncio.sleep(self._rng.uniform(*AGAIN_S))

    async def _ask(self, call: Call) -> Reply | None:
        door = self._rng.choice(self._doors)
        try:
            return await asyncio.wait_for(door(self._wish.user, call), PATIENCE_S)
        except TimeoutError:
            return None
