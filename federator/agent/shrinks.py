"""Ends optional components of het jobs, while the rest of each runs on.

Slurm ends a component alone only while the job runs, and never the first one. Nothing needs to be
remembered: an order comes again until a report shows that the components have ended.
"""

from __future__ import annotations

from federator.agent.effects import Failure, Scancel
from federator.agent.memory import AgentMemory, Looks
from federator.model.site import SiteJobState
from federator.model.site_message import ShrinkOrder
from federator.wire.agent_protocol import CancelFailed


class Shrinks:
    """Orders to shrink jobs of this site.

    Args:
        memory: shared.
        sweeper: looks again.
    """

    def __init__(self, memory: AgentMemory, sweeper: Looks) -> None:
        self._memory = memory
        self._sweeper = sweeper
        self._under_way: set[ShrinkOrder] = set()
        self._ending: dict[int, ShrinkOrder] = {}  # by the number of a scancel

    def order(self, order: ShrinkOrder) -> None:
        """End the components that run; harmless for those that have ended, or for another's job."""
        if order in self._under_way:  # the daemon repeats what takes long
            return
        self._under_way.add(order)
        if order.attempt in self._memory.known:
            self._begin(order)
        else:
            self._sweeper.when_swept(lambda _ok: self._begin(order))

    def _begin(self, order: ShrinkOrder) -> None:
        memory, report = self._memory, self._memory.known.get(order.attempt)
        if report is not None and report.user == order.user:
            for number in order.components:
                found = report.components.get(number)
                if number > 0 and found is not None and found.state is SiteJobState.RUNNING:
                    self._end(order, found.job_id)
            memory.watch()
        self._over(order)

    def _end(self, order: ShrinkOrder, job_id: int) -> None:
        number = self._memory.number()
        self._ending[number] = order
        self._memory.emit(
            Scancel(
                number=number, attempt=order.attempt, user=order.user, job_id=job_id, lane="shrink"
            )
        )

    def ended(self, effect: Scancel, done: bool | Failure) -> None:
        """A component was ended, or could not be."""
        order = self._ending.pop(effect.number)
        if isinstance(done, Failure):
            self._memory.send(CancelFailed(attempt=order.attempt, detail=done.detail))
        self._memory.watch()
        self._over(order)

    def _over(self, order: ShrinkOrder) -> None:
        if order not in self._ending.values():
            self._under_way.discard(order)
