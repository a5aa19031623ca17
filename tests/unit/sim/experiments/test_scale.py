"""A fleet under load is what it says, and growth is fitted as worked out by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from federator.model.lifecycle import WorkloadState
from federator.sim.experiments.base import ExperimentResult, run_here
from federator.sim.experiments.registry import experiment_entry
from federator.sim.experiments.scale import ScaleExperiment
from federator.sim.experiments.scale_fleet import DecisionPart, FleetSize, LoadedFleet
from federator.sim.experiments.scale_tables import AXES, exponent, reached_at

pytestmark = pytest.mark.slow

SIZE = FleetSize(sites=3, gpus=480, pending=60, per_s=5.0)


def in_state(fleet: LoadedFleet, state: WorkloadState) -> int:
    return len(list(fleet.federation.ledger.in_state(state)))


def used(fleet: LoadedFleet) -> Counter[str]:
    """GPUs in use, by node, as the federation's own plans say."""
    found: Counter[str] = Counter()
    for entry in fleet.federation.ledger.in_state(WorkloadState.RUNNING):
        for plan in entry.plan:
            for name, share in plan.nodes.items():
                found[name] += share.gpus
    return found


def test_every_gpu_is_in_use_and_the_queue_is_as_long_as_asked() -> None:
    fleet = LoadedFleet(SIZE, 7, seed=1)
    assert in_state(fleet, WorkloadState.PENDING) == 60
    counts = used(fleet)
    assert set(counts.values()) == {8}
    assert len(counts) == 60


def test_time_goes_on_with_ends_awards_and_a_queue_as_long_as_before() -> None:
    fleet = LoadedFleet(SIZE, 7, seed=1)
    assert fleet.first_pass().awards == 0  # nothing is free
    lived = [fleet.live(600.0) for _ in range(5)]
    assert all(one.submissions == 3000 for one in lived)
    assert sum(one.ends for one in lived) > 3
    assert sum(one.awards for one in lived) > 3  # what comes free is awarded again
    assert in_state(fleet, WorkloadState.PENDING) == 60
    assert max(used(fleet).values()) <= 8


def test_the_same_seed_makes_the_same_decisions() -> None:
    def counts(seed: int) -> list[tuple[int, ...]]:
        fleet = LoadedFleet(SIZE, 7, seed)
        lived = [fleet.live(600.0) for _ in range(4)]
        return [(one.ends, one.awards, one.rounds, one.asked) for one in lived]

    assert counts(1) == counts(1)
    assert counts(1) != counts(2)


def test_the_parts_of_a_pass_are_measured_apart() -> None:
    fleet = LoadedFleet(SIZE, 7, seed=1)
    one = fleet.first_pass()
    assert one.cpu_s[DecisionPart.SUBMISSIONS] == 0
    assert one.bid_s > 0
    assert one.pass_s == one.cpu_s[DecisionPart.RANKING] + one.cpu_s[DecisionPart.AWARDS] > 0
    assert one.daemon_s >= one.pass_s
    assert one.rounds >= 1
    assert 1 <= one.asked <= 60
    assert fleet.submit_s > 0


def test_a_site_has_a_node_however_few_gpus_there_are() -> None:
    size = FleetSize(sites=50, gpus=100, pending=1, per_s=1.0)
    assert (size.site_nodes, size.real_gpus) == (1, 400)


# ---- fits ----


def test_a_power_is_found_again() -> None:
    assert exponent([(x, 3 * x**1.5) for x in (1, 10, 100)]) == pytest.approx(1.5)
    assert exponent([(x, 0.25) for x in (1, 10)]) == pytest.approx(0.0)
    assert exponent([(7, 1), (7, 2)]) is None


def test_what_is_too_small_to_measure_counts_as_a_microsecond() -> None:
    assert exponent([(1, 0.0), (10, 1e-6), (100, 0.0)]) == pytest.approx(0.0)


def test_a_limit_is_read_off_the_lines_between_points() -> None:
    curve = [(10.0, 1.0), (100.0, 10.0), (1000.0, 1000.0)]
    for limit, x, inside in ((5.0, 50.0, True), (100.0, 10**2.5, True), (4000.0, 2000.0, False)):
        found = reached_at(curve, limit)
        assert found is not None
        assert found[0] == pytest.approx(x)
        assert found[1] is inside


def test_a_limit_beyond_ten_times_the_last_point_is_not_guessed() -> None:
    assert reached_at([(10.0, 1.0), (100.0, 10.0)], 101.0) is None
    assert reached_at([(10.0, 1.0), (100.0, 1.0)], 5.0) is None
    assert reached_at([(10.0, 1.0), (100.0, 10.0)], 0.5) is None


# ---- the experiment ----


def small(**parameters: Any) -> ExperimentResult:
    settings: dict[str, Any] = {
        "sites": (1, 2),
        "gpus": (64, 128),
        "pending": (10, 20),
        "per_s": (1.0,),
        "base_sites": 2,
        "base_gpus": 64,
        "base_pending": 10,
        "base_per_s": 1.0,
        "passes": 2,
        "tenants": 7,
        "together": 0,
    }
    return run_here(ScaleExperiment(**{**settings, **parameters}), 1)


def test_each_axis_is_varied_alone_and_each_point_measured_once() -> None:
    points = small().table("points")
    keys = [row[:4] for row in points.rows]
    assert keys == [(1, 64, 10, 1.0), (2, 64, 10, 1.0), (2, 128, 10, 1.0), (2, 64, 20, 1.0)]
    assert min(map(float, points.column("pass_s"))) > 0  # type: ignore[arg-type]


def test_all_together_at_their_largest_are_a_point_of_no_axis() -> None:
    found = small(together=1)
    assert (2, 128, 20, 1.0) in [row[:4] for row in found.table("points").rows]
    assert found.table("growth").columns == small().table("growth").columns
    assert len(found.table("costs").rows) == len(small().table("costs").rows)


def test_every_part_of_every_axis_has_an_exponent_and_a_curve() -> None:
    found = small()
    growth = found.table("growth")
    assert set(growth.column("axis")) == set(AXES)
    rows = {(row[0], row[1]): row[2] for row in growth.rows}
    assert len(rows) == 4 * 5
    assert all((value is None) == (axis == "per_s") for (axis, _), value in rows.items())
    for plot in found.plots:
        table = found.table(plot.table)
        assert {plot.x, plot.y, plot.by, plot.low, plot.high} <= set(table.columns)
        assert plot.only is not None
        assert plot.only[1] in table.column("axis")


def test_mast_is_compared_at_its_own_load() -> None:
    assert small().table("beside-mast").rows == ()
    found = small(pending=(100, 10_000), gpus=(64,), sites=(2,))
    rows = {str(row[0]): row[1:] for row in found.table("beside-mast").rows}
    assert len(rows) == 3
    paper, here, paper_room, _ = rows["global: pass, 10000 pending, s"]
    assert paper == 34.0
    assert paper_room == pytest.approx(8.82, abs=0.01)
    assert isinstance(here, float)
    regional = rows["regional: a bid at the slowest site, ms"]
    assert regional[2] == pytest.approx(12.5, abs=0.1)


def test_the_machine_is_named() -> None:
    assert "Python" in small().notes[-1]


def test_a_look_at_it_is_quick() -> None:
    quick = experiment_entry("scale").make({}, quick=True)
    assert len(quick.runs(0)) < 12
