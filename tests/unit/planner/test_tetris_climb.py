"""Hill climbing: which tables move, in which order, and what is said of them."""

from __future__ import annotations

import numpy as np
import pytest

from federator.planner.tetris_climb import ClimbRules, climb
from federator.planner.tetris_cost import HomePlacement, TetrisWeights
from federator.planner.tetris_search import plan_homes
from federator.planner.tetris_words import move_text, size_text
from tests.unit.planner.warehouses import drawn, two_regions, weighed

READS = TetrisWeights(gpus=0.0, storage=0.0)


def test_a_move_says_what_it_saves_for_whom_and_what_is_to_move() -> None:
    warehouse = two_regions(gib=(2900.0, 384.0), home=(0, 1), jobs=((0, 1),))
    found = climb(HomePlacement(warehouse, READS), ClimbRules(per_gib=True))
    assert [move.tables for move in found.moves] == [(1,)]
    assert (
        move_text(found.moves[0], warehouse)
        == "table1: east -> west: saves 3.5 TB/day of remote reads for vision; 412 GB to move"
    )


def test_moves_go_by_gain_and_by_gain_per_gib_if_asked() -> None:
    # Table 1 gains most, table 3 most for each GiB.
    warehouse = two_regions(gib=(60.0, 40.0, 20.0, 1.0), home=(0, 1, 0, 1), jobs=((0, 1), (2, 3)))
    by_gain = climb(HomePlacement(warehouse, READS), ClimbRules(quota_gib=40.0))
    per_gib = climb(HomePlacement(warehouse, READS), ClimbRules(quota_gib=40.0, per_gib=True))
    assert [move.tables for move in by_gain.moves] == [(1,)]
    assert (by_gain.left_gib, by_gain.waiting) == (0.0, 1)
    assert [move.tables for move in per_gib.moves] == [(3,)]
    assert (per_gib.left_gib, per_gib.waiting) == (39.0, 2)


def test_pass_b_looks_again_before_it_moves() -> None:
    # Each of two tables would join the other; once one has moved, nothing is left to gain.
    warehouse = two_regions(gib=(5.0, 5.0), home=(0, 1), jobs=((0, 1),))
    found = climb(HomePlacement(warehouse, READS), ClimbRules())
    assert len(found.moves) == 1
    assert found.after.total == 0.0


def test_a_full_region_takes_no_table() -> None:
    warehouse = two_regions(gib=(60.0, 50.0), home=(0, 1), jobs=((0, 1),), storage_gib=100.0)
    assert climb(HomePlacement(warehouse, READS), ClimbRules()).moves == []


def test_tables_that_gain_only_together_move_together() -> None:
    jobs = ((0, 1, 2),)
    warehouse = two_regions(gib=(60.0, 5.0, 5.0), home=(0, 1, 1), jobs=jobs)
    full = two_regions(gib=(60.0, 5.0, 5.0), home=(0, 1, 1), jobs=jobs, storage_gib=69.0)
    paper = climb(HomePlacement(warehouse, READS), ClimbRules(quota_gib=20.0))
    ours = climb(HomePlacement(warehouse, READS), ClimbRules.ours(20.0))
    assert paper.moves == []
    assert [move.tables for move in ours.moves] == [(1, 2)]
    assert climb(HomePlacement(full, READS), ClimbRules.ours(20.0)).moves == []


@pytest.mark.parametrize("seed", range(10))
def test_a_plan_keeps_quota_and_constraints_and_its_gains_add_up(seed: int) -> None:
    warehouse = drawn(seed)
    quota = 0.3 * float(warehouse.tables.gib.sum())
    for kicks in (None, 60):
        at = HomePlacement(warehouse, weighed(warehouse))
        if kicks is None:
            found = climb(at, ClimbRules(quota_gib=quota))
        else:
            found = plan_homes(at, quota, kicks, seed)
        away = at.home != warehouse.tables.home
        assert at.gib[away].sum() <= quota * (1 + 1e-9)
        assert at.holds()
        assert found.after.total <= found.before.total
        gains = sum(move.gain.total for move in found.moves)
        assert gains == pytest.approx(found.before.total - found.after.total, abs=1e-6)
        home = warehouse.tables.home.copy()
        for move in found.moves:
            home[list(move.tables)] = move.to
        assert np.array_equal(home, at.home)


def test_the_same_seed_gives_the_same_plan() -> None:
    warehouse = drawn(3)
    plans = []
    for _ in range(2):
        at = HomePlacement(warehouse, weighed(warehouse))
        plan_homes(at, 50.0, 80, 7)
        plans.append(at.home.tolist())
    assert plans[0] == plans[1]


def test_sizes_have_three_digits() -> None:
    assert [size_text(gib) for gib in (0.0, 0.526, 384.0, 2900.0, 1e6)] == [
        "0.0 MB",
        "565 MB",
        "412 GB",
        "3.1 TB",
        "1.1 PB",
    ]
