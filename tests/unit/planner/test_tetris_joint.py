"""Homes and copies decided together cost no more than one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from federator.planner.tetris_cost import HomePlacement, TetrisWeights
from federator.planner.tetris_exact import ExactProblem
from federator.planner.tetris_joint import JointProblem
from tests.unit.planner.warehouses import two_regions

REMOTE_ALONE = TetrisWeights(gpus=0.0, storage=0.0)


def test_a_copy_spares_what_no_home_could() -> None:
    warehouse = two_regions(gib=(10.0, 10.0), home=(0, 1), jobs=((0, 1),))
    base = HomePlacement(warehouse, REMOTE_ALONE)
    assert ExactProblem(base, quota_gib=0.0).solve().cost == pytest.approx(20.0)
    assert JointProblem(base, quota_gib=0.0).least() == pytest.approx(0.0, abs=1e-6)
    fixed = JointProblem(base, quota_gib=0.0)
    fixed.fix(base.home, np.zeros((2, 2), dtype=np.bool_))
    assert fixed.least() == pytest.approx(20.0)
