"""Finds what one round could start at best, if the nodes of all its jobs were chosen together.

The federation decides in rank order, one workload after the other, each at the best bid. The
integer program here decides all at once: a job of fewer GPUs than a node's takes a part of one
node, a larger one takes whole nodes of one site. Nodes that are alike are one to it, so it is
small: it has a node of each kind for each job at most.

Source:
    MAST sec. 5 decides one workload at a time as well; what a joint decision could gain at best is
    the question of ``federator experiment joint``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from federator.planner.highs import new_highs, whole
from federator.sim.experiments.placers import NODE_GPUS, Layout

_HALF: Final = 0.5


def best_round(
    layout: Layout,
    free: Sequence[int],
    gpus: Sequence[int],
    worth: Sequence[float],
    kept: frozenset[int] = frozenset(),
) -> frozenset[int]:
    """The jobs that start in a round of the greatest worth.

    Args:
        layout: of the fleet.
        free: GPUs of each node.
        gpus: that each job asks for: a part of a node, or whole nodes.
        worth: of each job that starts; more than 0, and no more for a later one of the same size.
        kept: jobs that have to start; together they can.

    Raises:
        InvalidRequest: HiGHS is not installed.
    """
    return _Round(layout, free, gpus).solve(worth, kept)


class _Round:
    """The program of a round: rows of columns with their factors, and both ends of each row."""

    def __init__(self, layout: Layout, free: Sequence[int], gpus: Sequence[int]) -> None:
        self._gpus = gpus
        self._starts: list[list[int]] = [[] for _ in gpus]  # columns by which each job may start
        self._columns = 0
        self._rows: list[tuple[dict[int, float], float]] = []  # at most so much
        parts = [job for job, asked in enumerate(gpus) if asked < NODE_GPUS]
        for node_free in _partly_free(free, len(parts)):
            self._share_node(parts, {}, node_free)
        for site in range(layout.sites):
            self._share_site(parts, sum(free[n] == NODE_GPUS for n in layout.nodes_of(site)))
        self._first_come()

    def solve(self, worth: Sequence[float], kept: frozenset[int]) -> frozenset[int]:
        model, highspy = new_highs(), importlib.import_module("highspy")
        lp, size = highspy.HighsLp(), self._columns
        jobs = [(dict.fromkeys(columns, 1.0), 1.0) for columns in self._starts]
        rows = jobs + self._rows
        costs = np.zeros(size)
        for job, columns in enumerate(self._starts):
            costs[columns] = -worth[job]
        lp.num_col_, lp.num_row_, lp.col_cost_ = size, len(rows), costs
        lp.col_lower_, lp.col_upper_ = np.zeros(size), np.ones(size)
        lp.integrality_ = [whole()] * size
        lower = np.full(len(rows), -np.inf)
        lower[list(kept)] = 1.0
        lp.row_lower_, lp.row_upper_ = lower, np.array([most for _, most in rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(row) for row, _ in rows)]).astype(np.int32)
        lp.a_matrix_.index_ = np.array([c for row, _ in rows for c in row], dtype=np.int32)
        lp.a_matrix_.value_ = np.array([f for row, _ in rows for f in row.values()])
        model.setOptionValue("mip_rel_gap", 0.0)
        model.passModel(lp)
        model.run()
        chosen = model.getSolution().col_value
        starts = enumerate(self._starts)
        return frozenset(job for job, columns in starts if any(chosen[c] > _HALF for c in columns))

    def _column(self) -> int:
        self._columns += 1
        return self._columns - 1

    def _share_node(self, parts: Sequence[int], row: dict[int, float], node_free: int) -> None:
        """A node that parts may be taken of; ``row`` holds what else counts in its sum."""
        for job in parts:
            if self._gpus[job] <= (node_free or NODE_GPUS):
                column = self._column()
                row[column] = self._gpus[job]
                self._starts[job].append(column)
        self._rows.append((row, node_free))

    def _share_site(self, parts: Sequence[int], whole_free: int) -> None:
        """Its whole free nodes, for gangs, or opened one after the other for parts."""
        used: dict[int, float] = {}
        for job, asked in enumerate(self._gpus):
            if asked >= NODE_GPUS and asked // NODE_GPUS <= whole_free:
                column = self._column()
                used[column] = asked // NODE_GPUS
                self._starts[job].append(column)
        before = None
        for _ in range(min(whole_free, len(parts))):
            opened = self._column()
            used[opened] = 1.0
            self._share_node(parts, {opened: -NODE_GPUS}, 0)
            if before is not None:
                self._rows.append(({opened: 1.0, before: -1.0}, 0.0))
            before = opened
        self._rows.append((used, whole_free))

    def _first_come(self) -> None:
        """Of two jobs of one size the later does not start without the earlier."""
        last: dict[int, int] = {}
        for job, asked in enumerate(self._gpus):
            earlier = last.get(asked)
            if earlier is not None:
                row = dict.fromkeys(self._starts[job], 1.0)
                row.update(dict.fromkeys(self._starts[earlier], -1.0))
                self._rows.append((row, 0.0))
            last[asked] = job


def _partly_free(free: Sequence[int], jobs: int) -> Iterator[int]:
    """Free GPUs of nodes that are neither full nor empty, of each kind no more than jobs."""
    for level in range(1, NODE_GPUS):
        yield from [level] * min(jobs, sum(gpus == level for gpus in free))
