"""Policies that share or preempt, on traces that were worked by hand."""

from __future__ import annotations

from federator.sim.baselines.themis import ThemisReplay
from federator.sim.baselines.tiresias import TiresiasReplay
from tests.fakes.traces import ends, pool, replay, starts, trace

TWO = pool("ant", 2), pool("bee", 2)


def test_maxmin_lends_idle_gpus_and_the_owner_waits() -> None:
    jobs = trace("a 0 9 1\nb 0 9 1\nc 0 9 1\nd 0 9 1\ne 1 2 1 bee", *TWO)
    assert starts(jobs, "maxmin") == {"a": 0, "b": 0, "c": 0, "d": 0, "e": 9}
    assert starts(jobs, "pool-fifo") == {"a": 0, "b": 0, "c": 9, "d": 9, "e": 1}


def test_maxmin_serves_the_pool_with_the_smaller_share_of_its_own() -> None:
    # At 5 one GPU comes free; ant uses 2 of 2, bee 1 of 2, so bee's job goes first.
    jobs = trace("a 0 9 1\nb 0 9 1\nx 0 5 1 bee\ny 0 9 1 bee\nc 1 3 1\nz 2 3 1 bee", *TWO)
    assert starts(jobs, "maxmin") == {"a": 0, "b": 0, "x": 0, "y": 0, "z": 5, "c": 8}


def test_maxmin_measures_use_by_what_a_pool_has() -> None:
    # 8 GPUs. x comes free at 4: ant uses 3 of 6, bee 2 of 2, so ant; a tie goes to the first pool.
    jobs = trace(
        "a 0 9 3\nx 0 4 3\ny 0 9 2 bee\nb 1 9 3\nz 1 9 2 bee", pool("ant", 6), pool("bee", 2)
    )
    assert starts(jobs, "maxmin") == {"a": 0, "x": 0, "y": 0, "b": 4, "z": 9}


def test_maxmin_passes_by_a_pool_whose_next_job_does_not_fit() -> None:
    jobs = trace("a 0 9 2\nb 0 9 1 bee\nc 1 9 2\nd 1 9 1\ne 2 9 1 bee", *TWO)
    # c (2) does not fit into the one GPU left, and d stays behind it; e goes.
    assert starts(jobs, "maxmin") == {"a": 0, "b": 0, "e": 2, "c": 9, "d": 9}


def test_tiresias_puts_who_had_less_service_first() -> None:
    las = TiresiasReplay(bounds_gpu_s=(4,))
    jobs = trace("a 0 6 1\nb 2 3 1\nc 5 2 1", pool("ant", 1))
    # a attains 4 at 4 and falls behind b, which runs 4-7 before it reaches 4; c came at 5 in the
    # upper queue, behind b, and runs 7-9; a has 2 s left.
    table = replay(jobs, las)
    assert ends(jobs, las) == {"a": 11, "b": 7, "c": 9}
    assert table.start_s == [9, 4, 7]
    assert table.preemptions == [1, 0, 0]


def test_tiresias_counts_service_in_gpu_seconds() -> None:
    las = TiresiasReplay(bounds_gpu_s=(4,))
    # Two GPUs: a attains 4 after 2 s; then b and c, which had nothing, take its place.
    jobs = trace("a 0 6 2\nb 1 3 1\nc 1 3 1", pool("ant", 2))
    assert ends(jobs, las) == {"a": 9, "b": 5, "c": 5}


def test_tiresias_skips_whom_too_few_gpus_are_left_for() -> None:
    jobs = trace("a 0 9 1\nb 0 9 2\nc 0 9 1", pool("ant", 2))
    assert starts(jobs, "tiresias") == {"a": 0, "b": 9, "c": 0}


def test_tiresias_bounds_are_those_of_the_fleet_chapter() -> None:
    # b comes after 1 GPU-hour of a; a is preempted for it, once.
    jobs = trace("a 0 9000 1\nb 4000 100 1", pool("ant", 1))
    assert ends(jobs, "tiresias") == {"a": 9100, "b": 4100}
    jobs = trace("a 0 9000 1\nb 3000 100 1", pool("ant", 1))
    assert ends(jobs, "tiresias") == {"a": 9100, "b": 3700}


def test_themis_gives_what_is_free_to_the_worst_off() -> None:
    # At 10: b has waited 9 for 10 s, rho 1.9; c 5 for 1 s, rho 6.
    jobs = trace("a 0 10 1\nb 1 10 1\nc 5 1 1", pool("ant", 1))
    assert starts(jobs, ThemisReplay(lease_s=None)) == {"a": 0, "c": 10, "b": 11}


def test_themis_gives_all_gpus_anew_when_leases_end() -> None:
    # At 4, end of the lease: b has waited 3 for 2 s, rho 2.5; a would end in time, rho 1.
    jobs = trace("a 0 10 1\nb 1 2 1", pool("ant", 1))
    table = replay(jobs, ThemisReplay(lease_s=4))
    assert (table.start_s, table.end_s, table.preemptions) == ([6, 4], [12, 6], [1, 0])
    assert starts(jobs, "themis") == {"a": 0, "b": 10}  # no lease of 20 minutes ends here


def test_themis_leaves_who_is_still_the_worst_off() -> None:
    jobs = trace("a 0 6 1\nb 3 30 1", pool("ant", 1))
    # At 4: a rho 1, b (1 + 30) / 30; so b, until 8: a (8 - 0 + 2) / 6, b (5 + 26) / 30; so a.
    table = replay(jobs, ThemisReplay(lease_s=4))
    assert (table.end_s, table.preemptions) == ([10, 36], [1, 1])


def test_themis_lets_pools_share() -> None:
    jobs = trace("a 0 9 2\nb 0 9 2", *TWO)
    assert starts(jobs, "themis") == {"a": 0, "b": 0}
    assert replay(jobs, "themis").site == ["*", "*"]
