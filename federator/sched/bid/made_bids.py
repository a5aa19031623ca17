"""Keeps the bids made so far in a message, which are taken from the room until all are answered.

A bid that is remembered is made without a look at the room, and taken from it only when somebody
looks at it.
"""

from __future__ import annotations

from federator.model.plan import Bid
from federator.model.workload import MAX_AMOUNT
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.preemption import redo, undo
from federator.sched.bid.running_jobs import Occupants


class MadeBids:
    """The bids of a message.

    Args:
        room: of the site.
        occupants: those that run there; victims among them.
    """

    def __init__(self, room: FreeCapacity, occupants: Occupants) -> None:
        self._room = room
        self._occupants = occupants
        self._taken: list[Bid] = []
        self._remembered: list[Bid] = []  # made after those, and not taken from the room yet
        self._least_gpus_held = MAX_AMOUNT  # of the nodes of all of these

    def add(self, bid: Bid, least_gpus: int) -> None:
        """A bid was made and taken from the room; ``least_gpus``: the least of its nodes has."""
        self._taken.append(bid)
        self._least_gpus_held = min(self._least_gpus_held, least_gpus)

    def remember(self, bid: Bid, least_gpus: int) -> None:
        """A bid was made without a look at the room."""
        self._remembered.append(bid)
        self._least_gpus_held = min(self._least_gpus_held, least_gpus)

    def take_remembered(self) -> None:
        """Take from the room what was bid without looking at it."""
        for bid in self._remembered:
            redo(bid, self._room, self._occupants)
        self._taken += self._remembered
        self._remembered = []

    def give_back(self, *last: Bid) -> None:
        """Give all back to the room, and a bid that was taken after them, until ``take``."""
        for bid in (*last, *self._taken):
            undo(bid, self._room, self._occupants)

    def take(self, *last: Bid) -> None:
        """Take all from the room again."""
        for bid in (*self._taken, *last):
            redo(bid, self._room, self._occupants)

    def may_spoil(self, bid: Bid) -> bool:
        """Tell whether these can have cost a bid a term of the score at all.

        Of ``gpus_unasked`` they have where they hold nodes with fewer GPUs. That they hold a fuller
        node of as many is not held against them: it would cost each CPU job a round.
        """
        if not self._taken:
            return False
        nodes = [self._room.by_name[name].node for plan in bid.jobs for name in plan.nodes]
        if bid.victims or bid.shrinks or len({node.switch for node in nodes}) > 1:
            return True
        most_gpus = max(node.gpus for node in nodes) if bid.score.gpus_unasked else 0
        return self._least_gpus_held < most_gpus

    def close(self) -> None:
        """Give all back for good: the room is as it was."""
        self.give_back()
        self._taken = []
