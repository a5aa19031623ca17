"""What a site remembers: no answer depends on what was asked before, and it is not too much."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_in

from federator.model.plan import Bid, BidRequest
from federator.model.reason import ReasonCode, Refusal
from federator.model.site import Node, NodeShare, RunningJob
from federator.model.site_message import SiteAnswer
from federator.model.workload import Job, WorkloadId
from federator.sched.bid import answer_memory, bids
from federator.sched.bid.answer_memory import AnswerMemory
from federator.sched.bid.free_capacity import NEEDS_KEPT, FreeCapacity, NodesOfKind, Suitable
from federator.sched.bid.refusal_details import STARTS_COMPUTED
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.bid.workload_plan import never_fits
from tests.fakes.build import bid_request, gang, rack

NOW_S = 1_000.0


def full_site(ends_by_s: float = NOW_S + 100.0) -> SiteScheduler:
    """Two nodes whose GPUs are all in use until then."""
    scheduler = SiteScheduler(("gpu",))
    scheduler.update(nodes_in_use(), (), running=running(ends_by_s))
    return scheduler


def nodes_in_use() -> tuple[Node, ...]:
    return tuple(replace(node, gpus_alloc=8, cpus_alloc=8) for node in rack("a", 2))


def running(ends_by_s: float) -> list[RunningJob]:
    held = {"a1": NodeShare(gpus=8, cpus=8), "a2": NodeShare(gpus=8, cpus=8)}
    job = RunningJob(id=1, tenant="t", priority=7, preemptible=True, started_at_s=0.0, nodes=held)
    return [replace(job, ends_by_s=ends_by_s)]


def asked(number: int, job: Job, time_limit_s: float = 50.0) -> BidRequest:
    return bid_request(id=WorkloadId(number), jobs=(job,), time_limit_s=time_limit_s)


def starts_in_s(answer: SiteAnswer) -> float | None:
    assert answer.refusal is not None
    return answer.refusal.starts_in_s


def test_requests_alike_use_up_one_of_the_starts_that_a_message_computes() -> None:
    site = full_site()
    alike = [asked(k, gang(1, 8)) for k in range(STARTS_COMPUTED + 1)]
    other = asked(90, gang(1, 4))
    for _ in range(2):
        answers = site.bid([*alike, other], NOW_S)
        assert [starts_in_s(a) for a in answers] == [100.0] * (STARTS_COMPUTED + 2)


def test_a_remembered_refusal_answers_for_larger_requests_too() -> None:
    site = full_site()
    small, large = asked(1, gang(1, 4)), asked(2, gang(2, 4))
    first = site.bid([small, large], NOW_S)
    assert site.bid([small, large], NOW_S) == first
    assert starts_in_s(first[1]) is None  # as the negative cache says it


def test_room_is_kept_for_a_workload_that_was_refused_before_without_any() -> None:
    site = full_site()
    blocked = asked(1, gang(2, 8, cpus_per_node=60))
    longer = asked(2, gang(1, 0, cpus_per_node=50), time_limit_s=500.0)
    site.bid([blocked], NOW_S)
    _, answer = site.bid([blocked, longer], NOW_S, reserving=True)
    assert answer.refusal is not None
    assert [r.code for r in answer.refusal.reasons] == [ReasonCode.RESERVED]


def test_a_start_is_told_anew_when_a_time_limit_was_changed() -> None:
    site = full_site()
    assert starts_in_s(site.bid([asked(1, gang(1))], NOW_S)[0]) == 100.0
    site.update(nodes_in_use(), (), running=running(NOW_S + 30.0))
    assert starts_in_s(site.bid([asked(1, gang(1))], NOW_S)[0]) == 30.0


def test_a_start_that_was_told_is_told_from_now_on() -> None:
    site = full_site()
    site.bid([asked(1, gang(1))], NOW_S)
    assert starts_in_s(site.bid([asked(1, gang(1))], NOW_S + 40.0)[0]) == 60.0


def test_many_objects_of_one_shape_are_one_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent decodes every request anew."""
    monkeypatch.setattr(answer_memory, "SHAPES_KEPT", 4)
    tried: list[tuple[Job, ...]] = []
    memory = AnswerMemory(tried.append)
    for _ in range(20):
        memory.bound()
        memory.never(memory.number_of((gang(1),)))
    assert len(tried) == 1


def test_names_and_avoided_nodes_make_no_other_shape() -> None:
    """Most users name their jobs; whether one could ever fit is worked out once for all of them."""
    tried: list[tuple[Job, ...]] = []
    site = SiteScheduler(("gpu",))
    site.update(nodes_in_use(), ())
    real = site._memory._never_fits

    def counted(jobs: tuple[Job, ...]) -> Refusal | None:
        tried.append(jobs)
        return real(jobs)

    site._memory._never_fits = counted
    names = [f"run-{k}" for k in range(50)]
    answers = site.bid([asked(k, gang(9, 8, name=name)) for k, name in enumerate(names)], NOW_S)
    assert [a.refusal.reasons[0].job for a in answers if a.refusal is not None] == names
    site.bid([asked(k, replace(gang(9, 8), avoid=(f"n{k}",))) for k in range(50)], NOW_S)
    assert len(tried) == 1


def test_a_bid_names_the_jobs_as_their_user_does() -> None:
    site = SiteScheduler(("gpu",))
    site.update(rack("r1", 2), ())
    for name in ("train", "serve", "train"):
        (answer,) = site.bid([asked(1, gang(1, 2, name=name))], NOW_S)
        assert answer.bid is not None
        assert [plan.name for plan in answer.bid.jobs] == [name]


def test_those_who_ask_for_the_same_are_told_the_same_once_it_is_known() -> None:
    """The way of the first is gone once for thousands alike, whatever their ids and limits."""
    site = full_site()
    limits = (60.0, 7_200.0, 60.0)
    requests = [
        replace_in(asked(k, gang(1, 8)), time_limit_s=limit) for k, limit in enumerate(limits)
    ]
    answers = site.bid(requests, NOW_S)
    assert [answer.id for answer in answers] == [request.id for request in requests]
    assert answers[0].refusal is not None
    assert answers[1].refusal is answers[2].refusal is answers[0].refusal


def test_a_fence_that_keeps_the_long_out_is_not_told_to_the_short() -> None:
    """One node is free until the reservation begins: who would be over by then has a bid."""
    site = SiteScheduler(("gpu",))
    held = {"a1": NodeShare(gpus=8, cpus=8)}
    job = RunningJob(id=1, tenant="t", priority=7, preemptible=True, started_at_s=0.0, nodes=held)
    busy, free = rack("a", 2)
    nodes = (replace(busy, gpus_alloc=8, cpus_alloc=8), free)
    site.update(nodes, (), running=[replace(job, ends_by_s=NOW_S + 3_600.0)])
    both, one = asked(0, gang(2, 8)), gang(1, 8)
    long, short = (
        replace_in(asked(k, one), time_limit_s=limit) for k, limit in ((1, 86_400.0), (2, 60.0))
    )
    _, kept_out, fits = site.bid([both, long, short], NOW_S, reserving=True)
    assert kept_out.bid is None
    assert fits.bid is not None


def test_a_bid_that_took_the_right_to_evict_is_no_answer_to_who_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of several jobs another order may be found, so that nobody has to leave after all."""
    site = full_site()
    other = SiteScheduler(("gpu",))
    other.update(rack("a", 2), ())
    (found,) = other.bid([asked(1, gang(1, 1))], NOW_S)

    def lucky(jobs: object, room: FreeCapacity, *_: object) -> Bid | None:
        for plan in found.bid.jobs if found.bid is not None else ():
            room.take(plan)
        return found.bid

    monkeypatch.setattr(bids, "plan_with_victims", lucky)
    assert site.bid([replace_in(asked(1, gang(1, 1)), preempt_gpus=8.0)], NOW_S)[0].bid is not None
    assert site.bid([asked(2, gang(1, 1))], NOW_S)[0].bid is None


def test_no_more_shapes_are_kept_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_memory, "SHAPES_KEPT", 4)
    tried: list[tuple[Job, ...]] = []
    memory = AnswerMemory(tried.append)
    for nodes in (*range(1, 9), 1):
        memory.bound()
        memory.never(memory.number_of((gang(nodes),)))
    assert len(tried) == 9


def test_a_rack_knows_its_tightest_node_for_few_needs_at_a_time() -> None:
    """An empty site never changes, and users may ask for any amount of memory."""
    room = FreeCapacity(rack("a", 4))
    for mem_mib in range(1, 3 * NEEDS_KEPT):
        assert never_fits((replace(gang(1), mem_mib_per_node=mem_mib),), room, ("gpu",)) is None
    kinds = [found for found in room._of_kind.values() if isinstance(found, Suitable)]
    parts = [
        part
        for kind in kinds
        if isinstance(kind.nodes, NodesOfKind)
        for part in kind.nodes._parts or ()
    ]
    assert parts
    assert all(len(part._known) <= NEEDS_KEPT for part in parts)
