"""Homes and copies decided together, as a mixed-integer program: small warehouses only.

It tells what is lost by deciding homes first and copies for them after; it plans nothing itself.
A training job has its region where each of its tables has a home or a copy, and may have none. An
analytics job has its region by homes, and reads what is there. Copies are of whole tables, take the
room that regions have for them, and do not count in the day's quota.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from federator.planner.tetris_cost import HomePlacement
from federator.planner.tetris_exact import ExactProblem
from federator.planner.warehouse import Bools, Index


class JointProblem(ExactProblem):
    """Builds and solves the program of a placement, a quota, and the room for copies.

    Args:
        base: where the quota counts from.
        quota_gib: for homes to move.
    """

    judged_by_homes = False  # its cost follows from the copies, too

    def __init__(self, base: HomePlacement, quota_gib: float) -> None:
        self._copy: Sequence[Sequence[int]] = ()
        super().__init__(base, quota_gib)

    def fix(self, home: Index, copied: Bools | None = None) -> None:
        """Decide no more where tables have their homes, nor which have copies, if that is told.

        Args:
            home: (T,) regions.
            copied: (T, R).
        """
        for table, region in enumerate(home.tolist()):
            self._program.row(1.0, 1.0, {self._of(table, region): 1.0})
        if copied is not None:
            for (table, region), there in np.ndenumerate(copied):
                value = float(there and region != home[table])
                self._program.row(value, value, {self._copy[table][region]: 1.0})

    def least(self, limit_s: float = 60.0) -> float:
        """A bound of every cost, within a ten thousandth of the least if time was enough."""
        return self.solve(limit_s).bound

    def _tables(self, quota_gib: float) -> None:
        super()._tables(quota_gib)
        at, n_regions = self._at, self._n_regions
        self._copy = [
            [self._program.column(0.0, 1.0, is_whole=True) for _ in range(n_regions)]
            for _ in range(len(at.gib))
        ]
        for region, room in enumerate(at.warehouse.regions.replica_gib.tolist()):
            used = {row[region]: float(g) for row, g in zip(self._copy, at.gib, strict=True)}
            self._program.row(0.0, min(room, float(at.gib.sum())), used)

    def _job(self, job: int) -> None:
        own = self._info.tables[self._info.first[job] : self._info.first[job + 1]].tolist()
        places = self._place[job].tolist()
        cost = float(self._at.read_cost[job])
        training = bool(self._info.training[job])
        if training:
            self._program.row(0.0, 1.0, dict.fromkeys(places, 1.0))
            self._constant += cost * float(self._at.job_gib[job])
        else:
            self._program.row(1.0, 1.0, dict.fromkeys(places, 1.0))
            self._majority(own, places)
        for region, place in enumerate(places):
            if not self._at.can_run[job, region]:
                self._program.row(0.0, 0.0, {place: 1.0})
                continue
            if training:
                self._program.model.changeColCost(place, -cost * float(self._at.job_gib[job]))
            for table in own:
                there = {self._of(table, region): -1.0, self._copy[table][region]: -1.0}
                if training:
                    self._program.row(-np.inf, 0.0, {place: 1.0, **there})
                    continue
                local = self._program.column(-cost * float(self._at.gib[table]), 1.0)
                self._program.row(-np.inf, 0.0, {local: 1.0, place: -1.0})
                self._program.row(-np.inf, 0.0, {local: 1.0, **there})
        if not training:
            self._constant += cost * float(self._at.job_gib[job])
