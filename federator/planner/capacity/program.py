"""The linear program of machine assignment, and whole numbers near its optimum.

Columns count nodes of one group in one partition: those that stay, and those that are new there.
A column for each partition is its loss, the most of it in any domain that it is to survive.

Source: RAS (SOSP'21): a MIP over groups of equal servers, with the loss of a fault domain inside
the model. Its MIP as it is finds nothing near the bound at 10,000 nodes, so the linear program
comes first, and whole numbers are sought only between floor and ceiling of each variable.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd, inf, isfinite
from typing import Any, Final, NamedTuple

import numpy as np

from federator.planner.capacity.fleet import Costs, EqualNodes, FailureDomain, Want
from federator.planner.highs import new_highs, whole
from federator.planner.warehouse import F64

GAP_FRAC: Final = 0.002  # between the whole numbers found and the best in their range
WIDER: Final = (0, 1, 4)  # nodes beyond floor and ceiling, until whole numbers are found
_WHOLE: Final = 1e-6


class Stay(NamedTuple):
    """What a column counts: nodes of a group in a want's partition; new there, or not."""

    group: int
    want: int
    new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounded:
    """Attributes: nodes of each column, their cost, and a bound of every cost."""

    nodes: F64
    cost: float
    bound: float


@dataclass(slots=True)
class _Rows:
    """Rows and entries of a matrix, collected."""

    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    entries: list[tuple[int, int, float]] = field(default_factory=list)  # row, column, factor

    def row(self, low: float, high: float, terms: Sequence[tuple[int, float]]) -> None:
        number = len(self.low)
        self.low.append(low)
        self.high.append(high)
        self.entries += ((number, column, factor) for column, factor in terms)


class AssignmentProgram:
    """The program of some groups and wants.

    Args:
        groups: of equal nodes.
        wants: partitions.
        costs: of nodes.
        limit_s: for each search of whole numbers; there are four at most.
    """

    def __init__(
        self,
        groups: Sequence[EqualNodes],
        wants: Sequence[Want],
        costs: Costs,
        limit_s: float = 10.0,
    ) -> None:
        self._groups, self._wants, self._limit_s = groups, wants, limit_s
        self.stays: list[Stay] = []
        self._cost: list[float] = []
        self._upper: list[float] = []
        self._drains = costs.drain * sum(sum(group.here.values()) for group in groups)
        for number, group in enumerate(groups):
            self._columns_of(number, group, costs)
        self._losses = len(self.stays)  # the first of their columns
        self._cost += [0.0] * len(wants)
        self._upper += [inf] * len(wants)
        self._rows = _Rows()
        self._group_rows()
        self._size_rows = len(self._rows.low)  # the first of those of sizes
        self._want_rows()

    def _columns_of(self, number: int, group: EqualNodes, costs: Costs) -> None:
        for row, want in enumerate(self._wants):
            own = costs.of(want, group.first)
            allowed = want.amount(group.first) > 0
            if group.here.get(row):  # also where it is none that counts: it may stay
                self.stays.append(Stay(number, row, new=False))
                self._cost.append((own if allowed else 0.0) - costs.drain)
                self._upper.append(float(group.here[row]))
            if allowed:
                self.stays.append(Stay(number, row, new=True))
                self._cost.append(own + costs.join)
                self._upper.append(float(len(group.nodes)))

    def _group_rows(self) -> None:
        """No more nodes than there are."""
        terms: list[list[tuple[int, float]]] = [[] for _ in self._groups]
        for column, stay in enumerate(self.stays):
            terms[stay.group].append((column, 1.0))
        for group, own in zip(self._groups, terms, strict=True):
            self._rows.row(-inf, float(len(group.nodes)), own)

    def _want_rows(self) -> None:
        """First a row for the size of each want, then those of its domains."""
        terms: list[list[tuple[int, float]]] = [[] for _ in self._wants]
        for column, stay in enumerate(self.stays):
            amount = self._wants[stay.want].amount(self._groups[stay.group].first)
            if amount:
                terms[stay.want].append((column, float(amount)))
        for row, want in enumerate(self._wants):
            lost = [(self._losses + row, -1.0)] if want.survives else []
            # What whole nodes leave is a multiple of it: that lifts the bound, and bars no plan.
            step = gcd(*(int(amount) for _, amount in terms[row])) or 1
            self._rows.row(float(-(-want.need // step) * step), inf, terms[row] + lost)
        for row, want in enumerate(self._wants):
            for kind in {*want.survives, *want.spread}:
                self._domain_rows(row, kind, terms[row])

    def _domain_rows(self, row: int, kind: FailureDomain, terms: list[tuple[int, float]]) -> None:
        want = self._wants[row]
        by_domain: dict[str, list[tuple[int, float]]] = {}
        for column, amount in terms:
            name = self._groups[self.stays[column].group].first.domain(kind)
            by_domain.setdefault(name, []).append((column, amount))
        for own in by_domain.values():
            if kind in want.survives:
                self._rows.row(-inf, 0.0, [*own, (self._losses + row, -1.0)])
            if kind in want.spread:
                step = gcd(*(int(amount) for _, amount in own))
                self._rows.row(-inf, want.most_in(kind) // step * step, own)

    def whole_plan(self) -> Rounded | None:
        """Whole numbers of nodes that meet every want; None: none were found.

        Raises:
            InvalidRequest: HiGHS is not installed.
        """
        count = len(self.stays)
        relaxed = self._solved(self._model())
        if relaxed is None:
            return None
        values, bound = relaxed
        near = np.round(values[:count])
        if np.abs(values[:count] - near).max(initial=0.0) < _WHOLE:
            return Rounded(nodes=near, cost=bound, bound=bound)
        for wider in (*WIDER, None):
            found = self._solved(self._rounding(values, wider))
            if found is not None:
                nodes = np.round(found[0][:count])
                return Rounded(nodes=nodes, cost=found[1], bound=bound)
        return None

    def plain_plan(self) -> Rounded | None:
        """As a MIP without the linear program before it, for comparison."""
        model = self._rounding(np.zeros(len(self._cost)), None)
        found = self._solved(model)
        if found is None:
            return None
        bound = float(model.getInfo().mip_dual_bound) + self._drains
        return Rounded(nodes=np.round(found[0][: len(self.stays)]), cost=found[1], bound=bound)

    def searched_bound(self) -> float:
        """A bound by a search of all whole plans, for as long as it may take; it finds no plan.

        Where racks hold nodes of several sizes it lies far above that of the linear program.
        """
        model = self._rounding(np.zeros(len(self._cost)), None)
        model.run()
        bound = float(model.getInfo().mip_dual_bound)
        return bound + self._drains if isfinite(bound) else -inf

    def shortages(self) -> F64:
        """How much each want lacks when as little as possible is lacking; in its unit."""
        model = self._model(bare=True)
        for row in range(len(self._wants)):
            model.addCol(1.0, 0.0, inf, 1, [self._size_rows + row], [1.0])
        found = self._solved(model)
        assert found is not None  # no node anywhere lacks everything, and breaks nothing
        return found[0][len(self._cost) :]

    def _rounding(self, values: F64, wider: int | None) -> Any:
        """The program with whole numbers, between floor and ceiling or a little beyond."""
        model = self._model()
        columns = np.arange(len(self.stays), dtype=np.int32)
        if wider is not None:
            near = values[: len(columns)]
            upper = np.array(self._upper)[: len(columns)]
            low = np.clip(np.floor(near + _WHOLE) - wider, 0.0, upper)
            high = np.clip(np.ceil(near - _WHOLE) + wider, 0.0, upper)
            model.changeColsBounds(len(columns), columns, low, np.maximum(low, high))
        kinds = np.full(len(columns), int(whole().value), dtype=np.uint8)
        model.changeColsIntegrality(len(columns), columns, kinds)
        model.setOptionValue("time_limit", self._limit_s)
        model.setOptionValue("mip_rel_gap", GAP_FRAC)
        return model

    def _solved(self, model: Any) -> tuple[F64, float] | None:
        model.run()
        if model.getInfo().primal_solution_status != 2:  # feasible
            return None
        cost = float(model.getInfo().objective_function_value) + self._drains
        return np.array(model.getSolution().col_value), cost

    def _model(self, *, bare: bool = False) -> Any:
        """Without costs where ``bare``."""
        highspy = importlib.import_module("highspy")
        model, lp, rows = new_highs(), highspy.HighsLp(), self._rows
        lp.num_col_, lp.num_row_ = len(self._cost), len(rows.low)
        lp.col_cost_ = np.zeros(len(self._cost)) if bare else np.array(self._cost)
        lp.col_lower_, lp.col_upper_ = np.zeros(len(self._cost)), np.array(self._upper)
        lp.row_lower_, lp.row_upper_ = np.array(rows.low), np.array(rows.high)
        entries = sorted(rows.entries)
        counts = np.bincount([row for row, _, _ in entries], minlength=len(rows.low))
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        lp.a_matrix_.index_ = np.array([column for _, column, _ in entries], dtype=np.int32)
        lp.a_matrix_.value_ = np.array([factor for _, _, factor in entries])
        model.passModel(lp)
        return model
