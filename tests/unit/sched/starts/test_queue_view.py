"""What a play sees of a federation: free GPUs, those in others' use taken away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.workload import SiteName
from federator.sched.bid.site_scheduler import summarise
from federator.sched.starts.queue_view import queue_view
from tests.fakes.build import rack
from tests.fakes.loopback import Loopback


def free_gpus(used: tuple[int, ...], partitions: tuple[tuple[str, ...], ...]) -> list[int]:
    """Of a site with a node in each of these partitions, of which others use so many GPUs."""
    nodes = [
        replace(node, gpus_alloc=gpus, partitions=names)
        for node, gpus, names in zip(rack("a", len(used)), used, partitions, strict=True)
    ]
    f = Loopback({"alpine": nodes})
    f.run_for(1.0)
    view = f.federation.sites[SiteName("alpine")]
    view.summary = summarise(nodes, sorted({name for names in partitions for name in names}))
    (pool,) = queue_view(f.federation, f.clock.now_s).pools
    return pool.free


def test_gpus_in_others_use_are_taken_on_the_freest_nodes() -> None:
    assert sum(free_gpus((3, 0), (("gpu",), ("gpu",)))) == 13


def test_partitions_without_a_node_in_common_are_summed() -> None:
    assert free_gpus((8, 8), (("gpu",), ("long",))) == [0, 0]


@pytest.mark.parametrize("second", [("gpu", "long"), ("long", "gpu")])
def test_partitions_that_share_nodes_count_once(second: tuple[str, ...]) -> None:
    assert sum(free_gpus((4, 4), (("gpu", "long"), second))) == 8
