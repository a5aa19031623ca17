"""What a site remembers from sweep to sweep, and from bid to bid, never changes an answer."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.model.plan import Bid
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site import Node, NodeState
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.negative_cache import NegativeCache, Rights
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.bid.workload_plan import place_all
from tests.fakes.build import attempt, bid_request
from tests.property.test_placement_laws import jobs, nodes

PARTITIONS = ("gpu",)
SOME = settings(max_examples=200, deadline=None)
REFUSAL = Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=ReasonCode.RESOURCES),))


def fits(wanted: tuple[Job, ...], site: tuple[Node, ...]) -> bool:
    return isinstance(place_all(wanted, FreeCapacity(site), PARTITIONS), Bid)


def plans(scheduler: SiteScheduler, wanted: list[Job]) -> list[Bid | None]:
    requests = [bid_request(id=WorkloadId(k), jobs=(job,)) for k, job in enumerate(wanted)]
    return [answer.bid for answer in scheduler.bid(requests)]


steps = st.tuples(
    st.sampled_from(["hold", "release", "load", "drain", "sweep", "bid"]),
    st.integers(0, 7),
    st.integers(0, 7),
)


@SOME
@given(nodes(), st.lists(steps, max_size=12), st.lists(jobs(), min_size=1, max_size=4))
def test_a_site_kept_up_to_date_bids_like_one_that_has_just_been_read(
    site: tuple[Node, ...], history: list[tuple[str, int, int]], wanted: list[Job]
) -> None:
    kept = SiteScheduler(PARTITIONS)
    kept.update(site, ())
    holds = {}
    for name, x, y in history:
        node = site[x % len(site)]
        match name:
            case "hold":
                (bid,) = plans(kept, [wanted[y % len(wanted)]])
                if bid is not None:
                    holds[attempt(x)] = bid.jobs
                    kept.hold(attempt(x), bid.jobs)
            case "release":
                holds.pop(attempt(x), None)
                kept.release(attempt(x))
            case "load":
                loaded = replace(node, gpus_alloc=min(node.gpus, y), cpus_alloc=min(node.cpus, y))
                site = tuple(loaded if n is node else n for n in site)
                kept.update(site, ())
            case "drain":
                state = NodeState.DRAINED if y % 2 else NodeState.MIXED
                site = tuple(replace(n, state=state) if n is node else n for n in site)
                kept.update(site, ())
            case "sweep":
                seen = {a for k, a in enumerate(holds) if k % 2 == y % 2}
                holds = {a: jobs for a, jobs in holds.items() if a not in seen}
                kept.update(tuple(replace(n) for n in site), seen)
            case _:
                plans(kept, wanted)
    fresh = SiteScheduler(PARTITIONS, kept.mix)
    fresh.update(site, ())
    for held, planned in holds.items():
        fresh.hold(held, planned)
    assert plans(kept, wanted) == plans(fresh, wanted)
    assert [kept.holds(p) for p in holds.values()] == [fresh.holds(p) for p in holds.values()]


@settings(max_examples=1500, deadline=None)
@given(nodes(), st.lists(jobs(), min_size=1, max_size=2), st.lists(jobs(), min_size=1, max_size=3))
def test_what_the_negative_cache_answers_could_not_be_placed(
    site: tuple[Node, ...], failed: list[Job], asked: list[Job]
) -> None:
    cache: NegativeCache[Refusal] = NegativeCache()
    if fits(tuple(failed), site):
        return
    cache.add(tuple(failed), Rights(), REFUSAL)
    if cache.find(tuple(asked), Rights()) is not None:
        assert not fits(tuple(asked), site)


def answer(cache: NegativeCache[Refusal], job: Job) -> Refusal | None:
    known = cache.find((job,), Rights())
    return known.answer if known is not None else None


@SOME
@given(jobs(), st.integers(0, 3), st.integers(0, 3), st.integers(0, 500))
def test_the_same_or_more_of_everything_fails_with_what_failed(
    job: Job, nodes_more: int, gpus_more: int, mem_more: int
) -> None:
    cache: NegativeCache[Refusal] = NegativeCache()
    cache.add((job,), Rights(), REFUSAL)
    assert answer(cache, job) is REFUSAL
    if job.nodes is None or job.gpus or job.cpus:
        return
    larger = replace(
        job,
        nodes=job.nodes + nodes_more,
        gpus_per_node=job.gpus_per_node + gpus_more,
        mem_mib_per_node=job.mem_mib_per_node + mem_more,
        features=("ib",),
    )
    assert answer(cache, larger) is REFUSAL
    smaller = replace(job, nodes=1, gpus_per_node=0, cpus_per_node=1, mem_mib_per_node=0)
    if smaller != job:
        assert cache.find((replace(smaller, gpu_types=()),), Rights()) is None or (
            job.nodes == 1 and job.gpus_per_node == 0 and job.cpus_per_node == 1
        )
