"""Decides what an agent does: observations in, effects out; no I/O, no clock, no waiting.

The same observations at the same times give the same effects, so a history can be replayed. What
must not be forgotten is written before what relies on it: effects are carried out in order, none
after a write that failed, and sbatch names the write itself (``after``). The state of an attempt
waits for at most one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

from federator.agent.attempt_orders import AttemptOrders
from federator.agent.base import CheckpointStatus
from federator.agent.bidding import SiteBids
from federator.agent.effects import (
    AgentEffect,
    AskAccounts,
    AskKillWait,
    Failure,
    FindBoundJob,
    Inspect,
    Kill,
    MakeSweep,
    NoteEndings,
    Notify,
    OpenLease,
    ReadFolders,
    Release,
    Sbatch,
    Scancel,
    SettleLeases,
    Terminate,
    WakeAt,
)
from federator.agent.evictions import Evictions
from federator.agent.folders import CheckpointTimes, LateCheckpoints, UnopenedFiles
from federator.agent.grace_acts import GraceActs
from federator.agent.grace_folders import GraceFolders
from federator.agent.journal import MarkIndex
from federator.agent.lost_sbatch import SEARCHED_BY_SWEEPS, LostSbatchSearch
from federator.agent.memory import AgentMemory
from federator.agent.observations import (
    AgentObservation,
    Done,
    HungUp,
    NotDone,
    Now,
    Ordered,
    SettingsChanged,
    Started,
    Woken,
)
from federator.agent.progress import ProgressLeases
from federator.agent.recall import Recall
from federator.agent.shrinks import Shrinks
from federator.agent.steps import Steps
from federator.agent.sweep_followers import SweepFollowers
from federator.agent.sweeping import Sweeper
from federator.agent.vanished import Vanished
from federator.model.site import AttemptReport
from federator.model.site_message import Ask, CancelOrder, ShrinkOrder
from federator.model.tagged import Message
from federator.model.workload import AttemptId
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.wire.agent_protocol import (
    LaunchOrder,
    Ping,
    Pong,
    PreemptOrder,
    RecoverAsk,
    SnapshotAsk,
    Welcome,
)


class AgentCore:
    """One connection's worth of an agent's decisions.

    Args:
        site: its name.
        index: the journal's memory.
        endings: how attempts ended, as far as this site has seen it; renewed by ``NoteEndings``.
        now: when the agent began.
        welcome: of the daemon that it serves.
    """

    def __init__(
        self,
        site: str,
        index: MarkIndex,
        endings: Mapping[AttemptId, AttemptReport],
        now: Now,
        welcome: Welcome,
    ) -> None:
        scheduler = SiteScheduler(welcome.partitions)
        self.memory = memory = AgentMemory(site, index, endings, now, scheduler)
        steps = Steps()
        self._sweeper = sweeper = Sweeper(memory, welcome.gpus, welcome.poll_interval_s)
        self._vanished = vanished = Vanished(memory)
        self._grace_acts, self._grace_folders = GraceActs(memory, steps), GraceFolders(memory)
        self._evictions = evictions = Evictions(
            memory, steps, sweeper, vanished, self._grace_acts, self._grace_folders
        )
        self._attempts = attempts = AttemptOrders(
            memory, steps, sweeper, vanished, evictions, self._settled
        )
        self._search = LostSbatchSearch(memory, steps, sweeper)
        self._recall = Recall(memory, sweeper, vanished, attempts.settle)
        self._shrinks = Shrinks(memory, sweeper)
        self._late, self._saves = LateCheckpoints(memory), CheckpointTimes(memory)
        self._unopened, self._progress = UnopenedFiles(memory), ProgressLeases(memory)
        self._bidding = SiteBids(memory, sweeper, self._saves)
        self._obeying, self._taking = self._orders(), self._answers()
        self._wake_at_s = inf
        # Graces first: only who was not told to leave is looked into otherwise.
        completing = (self._grace_folders, self._late, self._unopened, self._progress)
        sweeper.serve(
            SweepFollowers(
                memory=memory,
                steps=steps,
                search=self._search,
                evictions=evictions,
                gone=vanished,
                saves=self._saves,
                completes=completing,
            )
        )

    def handle(self, observation: AgentObservation, now: Now) -> list[AgentEffect]:
        """Take an observation; return what is to be done, in this order.

        Raises:
            StaleState: the daemon sent what none may.
        """
        self.memory.now = now
        match observation:
            case Ordered():
                self._obey(observation)
            case Done() | NotDone():
                self._take(observation)
            case SettingsChanged():
                self._sweeper.want()
            case HungUp():
                self.memory.ending = True
            case Started() | Woken():
                self._wake_at_s = inf
        self._wake()
        return self.memory.taken()

    def _settled(self, attempt: AttemptId) -> None:
        self._recall.settled(attempt)

    @property
    def sweeps_begun(self) -> int:
        """The number of sweeps begun so far."""
        return self._sweeper.next_number - 1

    @property
    def unfinished(self) -> bool:
        """Whether an order is being carried out that is to be finished before the agent ends.

        A search for a lost sbatch is not: the intent is in the journal, and meanwhile the site
        would be out of reach for as long as an sbatch may take.
        """
        return any(
            turn.order is not None
            for record in self.memory.records.values()
            if record.state not in SEARCHED_BY_SWEEPS
            for turn in record.turns
        )

    # ---- orders ----

    def _orders(self) -> Mapping[type[Message], Callable[[Any], None]]:
        return {
            Ping: lambda _: self.memory.send(Pong(sweep_age_s=self._sweeper.age_s)),
            SnapshotAsk: self._bidding.show,
            LaunchOrder: self._attempts.launch,
            CancelOrder: self._attempts.cancel,
            PreemptOrder: self._evictions.order,
            ShrinkOrder: self._shrinks.order,
            RecoverAsk: self._recall.ask,
        }

    def _obey(self, ordered: Ordered) -> None:
        if isinstance(ordered.message, Ask):
            self._bidding.ask(ordered.message, ordered.strangers)
        else:
            self._obeying[type(ordered.message)](ordered.message)

    # ---- answers: each taker gets the effect, and its value or why it has none ----

    def _answers(self) -> Mapping[type[AgentEffect], Callable[[Any, Any], None]]:
        return {
            MakeSweep: self._sweeper.made,
            SettleLeases: self._sweeper.settled,
            OpenLease: self._attempts.launches.leased,
            Sbatch: self._attempts.launches.submitted,
            FindBoundJob: self._search.bound,
            Release: self._released,
            AskAccounts: self._accounted,
            Scancel: self._cancelled,
            Terminate: self._grace_acts.acted,
            Kill: self._grace_acts.acted,
            Notify: self._grace_acts.notice_given,
            AskKillWait: self._grace_acts.kill_wait_is,
            ReadFolders: self._looked,
            Inspect: self._inspected,
        }

    def _take(self, answer: Done | NotDone) -> None:
        value = answer.value if isinstance(answer, Done) else answer.failure
        self._taking[type(answer.effect)](answer.effect, value)

    def _released(self, effect: Release, done: bool | Failure) -> None:
        if effect.gone:
            self._vanished.tell((effect.attempt,))
        else:
            self._search.released(effect, done)

    def _accounted(self, effect: AskAccounts, reports: Iterable[AttemptReport] | Failure) -> None:
        """Take the accounts' answer; silence proves nothing."""
        memory = self.memory
        ended = () if isinstance(reports, Failure) else tuple(map(memory.with_leave, reports))
        if ended:
            memory.emit(NoteEndings(reports=ended, at_s=memory.now.unix_s))
        found = {report.attempt: report for report in ended}
        if not self._vanished.accounted(effect.number, found):
            self._search.accounted(effect, found)

    def _cancelled(self, effect: Scancel, done: bool | Failure) -> None:
        match effect.lane:
            case "cancel":
                self._attempts.cancels.cancelled(effect, done)
            case "end":
                self._grace_acts.acted(effect, done)
            case _:
                self._shrinks.ended(effect, done)

    def _looked(self, effect: ReadFolders, seen: tuple[CheckpointStatus, ...] | Failure) -> None:
        match effect.lane:
            case "graces":
                self._grace_folders.looked(effect, seen)
            case "endings":
                self._late.looked(effect, seen)
            case "progress":
                self._progress.looked(effect, seen)
            case _:
                self._saves.looked(effect, seen)
        self._sweeper.looked(effect.number)

    def _inspected(self, effect: Inspect, found: tuple[str, ...] | Failure) -> None:
        self._unopened.inspected(effect, found)
        self._sweeper.looked(effect.number)

    # ---- time ----

    def _wake(self) -> None:
        """Do what is due, and say when the next thing is."""
        self._evictions.wake()
        self._search.wake()
        self._sweeper.wake()
        parts = (self._evictions, self._search, self._sweeper)
        at_s = min(part.next_s() for part in parts)
        if at_s < self._wake_at_s:
            self._wake_at_s = at_s
            self.memory.emit(WakeAt(at_s=at_s))
