"""Counts, node by node, what an assignment leaves each partition after any loss it is to survive.

It knows nothing of the program that made the assignment, so it judges it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from federator.planner.capacity.fleet import CapacityNode, FailureDomain, Want

Homes = Mapping[tuple[str, str], str]
"""The partition of each node that is in one, by its site and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHolding:
    """A partition's nodes, judged; amounts are in the want's unit.

    Attributes:
        amount: all that counts for it.
        worst: the domain whose loss takes most, such as ``rack alpine:r1``; "": it is to survive
            none, or has none.
        left: without that domain; without any, all of it.
        crowded: domains that hold more of it than they may.
    """

    want: Want
    nodes: int
    amount: int
    worst: str
    left: int
    crowded: tuple[str, ...]

    @property
    def lacks(self) -> int:
        """How much is missing after the worst loss."""
        return max(0, self.want.need - self.left)

    @property
    def holds(self) -> bool:
        return not self.lacks and not self.crowded


class Tally:
    """What the partitions have in each domain, kept as nodes come and go."""

    def __init__(self, nodes: Sequence[CapacityNode], wants: Sequence[Want], homes: Homes) -> None:
        self._wants = {want.name: want for want in wants}
        self._in: dict[str, dict[FailureDomain, Counter[str]]] = {
            want.name: {kind: Counter() for kind in {*want.survives, *want.spread}}
            for want in wants
        }
        self._amount: Counter[str] = Counter()
        self._nodes: Counter[str] = Counter()
        for node in nodes:
            home = homes.get((node.site, node.name), "")
            if home in self._wants:
                self.add(node, home)

    def add(self, node: CapacityNode, home: str, sign: int = 1) -> None:
        """Count a node in, or out with ``sign`` -1."""
        amount = sign * self._wants[home].amount(node)
        self._nodes[home] += sign
        self._amount[home] += amount
        for kind, counts in self._in[home].items():
            counts[node.domain(kind)] += amount

    def holding(self, name: str) -> PartitionHolding:
        """Each domain's loss is tried."""
        want, amount = self._wants[name], self._amount[name]
        losses = [
            (count, f"{kind.value} {place}")
            for kind in want.survives
            for place, count in self._in[name][kind].items()
        ]
        most, worst = max(losses, default=(0, ""), key=lambda pair: (pair[0], pair[1]))
        crowded = tuple(
            f"{kind.value} {place}"
            for kind in want.spread
            for place, count in sorted(self._in[name][kind].items())
            if count > want.most_in(kind)
        )
        return PartitionHolding(
            want=want,
            nodes=self._nodes[name],
            amount=amount,
            worst=worst if most else "",
            left=amount - most,
            crowded=crowded,
        )


def holdings(
    nodes: Sequence[CapacityNode], wants: Sequence[Want], homes: Homes
) -> tuple[PartitionHolding, ...]:
    """Of each want, in order."""
    tally = Tally(nodes, wants, homes)
    return tuple(tally.holding(want.name) for want in wants)


def homes_of(nodes: Sequence[CapacityNode]) -> dict[tuple[str, str], str]:
    """The partitions of nodes as they are."""
    return {(node.site, node.name): node.partition for node in nodes}
