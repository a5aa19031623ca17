"""Where one job goes on the nodes of one site."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.reason import ReasonCode
from federator.model.site import Node
from federator.model.workload import Job
from federator.sched.bid.fabric import Fabric
from federator.sched.bid.free_capacity import KINDS_KEPT, FreeCapacity
from federator.sched.bid.placement import Placed, place_job
from federator.sched.bid.score import on_grid
from tests.fakes.build import gang, plan_on, rack


def placed(job: Job, *nodes: Node, partitions: tuple[str, ...] = ("gpu",)) -> Placed:
    result = place_job(job, FreeCapacity(nodes), partitions)
    assert isinstance(result, Placed), result
    return result


def refused(job: Job, *nodes: Node, partitions: tuple[str, ...] = ("gpu",)) -> ReasonCode:
    result = place_job(job, FreeCapacity(nodes), partitions)
    assert not isinstance(result, Placed), result
    return result[0].code


def busy(node: Node, gpus: int, cpus: int = 0) -> Node:
    return replace(node, gpus_alloc=gpus, cpus_alloc=cpus)


def names(found: Placed) -> set[str]:
    return set(found.plan.nodes)


def test_a_gang_stays_in_one_rack_when_one_has_room() -> None:
    found = placed(gang(2), *rack("a", 1), *rack("b", 3), *rack("c", 2))
    assert names(found) == {"c1", "c2"}  # the tighter of the two racks


def test_a_gang_larger_than_a_rack_takes_the_largest_and_then_the_tightest_that_do() -> None:
    found = placed(gang(4), *rack("a", 1), *rack("b", 3), *rack("c", 2))
    assert {name[0] for name in names(found)} == {"a", "b"}


def test_a_small_job_takes_the_tightest_node() -> None:
    a1, a2 = rack("a", 2)
    assert names(placed(gang(1, 2), a1, busy(a2, 5))) == {"a2"}


def test_totals_take_the_fewest_nodes() -> None:
    a1, a2, a3 = rack("a", 3)
    assert names(placed(Job(name="t", gpus=8), busy(a1, 4), busy(a2, 4), a3)) == {"a3"}
    spread = placed(Job(name="t", gpus=12), busy(a1, 4), busy(a2, 4), a3)
    assert sum(s.gpus for s in spread.plan.nodes.values()) == 12
    assert len(spread.plan.nodes) == 2


def test_totals_over_a_given_number_of_nodes_use_each_of_them() -> None:
    found = placed(Job(name="t", nodes=3, gpus=8), *rack("a", 3))
    assert sorted(s.gpus for s in found.plan.nodes.values()) == [1, 1, 6]


def test_a_cpu_total_over_gpu_nodes_is_met_by_nodes_that_have_the_cpus() -> None:
    few = rack("a", 2, gpus=16, cpus=4)
    many = (replace(node, switch="a") for node in rack("b", 2, gpus=8, cpus=64))
    job = Job(name="t", nodes=2, gpus_per_node=8, cpus=100)
    assert names(placed(job, *few, *many)) == {"b1", "b2"}


def test_a_gpu_total_over_a_given_number_of_nodes_skips_nodes_without_a_free_gpu() -> None:
    a1, a2, a3 = rack("a", 3)
    found = placed(Job(name="t", nodes=2, gpus=8), busy(a1, 8), a2, busy(a3, 7))
    assert {name: s.gpus for name, s in found.plan.nodes.items()} == {"a2": 7, "a3": 1}


def test_a_total_counts_what_the_per_node_minimum_already_gives() -> None:
    a1, a2 = rack("a", 2)
    job = Job(name="t", gpus=8, gpus_per_node=2)
    found = placed(job, busy(a1, 1), busy(a2, 4))
    assert sum(s.gpus for s in found.plan.nodes.values()) == 8


def test_a_cpu_job_is_spread_by_cpus_and_leaves_gpus_alone() -> None:
    found = placed(Job(name="t", cpus=100), *rack("a", 2))
    assert [s.gpus for s in found.plan.nodes.values()] == [0, 0]
    assert sum(s.cpus for s in found.plan.nodes.values()) == 100


CPU_RACKS = (*rack("x", 1, gpus=0), *rack("y", 1, gpus=0))


@pytest.mark.parametrize(
    "job",
    [
        Job(name="t", nodes=2),
        Job(name="t", cpus=128),
        Job(name="t", nodes=2, cpus=100),
        Job(name="t", nodes=2, exclusive=True),
    ],
)
def test_a_job_without_gpus_leaves_nodes_with_gpus_alone_whatever_the_racks(job: Job) -> None:
    found = placed(job, *rack("a", 2), *CPU_RACKS)
    assert names(found) == {"x1", "y1"}
    assert found.score.gpus_unasked == 0
    assert found.score.locality_cost > 0


def test_a_job_without_gpus_goes_into_a_partition_without_gpus() -> None:
    nodes = (
        *rack("a", 2),
        *rack("x", 1, gpus=0, partitions=("cpu",)),
        *rack("y", 1, gpus=0, partitions=("cpu",)),
    )
    found = placed(Job(name="t", cpus=128), *nodes, partitions=("gpu", "cpu"))
    assert found.plan.partition == "cpu"


@pytest.mark.parametrize(
    "job",
    [
        Job(name="t", nodes=3),
        Job(name="t", cpus=150),
        Job(name="t", nodes=3, cpus=150),
        Job(name="t", nodes=3, exclusive=True),
    ],
)
def test_a_job_without_gpus_takes_no_more_nodes_with_gpus_than_the_others_lack(job: Job) -> None:
    found = placed(job, *rack("a", 3), *CPU_RACKS)
    assert names(found) == {"x1", "y1", "a1"}
    assert found.score.gpus_unasked == 8


def test_300_cpus_take_both_cpu_nodes_and_three_of_eight_gpu_nodes() -> None:
    found = placed(Job(name="t", cpus=300), *rack("g", 4), *rack("h", 4), *rack("c", 2, gpus=0))
    assert sum(1 for name in names(found) if name[0] != "c") == 3
    assert found.score.gpus_unasked == 24
    assert [s.cpus for name, s in found.plan.nodes.items() if name[0] == "c"] == [64, 64]


def test_of_nodes_with_gpus_a_job_without_takes_those_whose_gpus_are_in_use() -> None:
    a1, a2, a3 = rack("a", 3)
    b1, b2 = rack("b", 2)
    site = (a1, busy(a2, 8, cpus=8), a3, busy(b1, 8, cpus=8), b2, *CPU_RACKS)
    for job in (Job(name="t", nodes=4), Job(name="t", cpus=230), Job(name="t", nodes=4, cpus=230)):
        found = placed(job, *site)
        assert names(found) == {"x1", "y1", "a2", "b1"}
        assert found.score.gpus_unasked == 0


def test_one_node_with_gpus_that_holds_it_all_is_nearer_than_one_beside_others() -> None:
    (large,) = rack("a", 1, cpus=256)
    assert names(placed(Job(name="t", cpus=150), large, *CPU_RACKS)) == {"a1"}


def test_of_two_sites_a_job_without_gpus_goes_where_the_gpus_of_its_node_are_in_use() -> None:
    job = Job(name="t", nodes=1)
    (a1,) = rack("a", 1)
    idle, full = placed(job, a1), placed(job, busy(a1, 8, cpus=8))
    assert (idle.score.gpus_unasked, full.score.gpus_unasked) == (8, 0)
    assert full.score < idle.score


def test_of_two_sites_a_job_without_gpus_goes_to_the_one_where_it_needs_no_gpu_node() -> None:
    near = placed(Job(name="t", nodes=2), *rack("a", 2))
    far = placed(Job(name="t", nodes=2), *CPU_RACKS)
    assert far.score < near.score


def test_an_exclusive_job_takes_all_of_untouched_nodes() -> None:
    a1, a2, a3 = rack("a", 3)
    job = Job(name="t", nodes=1, gpus_per_node=2, exclusive=True)
    found = placed(job, busy(a1, 1), busy(a2, 0, cpus=1), a3)
    assert [(s.gpus, s.cpus) for s in found.plan.nodes.values()] == [(8, 64)]
    assert refused(job, busy(a1, 1), busy(a2, 0, cpus=1)) is ReasonCode.TOO_FEW_NODES


def test_a_plan_of_whole_nodes_has_all_of_their_memory() -> None:
    nodes = [roomy(node, 512_000) for node in rack("a", 2)]
    job = Job(name="t", nodes=2, gpus_per_node=2, mem_mib_per_node=1000)
    assert placed(replace(job, exclusive=True), *nodes).plan.whole_mem_mib == 1_024_000
    assert placed(job, *nodes).plan.whole_mem_mib == 0


def test_the_gpu_type_asked_for_is_the_one_given() -> None:
    a100, h100 = rack("a", 1), rack("h", 1, gpu_type="h100")
    job = Job(name="t", nodes=1, gpus_per_node=8, gpu_types=("h100",))
    assert names(placed(job, *a100, *h100)) == {"h1"}
    assert refused(job, *a100) is ReasonCode.NO_GPU_TYPE


def test_every_feature_asked_for_is_on_every_node() -> None:
    plain, both = rack("a", 1, features=("ib",)), rack("b", 1, features=("ib", "nvlink"))
    job = Job(name="t", nodes=1, features=("ib", "nvlink"))
    assert names(placed(job, *plain, *both)) == {"b1"}
    assert refused(job, *plain) is ReasonCode.NO_FEATURE


def test_what_one_node_lacks_is_named_with_its_numbers() -> None:
    result = place_job(gang(1, 9), FreeCapacity(rack("a", 2)), ("gpu",))
    assert not isinstance(result, Placed)
    (reason,) = result
    assert (reason.code, reason.needed, reason.free, reason.unit) == (
        ReasonCode.NODE_TOO_SMALL,
        9,
        8,
        "GPUs",
    )


def test_too_few_nodes_says_how_many_there_are() -> None:
    result = place_job(gang(3), FreeCapacity(rack("a", 2)), ("gpu",))
    assert not isinstance(result, Placed)
    assert (result[0].code, result[0].needed, result[0].free) == (ReasonCode.TOO_FEW_NODES, 3, 2)


def test_only_partitions_that_both_sides_allow_are_used() -> None:
    nodes = rack("a", 1, partitions=("gpu", "long"))
    job = Job(name="t", nodes=1, partitions=("long", "other"))
    assert placed(job, *nodes, partitions=("gpu", "long")).plan.partition == "long"
    assert refused(job, *nodes, partitions=("gpu",)) is ReasonCode.NO_PARTITION


def test_on_equal_scores_the_sites_first_partition_wins() -> None:
    nodes = rack("a", 1, partitions=("gpu", "long"))
    assert placed(gang(1), *nodes, partitions=("long", "gpu")).plan.partition == "long"


def test_the_reason_told_is_of_the_partition_that_came_nearest() -> None:
    near = rack("a", 1, gpus=4, partitions=("gpu",))
    far = rack("b", 1, gpus=0, partitions=("cpu",))
    assert refused(gang(1), *near, *far, partitions=("cpu", "gpu")) is ReasonCode.NODE_TOO_SMALL


def test_the_score_counts_pairs_of_gpus_and_gpus_that_are_of_no_more_use() -> None:
    alone = placed(gang(1, 6), *rack("a", 1))  # of 2 left, a 1-GPU job makes use, not an 8-GPU one
    assert (alone.score.locality_cost, alone.score.fragmentation) == (0.0, 1.0)
    one_rack = placed(gang(2, 8), *rack("a", 2))
    assert one_rack.score.locality_cost == 64.0
    two_racks = placed(gang(2, 8), *rack("a", 1), *rack("b", 1))
    assert two_racks.score.locality_cost == 640.0


def test_a_cpu_total_counts_only_the_cpus_that_whole_tasks_can_use() -> None:
    """Three tasks of 20 CPUs need three nodes with 30 free each, though two have 60 together."""
    nodes = [busy(n, 0, cpus=n.cpus - 30) for n in rack("a", 3)]  # 30 free: one task each
    found = placed(Job(name="t", cpus=60, cpus_per_node=20), *nodes)
    assert [share.cpus for share in found.plan.nodes.values()] == [20, 20, 20]


def roomy(node: Node, mem_mib: int) -> Node:
    return replace(node, mem_mib=mem_mib)


def test_memory_of_each_cpu_of_a_total_is_had_where_the_cpu_is() -> None:
    """Each node has 64 CPUs free, and memory for three tasks."""
    nodes = [roomy(node, 3500) for node in rack("a", 3, gpus=0)]
    found = placed(Job(name="t", cpus=8, mem_mib_per_node=1000, mem_mib_per_cpu=1000), *nodes)
    shares = sorted(found.plan.nodes.values(), key=lambda share: share.cpus)
    assert [(s.cpus, s.mem_mib) for s in shares] == [(2, 2000), (3, 3000), (3, 3000)]


def test_memory_of_each_cpu_counts_for_all_cpus_of_a_task() -> None:
    nodes = [roomy(node, 3500) for node in rack("a", 3, gpus=0)]
    job = Job(name="t", cpus=6, cpus_per_node=2, mem_mib_per_node=2000, mem_mib_per_cpu=1000)
    assert [s.cpus for s in placed(job, *nodes).plan.nodes.values()] == [2, 2, 2]


def test_of_nodes_with_as_many_cpus_the_one_with_the_memory_holds_a_total() -> None:
    small = roomy(rack("a", 1, gpus=0)[0], 2000)
    large = roomy(rack("b", 1, gpus=0)[0], 9000)
    job = Job(name="t", cpus=8, mem_mib_per_node=1000, mem_mib_per_cpu=1000)
    assert names(placed(job, small, large)) == {"b1"}


def test_memory_of_each_gpu_of_a_total_is_had_where_the_gpu_is() -> None:
    nodes = [roomy(node, 5000) for node in rack("a", 3)]
    found = placed(Job(name="t", gpus=8, mem_mib_per_node=1000, mem_mib_per_gpu=1000), *nodes)
    assert sorted((s.gpus, s.mem_mib) for s in found.plan.nodes.values()) == [(3, 3000), (5, 5000)]
    groups = placed(Job(name="t", gpus=8, tensor_parallel=4, mem_mib_per_gpu=1000), *nodes)
    assert [(s.gpus, s.mem_mib) for s in groups.plan.nodes.values()] == [(4, 4000), (4, 4000)]


def test_a_total_whose_memory_is_lacking_is_refused_for_its_memory() -> None:
    nodes = [roomy(node, 3500) for node in rack("a", 2, gpus=0)]
    job = Job(name="t", cpus=8, mem_mib_per_node=1000, mem_mib_per_cpu=1000)
    result = place_job(job, FreeCapacity(nodes), ("gpu",))
    assert not isinstance(result, Placed)
    reason = result[0]
    assert (reason.code, reason.needed, reason.free, reason.unit) == (
        ReasonCode.TOO_FEW_NODES,
        8000,
        7000,
        "MiB",
    )


def test_a_gang_over_racks_of_one_size_fills_them_one_after_the_other() -> None:
    sizes = [rack(name, 3) for name in "abcd"]
    found = placed(gang(8), *(node for nodes in sizes for node in nodes))
    assert sorted(names(found)) == ["a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2"]


def test_a_room_gives_back_exactly_what_a_plan_took() -> None:
    room = FreeCapacity(rack("a", 2))
    plan = plan_on("a1", "elsewhere", gpus=3)[0]
    room.take(plan)
    assert [f.gpus for f in room.nodes] == [5, 8]
    room.release(plan)
    assert [(f.gpus, f.cpus) for f in room.nodes] == [(8, 64), (8, 64)]


def test_what_fills_up_is_of_the_same_kind_as_before() -> None:
    """Kinds are looked up once; what is free is looked at for every job."""
    room = FreeCapacity(rack("a", 2))
    first = place_job(gang(1), room, ("gpu",))
    assert isinstance(first, Placed)
    room.take(first.plan)
    second = place_job(gang(1), room, ("gpu",))
    assert isinstance(second, Placed)
    assert not names(first) & names(second)
    room.take(second.plan)
    assert not isinstance(place_job(gang(1), room, ("gpu",)), Placed)


def test_a_room_forgets_kinds_that_nobody_will_ask_for_again() -> None:
    room = FreeCapacity(rack("a", 1))
    for k in range(3 * KINDS_KEPT):
        assert not isinstance(
            place_job(Job(name="t", nodes=1, features=(f"f{k}",)), room, ("gpu",)), Placed
        )
    assert len(room._of_kind) <= KINDS_KEPT


def test_a_total_keeps_to_as_few_racks_as_a_gang_of_its_nodes() -> None:
    """Names of neighbours lie in different racks: only the switch tells."""
    racks = [rack(name, 4) for name in "abcd"]
    mixed = [replace(nodes[k], name=f"n{k}{nodes[0].switch}") for k in range(4) for nodes in racks]
    gang_cost = placed(gang(6), *mixed).score.locality_cost
    total = placed(Job(name="t", gpus=48), *mixed)
    assert total.score.locality_cost == gang_cost
    assert len(total.plan.nodes) == 6
    exact = placed(Job(name="t", nodes=6, gpus=48), *mixed)
    assert exact.score.locality_cost == gang_cost


def test_nodes_on_an_inner_switch_are_nearer_to_what_is_below_it_than_to_other_spines() -> None:
    fabric = Fabric({"leaf": "spine", "other": "spine2"})
    assert fabric.locality_cost({"spine": [1], "leaf": [1]}) == 10.0
    assert fabric.locality_cost({"spine": [1, 1]}) == 10.0
    assert fabric.locality_cost({"leaf": [1], "other": [1]}) == 100.0


def test_a_switch_chain_of_any_length_is_no_trouble() -> None:
    parents = {f"s{k}": f"s{k + 1}" for k in range(2_000)} | {"s2000": "s0"}
    fabric = Fabric(parents)
    assert fabric.locality_cost({"s0": [8], "s1999": [8]}) < 10.0**20


def test_sites_without_topology_price_each_node_by_itself() -> None:
    nodes = [replace(n, switch="") for n in rack("a", 3)]
    assert placed(gang(1, 6), *nodes).score.fragmentation == 1.0


def test_what_is_equal_compares_as_equal_however_it_was_added_up() -> None:
    assert 0.1 + 0.2 != 0.3
    assert on_grid(0.1 + 0.2) == on_grid(0.3)
    thirds = [on_grid(1 / 3), on_grid(2 / 3), on_grid(0.1)]
    assert sum(thirds) == sum(reversed(thirds))
    assert abs(on_grid(2.857) - 2.857) < 1e-6


def test_part_of_a_node_goes_to_the_fullest_node_and_only_then_to_the_fullest_rack() -> None:
    room = FreeCapacity((*rack("a", 2), *rack("b", 2)))
    room.take(plan_on("a1", gpus=8)[0])  # 8 GPUs are free in its rack
    room.take(plan_on("b1", gpus=5)[0])  # 11 are in that of this one
    found = place_job(gang(1, 2), room, ("gpu",))
    assert isinstance(found, Placed)
    assert list(found.plan.nodes) == ["b1"]


def test_of_nodes_alike_the_one_in_the_fullest_rack_is_taken() -> None:
    room = FreeCapacity((*rack("a", 3), *rack("b", 2)))
    room.take(plan_on("b1", gpus=8)[0])
    found = place_job(gang(1, 2), room, ("gpu",))
    assert isinstance(found, Placed)
    assert list(found.plan.nodes) == ["b2"]


def test_a_node_for_jobs_of_one_node_takes_those_alone() -> None:
    marked, well, other = (
        replace(node, features=("fed_single_node",) if node.name == "a1" else ())
        for node in rack("a", 3)
    )
    assert set(placed(gang(2), marked, well, other).plan.nodes) == {"a2", "a3"}
    assert set(placed(gang(1), marked).plan.nodes) == {"a1"}
    assert refused(gang(2), marked, well) is not None
    assert refused(gang(2), marked) is ReasonCode.NODE_FAILED


def test_a_total_takes_a_node_for_jobs_of_one_node_only_where_that_holds_all_of_it() -> None:
    marked = [replace(node, features=("fed_single_node",)) for node in rack("a", 2)]
    well = rack("b", 2)
    total = gang(1).gpus_per_node
    one, two = Job(name="one", gpus=total), Job(name="two", gpus=2 * total)
    assert set(placed(one, *marked).plan.nodes) == {"a1"}
    assert set(placed(two, *marked, *well).plan.nodes) == {"b1", "b2"}
    assert refused(two, *marked) is ReasonCode.NODE_FAILED
    assert refused(two, *marked, well[0]) is ReasonCode.TOO_FEW_NODES
