"""What a plan leaves over is judged by what is usually asked for."""

from __future__ import annotations

import pytest

from federator.model.plan import Bid
from federator.model.site import Node
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.fragmentation import REMEMBERED, RequestMix, rack_key, shape_of
from federator.sched.bid.site_scheduler import SiteScheduler
from tests.fakes.build import bid_request, gang, rack


def mix(*jobs: Job) -> RequestMix:
    found = RequestMix()
    for k, job in enumerate(jobs):
        found.note(k, [job])
    return found


@pytest.mark.parametrize(
    ("asked", "free", "stranded"),
    [
        (gang(1, 8), [8, 4], 4.0),  # four GPUs are no eight
        (gang(1, 2), [8, 4, 1], 1.0),
        (gang(2, 8), [8, 8, 8], 8.0),  # one node is left without a second
        (gang(2, 8), [8, 4, 4], 16.0),
        (gang(9, 8), [8, 8, 4], 4.0),  # wider than the rack: it takes whole nodes anywhere
        (Job(name="t", gpus=16), [8, 8, 8], 8.0),  # two nodes of eight
    ],
)
def test_stranded_is_what_no_whole_request_can_use(
    asked: Job, free: list[int], stranded: float
) -> None:
    assert mix(asked).stranded(rack_key(free)) == stranded


def test_shapes_count_by_how_often_they_are_asked_for() -> None:
    often = mix(gang(1, 8), gang(1, 8), gang(1, 8), gang(1, 2))
    assert often.stranded(rack_key([6])) == pytest.approx(0.75 * 6)


def test_one_workload_counts_once_however_often_it_asks() -> None:
    found = RequestMix()
    for _ in range(5):
        found.note(1, [gang(1, 8)])
    found.note(2, [gang(1, 2)])
    assert dict(found.weights) == {(1, 8): 0.5, (1, 2): 0.5}


def test_old_requests_are_forgotten() -> None:
    found = mix(gang(1, 8))
    for k in range(REMEMBERED):
        found.note(100 + k, [gang(1, 2)])
    assert dict(found.weights) == {(1, 2): 1.0}


def test_a_long_message_that_is_asked_again_changes_no_price() -> None:
    scheduler = SiteScheduler(("gpu",))
    scheduler.update(rack("a", 1), ())
    asked = [
        bid_request(id=WorkloadId(k), jobs=(gang(1 + k % 40),)) for k in range(REMEMBERED + 500)
    ]
    scheduler.bid(asked)
    before = scheduler.mix.epoch
    scheduler.bid(asked)
    assert scheduler.mix.epoch == before  # else all that the site remembers would be forgotten


def test_what_asks_for_no_gpus_says_nothing_about_them() -> None:
    assert mix(Job(name="t", nodes=3, cpus_per_node=8)).weights == RequestMix().weights
    assert shape_of(Job(name="t", nodes=3)) == (3, 0)


def plan_of(mixed: RequestMix, job: Job, *nodes: Node) -> set[str]:
    scheduler = SiteScheduler(("gpu", "dev"), mixed)
    scheduler.update(nodes, ())
    (answer,) = scheduler.bid([bid_request(id=WorkloadId(0), jobs=(job,))])
    assert isinstance(answer.bid, Bid), answer.refusal
    return {name for plan in answer.bid.jobs for name in plan.nodes}


def test_a_small_job_breaks_up_the_rack_that_gangs_have_no_use_for() -> None:
    """Of two partitions that cost the same, the one whose rack of three is no pair of pairs."""
    pairs, three = rack("a", 4), rack("b", 3, partitions=("dev",))
    asked = mix(gang(2, 8), gang(2, 8), gang(2, 8))
    assert plan_of(asked, gang(1, 8), *pairs, *three) == {"b1"}


def test_a_cpu_job_leaves_gpu_nodes_their_cpus() -> None:
    gpu, cpu = rack("a", 1), rack("b", 1, gpus=0, gpu_type="", partitions=("dev",))
    job = Job(name="t", nodes=1, cpus_per_node=32)
    assert plan_of(RequestMix(), job, *gpu, *cpu) == {"b1"}
