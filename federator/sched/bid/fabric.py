"""The switch tree of a site, of any depth: distances between nodes and their locality cost.

A switch has height 0 when nodes hang on it (a leaf, a rack), else one more than the highest
below it, as Slurm counts levels. All switches without a parent hang on one root above them. Two
GPUs whose lowest common switch has height h are at distance d = h + 1; on one node d = 0.

Source:
    Fleet spec, eq. 2: cost = sum over pairs w(d), w(0) = 0, w(1) = 1, w(2) = 10. It stops at two
    levels; for deeper trees we go on with w(d) = 10 ** (d - 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ROOT: Final = "\0root"  # no switch can be called that
STEP: Final = 10.0  # how much farther each level is
MOST_LEVELS: Final = 12  # no network has so many; a site may say anything


class Fabric:
    """The switch tree of one site.

    Args:
        parents: the switch above each switch; what leads in a circle is cut off there, and so is
            what lies above ``MOST_LEVELS`` levels.
    """

    def __init__(self, parents: Mapping[str, str] | None = None) -> None:
        self.parents = {s: p for s, p in (parents or {}).items() if s and p}
        for switch in sorted(self.parents):
            self._cut(switch)
        self._heights = self._count_heights()
        self._root_height = 1 + max(self._heights.values(), default=0)
        self._above: dict[str, tuple[str, ...]] = {}

    def _cut(self, start: str) -> None:
        """Cut the way up from a switch where it comes back to itself, or has too many levels."""
        seen = [start]
        while (above := self.parents.get(seen[-1])) is not None:
            if above in seen or len(seen) > MOST_LEVELS:
                del self.parents[seen[-1]]
                return
            seen.append(above)

    def _count_heights(self) -> dict[str, int]:
        heights: dict[str, int] = {}
        for leaf in self.parents.keys() - set(self.parents.values()):
            switch: str | None = leaf
            height = 0
            while switch is not None and heights.get(switch, -1) < height:
                heights[switch] = height
                switch, height = self.parents.get(switch), height + 1
        return heights

    def height(self, switch: str) -> int:
        return self._root_height if switch == ROOT else self._heights.get(switch, 0)

    def above(self, leaf: str) -> tuple[str, ...]:
        """The switches over a leaf, the nearest first; the last is ``ROOT``."""
        known = self._above.get(leaf)
        if known is None:
            path = []
            switch = self.parents.get(leaf)
            while switch is not None:
                path.append(switch)
                switch = self.parents.get(switch)
            known = self._above[leaf] = (*path, ROOT)
        return known

    def weight(self, switch: str) -> float:
        """w(d) of two GPUs whose lowest common switch this is."""
        return float(STEP ** self.height(switch))

    def locality_cost(self, units: Mapping[str, list[int]]) -> float:
        """Sum of w(d) over all pairs.

        Args:
            units: by leaf switch, how many GPUs each chosen node under it gives.
        """
        if len(units) == 1:
            ((leaf, counts),) = units.items()
            return self.weight(leaf) * _pairs(counts)
        cost = 0.0
        below: dict[str, list[int]] = {}  # by switch, the sums of what hangs on it
        for leaf, counts in units.items():
            if self.height(leaf):  # nodes beside switches
                below.setdefault(leaf, []).extend(counts)
                continue
            cost += self.weight(leaf) * _pairs(counts)
            below.setdefault(self.above(leaf)[0], []).append(sum(counts))
        while below:
            switch = min(below, key=self.height)  # what is below it has all been counted
            sums = below.pop(switch)
            cost += self.weight(switch) * _pairs(sums)
            if switch != ROOT:
                above = self.parents.get(switch, ROOT)
                below.setdefault(above, []).append(sum(sums))
        return cost


def _pairs(counts: list[int]) -> float:
    """Pairs of units of which no two are in the same count."""
    return (sum(counts) ** 2 - sum(c * c for c in counts)) / 2
