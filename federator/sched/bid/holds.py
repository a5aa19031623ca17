"""Keeps what launch orders take at a site until a sweep shows it, and who leaves for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from federator.model.plan import JobPlan, Shrink
from federator.model.workload import AttemptId
from federator.sched.bid.free_capacity import FreeCapacity


class Holds:
    """The holds of a site, by attempt."""

    def __init__(self) -> None:
        self._plans: dict[AttemptId, tuple[JobPlan, ...]] = {}
        self._end_by_s: dict[AttemptId, float] = {}
        self._clearing: dict[AttemptId, frozenset[Shrink]] = {}  # what must go for these holds

    def __contains__(self, attempt: AttemptId) -> bool:
        return attempt in self._plans

    def __iter__(self) -> Iterator[AttemptId]:
        return iter(self._plans)

    def add(
        self,
        attempt: AttemptId,
        plans: tuple[JobPlan, ...],
        ends_by_s: float,
        clearing: frozenset[Shrink],
    ) -> None:
        """Hold nodes for an attempt that has no hold.

        Args:
            attempt: whose launch.
            plans: what it takes.
            ends_by_s: when its time limit will be over, if it starts now.
            clearing: workloads, or optional jobs of them, that leave for it.
        """
        self._plans[attempt] = plans
        self._end_by_s[attempt] = ends_by_s
        if clearing:
            self._clearing[attempt] = clearing

    def remove(self, attempt: AttemptId) -> tuple[JobPlan, ...]:
        """Forget a hold that there is; returns what it took. Who leaves for it is not forgotten."""
        del self._end_by_s[attempt]
        return self._plans.pop(attempt)

    def cleared(self, attempt: AttemptId) -> bool:
        """Those who had to leave for a hold have left; False: nobody had to."""
        return self._clearing.pop(attempt, None) is not None

    @property
    def leaving(self) -> frozenset[Shrink]:
        """Everybody who leaves for a hold."""
        return frozenset(each for going in self._clearing.values() for each in going)

    def nodes_of(self, attempt: AttemptId) -> tuple[str, ...]:
        """The nodes of a hold; none where there is none."""
        plans = self._plans.get(attempt, ())
        return tuple(dict.fromkeys(name for plan in plans for name in plan.nodes))

    def endings(self) -> Iterator[tuple[float, tuple[JobPlan, ...]]]:
        """Until when, and what is held."""
        return ((self._end_by_s[attempt], plans) for attempt, plans in self._plans.items())

    def take_from(self, room: FreeCapacity) -> None:
        """Take all that is held from a room in which nothing is held yet."""
        for plans in self._plans.values():
            for plan in plans:
                room.take(plan)

    def take_again(self, room: FreeCapacity, names: Collection[str]) -> None:
        """Take what is held on these nodes, which are as a sweep has seen them."""
        for plans in self._plans.values():
            for plan in plans:
                for name in names & plan.nodes.keys():
                    if name in room.by_name:
                        room.by_name[name].take(plan.nodes[name])
