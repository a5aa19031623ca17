"""Decides when the channel to another login node is opened ahead: the present one is silent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

SUSPECT_S: Final = 1.0  # without an answer; then the channel to another login node is opened ahead
SUSPECTS_EVERY_S: Final = 30.0  # at most: a machine that is busy is not made busier


class OpenedAhead(ABC):
    """A way to a site that can open the next channel before the present one counts as lost."""

    def __init__(self) -> None:
        self._suspects_from_s = 0.0

    def silent(self, for_s: float, now_s: float) -> None:
        """Learn that the agent that serves the site has left a ping without answer for so long.

        To get to another node and to start an agent there takes as long as the rest of the
        silence that counts as a loss. So that is prepared after ``SUSPECT_S``, and given up when
        the site speaks again.
        """
        if for_s < SUSPECT_S:
            self.forget()
        elif now_s >= self._suspects_from_s and self.prepare():
            self._suspects_from_s = now_s + SUSPECTS_EVERY_S

    @abstractmethod
    def prepare(self) -> bool:
        """Begin to open the channel that comes next; False: none, or that has begun before.

        An agent that hears nothing of a daemon does nothing, and ends after a while.
        """

    @abstractmethod
    def forget(self) -> None:
        """Close what was prepared, if anything: the channel of before is not lost."""
