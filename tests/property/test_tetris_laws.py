"""Laws of plans of where data is kept, over drawn small cases."""

from __future__ import annotations

import pytest

from federator.planner.tetris_cost import HomePlacement
from federator.planner.tetris_exact import ExactProblem
from federator.planner.tetris_search import plan_homes
from tests.unit.planner.warehouses import drawn, weighed

CASES, GROUPS = 32, 4  # a group is a test: they may run side by side
KICKS = 100


@pytest.mark.parametrize("group", range(GROUPS))
def test_homes_of_small_cases_cost_at_most_two_percent_more_than_the_least(group: int) -> None:
    """The least is that of a mixed-integer program, by HiGHS."""
    for seed in range(group, CASES, GROUPS):
        warehouse = drawn(seed, tables=8, regions=3, jobs=8)
        weights = weighed(warehouse)
        quota_gib = 0.5 * float(warehouse.tables.gib.sum())
        found = plan_homes(HomePlacement(warehouse, weights), quota_gib, KICKS, seed)
        best = ExactProblem(HomePlacement(warehouse, weights), quota_gib).solve().cost
        assert found.after.total <= 1.02 * best, f"case {seed}"
