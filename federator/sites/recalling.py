"""What does this site know of attempts? The answer to a queue that has forgotten, or is not sure.

All of it, or of those asked for: the order, whether it is here, how it stands or how it ended.
What is under way is waited for, so that the answer is certain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import msgspec

from federator.errors import FederatorError
from federator.model.site import AttemptReport
from federator.model.workload import AttemptId
from federator.sites.calls import Message
from federator.sites.journal import Journal, Mark, Step
from federator.sites.kept_orders import KeptOrders
from federator.sites.launching import Launches
from federator.sites.protocol import Kept, RecoverAsk, RecoverDone

PART_BYTES: Final = 8 * 2**20  # of an answer; a message has at most MAX_FRAME_BYTES


class Recalling:
    """Answers ``RecoverAsk``.

    Args:
        journal: knows every attempt.
        kept: knows what was asked for, and how it ended.
        launches: has the last word on what is under way.
        known: the attempts of the last sweep.
        sweep: looks again; False when Slurm did not answer.
        send: sends a message to the daemon.
    """

    def __init__(
        self,
        journal: Journal,
        kept: KeptOrders,
        launches: Launches,
        *,
        known: Callable[[], Mapping[AttemptId, AttemptReport]],
        sweep: Callable[[], Awaitable[bool]],
        send: Callable[[Message], None],
    ) -> None:
        self._journal = journal
        self._kept = kept
        self._launches = launches
        self._known = known
        self._sweep = sweep
        self._send = send

    async def answer(self, ask: RecoverAsk) -> None:
        """Tell, in parts of moderate size."""
        try:
            if not await self._sweep():
                raise FederatorError("slurmctld does not answer")
            marks = self._journal.marks()  # who is given up meanwhile was not known before
            told = await self._recall(ask.attempts)
            if not ask.attempts:
                told += self._unmarked()
            parts = _parts(told)
            await self._launches.gone([a for a in ask.attempts if a not in marks])
        except FederatorError as error:
            self._send(RecoverDone(ask_id=ask.ask_id, last=True, detail=str(error)[:500]))
            return
        for part in parts:
            self._send(RecoverDone(ask_id=ask.ask_id, kept=part))
        self._send(RecoverDone(ask_id=ask.ask_id, last=True))

    async def _recall(self, asked: Iterable[AttemptId]) -> list[Kept]:
        attempts = list(asked) or list(self._journal.marks())
        marks = await asyncio.gather(*(self._launches.settled(a) for a in attempts))
        standing = {a: mark for a, mark in zip(attempts, marks, strict=True) if mark is not None}
        reports = {a: self._known()[a] for a in standing if a in self._known()}
        reports |= await self._launches.ended([a for a in standing if a not in reports])
        reports = {r.attempt: r for r in self._journal.located(reports.values())}
        return [self._told(a, mark, reports.get(a)) for a, mark in standing.items()]

    def _unmarked(self) -> list[Kept]:
        """What lives here and the journal does not know (any more): it must not run elsewhere too.

        Its comment alone names it, so its user may have made it up; the order tells, if it is here.
        """
        marks, found = self._journal.marks(), []
        for attempt, report in self._known().items():
            if attempt not in marks and not report.state.ended:
                order = self._kept.order(attempt)
                found.append(
                    Kept(attempt=attempt, user=report.user, site_job_id=report.site_job_id,
                         order=order if order is not None and order.user == report.user else None,
                         report=report)
                )  # fmt: skip
        return found

    def _told(self, attempt: AttemptId, mark: Mark, report: AttemptReport | None) -> Kept:
        return Kept(
            attempt=attempt,
            user=mark.user,
            site_job_id=mark.job_id,
            void=mark.step is Step.VOID,
            withdrawn=mark.withdrawn,
            cancelled=mark.cancelled,
            order=self._kept.order(attempt),
            report=report,
        )


def _parts(kept: Iterable[Kept]) -> Iterable[tuple[Kept, ...]]:
    part: list[Kept] = []
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
