"""Laws that hold for every job on every site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.model.gres import counted
from federator.model.plan import BidRequest, JobPlan
from federator.model.site import Node, NodeShare
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.empty_site import capacity_of
from federator.sched.bid.fabric import Fabric
from federator.sched.bid.fragmentation import rack_key
from federator.sched.bid.free_capacity import FreeCapacity, FreeNode, NodesOfKind
from federator.sched.bid.node_selection import share_per_node
from federator.sched.bid.placement import Placed, place_job
from federator.sched.bid.score import locality_cost
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.bid.workload_plan import never_fits, place_all
from tests.fakes.build import attempt, bid_request

GRES = ((("nic", 2),), counted([("nic", "mlx5", 2), ("nic", "efa", 1)]))
"""Of nodes."""
MEM_WITH_EACH = st.sampled_from([0, 0, 100, 300])
ASKED_GRES = ((("nic", 1),), (("nic", 3),), counted([("nic", "mlx5", 1)]))
FEW = settings(max_examples=120, deadline=None)


@st.composite
def nodes(draw: st.DrawFn, most: int = 8) -> tuple[Node, ...]:
    """A small site with local jobs here and there."""
    count = draw(st.integers(1, most))
    return tuple(_node(draw, k) for k in range(count))


def _node(draw: st.DrawFn, k: int) -> Node:
    gpus, cpus = draw(st.sampled_from([0, 4, 8])), draw(st.sampled_from([4, 16]))
    return Node(
        name=f"n{k}",
        partitions=("gpu",),
        switch=draw(st.sampled_from(["r1", "r2", "r3"])),
        cpus=cpus,
        cpus_alloc=draw(st.sampled_from([0, 0, 0, 3, cpus])),
        mem_mib=1000,
        mem_mib_alloc=draw(st.sampled_from([0, 0, 0, 900])),
        gpu_type=(kind := draw(st.sampled_from(["a100", "h100"])) if gpus else ""),
        gpus=gpus,
        gpu_mem_gib={"a100": 40.0, "h100": 80.0}.get(kind, 0.0),
        gpu_weight=2.0 if kind == "h100" else 1.0,
        nvlink=kind == "h100",
        gpus_alloc=draw(st.sampled_from([0, 0, 1, gpus // 2, gpus])),
        features=draw(st.sampled_from([(), ("ib",)])),
        gres=draw(st.sampled_from([(), *GRES])),
        gres_alloc=draw(st.sampled_from([(), (("nic", 1), ("nic:mlx5", 1))])),
    )


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Per node, in total, or both."""
    shape = draw(
        st.sampled_from(["per node", "gpus", "cpus", "gpus over nodes", "cpus over nodes"])
    )
    count = draw(st.integers(1, 4))
    over = {"nodes": count} if "node" in shape else {}
    amounts: dict[str, int] = dict(over)
    tensor = 1
    if shape == "per node":
        amounts |= {
            "gpus_per_node": draw(st.integers(0, 8)),
            "cpus_per_node": draw(st.integers(1, 8)),
        }
    elif shape.startswith("gpus"):
        tensor = draw(st.sampled_from([1, 1, 2, 4]))
        amounts["gpus"] = tensor * draw(st.integers(count if over else 1, 20 // tensor))
        amounts["mem_mib_per_gpu"] = draw(MEM_WITH_EACH)
    else:
        amounts |= {
            "cpus": draw(st.integers(count, 40)),
            "gpus_per_node": draw(st.sampled_from([0, 2])),
            "mem_mib_per_cpu": draw(MEM_WITH_EACH),
        }
    return Job(
        name="train",
        mem_mib_per_node=draw(st.sampled_from([0, 500])),
        gpu_types=draw(st.sampled_from([(), (), ("h100",)])),
        min_gpu_mem_gib=draw(st.sampled_from([0.0, 0.0, 40.0, 80.0])),
        nvlink=draw(st.sampled_from([False, False, True])),
        tensor_parallel=tensor,
        features=draw(st.sampled_from([(), ("ib",)])),
        exclusive=draw(st.sampled_from([False, False, True])) and shape == "per node",
        gres=draw(st.sampled_from([(), (), (), (), *ASKED_GRES])),
        **amounts,  # type: ignore[arg-type]  # amounts only
    )


def requests(queue: Sequence[Sequence[Job]]) -> list[BidRequest]:
    return [bid_request(id=WorkloadId(k), jobs=tuple(w)) for k, w in enumerate(queue)]


def place(job: Job, site: Sequence[Node]) -> Placed | None:
    found = place_job(job, FreeCapacity(site), ("gpu",))
    return found if isinstance(found, Placed) else None


def usable(job: Job, site: Sequence[Node]) -> list[FreeNode]:
    """The nodes that could be part of any plan, found the long way."""
    need = share_per_node(job)
    least_gpus = max(need.gpus, job.tensor_parallel if job.gpus else 0)
    least_mem = max(need.mem_mib, job.mem_mib_per_gpu * least_gpus)
    return [
        f
        for f in map(FreeNode.of, site)
        if f.gpus >= least_gpus
        and f.cpus >= need.cpus
        and f.mem_mib >= least_mem
        and (not (job.gpus or job.gpus_per_node) or f.node.gpus)
        and (not (job.gpus or job.gpus_per_node) or capable(job, f.node))
        and set(job.features) <= set(f.node.features)
        and (not job.exclusive or f.untouched)
        and all(f.gres.get(name, 0) >= amount for name, amount in job.gres)
    ]


def capable(job: Job, node: Node) -> bool:
    return (
        (not job.gpu_types or node.gpu_type in job.gpu_types)
        and node.gpu_mem_gib >= job.min_gpu_mem_gib
        and (node.nvlink or not job.nvlink)
    )


def holds_totals(job: Job, group: Sequence[FreeNode]) -> bool:
    gpus, cpus = 0, 0
    for f in group:
        with_memory = f.mem_mib // job.mem_mib_per_gpu if job.mem_mib_per_gpu else f.gpus
        gpus += min(f.gpus, with_memory) // job.tensor_parallel * job.tensor_parallel
        cpus += min(f.cpus, f.mem_mib // job.mem_mib_per_cpu) if job.mem_mib_per_cpu else f.cpus
    return gpus >= job.gpus and cpus >= job.cpus


def fewest(job: Job, group: Sequence[FreeNode]) -> int | None:
    """The size of the smallest set of nodes that holds the job; None when there is none."""
    sizes = [job.nodes] if job.nodes is not None else list(range(1, len(group) + 1))
    for size in sizes:
        if any(holds_totals(job, some) for some in combinations(group, size)):
            return size
    return None


def by_rack(group: Sequence[FreeNode]) -> list[list[FreeNode]]:
    return [[f for f in group if f.node.switch == r] for r in {f.node.switch for f in group}]


@FEW
@given(jobs(), nodes())
def test_a_plan_never_takes_more_than_is_free(job: Job, site: tuple[Node, ...]) -> None:
    found = place(job, site)
    if found is None:
        return
    allowed = {f.node.name: f for f in usable(job, site)}
    for name, share in found.plan.nodes.items():
        assert name in allowed
        assert allowed[name].has(share)


@FEW
@given(jobs(), nodes())
def test_a_plan_gives_what_was_asked_for(job: Job, site: tuple[Node, ...]) -> None:
    found = place(job, site)
    if found is None:
        return
    shares = list(found.plan.nodes.values())
    need = share_per_node(job)
    if job.nodes is not None:
        assert len(shares) == job.nodes
    assert all(s.gpus >= need.gpus and s.cpus >= need.cpus for s in shares)
    assert {s.gres for s in shares} == {job.gres}
    assert all(s.mem_mib >= job.mem_mib_per_node for s in shares)
    assert all(s.mem_mib >= job.mem_mib_per_gpu * s.gpus for s in shares)
    if not job.exclusive:
        assert all(s.mem_mib >= job.mem_mib_per_cpu * s.cpus for s in shares)
    if not job.exclusive:
        assert sum(s.gpus for s in shares) == (job.gpus or need.gpus * len(shares))
        assert sum(s.cpus for s in shares) == max(job.cpus, need.cpus * len(shares))
        assert all(s.gpus % job.tensor_parallel == 0 for s in shares)


@FEW
@given(jobs(), nodes(most=6))
def test_gpu_types_are_mixed_only_where_no_type_alone_is_enough(
    job: Job, site: tuple[Node, ...]
) -> None:
    found = place(job, site)
    if found is not None and len(found.plan.gpu_types) > 1:
        assert len(alike(job, site)) == 1
        assert {f.node.gpu_type for f in alike(job, site)[0]} == {"a100", "h100"}
        assert all(
            fewest(job, [f for f in usable(job, site) if f.node.gpu_type == kind]) is None
            for kind in ("a100", "h100")
        )


@FEW
@given(jobs(), nodes(most=7))
def test_no_gang_of_so_many_nodes_would_cost_less_in_locality(
    job: Job, site: tuple[Node, ...]
) -> None:
    """Every choice of nodes is tried; the plan's leading term is the least there is."""
    if job.nodes is None or job.gpus or job.cpus or job.exclusive:
        return
    found = place(job, site)
    if found is None:
        return
    need = share_per_node(job)
    least = min(
        locality_cost(some, [need] * job.nodes, Fabric())
        for group in alike(job, site)
        for some in combinations(group, job.nodes)
    )
    assert found.score.locality_cost == least


@FEW
@given(jobs(), nodes(most=6))
def test_the_least_capable_gpus_that_cost_as_little_are_taken(
    job: Job, site: tuple[Node, ...]
) -> None:
    if job.nodes is None or job.gpus or job.cpus or job.exclusive or not job.gpus_per_node:
        return
    found = place(job, site)
    groups = alike(job, site)
    if found is None or len(groups) == 1:
        return
    need = share_per_node(job)
    costs = [
        (
            min(
                locality_cost(some, [need] * job.nodes, Fabric())
                for some in combinations(group, job.nodes)
            ),
            group[0].node.gpu_worth,
        )
        for group in groups
    ]
    assert (found.score.locality_cost, found.score.gpu_worth / job.total_gpus) == min(costs)


@FEW
@given(jobs(), nodes(most=6))
def test_what_fits_is_placed_and_what_does_not_is_refused(job: Job, site: tuple[Node, ...]) -> None:
    assert (place(job, site) is not None) == (fewest(job, usable(job, site)) is not None)


def alike(job: Job, site: Sequence[Node]) -> list[list[FreeNode]]:
    """The nodes that a plan may be made of: of one GPU type, where one type alone is enough.

    For a job without GPUs those without GPUs, where these alone are enough.
    """
    group = usable(job, site)
    if not job.total_gpus:
        others = [f for f in group if not f.node.gpus]
        return [group if fewest(job, others) is None else others]
    pure = [[f for f in group if f.node.gpu_type == kind] for kind in ("a100", "h100")]
    return [nodes for nodes in pure if fewest(job, nodes) is not None] or [group]


@FEW
@given(jobs(), nodes(most=6))
def test_one_rack_is_used_whenever_one_has_room(job: Job, site: tuple[Node, ...]) -> None:
    found = place(job, site)
    if found is None:
        return
    group = max(alike(job, site), key=lambda g: any(fewest(job, r) is not None for r in by_rack(g)))
    if job.nodes is None:  # fewer nodes come before one rack between GPU types
        return
    if any(fewest(job, rack) is not None for rack in by_rack(group)):
        switches = {f.node.switch for f in group if f.node.name in found.plan.nodes}
        assert len(switches) == 1


@FEW
@given(jobs(), nodes(most=6))
def test_no_plan_of_the_same_breadth_has_fewer_nodes(job: Job, site: tuple[Node, ...]) -> None:
    """Of each GPU type that is enough alone; which type is taken, the score decides."""
    found = place(job, site)
    if found is None:
        return
    allowed = []
    for group in alike(job, site):
        in_a_rack = [n for rack in by_rack(group) if (n := fewest(job, rack)) is not None]
        allowed.append(min(in_a_rack) if in_a_rack else fewest(job, group))
    assert len(found.plan.nodes) in allowed


def taken(plans: Sequence[JobPlan]) -> dict[str, NodeShare]:
    sums: dict[str, NodeShare] = {}
    for plan in plans:
        for name, s in plan.nodes.items():
            sums[name] = sums.get(name, NodeShare()) + s
    return sums


def scheduler(site: Sequence[Node]) -> SiteScheduler:
    found = SiteScheduler(("gpu",))
    found.update(site, ())
    return found


QUEUE = st.lists(st.lists(jobs(), min_size=1, max_size=2), min_size=1, max_size=6)


@FEW
@given(QUEUE, nodes())
def test_the_bids_of_one_list_never_count_anything_twice(
    queue: list[list[Job]], site: tuple[Node, ...]
) -> None:
    answers = scheduler(site).bid(
        bid_request(id=WorkloadId(k), jobs=tuple(w)) for k, w in enumerate(queue)
    )
    plans = [plan for a in answers if a.bid is not None for plan in a.bid.jobs]
    free = {n.name: FreeNode.of(n) for n in site}
    assert all(free[name].has(share) for name, share in taken(plans).items())


@FEW
@given(QUEUE, nodes(), st.sets(st.integers(0, 5)))
def test_a_bid_stays_valid_when_earlier_ones_of_its_list_lose(
    queue: list[list[Job]], site: tuple[Node, ...], lost: set[int]
) -> None:
    answers = scheduler(site).bid(
        bid_request(id=WorkloadId(k), jobs=tuple(w)) for k, w in enumerate(queue)
    )
    late = scheduler(site)
    for k, answer in enumerate(answers):
        if answer.bid is not None and k not in lost:
            assert late.holds(answer.bid.jobs) is None
            late.hold(attempt(k), answer.bid.jobs)


@FEW
@given(jobs(), nodes(), st.data())
def test_what_never_fits_is_never_placed_whatever_is_free(
    job: Job, site: tuple[Node, ...], data: st.DataObject
) -> None:
    capacity = capacity_of(site)
    if never_fits((job,), FreeCapacity(capacity.nodes), ("gpu",)) is not None:
        for _ in range(3):
            used = [
                replace(n, gpus_alloc=data.draw(st.integers(0, n.gpus))) for n in capacity.nodes
            ]
            assert place(job, used) is None


@FEW
@given(st.lists(jobs(), min_size=1, max_size=3), nodes())
def test_what_is_placed_now_is_never_rejected_for_ever(
    workload: list[Job], site: tuple[Node, ...]
) -> None:
    (answer,) = scheduler(site).bid([bid_request(id=WorkloadId(1), jobs=tuple(workload))])
    if answer.bid is not None:
        assert never_fits(workload, FreeCapacity(capacity_of(site).nodes), ("gpu",)) is None


def fits_in_order(workload: Sequence[Job], site: tuple[Node, ...]) -> bool:
    room = FreeCapacity(site)
    for job in workload:
        found = place_job(job, room, ("gpu",))
        if not isinstance(found, Placed):
            return False
        room.assign(found.plan)
    return True


@FEW
@given(st.lists(jobs(), min_size=2, max_size=4), nodes())
def test_what_is_refused_for_its_totals_fits_in_no_order(
    workload: list[Job], site: tuple[Node, ...]
) -> None:
    room = FreeCapacity(site)
    result = place_all(workload, room, ("gpu",))
    if isinstance(result, tuple):
        assert [f.gpus for f in room.nodes] == [f.gpus for f in FreeCapacity(site).nodes]
        if not result[0].job:
            assert not any(fits_in_order(order, site) for order in permutations(workload))


@FEW
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), min_size=1, max_size=6))
def test_the_locality_cost_is_the_sum_over_pairs_of_gpus(where: list[tuple[str, int]]) -> None:
    chosen = [
        FreeNode.of(Node(name=f"n{k}", partitions=(), switch=rack, gpus=8))
        for k, (rack, _) in enumerate(where)
    ]
    shares = [NodeShare(gpus=gpus) for _, gpus in where]
    units = [1] * len(where) if not any(gpus for _, gpus in where) else [g for _, g in where]
    gpus = [(k, where[k][0]) for k, count in enumerate(units) for _ in range(count)]
    cost = 0.0
    for (node_1, rack_1), (node_2, rack_2) in combinations(gpus, 2):
        if node_1 != node_2:
            cost += 1.0 if rack_1 == rack_2 else 10.0
    assert locality_cost(chosen, shares, Fabric()) == cost


# ---- what racks remember ----

changes = st.lists(
    st.tuples(
        st.sampled_from(["take", "give back", "renew", "ask"]),
        st.integers(0, 7),
        st.integers(0, 4),
        st.integers(0, 8),
    ),
    min_size=4,
    max_size=20,
)


def tightest_of(group: Sequence[FreeNode], least: tuple[int, int, int]) -> FreeNode | None:
    """A node with the fewest free GPUs; of several, one in the tightest rack."""
    gpus, cpus, mem_mib = least
    fitting = [f for f in group if f.gpus >= gpus and f.cpus >= cpus and f.mem_mib >= mem_mib]
    if not fitting:
        return None
    fewest_gpus = min(f.gpus for f in fitting)
    if gpus > 0:
        racks = [r for r in by_rack(fitting) if any(f.gpus == fewest_gpus for f in r)]
        fitting = min(racks, key=lambda r: (sum(f.gpus for f in r), len(r), r[0].node.name))
    return min(fitting, key=lambda f: (f.gpus, f.node.gpus, f.cpus, f.node.name))


@given(nodes(), changes)
@settings(max_examples=300, deadline=None)
def test_a_rack_never_remembers_what_has_changed(
    site: tuple[Node, ...], history: list[tuple[str, int, int, int]]
) -> None:
    room = FreeCapacity(site)
    groups = [NodesOfKind(room.nodes), NodesOfKind(room.nodes[::2])]
    for name, x, gpus, cpus in history:
        f = room.nodes[x % len(room.nodes)]
        share = NodeShare(gpus=gpus, cpus=cpus, mem_mib=100 * cpus)
        match name:
            case "take":
                f.take(share)
            case "give back":
                f.give_back(share)
            case "renew":
                f.renew(replace(f.node, gpus_alloc=min(gpus, f.node.gpus), cpus_alloc=cpus))
        for least in ((1, 1, 0), (gpus, cpus, 500), (-99, 1, -9999)):
            for group in groups:
                assert group.tightest(least) is tightest_of(group, least)
        for rack in {id(f.rack): f.rack for f in room.nodes}.values():
            with_gpus = [f for f in room.nodes if f.rack is rack and f.node.gpus]
            usable, key = rack.usable()
            assert usable == {id(f): f.usable_gpus for f in with_gpus}
            assert key == rack_key([f.usable_gpus for f in with_gpus])
