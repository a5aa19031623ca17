"""Assigns nodes to partitions: the program's counts become named nodes, and moves with reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from federator.errors import FederatorError, InvalidRequest
from federator.planner.capacity.fleet import CapacityNode, Costs, EqualNodes, Want, groups_of
from federator.planner.capacity.program import AssignmentProgram, Rounded
from federator.planner.capacity.proof import PartitionHolding, Tally, holdings, homes_of

NEAR_FRAC: Final = 0.005
"""A plan that is further above the bound of the linear program is worth the search of a better
bound: mostly the plan is the best, and the bound is weak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A node that changes its partition; ``old`` or ``new`` is "" where it is in none."""

    node: CapacityNode
    old: str
    new: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """A want that cannot be met.

    Attributes:
        by: what it lacks when all wants together lack as little as possible.
        alone: what it lacks if no other want is there.
        usable: all that it may have, in its unit.
    """

    want: Want
    by: int
    alone: int
    usable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A plan, or the wants that stand against any.

    Attributes:
        moves: in the order of sites and nodes.
        before, after: each want, in order.
        cost: of the plan; None: there is none.
        bound: no plan costs less.
        short: wants that cannot be met; without a plan and empty: fractions of nodes would do, and
            no whole ones were found.
    """

    moves: tuple[Move, ...] = ()
    before: tuple[PartitionHolding, ...] = ()
    after: tuple[PartitionHolding, ...] = ()
    cost: float | None = None
    bound: float = 0.0
    short: tuple[Short, ...] = ()

    @property
    def above_frac(self) -> float:
        """How far above the bound the cost is, as a part of the bound."""
        if self.cost is None or self.cost - self.bound < 1e-6:
            return 0.0
        return (self.cost - self.bound) / self.bound if self.bound > 0 else float("inf")


def assign(
    nodes: Sequence[CapacityNode],
    wants: Sequence[Want],
    costs: Costs | None = None,
    limit_s: float = 10.0,
) -> Assignment:
    """Plan the partitions of all wants.

    Args:
        nodes: of all sites. Those that are not usable stay, and count nothing.
        wants: whose partitions the plan may change; a node in any other partition should come
            as one that is not usable.
        costs: of moves and preferences.
        limit_s: for each search of whole numbers; there are five at most.

    Raises:
        InvalidRequest: a node or a want is there twice, or HiGHS is not installed.
        FederatorError: the plan found does not hold.
    """
    costs = costs or Costs()
    groups = groups_of(nodes, wants)
    program = AssignmentProgram(groups, wants, costs, limit_s)
    found = program.whole_plan()
    before = holdings(nodes, wants, homes_of(nodes))
    if found is None:
        return Assignment(before=before, short=_short(program, groups, wants))
    homes = _Homes(nodes, wants, costs)
    homes.name(groups, program, found)
    homes.undo_needless()
    after = holdings(nodes, wants, homes.homes)
    for holding in after:
        if not holding.holds:
            raise FederatorError(
                f"the plan found leaves {holding.want.name} {holding.left} of "
                f"{holding.want.need} {holding.want.unit}, or too much in one domain; it is not "
                "shown, please report it"
            )
    cost, bound = homes.cost(), found.bound
    if cost - bound > max(NEAR_FRAC * bound, 1e-6):
        bound = min(cost, max(bound, program.searched_bound()))
    return Assignment(
        moves=_moves(nodes, homes, before), before=before, after=after, cost=cost, bound=bound
    )


def _short(
    program: AssignmentProgram, groups: Sequence[EqualNodes], wants: Sequence[Want]
) -> tuple[Short, ...]:
    found = []
    for want, lacking in zip(wants, program.shortages(), strict=True):
        by = _whole_amount(float(lacking))
        if by:
            single = AssignmentProgram(groups, [want], Costs())
            alone = _whole_amount(float(single.shortages()[0]))
            usable = sum(want.amount(node) for group in groups for node in group.nodes)
            found.append(Short(want=want, by=by, alone=alone, usable=usable))
    return tuple(found)


def _whole_amount(lacking: float) -> int:
    return int(-(-(lacking - 1e-6) // 1)) if lacking > 1e-6 else 0


@dataclass(slots=True)
class _Homes:
    """The partition of each node, while names are given and taken back."""

    nodes: Sequence[CapacityNode]
    wants: Sequence[Want]
    costs: Costs
    homes: dict[tuple[str, str], str] = field(init=False)
    _by_name: dict[str, Want] = field(init=False)

    def __post_init__(self) -> None:
        self.homes = homes_of(self.nodes)
        self._by_name = {want.name: want for want in self.wants}

    def home(self, node: CapacityNode) -> str:
        return self.homes[node.site, node.name]

    def name(
        self, groups: Sequence[EqualNodes], program: AssignmentProgram, found: Rounded
    ) -> None:
        """Of nodes alike, the idle ones move, and those in no partition first."""
        columns: list[list[tuple[int, int, bool]]] = [[] for _ in groups]
        for stay, count in zip(program.stays, found.nodes.tolist(), strict=True):
            columns[stay.group].append((stay.want, round(count), stay.new))
        for group, own in zip(groups, columns, strict=True):
            self._name_group(group, own)

    def _name_group(self, group: EqualNodes, columns: list[tuple[int, int, bool]]) -> None:
        totals: dict[int, int] = {}
        for want, count, _ in columns:
            totals[want] = totals.get(want, 0) + count
        by_home: dict[str, list[CapacityNode]] = {}
        for node in sorted(group.nodes, key=lambda node: (not node.busy, node.name)):
            by_home.setdefault(node.partition, []).append(node)  # busy ones first: they stay
        stay = {self.wants[want].name: count for want, count in totals.items()}
        free: list[CapacityNode] = []
        for home, own in by_home.items():
            keep = stay.get(home, 0) if home in self._by_name else 0
            free += own[keep:]
        free.sort(key=lambda node: (node.partition in self._by_name, node.busy, node.name))
        at = 0
        for want, total in totals.items():
            name = self.wants[want].name
            new = total - min(total, len(by_home.get(name, ())))
            for node in free[at : at + new]:
                self.homes[node.site, node.name] = name
            at += new
        for node in free[at:]:
            if node.partition in self._by_name:
                self.homes[node.site, node.name] = ""

    def undo_needless(self) -> None:
        """Take back each move without which all wants are met and nothing costs more."""
        tally = Tally(self.nodes, self.wants, self.homes)
        moved = [node for node in self.nodes if self.home(node) != node.partition]
        moved.sort(key=lambda node: (not node.partition, not node.busy, node.site, node.name))
        again = True
        while again:
            again = False
            for node in moved:
                if self.home(node) != node.partition and self._undone(node, tally):
                    again = True

    def _undone(self, node: CapacityNode, tally: Tally) -> bool:
        """Whether it is back where it was, for the better."""
        new, old = self.home(node), node.partition
        if self._cost_in(node, old) > self._cost_in(node, new):
            return False
        self._shift(node, tally, new, old)
        if all(tally.holding(name).holds for name in (new, old) if name in self._by_name):
            self.homes[node.site, node.name] = old
            return True
        self._shift(node, tally, old, new)
        return False

    def _shift(self, node: CapacityNode, tally: Tally, old: str, new: str) -> None:
        if old in self._by_name:
            tally.add(node, old, -1)
        if new in self._by_name:
            tally.add(node, new)

    def _cost_in(self, node: CapacityNode, home: str) -> float:
        moved, want = home != node.partition, self._by_name.get(home)
        cost = self.costs.drain if moved and node.partition in self._by_name else 0.0
        if want is not None:
            cost += self.costs.join if moved else 0.0
            cost += self.costs.of(want, node) if want.amount(node) else 0.0
        return cost

    def cost(self) -> float:
        return sum(self._cost_in(node, self.home(node)) for node in self.nodes)


def _moves(
    nodes: Sequence[CapacityNode], homes: _Homes, before: Sequence[PartitionHolding]
) -> tuple[Move, ...]:
    was = {holding.want.name: holding for holding in before}
    moved = [node for node in nodes if homes.home(node) != node.partition]
    givers = {node.partition for node in moved}
    moves = []
    for node in moved:
        old, new = node.partition, homes.home(node)
        why = _why(was.get(new), new in givers) if new else _why_out(was[old])
        moves.append(Move(node=node, old=old, new=new, why=why))
    return tuple(sorted(moves, key=lambda move: (move.node.site, move.node.name)))


def _why(was: PartitionHolding | None, gives: bool) -> str:
    """Why a partition gets nodes."""
    assert was is not None
    if was.lacks:
        loss = f" without {was.worst}" if was.worst else ""
        return f"{was.want.name} has {was.left} of {was.want.need} {was.want.unit}{loss}"
    if was.crowded:
        return f"{was.want.name} is too much in {was.crowded[0]}"
    if gives:
        return f"{was.want.name} gives others away"
    return f"{was.want.name} prefers it"


def _why_out(was: PartitionHolding) -> str:
    if was.crowded:
        return f"{was.want.name} is too much in {was.crowded[0]}"
    return f"{was.want.name} costs less without it"


def checked(found: Assignment) -> Assignment:
    """A plan, or why there is none, as an error.

    Raises:
        InvalidRequest: a want cannot be met.
    """
    if found.cost is not None:
        return found
    if not found.short:
        raise InvalidRequest(
            "no plan: parts of nodes would meet every want, and no whole nodes were found that do; "
            "lower a size by one node"
        )
    raise InvalidRequest("no plan: " + "; ".join(map(short_text, found.short)))


def short_text(short: Short) -> str:
    """A want that cannot be met, and by how much, in words."""
    want = short.want
    kinds = " or ".join(kind.value for kind in want.survives)
    asked = f"{want.need} {want.unit}" + (f" after the loss of any {kinds}" if kinds else "")
    asked += "".join(
        f", at most {share:.0%} in one {kind.value}" for kind, share in want.spread.items()
    )
    if short.alone:
        also = f"all that it may have is {short.usable}, and even alone it lacks {short.alone}"
    else:
        also = f"it may have {short.usable}, which others want, too"
    return f"{want.name} lacks {short.by} {want.unit}: it is to have {asked}; {also}"
