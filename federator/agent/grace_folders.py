"""Reads what attempts that must leave put into their folders: that they have saved, and when.

Deadlines wait for nothing that a user's folder can hold up: a look has a time limit, and one that
did not answer is not repeated for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Final

from federator.agent.base import CheckpointStatus
from federator.agent.effects import Failure, ReadFolders
from federator.agent.grace import AGAIN_S, whole
from federator.agent.memory import AgentMemory, AttemptRecord
from federator.model.site import AttemptReport, SiteJobState
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import PreemptOrder

LOOK_EVERY_S: Final = 1.0
LOOK_AGAIN_S: Final = 30.0  # at a folder that did not answer
_SAVED: Final = 85  # exit status: "checkpointed, start me again"


class GraceFolders:
    """Their folders, looked into while they leave and once more when they have ended.

    Args:
        memory: shared.
    """

    def __init__(self, memory: AgentMemory) -> None:
        self._memory = memory
        self._look_at_s: dict[str, float] = {}  # not before; by user; inf: one is under way
        self._ended: set[AttemptId] = set()  # whose last look the present sweep waits for
        self.next_s = inf  # when ``wake`` is to be called

    def watch(self) -> None:
        """One more must leave."""
        self.next_s = min(self.next_s, self._memory.now.elapsed_s + LOOK_EVERY_S)

    def wake(self) -> None:
        """Look if that is due."""
        now_s = self._memory.now.elapsed_s
        if self.next_s <= now_s:
            self.next_s = now_s + LOOK_EVERY_S if self._memory.leaving else inf
            self._look(list(self._memory.leaving.values()))

    def _look(self, records: list[AttemptRecord], *, last: bool = False) -> list[int]:
        """Read what they have left in their folders: one question for each user.

        ``last``: they have ended, so that another look under way does not do.
        """
        now_s, numbers = self._memory.now.elapsed_s, []
        for user, orders in _by_user(records):
            at_s = self._look_at_s.get(user, -inf)
            if at_s <= now_s or (last and at_s == inf):
                self._look_at_s[user] = inf
                number = self._memory.number()
                look = ReadFolders(number=number, user=user, orders=orders, lane="graces")
                self._memory.emit(look)
                numbers.append(number)
        return numbers

    def looked(self, look: ReadFolders, seen: tuple[CheckpointStatus, ...] | Failure) -> None:
        """Take what a job says; it counts from when it is seen: a file server has its own clock."""
        now_s = self._memory.now.elapsed_s
        if isinstance(seen, Failure):
            self._look_at_s[look.user] = now_s + (LOOK_AGAIN_S if seen.timed_out else AGAIN_S)
            return
        self._look_at_s[look.user] = now_s
        for order, found in zip(look.orders, seen, strict=False):
            record = self._memory.leaving.get(order.attempt)
            if record is None or record.grace is None:
                continue
            record.grace.checkpointed_at_s = found.checkpointed_at_s
            if found.acked_at_s and not record.grace.saved:
                record.grace.saved = True
                record.grace.tell_at_s = inf
                record.grace.act_at_s = min(record.grace.act_at_s, now_s)
                at_s = self._memory.now.unix_s
                notified_at_s = self._memory.mark(record.attempt).told_at_s or whole(at_s)
                self._memory.note(record.attempt, told_at_s=notified_at_s, saved_at_s=at_s)

    def looks(self, reports: Mapping[AttemptId, AttemptReport]) -> list[int]:
        """Look at those that have just ended; the numbers of the looks."""
        ended = [record for record, _ in self._just_ended(reports)]
        self._ended = {record.attempt for record in ended}
        return self._look(ended, last=True)

    def complete(
        self, reports: Mapping[AttemptId, AttemptReport]
    ) -> dict[AttemptId, AttemptReport]:
        """The same reports, with how those leave that were told to, and what they have left."""
        self._settle(reports)
        return {a: self._memory.with_leave(report) for a, report in reports.items()}

    def _settle(self, reports: Mapping[AttemptId, AttemptReport]) -> None:
        ended = [each for each in self._just_ended(reports) if each[0].attempt in self._ended]
        for record in self._memory.leaving.values():
            report = reports.get(record.attempt)
            if record.grace and report is not None and not report.state.ended:
                record.grace.shown += bool(self._memory.mark(record.attempt).told_at_s)
        for record, report in ended:
            assert record.grace is not None
            record.grace.settled = True
            # The agent's clock may be ahead of slurmctld's: a notice after the end would count as
            # none.
            if record.grace.shown > 1 and report.ended_at_s:  # the second sweep began after that
                notified_at_s = min(
                    self._memory.mark(record.attempt).told_at_s, report.ended_at_s
                )  # Slurm's clock
                self._memory.note(record.attempt, told_at_s=notified_at_s)
            self._memory.note(record.attempt, saved_at_s=self._saved_at_s(record, report))

    def _just_ended(
        self, reports: Mapping[AttemptId, AttemptReport]
    ) -> Iterator[tuple[AttemptRecord, AttemptReport]]:
        for attempt, record in self._memory.leaving.items():
            report = reports.get(attempt)
            settled = record.grace is None or record.grace.settled
            if report is not None and report.state.ended and not settled:
                yield record, report

    def _saved_at_s(self, record: AttemptRecord, report: AttemptReport) -> float:
        """The time of its last complete checkpoint, by all signs; not after its end."""
        mark = self._memory.mark(record.attempt)
        assert record.grace is not None
        signs = [mark.saved_at_s, record.grace.checkpointed_at_s]
        in_grace = mark.told_at_s and report.ended_at_s >= mark.told_at_s and not report.signal
        success = report.state is SiteJobState.COMPLETED and not report.exit_code
        if in_grace and (report.exit_code == _SAVED or success):
            signs.append(report.ended_at_s)
        return min(max(signs), max(report.ended_at_s, mark.told_at_s))


def _by_user(records: list[AttemptRecord]) -> Iterator[tuple[str, tuple[PreemptOrder, ...]]]:
    of_user: dict[str, list[PreemptOrder]] = {}
    for record in records:
        order = record.grace.order if record.grace is not None else None
        if order is not None and order.checkpoint_dir:
            of_user.setdefault(order.user, []).append(order)
    for user, orders in of_user.items():
        yield user, tuple(orders)
