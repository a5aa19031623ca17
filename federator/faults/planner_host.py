"""A planner beside each daemon: it reads the shared log, and brings its plans to its own host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from federator.faults.daemon_host import DaemonHost
from federator.faults.process import Process, later
from federator.model.event import LogRecord, decode_event
from federator.model.lending import LendingPlan
from federator.planner.forecast import LatelyForecast
from federator.planner.lending_planner import LendingPlanner
from federator.planner.planner_clock import PlannerClock
from federator.wire.client_protocol import PlanCall, PlanReply

EVERY_S: Final = 10.0
RESTART_S: Final = 3.0
PATIENCE_S: Final = 20.0  # for an answer


class PlannerHost:
    """A service manager's planner: started again when it has ended.

    Args:
        daemon: of the same host.
        records: of the log that all daemons share; another list once it was compacted.
        clock: the host's.
        strikes: see ``Process``.

    Attributes:
        taken: the plans that a daemon took from it, in order.
        lasts_s: until a plan expires.
    """

    def __init__(
        self,
        daemon: DaemonHost,
        records: Callable[[], Sequence[bytes]],
        clock: Callable[[], float],
        strikes: Callable[[str, str], bool],
    ) -> None:
        self.daemon, self.clock = daemon, clock
        self._records, self._strikes = records, strikes
        self._read: dict[bytes, LogRecord] = {}
        self.process: Process | None = None
        self._time = PlannerClock(clock, daemon.monotonic)
        self.taken: list[LendingPlan] = []
        self.lasts_s = 900.0
        self._ended = False

    def start(self) -> None:
        """As systemd does."""
        if self.process is None and not self._ended:
            self.process = process = Process("planner", self._strikes)
            self._time = PlannerClock(self.clock, self.daemon.monotonic)
            process.when_dead(self._is_dead)
            process.spawn(self._run())

    def end(self) -> None:
        """The history is over."""
        self._ended = True
        if self.process is not None:
            self.process.die()

    def _is_dead(self) -> None:
        self.process = None
        later(RESTART_S, self.start)

    async def _run(self) -> None:
        while True:
            await self.bring(self._plan())
            await asyncio.sleep(EVERY_S)

    def _plan(self) -> LendingPlan:
        """All of the log is read each time: it is short here."""
        planner = LendingPlanner(self.daemon.config.tenancy(), LatelyForecast(), "lately")
        latest_s = 0.0
        for record in self._records():
            if (event := self._read.get(record)) is None:
                event = self._read[record] = decode_event(record)
            planner.take(event)
            latest_s = max(latest_s, event.at_s)
        self._time.hear(latest_s)
        return planner.plan(self._time(), self.lasts_s)

    async def bring(self, plan: LendingPlan) -> bool | None:
        """Whether the daemon took a plan; None: nobody answered."""
        try:
            call = PlanCall(plan=plan)
            reply = await asyncio.wait_for(self.daemon.ask_here("root", call), PATIENCE_S)
        except TimeoutError:
            return None
        if reply is None:
            return None
        if isinstance(reply, PlanReply):
            self.taken.append(plan)
        return isinstance(reply, PlanReply)
