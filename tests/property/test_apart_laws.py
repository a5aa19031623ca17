"""Laws of workloads of several jobs: no two of them share a node, whatever a site decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.model.plan import Bid, JobPlan
from federator.model.score import Score
from federator.model.site import Node, RunningJob
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.distinct_nodes import too_few_nodes
from federator.sched.bid.empty_site import capacity_of
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.placement import fits_somewhere
from federator.sched.bid.reservation import endings_of, reserve
from federator.sched.bid.running_jobs import Occupants
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.bid.workload_plan import never_fits, place_all
from federator.sched.passes.bid_validation import plan_contradiction
from federator.sim.site_state import shares_of
from tests.fakes.build import bid_request
from tests.property.test_placement_laws import jobs, nodes, usable
from tests.property.test_preemption_laws import NOW_S, sites

SOME = settings(max_examples=200, deadline=None)
WORKLOADS = st.lists(jobs(), min_size=2, max_size=4)


def share_no_node(plans: Sequence[JobPlan]) -> bool:
    names = [name for plan in plans for name in plan.nodes]
    return len(names) == len(set(names))


@SOME
@given(WORKLOADS, nodes())
def test_no_two_jobs_of_a_workload_are_placed_on_one_node(
    workload: list[Job], site: tuple[Node, ...]
) -> None:
    room = FreeCapacity(site)
    found = place_all(workload, room, ("gpu",))
    if isinstance(found, Bid):
        assert share_no_node(found.jobs)
        assert plan_contradiction(workload, found.jobs) == ""
        for plan in found.jobs:
            room.release(plan)
    assert [(f.gpus, f.cpus, f.mem_mib) for f in room.nodes] == [
        (f.gpus, f.cpus, f.mem_mib) for f in FreeCapacity(site).nodes
    ]
    # The next workload may have every node again.
    again = place_all(workload, room, ("gpu",))
    assert again == found


@SOME
@given(sites(), st.lists(WORKLOADS, min_size=1, max_size=3), st.integers(1, 7))
def test_nor_where_others_are_evicted_for_them(
    state: tuple[tuple[Node, ...], tuple[RunningJob, ...]], queue: list[list[Job]], priority: int
) -> None:
    site, running = state
    scheduler = SiteScheduler(("gpu",))
    scheduler.update(site, (), running=running)
    asked = [
        bid_request(id=WorkloadId(k), jobs=tuple(w), priority=priority, preempt_gpus=100.0)
        for k, w in enumerate(queue)
    ]
    for request, answer in zip(asked, scheduler.bid(asked, NOW_S, reserving=True), strict=True):
        if answer.bid is not None:
            assert plan_contradiction(request.jobs, answer.bid.jobs) == ""
            assert scheduler.holds(answer.bid.jobs, answer.bid.victims) is None


@SOME
@given(sites(), WORKLOADS)
def test_a_reservation_is_of_a_time_at_which_they_fit_on_different_nodes(
    state: tuple[tuple[Node, ...], tuple[RunningJob, ...]], workload: list[Job]
) -> None:
    site, running = state
    ends = tuple(replace(job, ends_by_s=NOW_S + 10 * job.id) for job in running)
    room = FreeCapacity(site)
    endings = endings_of(room, Occupants(room, ends), ())
    kept = reserve(WorkloadId(1), workload, room, ("gpu",), endings, NOW_S)
    if kept is None:
        return
    for ending in endings:
        if ending.at_s <= kept.starts_at_s:
            ending.release()
    found = place_all(workload, room, ("gpu",))
    assert isinstance(found, Bid)
    assert share_no_node(found.jobs)


def can_be_apart(workload: Sequence[Job], site: Sequence[Node]) -> bool:
    """Whether jobs of so many nodes each can have their own, found the long way."""
    if not workload:
        return True
    job, *rest = workload
    return any(
        can_be_apart(rest, [n for n in site if n not in [f.node for f in some]])
        for some in combinations(usable(job, site), job.nodes or 1)
    )


def can_be_placed(workload: Sequence[Job], site: Sequence[Node]) -> bool:
    """Whether jobs can have their own of the nodes, found the long way."""
    if not workload:
        return True
    job, *rest = workload
    return any(
        fits_somewhere(job, FreeCapacity(some), ("gpu",))
        and can_be_placed(rest, [n for n in site if n not in some])
        for size in range(1, len(site) + 1)
        for some in combinations(site, size)
    )


ONE_NODE = st.builds(
    lambda job, gpus: replace(
        job,
        nodes=1,
        gpus=0,
        cpus=0,
        tensor_parallel=1,
        gpus_per_node=gpus,
        cpus_per_node=1,
        exclusive=False,
    ),
    jobs(),
    st.sampled_from([0, 0, 1, 4, 8]),
)


@SOME
@given(st.lists(ONE_NODE, min_size=2, max_size=4), nodes(most=5))
def test_jobs_of_one_node_are_refused_for_ever_just_when_no_choice_of_nodes_would_do(
    workload: list[Job], site: tuple[Node, ...]
) -> None:
    empty = capacity_of(site).nodes
    possible = can_be_apart(workload, empty)
    assert (never_fits(workload, FreeCapacity(empty), ("gpu",)) is None) == possible
    assert isinstance(place_all(workload, FreeCapacity(empty), ("gpu",)), Bid) == possible


@SOME
@given(st.lists(jobs(), min_size=2, max_size=3), nodes(most=4))
def test_a_workload_is_refused_for_ever_only_where_no_choice_of_nodes_would_do(
    workload: list[Job], site: tuple[Node, ...]
) -> None:
    empty = capacity_of(site).nodes
    if never_fits(workload, FreeCapacity(empty), ("gpu",)) is not None:
        assert not can_be_placed(workload, empty)


@SOME
@given(st.lists(st.one_of(ONE_NODE, jobs()), min_size=2, max_size=3), nodes(most=5))
def test_too_few_nodes_are_told_only_where_no_order_finds_a_place(
    workload: list[Job], site: tuple[Node, ...]
) -> None:
    reason = too_few_nodes(workload, FreeCapacity(site), ("gpu",))
    if reason is None:
        return
    assert reason.needed > reason.free
    for order in permutations(workload):
        assert not isinstance(place_all(order, FreeCapacity(site), ("gpu",)), Bid)


@SOME
@given(st.lists(jobs(), min_size=1, max_size=3), nodes())
def test_a_workload_without_gpus_takes_nodes_with_gpus_only_where_the_others_are_not_enough(
    workload: list[Job], site: tuple[Node, ...]
) -> None:
    workload = [
        replace(job, gpus=0, gpus_per_node=0, tensor_parallel=1, cpus=job.cpus or job.gpus)
        for job in workload
    ]
    found = place_all(workload, FreeCapacity(site), ("gpu",))
    if not isinstance(found, Bid):
        return
    nodes_by_name = {n.name: n for n in site}
    taken = [nodes_by_name[name] for name in shares_of(found.jobs)]
    assert found.score.gpus_unasked == sum(max(0, n.gpus - n.gpus_alloc) for n in taken)
    if len(workload) == 1 and any(n.gpus for n in taken):
        others = [n for n in site if not n.gpus]
        assert not isinstance(place_all(workload, FreeCapacity(others), ("gpu",)), Bid)


@st.composite
def half_cpu_sites(draw: st.DrawFn) -> tuple[Node, ...]:
    """Nodes with GPUs, all free or all in use, and without."""
    gpus = [0, *draw(st.lists(st.sampled_from([0, 8]), min_size=2, max_size=6))]
    return tuple(
        Node(
            name=f"n{k}",
            partitions=("gpu",),
            switch=draw(st.sampled_from(["r1", "r2"])),
            cpus=16,
            cpus_alloc=draw(st.sampled_from([0, 0, 7])),
            mem_mib=1000,
            gpus=each,
            gpus_alloc=draw(st.sampled_from([0, 0, each])),
            gpu_type="a100" if each else "",
        )
        for k, each in enumerate(gpus)
    )


@SOME
@given(half_cpu_sites(), st.none() | st.integers(2, 6), st.integers(0, 90), st.integers(1, 4))
def test_no_choice_of_nodes_takes_fewer_free_gpus_than_that_for_a_job_without_gpus(
    site: tuple[Node, ...], count: int | None, cpus: int, each: int
) -> None:
    job = Job(name="t", nodes=count, cpus=cpus or (0 if count else 1), cpus_per_node=each)
    found = place_all([job], FreeCapacity(site), ("gpu",))
    able = usable(job, site)
    sizes = [job.nodes] if job.nodes else range(1, len(able) + 1)
    enough = [
        sum(f.gpus for f in some)
        for size in sizes
        for some in combinations(able, size)
        if sum(f.cpus - f.cpus % each for f in some) >= job.cpus
    ]
    assert isinstance(found, Bid) == bool(enough)
    if isinstance(found, Bid):
        assert found.score.gpus_unasked == min(enough)
        assert plan_contradiction([job], found.jobs) == ""


@SOME
@given(st.lists(jobs(), min_size=1, max_size=3), nodes())
def test_a_gang_is_never_moved_for_the_sake_of_a_job_without_gpus_beside_it(
    workload: list[Job], site: tuple[Node, ...]
) -> None:
    found = place_all(workload, FreeCapacity(site), ("gpu",))
    if isinstance(found, Bid) and any(job.total_gpus for job in workload):
        assert found.score.gpus_unasked == 0


@given(st.tuples(*[st.integers(0, 9)] * len(Score._fields)))
def test_a_score_reads_back_from_the_log_as_it_was(terms: tuple[int, ...]) -> None:
    score = Score._make(terms)
    assert Score.of(score.named()) == score
