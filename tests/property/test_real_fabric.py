"""Gangs on a real three-layer Clos network: 847 hosts of a training cluster, and its jobs.

Topology and jobs are those of Alibaba's Lingjun cluster in August 2023 (Cao et al., SIGCOMM'24),
read in place; where they are not at hand, these tests are skipped. The data does not say how many
GPUs a host has; 8 are assumed.
"""

from __future__ import annotations

import csv
import heapq
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from federator.model.plan import JobPlan
from federator.model.site import Node
from federator.model.workload import Job
from federator.sched.bid.fabric import Fabric
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.placement import Placed, place_job

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
TOPOLOGY, JOBS = TRACES / "lingjun-crux-2023.topo.csv", TRACES / "lingjun-crux-2023.csv"
pytestmark = pytest.mark.skipif(not TOPOLOGY.exists(), reason=f"{TOPOLOGY.name} is not at hand")


@cache
def hosts() -> tuple[tuple[Node, ...], Fabric]:
    nodes, parents = [], {}
    with TOPOLOGY.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            parents[row["asw"]], parents[row["psw"]] = row["psw"], row["dsw"]
            nodes.append(
                Node(
                    name=row["node"],
                    partitions=("gpu",),
                    switch=row["asw"],
                    cpus=96,
                    gpus=8,
                    gpu_type="gpu",
                )
            )
    return tuple(nodes), Fabric(parents)


def room() -> FreeCapacity:
    return FreeCapacity(*hosts())


def gang(count: int) -> Job:
    return Job(name="train", nodes=count, gpus_per_node=8, cpus_per_node=8)


def spans(plan: JobPlan, fabric: Fabric) -> tuple[int, int]:
    """How many leaf switches and how many switches above them a plan touches."""
    switch_of = {node.name: node.switch for node in hosts()[0]}
    leaves = {switch_of[name] for name in plan.nodes}
    return len(leaves), len({fabric.above(leaf)[0] for leaf in leaves})


def test_it_has_three_layers() -> None:
    nodes, fabric = hosts()
    assert len(nodes) == 847
    leaves = {node.switch for node in nodes}
    assert {fabric.height(leaf) for leaf in leaves} == {0}
    assert {fabric.height(fabric.above(leaf)[0]) for leaf in leaves} == {1}
    assert {len(fabric.above(leaf)) for leaf in leaves} == {3}  # two more layers, and the root


@pytest.mark.parametrize(
    ("count", "leaves", "pods"),
    [(1, 1, 1), (8, 1, 1), (9, 2, 1), (64, 8, 1), (170, 23, 1), (362, 51, 1)],
)
def test_on_the_empty_fabric_a_gang_takes_as_few_switches_of_each_layer_as_hold_it(
    count: int, leaves: int, pods: int
) -> None:
    found = place_job(gang(count), room(), ("gpu",))
    assert isinstance(found, Placed)
    touched = spans(found.plan, hosts()[1])
    assert touched[1] == pods
    assert touched[0] <= leaves


def starts() -> Iterator[tuple[float, float, int]]:
    with JOBS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield float(row["submit_s"]), float(row["duration_s"]), -(-int(row["gpus"]) // 8)


def test_its_own_jobs_keep_to_one_pod_while_a_pod_has_room_and_to_one_leaf_while_a_leaf_has() -> (
    None
):
    """Two weeks of jobs, placed as they started; each plan is held against what was free."""
    site, fabric = room(), hosts()[1]
    ends: list[tuple[float, int, JobPlan]] = []
    placed = 0
    for number, (at_s, lasts_s, count) in enumerate(starts()):
        while ends and ends[0][0] <= at_s:
            site.release(heapq.heappop(ends)[2])
        free = [f.node.switch for f in site.nodes if f.gpus == 8]
        found = place_job(gang(count), site, ("gpu",))
        assert isinstance(found, Placed) == (count <= len(free))
        if not isinstance(found, Placed):
            continue
        leaves, pods = spans(found.plan, fabric)
        if count <= max(Counter(free).values()):
            assert leaves == 1
        in_pod = Counter(fabric.above(leaf)[0] for leaf in free)
        if pods > 1 and count <= max(in_pod.values()):
            assert _cost_in_one_pod(count, free, fabric) >= found.score.locality_cost
        site.take(found.plan)
        heapq.heappush(ends, (at_s + lasts_s, number, found.plan))
        placed += 1
    assert placed > 2_000


def _cost_in_one_pod(count: int, free: list[str], fabric: Fabric) -> float:
    """The least that any one pod would cost: its largest leaves first."""
    costs = []
    for pod in {fabric.above(leaf)[0] for leaf in free}:
        left, units = count, {}
        leaves = Counter(leaf for leaf in free if fabric.above(leaf)[0] == pod)
        for leaf, nodes in leaves.most_common():
            units[leaf] = [8] * min(nodes, left)
            left -= len(units[leaf])
        if not left:
            costs.append(fabric.locality_cost(units))
    return min(costs)
