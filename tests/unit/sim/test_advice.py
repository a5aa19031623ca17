"""The same weeks with more GPUs: who waits less, and how sure that is."""

from __future__ import annotations

from math import inf

from federator.config import FederationConfig
from federator.history.past_work import PastWork
from federator.sim.advice import Gain, SimulatedWait, TypedNodes, gain, replayed, with_more

DAY_S = 86_400.0
CONFIG = FederationConfig.model_validate(
    {
        "federation": "demo",
        "store": "memory:",
        "regions": {"r": {"shared": "/s"}},
        "sites": {
            name: {"region": "r", "partitions": ["gpu"], "command": ["true"]}
            for name in ("alpine", "basalt")
        },
        "tenants": {"vision": {"priority": 2, "quota": {"gpus": 64}}},
    }
)
NODES = (
    TypedNodes(site="alpine", gpu_type="a100", nodes=2, gpus_per_node=8),
    TypedNodes(site="basalt", gpu_type="a100", nodes=1, gpus_per_node=8),
    TypedNodes(site="basalt", gpu_type="h100", nodes=1, gpus_per_node=8),
)


def work(id_: int, came_s: float, gpu_type: str = "a100", gpus: int = 8) -> PastWork:
    return PastWork(
        id=id_,
        site="alpine",
        tenant="vision",
        user="ada",
        gpus=gpus,
        gpu_types=(gpu_type,),
        nodes=max(1, gpus // 8),
        came_s=came_s,
        start_s=came_s + 60,
        ran_s=7200.0,
        limit_s=inf,
    )


def test_more_nodes_are_whole_and_go_where_most_are() -> None:
    found = with_more(NODES, "a100", 20)
    assert [(each.site, each.nodes) for each in found] == [
        ("alpine", 5),
        ("basalt", 1),
        ("basalt", 1),
    ]


def test_waits_are_shorter_with_more_and_of_who_came_in_time_only() -> None:
    month = [work(k, DAY_S * (k // 6)) for k in range(36)]
    before = replayed(month, NODES, CONFIG, DAY_S)
    after = replayed(month, with_more(NODES, "a100", 24), CONFIG, DAY_S)
    assert before.keys() == after.keys() == set(range(6, 36))
    assert {each.day for each in before.values()} == {1, 2, 3, 4, 5}
    found = gain(before, after)
    assert found.before_s >= 7200, "six jobs of a node each, and three nodes"
    assert found.after_s < 60
    assert found.ratio is not None
    assert found.interval is not None
    assert found.interval.low <= found.ratio <= found.interval.high < 0.5


def test_what_fits_nowhere_is_in_no_figure_until_there_is_room() -> None:
    month = [work(1, 0.0), work(2, 0.0, gpus=24)]
    assert set(replayed(month, NODES, CONFIG, 0.0)) == {1}
    assert set(replayed(month, with_more(NODES, "a100", 8), CONFIG, 0.0)) == {1, 2}


def test_where_nobody_waits_or_few_days_are_known_no_more_is_claimed() -> None:
    at_once = {k: SimulatedWait(day=k, wait_s=0.0) for k in range(9)}
    assert gain(at_once, at_once) == Gain(
        workloads=9, before_s=0.0, after_s=0.0, ratio=None, interval=None
    )
    assert gain({}, {}) == Gain(
        workloads=0, before_s=0.0, after_s=0.0, ratio=None, interval=None
    ), "not the same as that nobody waits"
    late = {k: SimulatedWait(day=0, wait_s=100.0) for k in range(9)}
    found = gain(late, at_once)
    assert (found.ratio, found.interval) == (0.0, None)


def test_an_interval_widens_where_days_differ() -> None:
    before = {k: SimulatedWait(day=k % 7, wait_s=100.0) for k in range(140)}
    same = {k: SimulatedWait(day=k % 7, wait_s=50.0) for k in range(140)}
    mixed = {k: SimulatedWait(day=k % 7, wait_s=100.0 if k % 7 == 0 else 10.0) for k in range(140)}
    sure, unsure = gain(before, same).interval, gain(before, mixed).interval
    assert sure is not None
    assert unsure is not None
    assert sure.low == sure.high == 0.5
    assert unsure.high - unsure.low > 0.5
