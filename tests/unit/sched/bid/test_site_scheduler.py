"""What one site bids, and what it keeps for orders that Slurm does not show yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.plan import Bid
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site import Node, NodeShare, NodeState
from federator.model.workload import Job, WorkloadId
from federator.sched.bid import empty_site, workload_plan
from federator.sched.bid.empty_site import capacity_of
from federator.sched.bid.fragmentation import RequestMix
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.placement import Placed, place_job
from federator.sched.bid.site_scheduler import SiteScheduler, summarise
from federator.sched.bid.workload_plan import never_fits, orders_to_try, place_all
from tests.fakes.build import attempt, bid_request, gang, plan_on, rack


def site(*nodes: Node) -> SiteScheduler:
    scheduler = SiteScheduler(("gpu",))
    scheduler.update(nodes, ())
    return scheduler


def amounts(room: FreeCapacity) -> list[tuple[int, int, int]]:
    return [(f.gpus, f.cpus, f.mem_mib) for f in room.nodes]


def bids(scheduler: SiteScheduler, *jobs: Job) -> list[bool]:
    """Whether each of these one-job workloads, asked together, gets a bid."""
    requests = [bid_request(id=WorkloadId(k), jobs=(job,)) for k, job in enumerate(jobs)]
    return [answer.bid is not None for answer in scheduler.bid(requests)]


def test_nodes_that_failed_a_workload_are_not_offered_to_it_and_do_not_make_never() -> None:
    scheduler = site(*rack("a", 2))
    one, both = replace(gang(1), avoid=("a1",)), replace(gang(2), avoid=("a1",))
    none_left = replace(gang(1), avoid=("a1", "a2"))
    requests = [
        bid_request(id=WorkloadId(k), jobs=(job,)) for k, job in enumerate((both, none_left, one))
    ]
    first, second, third = scheduler.bid(requests)
    for answer, named in ((first, "a1"), (second, "a1,a2")):
        assert answer.refusal is not None
        assert answer.refusal.kind is RefusalKind.WAIT
        assert named in [
            r.detail for r in answer.refusal.reasons if r.code is ReasonCode.NODE_FAILED
        ]
    assert third.bid is not None
    assert set(third.bid.jobs[0].nodes) == {"a2"}


def test_a_node_that_is_for_jobs_of_one_node_for_now_does_not_make_never() -> None:
    marked = tuple(replace(node, features=("fed_single_node", "nvme")) for node in rack("a", 2))
    scheduler = site(*marked)
    (answer,) = scheduler.bid([bid_request(id=WorkloadId(0), jobs=(gang(2),))])
    assert answer.refusal is not None
    assert answer.refusal.kind is RefusalKind.WAIT
    assert {node.features for node in scheduler.capacity.nodes} == {("nvme",)}


def test_each_bid_counts_those_before_it_as_won() -> None:
    assert bids(site(*rack("a", 3)), gang(2), gang(2), gang(1), gang(1)) == [
        True,
        False,
        True,
        False,
    ]


def test_asking_promises_nothing() -> None:
    scheduler = site(*rack("a", 2))
    assert bids(scheduler, gang(2)) == bids(scheduler, gang(2)) == [True]


def test_a_held_node_is_not_offered_again_until_a_sweep_shows_it() -> None:
    nodes = rack("a", 2)
    scheduler = site(*nodes)
    scheduler.hold(attempt(), plan_on("a1"))
    assert bids(scheduler, gang(2)) == [False]
    scheduler.update(nodes, ())  # a sweep from before the job started
    assert bids(scheduler, gang(2)) == [False]
    scheduler.update((replace(nodes[0], gpus_alloc=8), nodes[1]), (attempt(),))
    assert bids(scheduler, gang(2), gang(1)) == [False, True]
    scheduler.update(nodes, (attempt(),))
    assert bids(scheduler, gang(2)) == [True]


def test_who_gets_a_gpu_node_only_because_of_a_bid_before_it_is_held_back() -> None:
    """If that bid loses, the node without GPUs is free for it after all."""
    scheduler = site(*rack("a", 2), *rack("x", 1, gpus=0))
    job = Job(name="t", nodes=1, cpus_per_node=64)
    asked = [bid_request(id=WorkloadId(k), jobs=(job,)) for k in range(3)]
    assert [answer.held_back for answer in scheduler.bid(asked)] == [False, True, True]
    assert not any(answer.held_back for answer in site(*rack("a", 3)).bid(asked))


def test_a_hold_given_up_is_free_again() -> None:
    scheduler = site(*rack("a", 1))
    scheduler.hold(attempt(), plan_on("a1"))
    scheduler.release(attempt())
    scheduler.release(attempt())
    assert bids(scheduler, gang(1)) == [True]


def test_a_plan_that_was_overtaken_names_the_node() -> None:
    a1, a2 = rack("a", 2)
    scheduler = site(a1, replace(a2, gpus_alloc=1))
    assert scheduler.holds(plan_on("a1")) is None
    reason = scheduler.holds(plan_on("a1", "a2"))
    assert reason is not None
    assert reason.code is ReasonCode.LAUNCH_REFUSED
    assert (reason.needed, reason.free) == (8, 7)
    assert "a2" in reason.detail


def test_a_plan_on_nodes_that_take_no_jobs_is_overtaken() -> None:
    (a1,) = rack("a", 1)
    assert site(replace(a1, state=NodeState.DRAINED)).holds(plan_on("a1")) is not None
    assert site().holds(plan_on("a1")) is not None


def test_a_plan_whose_memory_was_taken_is_overtaken() -> None:
    (a1,) = rack("a", 1, mem_mib=1000)
    (plan,) = plan_on("a1", gpus=1)
    plan = replace(plan, nodes={"a1": NodeShare(gpus=1, cpus=1, mem_mib=800)})
    assert site(a1).holds((plan,)) is None
    assert site(replace(a1, mem_mib_alloc=300)).holds((plan,)) is not None


def test_a_plan_of_two_jobs_on_one_node_is_never_launched() -> None:
    scheduler = site(*rack("a", 2))
    assert scheduler.holds(plan_on("a1", gpus=4) + plan_on("a2", gpus=4)) is None
    reason = scheduler.holds(plan_on("a1", gpus=4) + plan_on("a1", gpus=4))
    assert reason is not None
    assert reason.code is ReasonCode.LAUNCH_REFUSED
    assert reason.detail == "node a1 is planned for two jobs of one workload"


def test_busy_means_wait_and_impossible_means_reject() -> None:
    (a1,) = rack("a", 1)
    requests = [bid_request(id=WorkloadId(n), jobs=(gang(n),)) for n in (1, 2)]
    wait, reject = site(replace(a1, gpus_alloc=1)).bid(requests)
    assert wait.refusal is not None
    assert reject.refusal is not None
    assert wait.refusal.kind is RefusalKind.WAIT
    assert wait.refusal.reasons[0].code is ReasonCode.RESOURCES
    assert reject.refusal.kind is RefusalKind.REJECT
    assert reject.refusal.reasons[0].code is ReasonCode.TOO_FEW_NODES


def test_nodes_that_are_down_today_still_count_for_ever() -> None:
    down = tuple(replace(n, state=NodeState.DOWN) for n in rack("a", 2))
    (answer,) = site(*down).bid([bid_request(id=WorkloadId(1), jobs=(gang(2),))])
    assert answer.refusal is not None
    assert answer.refusal.kind is RefusalKind.WAIT


def test_a_workload_is_placed_whole_or_not_at_all() -> None:
    room = FreeCapacity(rack("a", 2))
    before = amounts(room)
    assert not isinstance(place_all((gang(1, 6), gang(2, 4, "serve")), room, ("gpu",)), Bid)
    assert amounts(room) == before


def test_what_fits_an_empty_site_leaves_it_empty() -> None:
    room = FreeCapacity(rack("a", 2))
    before = amounts(room)
    assert never_fits((gang(1), gang(1, 2, "serve")), room, ("gpu",)) is None
    assert amounts(room) == before


def test_a_bid_lists_the_jobs_as_they_were_asked_for() -> None:
    room = FreeCapacity(rack("a", 3))
    bid = place_all((gang(1, 2, "small"), gang(2, 8, "large")), room, ("gpu",))
    assert isinstance(bid, Bid)
    assert [plan.name for plan in bid.jobs] == ["small", "large"]
    assert not set(bid.jobs[0].nodes) & set(bid.jobs[1].nodes)


def test_a_het_workload_is_not_rejected_because_of_the_order_its_jobs_are_tried_in() -> None:
    picky = Job(name="picky", nodes=1, gpus_per_node=3, features=("ib",))
    large = Job(name="large", nodes=1, gpus_per_node=4)
    nodes = rack("a", 1, gpus=4, cpus=8, features=("ib",)) + rack("b", 1, gpus=4, cpus=64)
    assert never_fits((large, picky), FreeCapacity(nodes), ("gpu",)) is None


def test_what_all_jobs_together_lack_is_told_of_the_whole() -> None:
    refusal = never_fits(
        [gang(1, 8, f"j{k}") for k in range(3)], FreeCapacity(rack("a", 2)), ("gpu",)
    )
    assert refusal is not None
    (reason,) = refusal.reasons
    assert (reason.code, reason.job) == (ReasonCode.TOO_FEW_NODES, "")
    assert (reason.needed, reason.free, reason.unit) == (24, 16, "GPUs")


def test_a_job_that_fits_nowhere_is_told_before_what_all_lack_together() -> None:
    refusal = never_fits([gang(1, 9, "large"), gang(1, 8)], FreeCapacity(rack("a", 2)), ("gpu",))
    assert refusal is not None
    assert refusal.reasons[0].code is ReasonCode.NODE_TOO_SMALL
    assert refusal.reasons[0].job == "large"


def test_whole_nodes_asked_for_by_all_jobs_are_added_up() -> None:
    whole = Job(name="t", nodes=2, exclusive=True)
    refusal = never_fits([whole, whole], FreeCapacity(rack("a", 3)), ("gpu",))
    assert refusal is not None
    assert (refusal.reasons[0].needed, refusal.reasons[0].unit) == (4, "nodes")


@pytest.mark.parametrize(("differ", "orders"), [(False, 1), (True, 6)])
def test_many_jobs_are_tried_in_few_orders(
    monkeypatch: pytest.MonkeyPatch, differ: bool, orders: int
) -> None:
    """Two jobs of 5 GPUs never share a node, though all their GPUs together are there."""
    tries = 0

    def counted(
        job: Job, room: FreeCapacity, partitions: tuple[str, ...]
    ) -> Placed | tuple[Reason, ...]:
        nonlocal tries
        tries += 1
        return place_job(job, room, partitions)

    monkeypatch.setattr(workload_plan, "place_job", counted)
    jobs = [
        Job(name=f"j{k}", nodes=2, gpus_per_node=5, mem_mib_per_node=k if differ else 0)
        for k in range(40)
    ]
    room = FreeCapacity(rack("a", 70))
    assert not isinstance(place_all(jobs, room, ("gpu",)), Bid)
    assert tries <= orders * 36
    assert [f.gpus for f in room.nodes] == [8] * 70


def test_what_the_search_may_have_missed_is_not_refused_for_ever() -> None:
    """The first job prefers the node that the second needs; over two partitions both have room."""
    nodes = (
        Node(name="n0", partitions=("p", "q"), switch="r", cpus=8, gpus=4),
        Node(name="n1", partitions=("q",), switch="r", cpus=4, gpus=4),
        Node(name="n2", partitions=("p",), switch="r", cpus=8, gpus=4),
    )
    jobs = (
        Job(name="a", nodes=2, gpus_per_node=1, cpus_per_node=4),
        Job(name="b", nodes=1, gpus_per_node=2, cpus_per_node=8),
    )
    assert never_fits(jobs, FreeCapacity(nodes), ("p", "q")) is None
    found = place_all(jobs, FreeCapacity(nodes), ("p", "q"))
    assert isinstance(found, Bid)
    assert [set(plan.nodes) for plan in found.jobs] == [{"n0", "n1"}, {"n2"}]


def test_jobs_that_ask_for_the_same_are_answered_alike_each_by_its_own_name() -> None:
    scheduler = site(*rack("a", 2))
    asked = [bid_request(id=WorkloadId(k), jobs=(gang(3, name=f"run{k}"),)) for k in range(3)]
    asked += [bid_request(id=WorkloadId(9), jobs=(gang(1, 99, name="huge"),))] * 2
    for answer, request in zip(scheduler.bid(asked), asked, strict=True):
        assert answer.refusal is not None
        assert answer.refusal.reasons[0].job == request.jobs[0].name


def test_a_node_without_cpus_spoils_no_bid() -> None:
    (whole,) = rack("a", 1)
    odd = Node(name="odd", partitions=("gpu",), switch="a", cpus=0, gpus=8, gpu_type="a100")
    assert bids(site(whole, odd), gang(1)) == [True]


def test_cpu_jobs_of_one_node_are_placed_on_tens_of_thousands_without_looking_at_them_all() -> None:
    """The first partition that leaves nothing to be desired is taken."""
    nodes = rack("c", 50, gpus=0, gpu_type="") + rack(
        "d", 50, gpus=0, gpu_type="", partitions=("late",)
    )
    scheduler = SiteScheduler(("gpu", "late"))
    scheduler.update(nodes, ())
    (answer,) = scheduler.bid([bid_request(id=WorkloadId(1), jobs=(Job(name="t", nodes=1),))])
    assert answer.bid is not None
    assert answer.bid.jobs[0].partition == "gpu"


@pytest.mark.parametrize(("jobs", "orders"), [(0, 4), (2, 4), (16, 16), (40, 6), (128, 4)])
def test_each_of_a_few_jobs_may_go_first(jobs: int, orders: int) -> None:
    assert orders_to_try(jobs) == orders


def test_requests_that_ask_for_the_same_are_held_against_the_empty_site_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def counted(
        jobs: tuple[Job, ...], empty: FreeCapacity, partitions: tuple[str, ...]
    ) -> Refusal | None:
        asked.append(jobs[0].name)
        return never_fits(jobs, empty, partitions)

    monkeypatch.setattr(empty_site, "never_fits", counted)
    scheduler = site(*rack("a", 1))
    assert bids(scheduler, gang(1), gang(2), gang(2), gang(1), gang(1)) == [True] + [False] * 4
    assert len(asked) == 2


def test_a_closed_partition_means_wait_and_shows_as_drained() -> None:
    """Its nodes and the site's capacity are what they were: an admin opens it again."""
    closed = tuple(replace(n, partitions=(), closed_partitions=n.partitions) for n in rack("a", 2))
    assert capacity_of(closed) == capacity_of(rack("a", 2))
    (answer,) = site(*closed).bid([bid_request(id=WorkloadId(1), jobs=(gang(1),))])
    assert answer.refusal is not None
    assert answer.refusal.kind is RefusalKind.WAIT
    (row,) = summarise(closed, ("gpu",))
    assert (row.nodes_idle, row.nodes_drained, row.gpus) == (0, 2, 16)


def test_the_summary_tells_free_gpus_that_are_of_no_use_to_what_is_asked_for() -> None:
    mix = RequestMix()
    mix.note(1, [gang(4, 8)])
    racks = [
        replace(node, switch=f"r{k}", gpus_alloc=8 if m < 2 else 0)
        for k in range(2)
        for m, node in enumerate(rack(f"a{k}", 4))
    ]
    (row,) = summarise(racks, ("gpu",), mix)
    assert (row.gpus - row.gpus_alloc, row.gpus_stranded) == (32, 32.0)
    whole = [replace(node, gpus_alloc=8 if node.switch == "r0" else 0) for node in racks]
    (row,) = summarise(whole, ("gpu",), mix)
    assert (row.gpus - row.gpus_alloc, row.gpus_stranded) == (32, 0.0)
    out = [replace(node, state=NodeState.DRAINED) for node in racks]
    assert summarise(out, ("gpu",), mix)[0].gpus_stranded == 0.0  # they are out, not stranded
    assert summarise(racks, ("gpu",))[0].gpus_stranded == 0.0


def test_the_summary_counts_nodes_by_state_and_gpu_type() -> None:
    a1, a2 = rack("a", 2, partitions=("gpu", "local"))
    (h1,) = rack("h", 1, gpu_type="h100")
    busy = replace(a2, state=NodeState.MIXED, gpus_alloc=3, cpus_alloc=6)
    rows = summarise((a1, busy, replace(h1, state=NodeState.DOWN)), ("gpu",))
    assert [(row.gpus_out, row.gpus_down) for row in rows][-1] == (h1.gpus, h1.gpus)
    assert [(r.gpu_type, r.nodes_idle, r.nodes_mixed, r.nodes_down) for r in rows] == [
        ("a100", 1, 1, 0),
        ("h100", 0, 0, 1),
    ]
    assert (rows[0].gpus, rows[0].gpus_alloc, rows[0].cpus_alloc) == (16, 3, 6)
