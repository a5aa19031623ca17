"""Countable gres beside GPUs: planned, held, given back, and named when there is none."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from federator.model.gres import Gres, counted, gres_of
from federator.model.plan import JobPlan
from federator.model.reason import Reason, ReasonCode, RefusalKind
from federator.model.site import Node, NodeShare, RunningJob
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.negative_cache import NegativeCache, Rights
from federator.sched.bid.placement import Placed, place_in
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.passes.bid_validation import plan_contradiction
from tests.fakes.build import attempt, bid_request, gang, rack

NIC: Gres = (("nic", 1),)
NOW_S = 1000.0


def nodes(*amounts: int) -> tuple[Node, ...]:
    """Nodes a1, a2, ..., each with so many NICs."""
    gres = [((("nic", n),) if n else ()) for n in amounts]
    return tuple(replace(n, gres=g) for n, g in zip(rack("a", len(amounts)), gres, strict=True))


def site(*found: Node) -> SiteScheduler:
    scheduler = SiteScheduler(("gpu",))
    scheduler.update(found, ())
    return scheduler


def asked(gres: Gres = NIC, **fields: int | None) -> Job:
    return Job(name="t", gres=gres, **{"nodes": 1, **fields})  # type: ignore[arg-type]


def plans(scheduler: SiteScheduler, *jobs: Job) -> list[tuple[str, ...] | None]:
    """The nodes of each of these one-job workloads, asked together; None: no bid."""
    requests = [bid_request(id=WorkloadId(k), jobs=(job,)) for k, job in enumerate(jobs)]
    answers = scheduler.bid(requests)
    return [tuple(a.bid.jobs[0].nodes) if a.bid is not None else None for a in answers]


def refused(scheduler: SiteScheduler, job: Job) -> tuple[RefusalKind, Reason]:
    (answer,) = scheduler.bid([bid_request(id=WorkloadId(1), jobs=(job,))])
    assert answer.refusal is not None
    return answer.refusal.kind, answer.refusal.reasons[0]


def test_a_job_goes_where_the_gres_is_until_it_is_used_up() -> None:
    scheduler = site(*nodes(0, 2, 0))
    assert plans(scheduler, asked(), asked(), asked()) == [("a2",), ("a2",), None]
    assert plans(scheduler, asked(nodes=3, gres=())) == [("a1", "a2", "a3")]
    assert plans(scheduler, asked((("nic", 2),)), asked()) == [("a2",), None]


def test_what_no_node_has_is_refused_for_good_and_named() -> None:
    kind, reason = refused(site(*nodes(0, 2)), asked((("nic", 3),)))
    assert kind is RefusalKind.REJECT
    assert (reason.code, reason.needed, reason.unit, reason.free) == (
        ReasonCode.NODE_TOO_SMALL,
        3,
        "nic",
        2,
    )
    assert refused(site(*nodes(0)), asked((("fpga", 1),)))[1].unit == "fpga"


def test_what_is_there_but_not_on_one_node_is_refused_with_all_its_names() -> None:
    a1, a2 = rack("a", 2)
    apart = (replace(a1, gres=NIC), replace(a2, gres=(("fpga", 4),)))
    kind, reason = refused(site(*apart), asked((("fpga", 2), ("nic", 1))))
    assert kind is RefusalKind.REJECT
    assert reason.needed == 0
    assert reason.detail == "none that is right otherwise has fpga:2,nic:1"
    without_gpus = (a1, replace(a2, gres=NIC, gpus=0, gpu_type=""))
    assert "has nic:1" in refused(site(*without_gpus), asked(gpus_per_node=1))[1].detail


def test_what_slurm_does_not_consume_stays_free_whatever_holds_it() -> None:
    shared = counted([("bw", "lustre", 4)])
    node = replace(rack("a", 1)[0], gres=shared, gres_shared=("bw",))
    wanted = asked(counted([("bw", "lustre", 3)]))
    assert plans(site(node), wanted, wanted, wanted) == [("a1",)] * 3
    kind, reason = refused(site(node), asked((("bw", 5),)))
    assert (kind, reason.needed, reason.free) == (RefusalKind.REJECT, 5, 4)
    (shown,) = site(node).snapshot("alpine", NOW_S).nodes  # type: ignore[arg-type]
    assert shown.gres_alloc == ()


def test_what_is_in_use_is_waited_for_with_numbers() -> None:
    full = replace(nodes(2)[0], gres_alloc=(("nic", 2),))
    kind, reason = refused(site(full), asked())
    assert kind is RefusalKind.WAIT
    assert (reason.code, reason.needed, reason.unit, reason.free) == (
        ReasonCode.RESOURCES,
        1,
        "nic",
        0,
    )


def test_a_type_is_part_of_its_name() -> None:
    node = replace(rack("a", 1)[0], gres=counted([("nic", "mlx5", 1), ("nic", "efa", 1)]))
    mlx5 = counted([("nic", "mlx5", 1)])
    assert plans(site(node), asked(mlx5), asked(mlx5)) == [("a1",), None]
    assert plans(site(node), asked((("nic", 2),)), asked(mlx5)) == [("a1",), None]
    used = replace(node, gres_alloc=counted([("nic", "mlx5", 1)]))
    assert plans(site(used), asked(mlx5), asked()) == [None, ("a1",)]


def test_gangs_need_it_on_every_node() -> None:
    assert plans(site(*nodes(1, 0, 1, 1)), asked(nodes=2, gpus_per_node=8)) == [("a1", "a3")]
    assert plans(site(*nodes(1, 0, 1)), asked(nodes=3)) == [None]
    total = Job(name="t", gpus=16, gres=NIC)
    assert plans(site(*nodes(1, 0, 1)), total) == [("a1", "a3")]


def test_a_hold_keeps_it_until_a_sweep_shows_it() -> None:
    scheduler = site(*nodes(1))
    plan = JobPlan(name="t", partition="gpu", nodes={"a1": NodeShare(cpus=1, gres=NIC)})
    assert scheduler.holds((plan,)) is None
    scheduler.hold(attempt(), (plan,))
    assert scheduler.holds((plan,)) is not None
    assert plans(scheduler, asked(), asked(())) == [None, ("a1",)]
    (shown,) = scheduler.snapshot("alpine", NOW_S).nodes  # type: ignore[arg-type]
    assert (shown.gres_alloc, shown.cpus_alloc) == (NIC, 1)
    scheduler.update([replace(nodes(1)[0], gres_alloc=NIC, cpus_alloc=1)], (attempt(),))
    assert plans(scheduler, asked()) == [None]
    scheduler.update(nodes(1), ())
    assert plans(scheduler, asked()) == [("a1",)]


def running(id_: int, *on: str, gres: Gres = (), ends_by_s: float = inf) -> RunningJob:
    return RunningJob(
        id=id_,
        tenant="nlp",
        priority=7,
        preemptible=True,
        started_at_s=0.0,
        nodes=dict.fromkeys(on, NodeShare(gpus=1, cpus=1, gres=gres)),
        ends_by_s=ends_by_s,
    )


def loaded(*jobs: RunningJob) -> SiteScheduler:
    """Nodes a1 and a2 with a NIC each, and what runs there."""
    found = []
    for n in nodes(1, 1):
        held = sum((j.nodes[n.name] for j in jobs if n.name in j.nodes), NodeShare())
        found.append(replace(n, gpus_alloc=held.gpus, cpus_alloc=held.cpus, gres_alloc=held.gres))
    scheduler = site(*found)
    for job in jobs:
        scheduler.started(job)
    return scheduler


@pytest.mark.parametrize("wanted", [asked(), asked(gpus_per_node=7), asked(nodes=None, gpus=7)])
def test_only_who_holds_it_is_evicted_for_it(wanted: Job) -> None:
    full = loaded(
        running(1, "a1"),
        running(2, "a1", gres=NIC),
        running(3, "a2", "a1"),
        running(4, "a2", gres=NIC),
    )
    if wanted.total_gpus:
        full = loaded(running(2, "a1", gres=NIC), running(4, "a2", gres=NIC))
    request = bid_request(id=WorkloadId(9), jobs=(wanted,), priority=2, preempt_gpus=inf)
    (answer,) = full.bid([request], NOW_S)
    assert answer.bid is not None
    assert answer.bid.victims == (2,)


def test_for_gres_too_the_choice_of_victims_tries_no_placement_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    placements = 0

    def counting(job: Job, room: FreeCapacity, partition: str) -> Placed | tuple[Reason, ...]:
        nonlocal placements
        placements += 1
        return place_in(job, room, partition)

    monkeypatch.setattr("federator.sched.bid.preemption.place_in", counting)
    names = [f"a{k}" for k in range(1, 33)]
    held = [running(k, name, gres=NIC) for k, name in enumerate(names, 1)]
    full = (replace(n, gres_alloc=NIC, gpus_alloc=1, cpus_alloc=1) for n in nodes(*[1] * 32))
    scheduler = site(*full)
    for job in held:
        scheduler.started(job)
    request = bid_request(id=WorkloadId(99), jobs=(asked(nodes=16),), priority=2, preempt_gpus=inf)
    (answer,) = scheduler.bid([request], NOW_S)
    assert answer.bid is not None
    assert len(answer.bid.victims) == 16
    assert placements == 1


def test_a_refusal_says_when_it_comes_free() -> None:
    full = loaded(running(1, "a1", gres=NIC, ends_by_s=5000.0), running(2, "a2", gres=NIC))
    (answer,) = full.bid([bid_request(id=WorkloadId(9), jobs=(asked(),))], NOW_S)
    assert answer.refusal is not None
    assert answer.refusal.starts_in_s == 4000.0


def test_a_failure_implies_those_that_ask_for_as_much_of_it() -> None:
    cache: NegativeCache[str] = NegativeCache()
    cache.add((asked((("nic", 2),)),), Rights(), "no")
    for job, known in (
        (asked((("nic", 3),)), True),
        (asked((("fpga", 1), ("nic", 2))), True),
        (asked(), False),
        (asked(()), False),
        (gang(1), False),
    ):
        assert (cache.find((job,), Rights()) is not None) is known, job


def test_a_plan_with_less_of_it_is_not_believed() -> None:
    plan = JobPlan(name="t", partition="gpu", nodes={"a1": NodeShare(cpus=1, gres=NIC)})
    assert plan_contradiction([asked()], [plan]) == ""
    assert "less than nic" in plan_contradiction([asked((("nic", 2),))], [plan])
    bad = replace(plan, nodes={"a1": NodeShare(cpus=1, gres=(("nic", -1),))})
    assert "impossible" in plan_contradiction([asked(())], [bad])


def test_a_file_may_name_types_alone() -> None:
    assert gres_of([("nic:mlx5", 2), ("nic:efa", 1)]) == counted(
        [("nic", "mlx5", 2), ("nic", "efa", 1)]
    )
    assert gres_of([("nic", 4), ("nic:mlx5", 2)]) == (("nic", 4), ("nic:mlx5", 2))
