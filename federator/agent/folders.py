"""Looks into the folders of attempts: what they saved, and which files Slurm could not open.

Three questions, all asked as the user, with time limits: a folder that does not answer holds up
nobody, and is taken for an empty one. Those that were told to leave are ``evictions``'.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from federator.agent.base import CheckpointStatus
from federator.agent.effects import Failure, Inspect, ReadFolders
from federator.agent.memory import AgentMemory
from federator.model.site import AttemptReport, RunningJob, SiteJobState
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import PreemptOrder

SAVES_EVERY_S: Final = 60.0  # between two looks into one running job's folder
NOT_OPENED: Final = 53  # the signal that Slurm names (22.05, 24.11 and 26.05; ``kill -53`` too)
ATTEMPTS_PER_LOOK: Final = 500
Reports = Mapping[AttemptId, AttemptReport]
_Seen = tuple[int, SiteJobState]  # restarts so far, and how it stands: looked at once in each
_ENDS_WITHOUT_NOTICE: Final = frozenset(
    {
        SiteJobState.NODE_FAIL,
        SiteJobState.BOOT_FAIL,
        SiteJobState.PREEMPTED,
        SiteJobState.TIMEOUT,
    }
)


class LateCheckpoints:
    """Checkpoints of attempts that ended, or were put back, without having been notified.

    A node fails, the site preempts or requeues, a time limit strikes: such an attempt has left its
    periodic checkpoints all the same, and can go on only where they are.

    Args:
        memory: shared.
    """

    def __init__(self, memory: AgentMemory) -> None:
        self._memory = memory
        self._looked: dict[AttemptId, _Seen] = {}
        self._saved_at_s: dict[AttemptId, float] = {}

    def looks(self, reports: Reports) -> list[int]:
        """Look into the folders of those that ended or were put back since the last sweep.

        Args:
            reports: of all genuine attempts at the site.
        """
        with_leave = self._memory.with_leave
        current = {
            a: (r.restarts, r.state)
            for a, r in reports.items()
            if _ended_without_notice(with_leave(r))
        }
        self._looked = {a: s for a, s in self._looked.items() if current.get(a) == s}
        self._saved_at_s = {a: at_s for a, at_s in self._saved_at_s.items() if a in self._looked}
        new = [a for a in current if a not in self._looked]
        self._looked = current
        return [
            self._memory.emit(
                ReadFolders(number=self._memory.number(), user=user, orders=orders, lane="endings")
            ).number
            for user, orders in folders_of(self._memory, new)
        ]

    def looked(self, look: ReadFolders, seen: tuple[CheckpointStatus, ...] | Failure) -> None:
        """Take what was seen."""
        if not isinstance(seen, Failure):
            self._saved_at_s |= _saves(look, seen)

    def complete(self, reports: Reports) -> dict[AttemptId, AttemptReport]:
        """The same reports, with ``saved_at_s``."""
        saved = self._saved_at_s
        return {a: replace(r, saved_at_s=saved[a]) if a in saved else r for a, r in reports.items()}


class CheckpointTimes:
    """Times of the last saves of jobs that run here and may be evicted, read now and then.

    Args:
        memory: shared.
    """

    def __init__(self, memory: AgentMemory) -> None:
        self._memory = memory
        self.evictable: Collection[int] = frozenset()  # workloads; others are not looked at
        self._looked_at_s: dict[AttemptId, float] = {}
        self._saved_at_s: dict[AttemptId, float] = {}
        self._busy: set[str] = set()  # users whose folders are being looked into

    def refresh(self) -> None:
        """Look again where the last look is ``SAVES_EVERY_S`` old; forget what runs no more."""
        memory = self._memory
        running = {a for a, r in memory.known.items() if self._counts(r)}
        self._looked_at_s = {a: s for a, s in self._looked_at_s.items() if a in running}
        self._saved_at_s = {a: s for a, s in self._saved_at_s.items() if a in running}
        due_s = memory.now.elapsed_s - SAVES_EVERY_S
        due = [a for a in running if self._looked_at_s.get(a, due_s) <= due_s]
        due.sort(key=lambda a: (self._looked_at_s.get(a, 0.0), str(a)))
        for user, orders in folders_of(memory, due):
            if user not in self._busy:  # else the next time
                self._busy.add(user)
                number = memory.number()
                memory.emit(ReadFolders(number=number, user=user, orders=orders, lane="saves"))

    def _counts(self, report: AttemptReport) -> bool:
        runs = report.state is SiteJobState.RUNNING and report.leave is None
        return runs and report.attempt.workload in self.evictable

    def looked(self, look: ReadFolders, seen: tuple[CheckpointStatus, ...] | Failure) -> None:
        """Take what was seen."""
        self._busy.discard(look.user)
        now_s = self._memory.now.elapsed_s
        self._looked_at_s.update((order.attempt, now_s) for order in look.orders)
        if not isinstance(seen, Failure):
            self._saved_at_s |= _saves(look, seen)

    def complete(self, running: Iterable[RunningJob]) -> list[RunningJob]:
        """The same jobs, with ``saved_at_s`` where it has been seen."""
        seen: dict[int, float] = {a.workload: at_s for a, at_s in self._saved_at_s.items()}
        return [replace(j, saved_at_s=seen[j.id]) if j.id in seen else j for j in running]


class UnopenedFiles:
    """Files that could not be opened for attempts that Slurm therefore ended.

    Slurm itself says no more than signal 53. The files of one user are looked at together, since a
    whole array may have ended at once.

    Args:
        memory: shared.
    """

    def __init__(self, memory: AgentMemory) -> None:
        self._memory = memory
        self._found: dict[AttemptId, str] = {}
        self._asked: set[AttemptId] = set()

    def looks(self, reports: Reports) -> list[int]:
        """Look at those that have ended so since the last sweep."""
        ended = {a: r.user for a, r in reports.items() if _was_not_opened(r)}
        self._found = {a: text for a, text in self._found.items() if a in ended}
        users: dict[str, list[AttemptId]] = {}
        for attempt, user in ended.items():
            if attempt not in self._found and attempt not in self._asked:
                users.setdefault(user, []).append(attempt)
        return [
            self._inspect(user, attempts[start : start + ATTEMPTS_PER_LOOK])
            for user, attempts in users.items()
            for start in range(0, len(attempts), ATTEMPTS_PER_LOOK)
        ]

    def _inspect(self, user: str, attempts: Iterable[AttemptId]) -> int:
        self._asked.update(attempts)
        number = self._memory.number()
        self._memory.emit(Inspect(number=number, user=user, attempts=tuple(attempts)))
        return number

    def inspected(self, inspect: Inspect, found: tuple[str, ...] | Failure) -> None:
        """Take what was found; those whose turn did not come are looked at after the next sweep."""
        self._asked.difference_update(inspect.attempts)
        if not isinstance(found, Failure):
            self._found |= zip(inspect.attempts, found, strict=True)
        elif not found.timed_out:
            self._found |= dict.fromkeys(inspect.attempts, "")

    def complete(self, reports: Reports) -> dict[AttemptId, AttemptReport]:
        """The same reports, with ``unopened``."""
        found = self._found
        return {a: replace(r, unopened=found[a]) if a in found else r for a, r in reports.items()}


def folders_of(
    memory: AgentMemory, attempts: Iterable[AttemptId]
) -> Iterator[tuple[str, tuple[PreemptOrder, ...]]]:
    """The checkpoint folders of attempts, by user, in the words of the site's helper.

    A user comes several times who has more of them than one look may take.
    """
    of_user: dict[str, list[PreemptOrder]] = {}
    for attempt in attempts:
        mark = memory.index.get(attempt)
        if mark is not None and mark.checkpoint_dir:
            of_user.setdefault(mark.user, []).append(
                PreemptOrder(
                    attempt=attempt,
                    user=mark.user,
                    site_job_id=mark.job_id,
                    grace_s=0.0,
                    checkpoint_dir=mark.checkpoint_dir,
                )
            )
    for user, orders in of_user.items():
        for start in range(0, len(orders), ATTEMPTS_PER_LOOK):
            yield user, tuple(orders[start : start + ATTEMPTS_PER_LOOK])


def _saves(look: ReadFolders, seen: Iterable[CheckpointStatus]) -> dict[AttemptId, float]:
    return {
        order.attempt: found.checkpointed_at_s
        for order, found in zip(look.orders, seen, strict=False)
        if found.checkpointed_at_s > 0
    }


def _ended_without_notice(report: AttemptReport) -> bool:
    put_back = report.state is SiteJobState.PENDING and report.restarts > 0
    return report.leave is None and (put_back or report.state in _ENDS_WITHOUT_NOTICE)


def _was_not_opened(report: AttemptReport) -> bool:
    return report.state is SiteJobState.FAILED and report.signal == NOT_OPENED
