"""What one round could start if all its jobs were placed together."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import InvalidRequest
from federator.sim.experiments.base import run_here
from federator.sim.experiments.joint import JointExperiment
from federator.sim.experiments.placers import NODE_GPUS, Layout
from federator.sim.joint_round import best_round

TWO_SITES = Layout(sites=2, racks=1, nodes=2)


def fits(free: tuple[int, ...], gpus: list[int]) -> bool:
    """By trying all ways, largest first."""
    if not gpus:
        return True
    asked, rest = gpus[0], gpus[1:]
    ways: list[tuple[int, ...]]
    if asked < NODE_GPUS:
        ways = [(node,) for node in range(len(free)) if free[node] >= asked]
    else:
        sites = [TWO_SITES.nodes_of(site) for site in range(TWO_SITES.sites)]
        whole = [[node for node in nodes if free[node] == NODE_GPUS] for nodes in sites]
        ways = [way for nodes in whole for way in combinations(nodes, asked // NODE_GPUS)]
    return any(
        fits(tuple(n - asked // len(way) * (k in way) for k, n in enumerate(free)), rest)
        for way in ways
    )


def test_jobs_that_only_fit_if_they_are_placed_together() -> None:
    # Four GPUs on the node with four leave six for the second job.
    assert best_round(TWO_SITES, (6, 4, 0, 0), (4, 6), (2.0, 1.0)) == {0, 1}
    assert best_round(TWO_SITES, (6, 4, 0, 0), (4, 4, 6), (4.0, 2.0, 1.0)) == {0, 1}
    assert best_round(TWO_SITES, (6, 4, 0, 0), (4, 4, 6), (4.0, 4.0, 6.0)) == {0, 2}
    assert best_round(TWO_SITES, (8, 0, 8, 0), (16,), (1.0,)) == set()  # no gang over two sites
    assert best_round(TWO_SITES, (8, 8, 0, 0), (3, 16), (1.0, 16.0)) == {1}
    assert best_round(TWO_SITES, (8, 8, 0, 0), (3, 16), (1.0, 16.0), frozenset({0})) == {0}
    assert best_round(TWO_SITES, (0, 0, 0, 0), (1, 8), (1.0, 1.0)) == set()


@given(
    free=st.tuples(*[st.integers(0, NODE_GPUS)] * 4),
    gpus=st.lists(st.sampled_from((1, 2, 3, 5, 8, 16)), min_size=1, max_size=5),
    in_order=st.booleans(),
)
def test_no_choice_is_worth_more(free: tuple[int, ...], gpus: list[int], in_order: bool) -> None:
    count = len(gpus)
    worth = [2.0 ** (count - at) if in_order else float(gpus[at]) for at in range(count)]
    best = best_round(TWO_SITES, free, gpus, worth)
    assert fits(free, [gpus[at] for at in sorted(best, key=lambda at: -gpus[at])])
    sets = [chosen for k in range(count + 1) for chosen in combinations(range(count), k)]
    possible = [
        chosen
        for chosen in sets
        if fits(free, [gpus[at] for at in sorted(chosen, key=lambda at: -gpus[at])])
    ]
    assert sum(worth[at] for at in best) == max(sum(worth[at] for at in c) for c in possible)


def test_the_same_seed_has_the_same_rounds() -> None:
    few = JointExperiment(
        jobs=60,
        draws=1,
        sites=(2,),
        racks=2,
        loads=(1.5,),
        every_min=(30.0,),
        sizes=(3, 5, 16),
        shares=(0.4, 0.4, 0.2),
    )
    tables = [run_here(few, 1).table("summary") for _ in range(2)]
    solver = tables[0].columns.index("solver_median_ms")
    first, second = (table.rows[0][:solver] for table in tables)
    assert first == second
    setting, rounds, *fracs = first
    assert setting == "2 x 1.5, each 30 min"
    assert float(str(rounds)) > 0
    assert all(0 <= float(str(frac)) <= 1 for frac in fracs)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sites": (5,)}, "6 racks cannot be divided by 5"),
        ({"sizes": (12,), "shares": (1.0,)}, "12: expected a part of a node, or whole nodes"),
        ({"sizes": (1, 2), "shares": (1.0,)}, "expected one for each of sizes"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        JointExperiment(**settings).runs(0)  # type: ignore[arg-type]
