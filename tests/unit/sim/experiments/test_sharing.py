"""What sharing is worth, on traces small enough to work by hand."""

from __future__ import annotations

import sys

import pytest

from federator.errors import InvalidRequest
from federator.sim.experiments.base import ExperimentResult, run_here, seeded
from federator.sim.experiments.pools import drawn_pools, without_donors
from federator.sim.experiments.sharing import SharingExperiment, compared_policy
from federator.sim.experiments.speedup import compared
from federator.sim.trace import Trace
from tests.fakes.traces import pool, replay, trace

pytestmark = pytest.mark.slow

# ant has one GPU and two jobs; bee has one that idles. Alone, b waits 60 s for a.
TWO = trace("a 0 60 1 ant\nb 0 60 1 ant\nc 600 60 1 bee", pool("ant", 1), pool("bee", 1))
# bee lends its GPU to a long job of ant, and then its own c must wait for it: 40 s later.
HARM = trace("a 0 100 1 ant\nb 0 100 1 ant\nc 60 60 1 bee", pool("ant", 1), pool("bee", 1))


def shared(jobs: Trace | None, **parameters: object) -> ExperimentResult:
    made = SharingExperiment(trace=jobs, **{"warm_up_days": 0.0, "quantiles": 4, **parameters})  # type: ignore[arg-type]
    return run_here(made, 5)


def figures(result: ExperimentResult, setting: str, policy: str) -> dict[str, object]:
    table = result.table("summary")
    (row,) = (row for row in table.rows if row[:2] == (setting, policy))
    return dict(zip(table.columns, row, strict=True))


def test_a_job_that_need_not_wait_speeds_up() -> None:
    found = compared(TWO, replay(TWO, "pool-fifo-count"), replay(TWO, "maxmin"), [0, 1, 2])
    assert found.speedups == [1.0, 1.0, 2.0]
    assert found.mean == 4 / 3
    assert found.geometric_mean == pytest.approx(2 ** (1 / 3))
    assert found.jct_ratio == (60 + 120 + 60) / 180
    assert (found.slowed_frac, found.slowed_total_min, found.slowed_worst_min) == (0, 0, 0)


def test_a_donor_that_waits_is_slowed() -> None:
    found = compared(HARM, replay(HARM, "pool-fifo-count"), replay(HARM, "maxmin"), [0, 1, 2])
    assert found.speedups == [0.6, 1.0, 2.0]
    assert (found.slowed_s, found.slowed_frac) == ([40], 1 / 3)
    assert found.slowed_worst_min == found.slowed_total_min == 40 / 60


def test_only_the_jobs_named_are_compared() -> None:
    found = compared(HARM, replay(HARM, "pool-fifo-count"), replay(HARM, "maxmin"), [0, 1])
    assert (found.speedups, found.slowed_s) == ([1.0, 2.0], [])


def test_who_has_most_to_give_is_left_out() -> None:
    jobs = trace(
        "a 0 5 1 ant\nb 0 5 1 bee\nc 9 1 1 cat", pool("ant", 1), pool("bee", 9), pool("cat", 2)
    )
    assert [p.name for p in without_donors(jobs, 1).pools] == ["ant", "cat"]
    assert [p.name for p in without_donors(jobs, 2).pools] == ["ant"]
    assert without_donors(jobs, 1).job_id == ["a", "c"]


def test_a_drawn_pool_is_scaled_to_a_load_between_the_bounds() -> None:
    lines = "\n".join(f"{k} {k * 10} 50 2 ant" for k in range(101))
    jobs = trace(lines, pool("ant", 100), pool("bee", 4))  # 10 GPUs would be a load of 1.01
    for seed in range(20):
        (one,) = drawn_pools(jobs, 4, (0.5, 1.01), seeded(str(seed))).pools  # bee has no jobs
        assert (one.name, one.gpus_per_node) == ("ant", 1)
        assert 10 <= one.gpus <= 20


def test_a_job_wider_than_its_scaled_pool_is_left_out() -> None:
    jobs = trace("a 0 10 1 ant\nb 990 10 64 ant\nc 1000 10 1 ant", pool("ant", 64))
    some = drawn_pools(jobs, 1, (1.0, 1.0), seeded("0"))
    assert some.pools[0].gpus == 1
    assert (some.job_id, len(some.left_out)) == (["a", "c"], 1)


def test_all_pools_without_donors_and_draws_of_pools() -> None:
    few = {"donors": 1, "draws": 3, "pools": (2,), "loads": (1.0, 1.0)}
    found = shared(HARM, policies=("maxmin", "ssf"), **few)
    settings = [row[:3] for row in found.table("summary").rows]
    assert settings == [
        ("all pools", "maxmin", 1),
        ("all pools", "ssf", 1),
        ("without 1 donors", "maxmin", 1),
        ("without 1 donors", "ssf", 1),
        ("2 drawn pools", "maxmin", 3),
        ("2 drawn pools", "ssf", 3),
    ]
    maxmin = figures(found, "all pools", "maxmin")
    assert maxmin["slowed_frac"] == 1 / 3
    assert maxmin["speedup_p5"] == 0.6
    assert len(found.table("runs").rows) == 2 + 2 + 2 * 3


def test_the_speed_up_in_each_pool() -> None:
    found = shared(HARM, policies=("maxmin",), draws=1, donors=9).table("pools")
    assert {row[2] for row in found.rows} == {p.name for p in HARM.pools}
    rows = [row for row in found.rows if row[0] == "all pools"]
    product = 1.0
    for *_, jobs, mean in rows:
        assert isinstance(jobs, int)
        assert isinstance(mean, float)
        product *= mean**jobs
    assert product == pytest.approx(0.6 * 1.0 * 2.0)


def test_pools_of_other_sizes_and_draws_of_several_numbers_of_pools() -> None:
    found = shared(HARM, policies=("maxmin",), donors=9, draws=1, pools=(1, 2), scales=(1.0, 2.0))
    runs = [(row[0], row[3]) for row in found.table("runs").rows]
    assert runs == [
        ("all pools", 2),
        ("all pools x 2", 2),
        ("1 drawn pools", 1),
        ("2 drawn pools", 2),
    ]
    gpus = {(row[0], row[2]): row[4] for row in found.table("pools").rows}
    for own in HARM.pools:
        assert gpus["all pools x 2", own.name] == 2 * own.gpus


def test_the_distribution_of_the_speed_up() -> None:
    found = shared(HARM, policies=("maxmin",), draws=1)
    assert found.table("speedup-all-pools").rows == (
        ("maxmin", 0.0, 0.6),
        ("maxmin", 0.25, 0.6),
        ("maxmin", 0.5, 1.0),
        ("maxmin", 0.75, 2.0),
        ("maxmin", 1.0, 2.0),
    )


def test_jobs_of_the_warm_up_are_not_measured() -> None:
    found = shared(TWO, policies=("maxmin",), donors=2, draws=1, warm_up_days=300 / 86_400)
    assert [row[4] for row in found.table("runs").rows if row[0] == "all pools"] == [1]
    with pytest.raises(InvalidRequest, match="no job comes after the warm-up"):
        shared(TWO, policies=("maxmin",), warm_up_days=2.0)


def test_every_plot_shows_a_table_that_is_there() -> None:
    found = shared(HARM, policies=("maxmin",), draws=1)
    for plot in found.plots:
        columns = found.table(plot.table).columns
        assert {plot.x, plot.y, plot.by} <= set(columns)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"policies": ("x",)}, "'x' is unknown; expected one of mast, global-fifo"),
        ({"variants": ("x",)}, "--variant: 'x' is unknown; expected one of base"),
        ({"loads": (1.0, 0.5)}, "loads: expected the least and the most"),
        ({"loads": (1.0,)}, "loads: expected the least and the most"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_work(
    parameters: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        shared(TWO, **parameters)


def test_what_is_not_installed_is_said_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(InvalidRequest, match=r"forecasts need xgboost.*federator\[forecast\]"):
        shared(TWO)
    assert shared(TWO, policies=("sia:perfect",), draws=1).tables


def test_the_synthetic_workload_is_drawn_anew_for_each_draw() -> None:
    found = shared(None, policies=("maxmin", "sia-vc"), draws=2, variants=("fewer-queues",))
    jobs = found.table("runs").column("jobs")
    assert jobs[0] == jobs[1] != jobs[2] == jobs[3]
    assert figures(found, "fewer-queues", "maxmin")["draws"] == 2
    assert figures(found, "fewer-queues", "sia-vc")["slowed_frac"] == 0


@pytest.mark.parametrize("name", ["sia:perfect", "themis:held", "hived:held", "tiresias"])
def test_variants_of_policies_are_compared_by_name(name: str) -> None:
    assert compared_policy(name) == compared_policy(name)
    with pytest.raises(InvalidRequest, match="'sia:best' is unknown"):
        compared_policy("sia:best")
