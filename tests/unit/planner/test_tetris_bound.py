"""The bound lies below every placement, and plans of small cases are near the optimum."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace

import numpy as np
import pytest

from federator.errors import InvalidRequest
from federator.planner.tetris_bound import Certificate, certificate
from federator.planner.tetris_cost import HomePlacement, TetrisWeights
from federator.planner.tetris_exact import ExactProblem
from federator.planner.tetris_search import plan_homes
from federator.planner.tetris_words import certificate_text
from federator.planner.warehouse import Warehouse
from tests.unit.planner.warehouses import drawn, weighed


def all_costs(warehouse: Warehouse, quota_gib: float, weights: TetrisWeights) -> list[float]:
    """Of every placement that quota and constraints allow."""
    at = HomePlacement(warehouse, weights)
    costs = []
    for home in itertools.product(range(len(at.stored_gib)), repeat=len(at.home)):
        at.home = np.array(home, dtype=np.intp)
        moved = at.gib[at.home != warehouse.tables.home].sum()
        if moved <= quota_gib:
            at.refresh()
            if at.holds():
                costs.append(at.cost().total)
    return costs


@pytest.mark.parametrize("needs_gpus", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_bound_and_optimum_stand_to_all_placements_as_they_should(
    seed: int, needs_gpus: bool
) -> None:
    warehouse = drawn(seed, tables=6, jobs=8)
    quota = 0.5 * float(warehouse.tables.gib.sum())
    weights = replace(weighed(warehouse), needs_gpus=needs_gpus)
    best = min(all_costs(warehouse, quota, weights))
    exact = ExactProblem(HomePlacement(warehouse, weights), quota).solve()
    assert exact.cost == pytest.approx(best, rel=1e-3)
    assert exact.bound <= best * (1 + 1e-6)
    at = HomePlacement(warehouse, weights)
    found = plan_homes(at, quota, 300, seed)
    assert found.after.total <= best * 1.02
    for lp in (True, False):
        proof = certificate(HomePlacement(warehouse, weights), at, quota, steps=300, lp=lp)
        assert proof.bound <= best * (1 + 1e-9)
        assert proof.bound > 0
        assert proof.base >= proof.plan >= best - 1e-9


def test_the_linear_program_never_lowers_the_bound() -> None:
    warehouse = drawn(5)
    base, plan = (
        HomePlacement(warehouse, weighed(warehouse)),
        HomePlacement(warehouse, weighed(warehouse)),
    )
    plan_homes(plan, 40.0, 50, 0)
    with_lp = certificate(base, plan, 40.0, steps=60)
    without = certificate(base, plan, 40.0, steps=60, lp=False)
    assert with_lp.bound >= without.bound


def test_a_certificate_is_told_as_a_part_of_the_best_possible() -> None:
    proof = Certificate(
        base=200.0, plan=102.7, bound=100.0, move_price=0.0, storage_price=(), by_lp=True
    )
    assert proof.of_best_frac == pytest.approx(0.973)
    assert proof.above_frac == pytest.approx(0.027)
    assert certificate_text(proof).startswith("97.3 % of the best possible")


def test_without_highs_a_certificate_by_prices_alone_is_still_possible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    warehouse = drawn(1)
    at = HomePlacement(warehouse, weighed(warehouse))
    assert certificate(at, at, 10.0, steps=20, lp=False).by_lp is False
    with pytest.raises(InvalidRequest, match=r"needs highspy.*federator\[planner\]"):
        certificate(at, at, 10.0, steps=20)
