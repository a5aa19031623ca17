"""What a placement strands, on fleets small enough to work by hand."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from federator.errors import InvalidRequest
from federator.sim.experiments.base import ExperimentResult, run_here, seeded
from federator.sim.experiments.fragmentation import PLACERS, FragmentationExperiment
from federator.sim.experiments.placers import (
    Layout,
    Placer,
    best_fit,
    federation,
    first_fit,
    rack_fit,
    unweighed,
)
from federator.sim.experiments.stranding import Floor, Stranding, Watch
from federator.sim.experiments.stream import StreamJob, StreamOf, of_trace
from tests.fakes.traces import pool, trace

pytestmark = pytest.mark.slow

ONE = Layout(sites=1, racks=2, nodes=2)  # nodes 0 and 1, and 2 and 3, share a rack
TWO = Layout(sites=2, racks=1, nodes=2)

Make = Callable[[Layout, Random], Placer]


def job(at_s: float, gpus: int, duration_s: float = 100.0) -> StreamJob:
    return StreamJob(at_s=at_s, duration_s=duration_s, gpus=gpus)


def watched(layout: Layout, make: Make, *jobs: StreamJob, steps: int = 1) -> Stranding:
    mix = [(8, 1.0)]
    placer = make(layout, seeded("0"))
    watch = Watch(layout, Floor(layout, mix), placer, jobs, warm_up_frac=0.0, steps=steps)
    return watch.run()


def placed(make: Make, layout: Layout, free: list[int], gpus: int) -> list[int] | None:
    return make(layout, seeded("0")).place(0, gpus, free)


def test_free_gpus_are_stranded_for_a_size_that_they_cannot_hold() -> None:
    floor = Floor(ONE, [(1, 0.5), (8, 0.25), (16, 0.25)])
    assert (floor.free_gpus, floor.stranded) == (32, 0)
    floor.change([0], -3)  # 5 are left, of no use to 8; one whole node is odd for 16
    assert floor.stranded == 0.25 * 5 + 0.25 * (5 + 8)
    floor.change([1], -8)
    assert floor.stranded == 0.25 * 5 + 0.25 * 5
    floor.change([0], 3)
    assert floor.stranded == 0.25 * 8


def test_whole_nodes_of_two_sites_do_not_make_a_gang() -> None:
    floor = Floor(TWO, [(16, 1.0)])
    floor.change([0, 2], -8)
    assert (floor.free_gpus, floor.stranded) == (16, 16)


def test_a_gpu_that_is_used_twice_is_found() -> None:
    floor = Floor(ONE, [(1, 1.0)])
    floor.change([0], -5)
    with pytest.raises(AssertionError, match="node 0 is used twice"):
        floor.change([0], -4)


def test_first_best_and_rack_fit() -> None:
    free = [8, 6, 8, 2]
    assert placed(first_fit, ONE, free, 2) == [0]
    assert placed(best_fit, ONE, free, 2) == [3]
    assert placed(best_fit, ONE, free, 4) == [1]
    assert placed(rack_fit, ONE, [2, 8, 2, 0], 2) == [2]  # as tight, in the fuller rack
    assert placed(first_fit, ONE, free, 16) == [0, 2]
    assert placed(rack_fit, ONE, [0, 8, 8, 8], 16) == [2, 3]
    wide = Layout(sites=2, racks=1, nodes=3)
    assert placed(first_fit, wide, [8, 8, 8, 8, 2, 8], 16) == [0, 1]
    assert placed(best_fit, wide, [8, 8, 8, 8, 2, 8], 16) == [3, 5]  # fewest whole nodes
    assert placed(best_fit, TWO, [8, 2, 8, 2], 16) is None


@pytest.mark.parametrize("name", PLACERS)
def test_every_rule_fills_the_fleet_and_gives_all_back(name: str) -> None:
    placer = PLACERS[name](TWO, seeded("1"))
    floor = Floor(TWO, [(1, 1.0)])
    for number, gpus in enumerate((16, 8, 4, 2, 1)):
        nodes = placer.place(number, gpus, floor.free)
        assert nodes is not None
        floor.change(nodes, -(gpus // len(nodes)))
        if number < 2:
            continue
        placer.release(number)
        floor.change(nodes, gpus // len(nodes))
    assert floor.free_gpus == 8
    assert placer.place(9, 16, floor.free) is None
    assert placer.place(9, 8, floor.free) is not None


@pytest.mark.parametrize(("make", "site"), [(federation, 1), (unweighed, 0)])
def test_the_term_sends_a_job_to_the_site_where_it_strands_least(make: Make, site: int) -> None:
    placer, free = make(TWO, seeded("0")), [8, 8, 8, 8]  # the agents keep books of their own
    assert placer.place(0, 16, free) == [0, 1]
    assert placer.place(1, 4, free) == [2]
    placer.release(0)
    # Site 0 could hold another gang; site 1 has half a node, and cannot.
    assert placer.place(2, 4, free) == [2 * site]


def test_a_job_waits_for_room_that_is_free_in_pieces() -> None:
    # 4 + 4 GPUs fill a node with best fit; apart they would leave no node for the last one.
    jobs = [job(0, 8), job(0, 8), job(0, 8), job(0, 4), job(0, 4), job(10, 4)]
    seen = watched(ONE, best_fit, *jobs)
    assert seen.wait_s == {0: 0, 1: 0, 2: 0, 3: 0, 4: 0, 5: 90}
    assert (seen.lasted_s, seen.free_gpu_s, seen.stranded_gpu_s) == (10, 0, 0)


def test_the_first_that_does_not_fit_blocks_the_rest() -> None:
    seen = watched(ONE, first_fit, job(0, 24), job(1, 16), job(2, 1))
    assert seen.wait_s == {0: 0, 1: 99, 2: 98}


def test_free_and_stranded_over_time() -> None:
    seen = watched(ONE, first_fit, job(0, 4), job(10, 24), job(20, 1), steps=4)
    # From 0 to 10: 28 free, 4 of them no use to 8 GPUs; then 4, all of no use.
    assert (seen.free_gpu_s, seen.stranded_gpu_s) == (280 + 40, 40 + 40)
    assert seen.samples == [(5, 28, 4), (10, 28, 4), (15, 4, 4), (20, 4, 4)]


def test_gangs_in_one_rack_are_counted() -> None:
    seen = watched(ONE, first_fit, job(0, 8), job(0, 16), job(200, 16), job(200, 24))
    assert seen.one_rack == (1, 2)  # the one of three nodes could not have had one


def test_a_stream_brings_the_load_that_is_asked_for() -> None:
    stream = StreamOf(sizes=(1, 8), shares=(3.0, 1.0), median_s=60.0, sigma=1.0)
    jobs = stream.draw(2000, 0.8, 64, seeded("0"))
    used = sum(job.gpus * job.duration_s for job in jobs)
    assert used / (64 * jobs[-1].at_s) == pytest.approx(0.8, rel=0.01)
    assert [job.at_s for job in jobs] == sorted(job.at_s for job in jobs)
    assert 0.2 < sum(job.gpus == 8 for job in jobs) / 2000 < 0.3


def small(**parameters: object) -> ExperimentResult:
    settings = {
        "racks": 2,
        "nodes": 2,
        "sites": (1, 2),
        "loads": (0.8, 1.5),
        "jobs": 60,
        "draws": 2,
        "sizes": (1, 4, 8, 16),
        "shares": (4.0, 1.0, 1.0, 1.0),
        "steps": 5,
    }
    made = FragmentationExperiment(**{**settings, **parameters})  # type: ignore[arg-type]
    return run_here(made, 3)


def test_every_rule_is_watched_in_every_setting() -> None:
    found = small()
    summary = found.table("summary")
    assert [row[:4] for row in summary.rows] == [
        (sites, load, name, 2) for sites in (1, 2) for load in (0.8, 1.5) for name in PLACERS
    ]
    for name in ("allocated_frac", "stranded_frac"):
        assert all(0 <= cell <= 1 for cell in summary.column(name) if isinstance(cell, float))
    for plot in found.plots:
        table = found.table(plot.table)
        assert plot.only is not None
        assert plot.only[1] in table.column(plot.only[0])


def test_each_rule_is_told_beside_the_federation_draw_by_draw() -> None:
    found = small()
    waits = {row[:4]: row[6] for row in found.table("runs").rows}  # sites, load, placer, draw
    beside = found.table("beside")
    key = ("stranded_of_free_frac", 2, 0.8, "random")
    (row,) = (row for row in beside.rows if row[:4] == key)
    values = [(waits[2, 0.8, "random", draw], waits[2, 0.8, "federation", draw]) for draw in (0, 1)]
    pairs = [a - b for a, b in values if isinstance(a, float) and isinstance(b, float)]
    assert row[4] == pytest.approx(sum(pairs) / 2)
    assert row[5] == pytest.approx(abs(pairs[0] - pairs[1]) / 2)
    assert row[6] == sum(pair < 0 for pair in pairs)


def test_with_one_site_the_term_decides_nothing() -> None:
    rows = small(sites=(1,)).table("runs").rows
    with_term = [row[3:] for row in rows if row[2] == "federation"]
    assert with_term == [row[3:] for row in rows if row[2] == "federation, no term"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"shares": (1.0,)}, "shares: expected one for each of sizes"),
        ({"shares": (0.0,) * 4}, "shares: expected one for each of sizes, not all 0"),
        ({"sites": (3,)}, "sites: 2 racks cannot be divided by 3"),
        ({"sizes": (1, 4, 8, 12)}, "sizes: 12: expected 1, 2, 4, or whole nodes of 8 GPUs"),
        ({"sizes": (1, 3, 8, 16)}, "sizes: 3: expected 1, 2, 4, or"),
        ({"sizes": (1, 4, 8, 24)}, "sizes: 24: .* at most a site's 16"),
    ],
)
def test_what_makes_no_sense_is_said_before_the_work(
    parameters: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        small(**parameters)


TRACE = trace("a 100 10 3 ant\nb 0 20 12 ant\nc 300 30 8 ant", pool("ant", 12))


def test_of_a_trace_come_the_first_jobs_as_far_apart_as_the_load_asks_for() -> None:
    # 16 GPUs for 20 s (two whole nodes), and 3 for 10 s: 350 GPU-seconds.
    stream = of_trace(TRACE, 2, 0.5, 70, 8)
    assert [(job.gpus, job.duration_s) for job in stream] == [(16, 20), (3, 10)]
    assert [job.at_s for job in stream] == [0, 10]
    assert [job.at_s for job in of_trace(TRACE, 3, 0.59, 100, 8)] == pytest.approx([0, 10 / 3, 10])


def test_a_trace_is_placed_by_every_rule_and_drawn_once() -> None:
    few: Any = {"sites": (1,), "racks": 2, "nodes": 2, "loads": (0.5,), "draws": 4, "steps": 1}
    found = run_here(FragmentationExperiment(trace=TRACE, **few), 0)
    summary = found.table("summary")
    assert [row[2:4] for row in summary.rows] == [(name, 1) for name in PLACERS]
    with pytest.raises(InvalidRequest, match="a job asks for 16 GPUs; expected sites of as many"):
        FragmentationExperiment(trace=TRACE, **{**few, "sites": (2,), "nodes": 1}).runs(0)
    with pytest.raises(InvalidRequest, match="--trace: expected jobs, found none"):
        FragmentationExperiment(trace=trace("", pool("ant", 1)), **few).runs(0)
