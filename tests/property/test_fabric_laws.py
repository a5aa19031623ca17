"""Laws of the switch tree: what distance means, and that gangs fall into few pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.model.site import Node
from federator.model.workload import Job
from federator.sched.bid.fabric import Fabric
from federator.sched.bid.free_capacity import FreeCapacity, FreeNode
from federator.sched.bid.node_selection import share_per_node
from federator.sched.bid.placement import Placed, place_job
from federator.sched.bid.score import locality_cost

SOME = settings(max_examples=200, deadline=None)


@st.composite
def trees(draw: st.DrawFn) -> dict[str, str]:
    """Up to six leaves under up to three pods under a core; some hang elsewhere, or nowhere."""
    parents = {}
    for k in range(6):
        above = draw(st.sampled_from(["pod1", "pod2", "pod3", "core", ""]))
        if above:
            parents[f"leaf{k}"] = above
    for k in range(1, 4):
        if draw(st.booleans()):
            parents[f"pod{k}"] = "core"
    return parents


places = st.lists(
    st.tuples(st.integers(0, 5).map("leaf{}".format), st.integers(0, 4)), min_size=1, max_size=6
)


def path(leaf: str, parents: Mapping[str, str]) -> list[str]:
    found = [leaf]
    while found[-1] in parents:
        found.append(parents[found[-1]])
    return [*found, "the root"]


def height(switch: str, parents: Mapping[str, str]) -> int:
    """Found the long way: leaves are 0, every other one more than the highest below it."""
    if switch == "the root":
        tops = {path(s, parents)[-2] for s in parents} | set()
        return 1 + max((height(s, parents) for s in tops), default=0)
    below = [s for s, above in parents.items() if above == switch]
    return 1 + max(height(s, parents) for s in below) if below else 0


def distance_cost(one: str, other: str, parents: Mapping[str, str]) -> float:
    if one == other:
        return 1.0
    theirs = path(other, parents)
    common = next(s for s in path(one, parents) if s in theirs)
    return float(10.0 ** height(common, parents))


@SOME
@given(trees(), places)
def test_the_cost_is_the_sum_over_pairs_of_gpus_of_ten_to_the_height_of_their_switch(
    parents: dict[str, str], where: list[tuple[str, int]]
) -> None:
    units: dict[str, list[int]] = {}
    for leaf, gpus in where:
        units.setdefault(leaf, []).append(gpus)
    gpus_at = [(k, leaf) for k, (leaf, gpus) in enumerate(where) for _ in range(gpus)]
    cost = sum(
        distance_cost(leaf_1, leaf_2, parents)
        for (node_1, leaf_1), (node_2, leaf_2) in combinations(gpus_at, 2)
        if node_1 != node_2
    )
    assert Fabric(parents).locality_cost(units) == cost


def site(where: Sequence[str]) -> list[Node]:
    return [
        Node(name=f"n{k}", partitions=("gpu",), switch=leaf, cpus=64, gpus=8, gpu_type="a100")
        for k, leaf in enumerate(where)
    ]


@SOME
@given(
    trees(),
    st.lists(st.integers(0, 5).map("leaf{}".format), min_size=1, max_size=8),
    st.integers(1, 8),
    st.sampled_from([1, 2, 4]),
)
def test_every_gang_that_fits_is_placed_in_any_tree_at_little_more_than_the_least_cost(
    parents: dict[str, str], where: list[str], count: int, stages: int
) -> None:
    """In more than two levels the search is not exhaustive; this is how far it may be off."""
    if count * 8 % (8 * stages):
        stages = 1
    job = Job(name="t", nodes=count, gpus_per_node=8, tensor_parallel=8, pipeline_stages=stages)
    nodes, fabric = site(where), Fabric(parents)
    found = place_job(job, FreeCapacity(nodes, fabric), ("gpu",))
    assert isinstance(found, Placed) == (count <= len(where))
    if not isinstance(found, Placed) or stages > 1:
        return
    free = [FreeNode.of(node) for node in nodes]
    need = [share_per_node(job)] * count
    least = min(locality_cost(some, need, fabric) for some in combinations(free, count))
    assert least <= found.score.locality_cost <= 1.1 * least


@SOME
@given(
    st.lists(st.sampled_from(["r1", "r2", "r3"]), min_size=2, max_size=10),
    st.sampled_from([2, 3]),
    st.integers(1, 4),
)
def test_the_stages_of_a_replica_share_a_rack_whenever_racks_have_room_for_all_replicas(
    where: list[str], stages: int, replicas: int
) -> None:
    job = Job(
        name="t",
        nodes=stages * replicas,
        gpus_per_node=8,
        tensor_parallel=8,
        pipeline_stages=stages,
    )
    found = place_job(job, FreeCapacity(site(where)), ("gpu",))
    room_for = sum(where.count(rack) // stages for rack in set(where))
    if isinstance(found, Placed) and room_for >= replicas:
        of_rack = [where[int(name[1:])] for name in found.plan.nodes]
        assert all(of_rack.count(rack) % stages == 0 for rack in set(of_rack))
