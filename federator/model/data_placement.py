"""Plans of where data sets should be, and what the daemon has made of them."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

import msgspec

MOST_MOVES: Final = 500  # of one plan, which is one record of the log
MOST_SETS: Final = 2_000  # data sets of all of them
MOST_TOGETHER: Final = 1_000  # data sets of one move
DAY_S: Final = 86_400.0


class DataPlanning(Enum):
    """What follows from a plan of where data sets should be: ``data.planning``."""

    OFF = "off"  # there is none
    ADVISORY = "advisory"  # it is shown
    AUTOMATIC = "automatic"  # its moves are made, within the day's quota


class MovedSet(NamedTuple):
    """A data set of a move, and what there is to copy; 0 where it is there already."""

    name: str
    version: str
    size_bytes: int


class PlannedMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Data sets that gain together where they are copied to one storage domain."""

    sets: tuple[MovedSet, ...]
    to: str  # a storage domain
    home: bool = False  # it is their home then; else it is a further copy
    why: str = ""  # one line, for people

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.sets)


class DataPlacement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A plan of one moment; the moves in the order in which they are to be made.

    Costs are without a unit: 100 are the remote reads if everything were read remotely.
    """

    made_at_s: float  # Unix time, as the next
    expires_at_s: float  # from then on none of its moves is begun
    moves: tuple[PlannedMove, ...] = ()
    data_sets: int = 0  # that were looked at
    jobs: int = 0  # kinds of workloads that use them
    cost_before: float = 0.0
    cost_after: float = 0.0  # once the homes are where the plan has them
    bound: float | None = None  # of every placement of homes within the quota; None: not computed
    waiting: int = 0  # moves that would gain, and are larger than what is left of the quota
    nowhere: int = 0  # kinds of workloads that can run in no domain even then
    move_price: float = 0.0  # cost that one more GiB of quota would save
    storage_price: dict[str, float] = {}  # by domain, that one more GiB there would save

    def holds(self, now_s: float) -> bool:
        """Tell whether it has not expired."""
        return now_s < self.expires_at_s

    @property
    def of_best_frac(self) -> float | None:
        """The gain of the homes, of the most that may be possible; None: not known."""
        if self.bound is None:
            return None
        possible = self.cost_before - self.bound
        if possible <= 1e-9 * max(self.cost_before, 1e-9):
            return 1.0
        return (self.cost_before - self.cost_after) / possible


class BegunMove(NamedTuple):
    """A copy that was begun by a plan; it counts in the quota for a day, whatever becomes of it."""

    at_s: float
    name: str
    version: str
    domain: str
    size_bytes: int
