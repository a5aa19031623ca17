"""Licences of a site: planned with, held, given back, and named where there are too few."""

from __future__ import annotations

from dataclasses import replace

from federator.model.license import SiteLicense
from federator.model.plan import Bid
from federator.model.reason import ReasonCode, RefusalKind
from federator.model.site import NodeShare, RunningJob
from federator.model.site_message import SiteAnswer
from federator.model.workload import Job, SiteName, WorkloadId
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.passes.bid_validation import plan_contradiction
from tests.fakes.build import attempt, bid_request, gang, rack


def licensed(free: int, total: int = 4) -> tuple[SiteLicense, ...]:
    return (SiteLicense(name="matlab", total=total, free=free),)


def site(free: int = 4, total: int = 4) -> SiteScheduler:
    scheduler = SiteScheduler(("gpu",))
    scheduler.update(rack("a", 4), ())
    scheduler.count_licenses(licensed(free, total))
    return scheduler


def asking(number: int, nodes: int = 1) -> Job:
    return replace(gang(nodes), licenses=(("matlab", number),))


def answers(scheduler: SiteScheduler, *jobs: Job, preempt_gpus: float = 0.0) -> list[SiteAnswer]:
    """To these as workloads of one job each, in one message."""
    requests = [
        bid_request(id=WorkloadId(k), jobs=(job,), priority=2, preempt_gpus=preempt_gpus)
        for k, job in enumerate(jobs, start=1)
    ]
    return list(scheduler.bid(requests))


def bid_of(answer: SiteAnswer) -> Bid:
    assert answer.bid is not None, answer
    return answer.bid


def test_no_licence_is_offered_twice() -> None:
    first, second, third = answers(site(), asking(3), asking(3), gang(1))
    assert bid_of(first).jobs[0].licenses == (("matlab", 3),)
    assert bid_of(third).jobs[0].licenses == ()
    assert second.refusal is not None
    (reason,) = second.refusal.reasons
    assert second.refusal.kind is RefusalKind.WAIT
    assert (reason.code, reason.unit, reason.needed, reason.free) == (
        ReasonCode.LICENSES,
        "matlab",
        3,
        1,
    )


def test_what_is_held_for_a_launch_is_gone_until_slurm_counts_it() -> None:
    scheduler = site()
    (answer,) = answers(scheduler, asking(3))
    scheduler.hold(attempt(), bid_of(answer).jobs)
    assert answers(scheduler, asking(2))[0].bid is None
    assert scheduler.snapshot(SiteName("s"), 0.0).licenses == licensed(1)
    scheduler.update(rack("a", 4), {attempt()})
    scheduler.count_licenses(licensed(1))
    assert answers(scheduler, asking(2))[0].bid is None
    freed = scheduler.freed
    scheduler.count_licenses(licensed(4))
    assert scheduler.freed > freed
    assert answers(scheduler, asking(2))[0].bid is not None


def test_a_launch_is_declined_where_others_took_its_licences() -> None:
    scheduler = site()
    (answer,) = answers(scheduler, asking(3))
    assert scheduler.holds(bid_of(answer).jobs) is None
    scheduler.count_licenses(licensed(2))
    reason = scheduler.holds(bid_of(answer).jobs)
    assert reason is not None
    assert reason.code is ReasonCode.LAUNCH_REFUSED


def test_a_site_that_never_has_so_many_rejects_for_good() -> None:
    scheduler = site(total=4)
    two = (asking(3), asking(2))
    (answer,) = scheduler.bid([bid_request(id=WorkloadId(1), jobs=two)])
    for found in (answers(scheduler, asking(5))[0], answer):
        assert found.refusal is not None
        assert found.refusal.kind is RefusalKind.REJECT
        assert found.refusal.reasons[0].code is ReasonCode.LICENSES
    scheduler.count_licenses(licensed(8, total=8))
    assert answers(scheduler, asking(5))[0].bid is not None


def test_nobody_is_evicted_for_a_job_that_lacks_licences() -> None:
    scheduler = site(free=1)
    taken = {n.name: NodeShare(gpus=8, cpus=1) for n in rack("a", 4)}
    full = tuple(replace(n, gpus_alloc=8, cpus_alloc=1) for n in rack("a", 4))
    guest = RunningJob(
        id=WorkloadId(9), tenant="nlp", priority=7, preemptible=True, started_at_s=0.0, nodes=taken
    )
    scheduler.update(full, (), running=[guest])
    assert answers(scheduler, asking(1), preempt_gpus=99.0)[0].bid is not None
    assert answers(scheduler, asking(2), preempt_gpus=99.0)[0].bid is None


def test_a_plan_without_the_licences_is_not_believed() -> None:
    (answer,) = answers(site(), asking(3))
    plans = bid_of(answer).jobs
    assert plan_contradiction((asking(3),), plans) == ""
    without = tuple(replace(plan, licenses=()) for plan in plans)
    assert "licences" in plan_contradiction((asking(3),), without)
