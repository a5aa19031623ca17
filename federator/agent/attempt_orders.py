"""Takes orders to launch and to cancel attempts: each once, and one at a time for each.

An attempt whose job is known is never submitted again, one that was given up never at all, and one
whose outcome is not known is looked for first (``lost_sbatch``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from federator.agent.attempt_table import Act, AttemptEvent, AttemptState
from federator.agent.cancels import Cancels, ordered_to_end
from federator.agent.effects import Release
from federator.agent.evictions import Evictions
from federator.agent.journal import JournalMark, JournalStep
from federator.agent.launches import Launches
from federator.agent.memory import AgentMemory, AttemptRecord, OrderTurn
from federator.agent.order_turns import OrderTurns
from federator.agent.steps import Steps
from federator.agent.sweeping import Sweeper
from federator.agent.vanished import Vanished
from federator.model.site import SiteJobState
from federator.model.site_message import CancelOrder
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import LaunchOrder


class AttemptOrders:
    """Orders for attempts, and questions what has become of one.

    Args:
        memory: shared.
        steps: moves attempts.
        sweeper: looks again.
        vanished: tells of jobs that Slurm does not show.
        evictions: of those whose job was not known when they were to leave.
        settled: is told when somebody's question of an attempt can be answered.
    """

    def __init__(
        self,
        memory: AgentMemory,
        steps: Steps,
        sweeper: Sweeper,
        vanished: Vanished,
        evictions: Evictions,
        settled: Callable[[AttemptId], None],
    ) -> None:
        self._memory = memory
        self._steps = steps
        self._evictions = evictions
        self._settled = settled
        self._turns = turns = OrderTurns(memory, self._begin)
        self.launches = Launches(memory, steps, sweeper, vanished, turns)
        self.cancels = Cancels(memory, steps, vanished, turns)
        steps.add({Act.GIVE_UP: self._give_up, Act.ANSWER: self._answer})

    def launch(self, order: LaunchOrder) -> None:
        """Check the plan and hold its nodes at once; the rest when it is its turn."""
        memory, scheduler = self._memory, self._memory.scheduler
        mark, obstacle = memory.index.get(order.attempt), None
        if mark is None:
            obstacle = scheduler.holds(order.jobs, order.victims, order.shrinks)
        if obstacle is None and (
            mark is None or mark.step is JournalStep.INTENT or self._waits(order)
        ):
            ends_by_s = memory.now.unix_s + order.time_limit_s
            scheduler.hold(order.attempt, order.jobs, ends_by_s, order.victims, order.shrinks)
        self._turns.add(order.attempt, OrderTurn(order, obstacle))

    def cancel(self, order: CancelOrder) -> None:
        """End it, or see to it that it never starts; the daemon repeats what takes long."""
        record = self._memory.records.get(order.attempt)
        if record is None or all(turn.order != order for turn in record.turns):
            self._turns.add(order.attempt, OrderTurn(order))

    def settle(self, attempt: AttemptId) -> bool:
        """Find out for certain what has become of it; False: it is known."""
        record = self._memory.records.get(attempt)
        busy = record is not None and bool(record.turns)
        if not busy and self._memory.state_of(attempt) is not AttemptState.INTENT:
            return False
        if record is None or all(turn.order is not None for turn in record.turns):
            self._turns.add(attempt, OrderTurn(None))
        return True

    def _waits(self, order: LaunchOrder) -> bool:
        """The attempt is in Slurm's queue, so its nodes do not show it yet."""
        report = self._memory.known.get(order.attempt)
        return report is not None and report.state is SiteJobState.PENDING

    def _begin(self, record: AttemptRecord) -> None:
        order = record.turns[0].order
        if isinstance(order, LaunchOrder):
            self.launches.begin(record)
        elif order is not None:
            self.cancels.begin(record, order)
        else:
            self._steps.step(record, AttemptEvent.SETTLE)

    def _answer(self, record: AttemptRecord) -> None:
        """Its outcome is certain: go on with the order that waits for it."""
        self._evictions.job_is_known(record)
        if not record.turns:
            return
        order = record.turns[0].order
        if order is None:
            self._turns.end(record)
            self._settled(record.attempt)
        elif isinstance(order, CancelOrder):
            self.cancels.go_on(record, order)
        else:
            self.launches.answer(record, order)

    def _give_up(self, record: AttemptRecord) -> None:
        """It is not here and must never be: without a lease even a late sbatch starts nothing."""
        memory, order = self._memory, record.turns[0].order if record.turns else None
        known = memory.index.get(record.attempt)
        user = order.user if order is not None else known.user if known is not None else ""
        void = JournalMark(step=JournalStep.VOID, at_s=memory.now.unix_s, user=user)
        if known is not None:
            void = replace(void, withdrawn=known.withdrawn, cancelled=known.cancelled)
        if isinstance(order, CancelOrder):
            void = ordered_to_end(void, order)
        durable = memory.write(record.attempt, void)
        memory.supposed.pop(record.supposed, None)
        memory.scheduler.release(record.attempt)
        memory.emit(Release(number=memory.number(), after=durable, attempt=record.attempt))
