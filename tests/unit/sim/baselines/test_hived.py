"""Cells of pools, and idle cells that are lent, on traces that were worked by hand."""

from __future__ import annotations

import pytest

from federator.sim.baselines.hived import CellSpace, HivedReplay
from federator.sim.experiments.base import seeded
from tests.fakes.traces import ends, pool, replay, starts, trace

HELD = HivedReplay(preempts=False)
NODES = (pool("ant", 1, 4), pool("bee", 1, 4))


def space(nodes: int, per_node: int, *owned: int) -> CellSpace:
    return CellSpace(nodes, per_node, list(owned), preempts=True)


def test_a_job_gets_the_cell_that_leaves_the_largest_whole() -> None:
    cells = space(1, 8, 1)
    cells.take([(0, 0b0111)], 0)  # 3 GPUs: the first of a cell of 4
    assert cells.guaranteed(0, 1) == [(0, 0b1000)]
    assert cells.guaranteed(0, 2) == [(0, 0b110000)]
    cells.take([(0, 0b1_0000)], 0)
    assert cells.guaranteed(0, 1) == [(0, 0b1000)]
    assert cells.guaranteed(0, 2) == [(0, 0b1100_0000)]
    assert cells.guaranteed(0, 4) is None


@pytest.mark.parametrize(("gpus", "mask"), [(1, 0b1), (2, 0b11), (3, 0b111), (4, None)])
def test_a_node_that_cannot_be_halved_splits_into_gpus(gpus: int, mask: int | None) -> None:
    cells = space(1, 6, 1)  # 6, 3, 1
    cells.take([(0, 0b11_1000)], 0)
    assert cells.guaranteed(0, gpus) == (None if mask is None else [(0, mask)])


def test_a_bound_node_is_its_pools_alone_until_the_last_of_its_jobs_ends() -> None:
    cells = space(3, 4, 1, 2)
    cells.take([(0, 0b1)], 0)
    assert cells.guaranteed(1, 1) == [(1, 0b1)]
    assert cells.guaranteed(0, 4) is None  # ant has no other node cell
    assert cells.guaranteed(1, 8) == [(1, 0b1111), (2, 0b1111)]
    cells.give([(0, 0b1)], 0)
    assert (cells.owner, cells.unbound) == ([-1, -1, -1], [1, 2])
    assert cells.guaranteed(1, 12) is None


def test_a_node_with_fewer_lent_gpus_is_bound_first() -> None:
    cells = space(2, 4, 1, 1)
    cells.take([(0, 0b1)], -1)
    assert cells.guaranteed(0, 4) == [(1, 0b1111)]
    assert cells.guaranteed(0, 1) == [(0, 0b10)]  # beside it nothing is stopped
    assert cells.idle(1) == [(0, 0b10)]
    cells.take([(1, 0b1)], 1)
    assert cells.idle(2) == [(0, 0b1100)]  # on no pool's node, though both are as good


def test_a_remainder_has_a_cell_of_its_own() -> None:
    cells = space(3, 4, 2, 1)
    assert cells.guaranteed(0, 6) == [(0, 0b1111), (1, 0b11)]
    assert cells.guaranteed(0, 9) is None
    assert cells.idle(6) == [(2, 0b1111), (1, 0b11)]
    assert cells.idle(12) == [(2, 0b1111), (1, 0b1111), (0, 0b1111)]


def test_whoever_was_lent_gpus_is_stopped_for_a_guaranteed_job() -> None:
    jobs = trace("a 0 10 4\nb 0 10 4\nc 5 10 4 bee", *NODES)
    found = replay(jobs, "hived")
    assert found.end_s == [10, 15, 15]  # b ran for 5 s on bee's node, and for 5 s on ant's
    assert found.preemptions == [0, 1, 0]
    assert ends(jobs, "pool-fifo") == {"a": 10, "b": 20, "c": 15}


def test_whoever_is_never_stopped_keeps_what_was_lent() -> None:
    jobs = trace("a 0 10 4\nb 0 10 4\nc 5 10 4 bee\nd 6 1 2", *NODES)
    assert ends(jobs, HELD) == {"a": 10, "b": 10, "c": 20, "d": 11}
    assert sum(replay(jobs, HELD).preemptions) == 0


def test_a_lent_job_becomes_guaranteed_where_it_is() -> None:
    # At 10 a ends, and b is ant's first. c then finds ant's old node.
    jobs = trace("a 0 10 4\nb 0 20 4\nc 12 10 4 bee", *NODES)
    found = replay(jobs, "hived")
    assert (found.end_s, found.preemptions) == ([10, 20, 22], [0, 0, 0])


def test_a_lent_job_moves_to_where_fewer_nodes_are_bound() -> None:
    # b (4) does not fit beside a and c on ant's node, and is lent bee's. When c ends it moves to
    # the half of ant's node that is free, since ant has no second node cell.
    eight = (pool("ant", 1, 8), pool("bee", 1, 8))
    jobs = trace("a 0 30 4\nc 0 10 4\nb 0 20 4", *eight)
    found = replay(jobs, "hived")
    assert (found.end_s, found.preemptions) == ([30, 10, 20], [0, 0, 1])


def test_idle_cells_go_to_the_pool_that_uses_least_and_small_jobs_pass_wide_ones() -> None:
    three = (pool("ant", 1, 4), pool("bee", 1, 4), pool("cat", 2, 4))
    lines = "a 0 99 4\nb 0 99 2 bee\nwide 1 9 8 cat\nlate 2 9 4\n"
    lines += "d 3 9 4 bee\ne 3 9 4 cat\nf 4 6 2 cat"
    found = starts(trace(lines, *three), "hived")
    # f passes those that came before it. At 10 e has a node of cat's, and d what is left.
    assert found == {"a": 0, "b": 0, "wide": 1, "late": 19, "d": 10, "e": 10, "f": 4}


def test_pools_of_other_nodes_share_nothing() -> None:
    jobs = trace("a 0 10 4\nb 0 10 4", pool("ant", 1, 4), pool("bee", 1, 8))
    assert starts(jobs, "hived") == {"a": 0, "b": 10}


@pytest.mark.parametrize("seed", range(200))
def test_no_job_of_whole_nodes_ends_later_than_alone(seed: int) -> None:
    """A job on part of a node may: what ran on lent cells ends earlier, and leaves other gaps."""
    draw = seeded(f"hived {seed}")
    lines = [
        f"{k} {draw.randrange(60)} {draw.randint(1, 20)} {draw.choice((4, 4, 8, 12))} "
        + draw.choice(("ant", "bee"))
        for k in range(30)
    ]
    jobs = trace("\n".join(lines), pool("ant", 3, 4), pool("bee", 3, 4))
    alone, shared = replay(jobs, "pool-fifo"), replay(jobs, "hived")
    assert all(a <= b for a, b in zip(shared.end_s, alone.end_s, strict=True))
