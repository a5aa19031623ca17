"""Policies with one strict queue, on traces that were worked by hand."""

from __future__ import annotations

import pytest

from federator.sim.baselines.ssf import services
from tests.fakes.traces import ends, pool, replay, starts, trace

# Four GPUs on one node. c blocks d, which would fit, until a ends; e is short and comes late.
BLOCKED = """
a  0 10 3
b  0  2 1
c  1  8 2
d  1  3 1
e  2  1 1
"""


@pytest.mark.parametrize("policy", ["pool-fifo", "pool-fifo-count"])
def test_the_first_job_that_does_not_fit_blocks_the_rest(policy: str) -> None:
    assert starts(trace(BLOCKED, pool("ant", 1, 4)), policy) == {
        "a": 0,
        "b": 0,
        "c": 10,
        "d": 10,
        "e": 10,
    }


@pytest.mark.parametrize("policy", ["pool-sjf", "pool-sjf-count"])
def test_the_shortest_goes_first_and_may_block_as_well(policy: str) -> None:
    # At 0: b, a. At 1 nothing is free. At 2 b ends: e (1 s). At 3: d. At 6: c is too wide.
    assert starts(trace(BLOCKED, pool("ant", 1, 4)), policy) == {
        "a": 0,
        "b": 0,
        "c": 10,
        "d": 3,
        "e": 2,
    }


def test_the_smallest_in_gpu_seconds_goes_first() -> None:
    jobs = trace("a 0 5 4\nwide 1 3 4\nthin 1 10 1\nlong 1 13 1", pool("ant", 4))
    assert services(jobs) == [20, 12, 10, 13]
    # thin (10) is first; then wide (12) does not fit beside it and blocks long (13).
    assert starts(jobs, "ssf") == {"a": 0, "thin": 5, "wide": 15, "long": 18}


def test_one_pool_of_all_gpus_serves_the_smallest_first() -> None:
    jobs = trace("a 0 9 2\nb 0 9 2\nc 0 1 2\nd 0 9 1 bee", pool("ant", 2), pool("bee", 2))
    # 4 GPUs: c (2), d (9), then a (18) does not fit into 1 GPU until c ends, nor b until d does.
    assert starts(jobs, "gssf") == {"a": 1, "b": 9, "c": 0, "d": 0}
    assert starts(jobs, "ssf") == {"a": 1, "b": 10, "c": 0, "d": 0}
    assert replay(jobs, "gssf").site == ["*"] * 4
    assert replay(jobs, "ssf").site == ["ant", "ant", "ant", "bee"]


def test_one_pool_of_all_gpus_lends_what_is_idle() -> None:
    jobs = trace("a 0 9 2\nb 0 9 2\nc 0 9 1 bee", pool("ant", 2), pool("bee", 3))
    assert starts(jobs, "ssf") == {"a": 0, "b": 9, "c": 0}
    assert starts(jobs, "gssf") == {"a": 0, "b": 0, "c": 0}


def test_an_end_frees_gpus_for_an_arrival_of_the_same_instant() -> None:
    jobs = trace("a 0 5 4\nb 5 1 4", pool("ant", 1, 4))
    for policy in (
        "pool-fifo",
        "pool-sjf",
        "pool-fifo-count",
        "pool-sjf-count",
        "ssf",
        "gssf",
        "maxmin",
    ):
        assert starts(jobs, policy) == {"a": 0, "b": 5}


@pytest.mark.parametrize("policy", ["pool-fifo", "pool-sjf"])
def test_nodes_are_chosen_after_the_ends_of_the_same_instant(policy: str) -> None:
    # Nodes of 4: x and y leave 1 free on node 0, z 1 on node 1. When x has ended at 5, node 1 is
    # the fuller and takes b, so that c finds 2 on node 0; chosen before, b would sit on node 0.
    jobs = trace("x 0 5 1\ny 0 9 2\nz 0 9 3\nb 5 9 1\nc 6 1 2", pool("ant", 2, 4))
    assert starts(jobs, policy) == {"x": 0, "y": 0, "z": 0, "b": 5, "c": 6}


def test_ties_go_to_the_earlier_submission_then_to_the_order_of_the_file() -> None:
    jobs = trace("x 0 2 1\nlate 1 3 1\nb 0 3 1\na 0 3 1", pool("ant", 1))
    assert starts(jobs, "pool-sjf") == {"x": 0, "b": 2, "a": 5, "late": 8}
    assert starts(jobs, "pool-fifo") == {"x": 0, "b": 2, "a": 5, "late": 8}


def test_a_file_need_not_be_sorted() -> None:
    jobs = trace("b 5 3 1\na 0 9 1", pool("ant", 1))
    assert starts(jobs, "pool-fifo") == {"a": 0, "b": 9}


def test_a_duration_of_0_counts_as_1_s() -> None:
    jobs = trace("a 0 0 1\nb 0 1 1\nc 0 0 1", pool("ant", 1))
    assert ends(jobs, "pool-sjf") == {"a": 1, "b": 2, "c": 3}


def test_a_small_job_goes_where_fewest_gpus_are_free() -> None:
    # Nodes of 4. a and b fill 3 of node 0; c (2) goes to node 1; d (1) fills node 0, so that
    # e (2) fills node 1 and f (4) still finds node 2 wholly free.
    jobs = trace("a 0 9 2\nb 0 9 1\nc 0 9 2\nd 0 9 1\ne 0 9 2\nf 0 9 4", pool("ant", 3, 4))
    assert set(starts(jobs, "pool-fifo").values()) == {0}


def test_a_wide_job_needs_wholly_free_nodes() -> None:
    # b (8 of 3 x 4) needs two of them; node 0 has a GPU in use, so nodes 1 and 2 do.
    jobs = trace("a 0 5 1\nb 0 5 8\nc 0 5 8", pool("ant", 3, 4))
    assert starts(jobs, "pool-fifo") == {"a": 0, "b": 0, "c": 5}
    jobs = trace("a 0 5 3\nb 0 7 3\nc 1 5 8", pool("ant", 3, 4))
    assert starts(jobs, "pool-fifo") == {"a": 0, "b": 0, "c": 5}
    assert starts(jobs, "pool-fifo-count") == {"a": 0, "b": 0, "c": 5}
    jobs = trace("a 0 5 2\nb 0 7 3\nc 1 5 7", pool("ant", 3, 4))  # as a counter it fits at once
    assert starts(jobs, "pool-fifo") == {"a": 0, "b": 0, "c": 5}
    assert starts(jobs, "pool-fifo-count") == {"a": 0, "b": 0, "c": 1}


def test_the_remainder_of_a_wide_job_goes_to_the_freest_node_that_is_left() -> None:
    # Nodes of 4: a leaves 1 free on node 0, b 2 on node 1. c (4 + 2) takes node 2 and half of node
    # 3, though node 1 would be a better fit, so f (4) finds no node.
    jobs = trace("a 0 9 3\nb 0 9 2\nc 0 9 6\nf 0 5 4", pool("ant", 4, 4))
    assert starts(jobs, "pool-fifo") == {"a": 0, "b": 0, "c": 0, "f": 9}


def test_pools_do_not_wait_for_each_other() -> None:
    jobs = trace("a 0 9 1\nb 0 9 1\nc 0 9 1 bee", pool("ant", 1), pool("bee", 1))
    table = replay(jobs, "pool-fifo")
    assert table.start_s == [0, 9, 0]
    assert table.site == ["ant", "ant", "bee"]
