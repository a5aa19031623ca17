"""Looks at Slurm, and makes of each look what is known of the site: sweeps, one at a time.

A sweep is over once the folders that it gave reason to look into have been looked into, the leases
are as they should be, and the daemon has been told what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Final, Protocol

import msgspec

from federator.agent.base import Sweep, federated_and_local
from federator.agent.effects import Failure, KeepAlive, MakeSweep, NoteEndings, SettleLeases
from federator.agent.journal import JournalStep
from federator.agent.local_watch import LocalWatch
from federator.agent.memory import AgentMemory
from federator.agent.report_diff import ReportDiff
from federator.agent.requeue_causes import RequeueCauses
from federator.model.site import AttemptReport, GpuModel, RunningJob, SiteJobState
from federator.model.workload import AttemptId
from federator.sched.bid.site_scheduler import described, summarise
from federator.wire.agent_protocol import Trouble

WATCH_S: Final = 0.25  # sweep interval while a launch is on its way
REST_PER_SWEEP: Final = 4.0  # however much happens, slurmctld is left alone four times as long
LIVES_S: Final = 86_400.0  # between two notes that a job lives
Reports = Mapping[AttemptId, AttemptReport]


class Completing(Protocol):
    """Adds to the reports of a sweep what only a second question tells."""

    def looks(self, reports: Reports) -> list[int]:
        """Ask; the numbers of the effects that the sweep waits for."""
        ...

    def complete(self, reports: Reports) -> dict[AttemptId, AttemptReport]:
        """The same reports, with what was found."""
        ...


class Followers(Protocol):
    """The parts of the core that a sweep concerns."""

    def completing(self) -> Iterable[Completing]:
        """In the order in which they add to reports."""
        ...

    def swept(self, number: int) -> None:
        """Note that the sweep of that number has renewed what is known."""
        ...

    def blind(self, number: int) -> None:
        """Slurm did not answer."""
        ...

    def running(self, jobs: Iterable[RunningJob]) -> list[RunningJob]:
        """The same jobs, with when they were last saved."""
        ...

    def vanished(self, attempts: tuple[AttemptId, ...]) -> None:
        """The daemon was told of these before, and the sweep does not show them."""
        ...


class Sweeper:
    """Decides when to sweep, and takes what a sweep shows.

    Args:
        memory: shared.
        gpus: the federation's GPU models.
        poll_interval_s: between two sweeps while nothing happens.
    """

    def __init__(
        self, memory: AgentMemory, gpus: Mapping[str, GpuModel], poll_interval_s: float
    ) -> None:
        self._memory = memory
        self._gpus = gpus
        self._poll_interval_s = poll_interval_s
        self._followers: Followers | None = None
        self._setbacks = RequeueCauses(memory.scheduler.held_nodes)
        self._report_diff = ReportDiff()
        self._local_watch = LocalWatch()
        self._number = 0  # of the last sweep that was begun
        self._begun_s = self._ended_s = -inf
        self._sweep: Sweep | None = None  # whose folders are being looked into, or leases settled
        self._reports: dict[AttemptId, AttemptReport] = {}
        self._wanted = True
        self._open: set[int] = set()  # effects that the sweep waits for
        self._running = False
        self._waiters: list[tuple[int, Callable[[bool], None]]] = []
        self.swept_at_s = -inf
        self.rest_s = 0.0
        self.sees_all_nodes = True

    def serve(self, followers: Followers) -> None:
        """Say who is to be told of sweeps."""
        self._followers = followers

    # ---- when ----

    @property
    def next_number(self) -> int:
        """Of the first sweep that sees all that has happened so far."""
        return self._number + 1

    @property
    def age_s(self) -> float:
        """Time since Slurm last answered; -1: it has not answered yet."""
        age_s = self._memory.now.elapsed_s - self.swept_at_s
        return age_s if age_s < inf else -1.0

    def want(self) -> None:
        """Sweep as soon as the one under way is over."""
        self._wanted = True

    def when_swept(self, then: Callable[[bool], None]) -> None:
        """Call this after a sweep that begins from now on; with False if Slurm did not answer."""
        # The sweep under way may have begun before what the caller waits for, so it does not
        # count.
        self._waiters.append((self.next_number, then))
        self._wanted = True

    def next_s(self) -> float:
        """The time at which ``wake`` is to be called."""
        if self._running:
            return inf
        if self._wanted:
            return self._memory.now.elapsed_s
        if self._memory.ending:
            return inf
        return self._ended_s + max(self.rest_s, 0.0 if self._memory.sweep_soon else self._pause_s())

    def _pause_s(self) -> float:
        watching = self._memory.now.elapsed_s < self._memory.watch_until_s
        return min(WATCH_S, self._poll_interval_s) if watching else self._poll_interval_s

    def wake(self) -> None:
        """Begin a sweep if one is due."""
        memory = self._memory
        if self.next_s() > memory.now.elapsed_s:
            return
        self._number += 1
        self._wanted = memory.sweep_soon = False
        self._running = True
        self._begun_s = memory.now.elapsed_s
        memory.accepted_lately.clear()  # what is accepted from now on, the sweep may miss
        memory.emit(MakeSweep(number=memory.number()))

    # ---- one sweep ----

    def _failed(self, detail: str) -> None:
        assert self._followers is not None
        self._report_diff.reset()  # after trouble everything is told again
        self._memory.send(Trouble(detail=detail))
        self._followers.blind(self._number)
        self._end(ok=False)

    def made(self, _: MakeSweep, sweep: Sweep | Failure) -> None:
        """Slurm has answered, or not: look into the folders of those that have just ended."""
        assert self._followers is not None
        if isinstance(sweep, Failure):
            self._failed(sweep.detail)
            return
        memory, now_s = self._memory, self._memory.now.elapsed_s
        self.swept_at_s = now_s
        # A slow slurmctld is asked less often, or sweeps would be all that it does.
        self.rest_s = REST_PER_SWEEP * max(0.0, now_s - self._begun_s)
        self._sweep = sweep
        # Only genuine reports go on: any user may write any attempt into a job's comment.
        self._reports = self._setbacks.complete(memory.index.genuine(sweep.attempts), sweep.nodes)
        looks = [each.looks(self._reports) for each in self._followers.completing()]
        self._open = {number for numbers in looks for number in numbers}
        if not self._open:
            self._complete()

    def looked(self, number: int) -> None:
        """A folder was looked into, or did not answer."""
        if number in self._open:
            self._open.discard(number)
            if not self._open:
                self._complete()

    def _complete(self) -> None:
        """Take the sweep as what is known from now on."""
        assert self._followers is not None
        assert self._sweep is not None
        memory, sweep, known = self._memory, self._sweep, self._reports
        for each in self._followers.completing():
            known = each.complete(known)
        # Once more: some were launched while folders were looked into, and have a user by now.
        memory.known = known = memory.index.genuine(known.values())
        ended = tuple(r for a, r in known.items() if r.state.ended and memory.endings.get(a) != r)
        if ended:
            memory.emit(NoteEndings(reports=ended, at_s=memory.now.unix_s))
        self.sees_all_nodes = sweep.nodes_complete
        self._followers.swept(self._number)
        self._keep_live()
        running, local = federated_and_local(
            sweep.holders, {a: r.site_job_id for a, r in known.items()}
        )
        visible = {a for a, r in known.items() if r.state is not SiteJobState.PENDING}
        memory.scheduler.update(
            described(sweep.nodes, self._gpus),
            visible,
            switches=sweep.switches,
            running=self._followers.running(running),
            local=local,
            windows=sweep.windows,
        )
        memory.scheduler.count_licenses(sweep.licenses)
        memory.scheduler.know_qos(sweep.qos)
        memory.emit(SettleLeases(number=memory.number()))

    def _keep_live(self) -> None:
        """Keep the orders of what lives, however long ago they came."""
        memory, now_s = self._memory, self._memory.now.unix_s
        for attempt in memory.live():
            mark = memory.index.get(attempt)
            assert mark is not None
            if mark.step is JournalStep.JOB and now_s > max(mark.at_s, mark.lived_at_s) + LIVES_S:
                memory.write(attempt, replace(mark, lived_at_s=now_s))
                memory.emit(KeepAlive(attempt=attempt, at_s=now_s))

    def settled(self, _: SettleLeases, trouble: str | Failure) -> None:
        """The leases are as they should be; ``trouble``: why the spool cannot be used."""
        trouble = trouble.detail if isinstance(trouble, Failure) else trouble
        memory, sweep = self._memory, self._sweep
        assert sweep is not None
        memory.spool_trouble = trouble
        if trouble:
            sweep = replace(sweep, problems=(trouble, *sweep.problems))
        self._report(sweep)
        self._sweep, self._reports = None, {}
        self._end(ok=True)

    def _report(self, sweep: Sweep) -> None:
        """Tell the daemon what is new; of what is shown no more, how it ended may be known."""
        assert self._followers is not None
        memory, scheduler = self._memory, self._memory.scheduler
        for news in self._local_watch.news(sweep.local, memory.now.unix_s):
            memory.send(news)
        partitions = summarise(sweep.nodes, scheduler.partitions, scheduler.mix)
        report = self._report_diff.next_report(
            memory.known,
            memory.accepted_lately,
            scheduler.capacity,
            partitions,
            scheduler.freed,
            sweep,
        )
        if report is None:
            return
        gone = report.gone
        located = memory.index.located(report.attempts)
        report = msgspec.structs.replace(report, gone=(), attempts=located)
        tells = report.attempts or report.complete or report.capacity or report.partitions
        if tells or report.windows is not None or not gone:
            memory.send(report)
        if gone:
            self._followers.vanished(gone)

    def _end(self, *, ok: bool) -> None:
        self._running = False
        self._ended_s = self._memory.now.elapsed_s
        due = [then for number, then in self._waiters if number <= self._number]
        self._waiters = [each for each in self._waiters if each[0] > self._number]
        for then in due:
            then(ok)
