"""No two jobs of a workload share a node: Slurm never starts components that are pinned so."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from msgspec import structs

from federator.cli.text import reason_text, refusal_text
from federator.model.plan import Bid
from federator.model.reason import ReasonCode, RefusalKind
from federator.model.site import NodeShare, RunningJob
from federator.model.workload import Job, WorkloadId
from federator.sched.bid import distinct_nodes
from federator.sched.bid.distinct_nodes import too_few_nodes
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.placement import Placed, place_in
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.bid.workload_plan import never_fits, place_all
from tests.fakes.build import bid_request, gang, rack

TINY = Job(name="tiny", nodes=1)
ONE_GPU = gang(1, 1)


@pytest.mark.parametrize(
    "jobs",
    [
        (TINY, TINY),
        (TINY, ONE_GPU),
        (Job(name="t", cpus=100), TINY),
        (gang(1, 4), gang(1, 4, "serve")),
    ],
)
def test_jobs_of_a_workload_never_share_the_only_node(
    jobs: tuple[Job, ...],
) -> None:
    refusal = never_fits(jobs, FreeCapacity(rack("a", 1, cpus=128)), ("gpu",))
    assert refusal is not None
    assert refusal.kind is RefusalKind.REJECT
    (reason,) = refusal.reasons
    assert (reason.code, reason.unit) == (ReasonCode.TOO_FEW_NODES, "nodes")
    assert (reason.needed, reason.free, reason.apart) == (2, 1, tuple(job.name for job in jobs))


def test_which_components_have_too_few_nodes_is_told_by_their_names() -> None:
    nodes = (*rack("a", 1), *rack("c", 5, gpus=0))
    jobs = (gang(1, 1, "t+0"), replace(TINY, name="t+1"), gang(1, 2, "t+2"))
    refusal = never_fits(jobs, FreeCapacity(nodes), ("gpu",))
    assert refusal is not None
    assert refusal_text(refusal) == (
        "never: t+0 and t+2 need 2 nodes, none of them shared; the site has 1"
    )
    assert never_fits((ONE_GPU, TINY, TINY), FreeCapacity(nodes), ("gpu",)) is None


def test_who_could_have_another_node_makes_way() -> None:
    """The first job could have any node and the last but one; nobody is short of nodes."""
    nodes = (*rack("a", 1, features=("ib",)), *rack("b", 1, features=("hbm",)), *rack("c", 1))
    jobs = (
        TINY,
        Job(name="t", nodes=1, features=("hbm",)),
        Job(name="t", nodes=1, features=("ib",)),
    )
    assert too_few_nodes(jobs, FreeCapacity(nodes), ("gpu",)) is None
    assert never_fits(jobs, FreeCapacity(nodes), ("gpu",)) is None
    found = place_all(jobs, FreeCapacity(nodes), ("gpu",))
    assert isinstance(found, Bid)
    assert [set(plan.nodes) for plan in found.jobs] == [{"c1"}, {"b1"}, {"a1"}]


def test_while_one_component_has_the_only_node_of_its_kind_the_other_is_told_to_wait() -> None:
    """Not both fit now, though both would if another job were not on the second node."""
    a1, a2 = rack("a", 2)
    scheduler = SiteScheduler(("gpu",))
    scheduler.update((a1, replace(a2, gpus_alloc=8, cpus_alloc=64)), ())
    (answer,) = scheduler.bid([bid_request(id=WorkloadId(1), jobs=(ONE_GPU, ONE_GPU))])
    assert answer.refusal is not None
    told = refusal_text(answer.refusal)
    assert told.startswith("not now: train and train need 2 nodes, none of them shared; free 1;")


def test_for_the_components_of_a_workload_as_many_are_evicted_as_they_need_nodes() -> None:
    """On the node of the first component there would be room for the second, too."""
    nodes = [replace(n, gpus_alloc=8, cpus_alloc=8) for n in rack("a", 2)]
    running = [
        RunningJob(
            id=k,
            tenant="nlp",
            priority=7,
            preemptible=True,
            started_at_s=0.0,
            nodes={n.name: NodeShare(gpus=8, cpus=8)},
        )
        for k, n in enumerate(nodes, 1)
    ]
    scheduler = SiteScheduler(("gpu",))
    scheduler.update(nodes, (), running=running)
    asked = bid_request(id=WorkloadId(9), jobs=(ONE_GPU, gang(1, 2)), priority=1, preempt_gpus=16)
    (answer,) = scheduler.bid([asked], 100.0)
    assert answer.bid is not None
    assert set(answer.bid.victims) == {1, 2}
    (answer,) = scheduler.bid([structs.replace(asked, preempt_gpus=8.0)], 100.0)
    assert answer.bid is None


def test_a_reservation_waits_for_a_node_for_each_component() -> None:
    """One node is free at once, which has room for both components."""
    a1, a2 = rack("a", 2)
    nodes = (a1, replace(a2, gpus_alloc=8, cpus_alloc=8))
    job = RunningJob(
        id=1,
        tenant="nlp",
        priority=1,
        preemptible=False,
        started_at_s=0.0,
        nodes={"a2": NodeShare(gpus=8, cpus=8)},
        ends_by_s=500.0,
    )
    scheduler = SiteScheduler(("gpu",))
    scheduler.update(nodes, (), running=[job])
    asked = bid_request(id=WorkloadId(9), jobs=(ONE_GPU, ONE_GPU))
    (answer,) = scheduler.bid([asked], 100.0, reserving=True)
    assert answer.refusal is not None
    assert answer.refusal.starts_in_s == 400.0


def test_a_component_whose_only_node_another_has_is_told_so() -> None:
    room = FreeCapacity((*rack("a", 1), *rack("c", 1, gpus=0)))
    first = place_in(ONE_GPU, room, "gpu")
    assert isinstance(first, Placed)
    room.assign(first.plan)
    found = place_in(gang(1, 2, "t+1"), room, "gpu")
    assert isinstance(found, tuple)
    (reason,) = found
    assert reason_text(reason) == (
        "t+1: needs 1 node that no other of its components has; the site has none"
    )


def test_a_search_that_gives_up_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = (*rack("a", 1, features=("ib",)), *rack("b", 1, features=("hbm",)))
    jobs = (
        replace(TINY, features=("ib",)),
        replace(TINY, features=("hbm",)),
        TINY,
    )
    assert too_few_nodes(jobs, FreeCapacity(nodes), ("gpu",)) is not None
    monkeypatch.setattr(distinct_nodes, "SEARCHES", 0)
    assert too_few_nodes(jobs, FreeCapacity(nodes), ("gpu",)) is None


def test_no_more_is_searched_than_the_daemon_has_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(0)
    names = [f"f{k}" for k in range(12)]
    nodes = [replace(n, features=tuple(rng.sample(names, 3))) for n in rack("a", 36)]
    jobs = [Job(name=f"t+{k}", nodes=3, features=(name,)) for k, name in enumerate(names)]
    searched = 0
    search = distinct_nodes._Division.search

    def counted(self: distinct_nodes._Division, shape: int) -> object:
        nonlocal searched
        searched += 1
        return search(self, shape)

    monkeypatch.setattr(distinct_nodes._Division, "search", counted)
    assert too_few_nodes(jobs, FreeCapacity(nodes), ("gpu",)) is None
    assert searched > 2
    monkeypatch.setattr(distinct_nodes, "SEARCHES", 2)
    searched = 0
    assert too_few_nodes(jobs, FreeCapacity(nodes), ("gpu",)) is None
    assert searched == 2
