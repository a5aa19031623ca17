"""Carries out changes of workloads, those of what they ask for only between passes."""

from __future__ import annotations

from federator.model.message import ControlAsked
from federator.sched.passes.control import control
from federator.sched.passes.eligibility import Eligibility
from federator.sched.passes.rounds import Rounds
from federator.sched.passes.transaction import Transaction


class JobUpdates:
    """Changes that users and operators ask for, and those that wait for the end of an open pass.

    Args:
        rounds: know whether a pass is open.
        eligibility: settles where a changed workload waits.
    """

    def __init__(self, rounds: Rounds, eligibility: Eligibility) -> None:
        self._rounds = rounds
        self._eligibility = eligibility
        self._waiting: list[ControlAsked] = []

    def take(self, turn: Transaction, asked: ControlAsked) -> None:
        """Change it now, or as soon as no pass is open."""
        if asked.amended and self._rounds.is_open:
            self._waiting.append(asked)  # the pass has asked sites for what it was
        else:
            control(turn, asked)

    def carry_out(self, turn: Transaction) -> None:
        """Change what has waited, unless a pass is open."""
        if self._rounds.is_open:
            return
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            control(turn, asked)
            self._eligibility.settle(turn)
