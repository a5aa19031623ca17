"""Laws of plans that evict: valid, minimal, and never at the cost of whom they must not touch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.model.plan import Bid
from federator.model.site import Node, NodeShare, RunningJob
from federator.model.workload import Job, WorkloadId
from federator.sched.bid import preemption
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.bid.workload_plan import place_all
from tests.fakes.build import bid_request, rack
from tests.property.test_placement_laws import jobs

PARTITIONS = ("gpu",)
NOW_S = 1000.0
MANY = settings(max_examples=250, deadline=None)


@st.composite
def sites(draw: st.DrawFn) -> tuple[tuple[Node, ...], tuple[RunningJob, ...]]:
    """Two racks, with running gangs of the federation and of local users."""
    nodes = [
        replace(n, gres=draw(st.sampled_from([(), (("nic", 2),)])))
        for n in [*rack("a", draw(st.integers(1, 4)), mem_mib=1000), *rack("b", 2, mem_mib=1000)]
    ]
    nics = {n.name: dict(n.gres).get("nic", 0) for n in nodes}
    free = {n.name: n.gpus for n in nodes}
    running: list[RunningJob] = []
    for id_ in range(1, draw(st.integers(1, 9))):
        gpus = draw(st.sampled_from([1, 2, 4, 5, 8]))
        most = draw(st.integers(1, 3))
        on = [name for name, left in free.items() if left >= gpus][:most]
        held: dict[str, NodeShare] = {}
        for name in on:
            free[name] -= gpus
            gres = (("nic", 1),) if nics[name] and draw(st.booleans()) else ()
            nics[name] -= len(gres)
            held[name] = NodeShare(gpus=gpus, cpus=gpus, mem_mib=gpus, gres=gres)
        if on:
            running.append(
                RunningJob(
                    id=id_,
                    tenant="nlp",
                    priority=draw(st.integers(1, 7)),
                    preemptible=draw(st.sampled_from([True, True, True, False])),
                    started_at_s=float(draw(st.integers(0, 900))),
                    nodes=held,
                    cooldown_until_s=draw(st.sampled_from([0.0, 0.0, NOW_S, NOW_S + 1])),
                )
            )
    local = draw(st.sampled_from([0, 0, 4]))
    return loaded(nodes, running, local), tuple(running)


def loaded(
    nodes: Iterable[Node], running: Sequence[RunningJob], local_cpus: int
) -> tuple[Node, ...]:
    """Nodes with all of these counted, and CPUs of local users."""
    found = []
    for n in nodes:
        shares = [job.nodes[n.name] for job in running if n.name in job.nodes]
        found.append(
            Node(
                name=n.name,
                partitions=n.partitions,
                switch=n.switch,
                cpus=n.cpus,
                gpus=n.gpus,
                mem_mib=n.mem_mib,
                gpu_type=n.gpu_type,
                cpus_alloc=local_cpus + sum(s.cpus for s in shares),
                gpus_alloc=sum(s.gpus for s in shares),
                mem_mib_alloc=sum(s.mem_mib for s in shares),
                gres=n.gres,
                gres_alloc=sum(shares, NodeShare()).gres,
            )
        )
    return tuple(found)


def without(
    site: Sequence[Node], running: Sequence[RunningJob], gone: Iterable[int]
) -> tuple[Node, ...]:
    """The site after these have left."""
    left = [job for job in running if job.id not in set(gone)]
    local = min(
        n.cpus_alloc - sum(j.nodes[n.name].cpus for j in running if n.name in j.nodes) for n in site
    )
    return loaded(site, left, local)


def scheduler(site: Sequence[Node], running: Iterable[RunningJob]) -> SiteScheduler:
    found = SiteScheduler(PARTITIONS)
    found.update(site, ())
    for job in running:
        found.started(job)
    return found


def evictable(job: RunningJob, priority: int) -> bool:
    return job.preemptible and job.priority > priority and job.cooldown_until_s <= NOW_S


def fits(wanted: Job, site: Sequence[Node]) -> bool:
    return isinstance(place_all((wanted,), FreeCapacity(site), PARTITIONS), Bid)


def ask(site: SiteScheduler, *wanted: Job, priority: int, budget: float = inf) -> list[Bid | None]:
    requests = [
        bid_request(id=WorkloadId(k), jobs=(job,), priority=priority, preempt_gpus=budget)
        for k, job in enumerate(wanted)
    ]
    return [answer.bid for answer in site.bid(requests, NOW_S)]


@MANY
@given(sites(), jobs(), st.integers(1, 7))
def test_a_plan_is_found_just_when_one_exists_without_all_that_may_be_evicted(
    state: tuple[tuple[Node, ...], tuple[RunningJob, ...]], wanted: Job, priority: int
) -> None:
    site, running = state
    (bid,) = ask(scheduler(site, running), wanted, priority=priority)
    all_gone = [job.id for job in running if evictable(job, priority)]
    assert (bid is not None) == fits(wanted, without(site, running, all_gone))


@MANY
@given(sites(), jobs(), st.integers(1, 7), st.sampled_from([4.0, 8.0, 20.0, inf]))
def test_victims_are_allowed_needed_and_within_budget_and_the_plan_fits_when_they_are_gone(
    state: tuple[tuple[Node, ...], tuple[RunningJob, ...]],
    wanted: Job,
    priority: int,
    budget: float,
) -> None:
    site, running = state
    (bid,) = ask(scheduler(site, running), wanted, priority=priority, budget=budget)
    if bid is None:
        return
    by_id = {job.id: job for job in running}
    victims = [by_id[id_] for id_ in bid.victims]
    assert all(evictable(job, priority) for job in victims)
    assert sum(s.gpus for job in victims for s in job.nodes.values()) <= budget
    after = without(site, running, bid.victims)
    room = FreeCapacity(after)
    for plan in bid.jobs:
        for name, share in plan.nodes.items():
            assert room.by_name[name].has(share)
    for victim in bid.victims:
        spared = [id_ for id_ in bid.victims if id_ != victim]
        assert not fits(wanted, without(site, running, spared))
    assert bid.score.preempts == (1 if victims else 0)
    assert bid.score.victims == len(victims)
    assert bool(victims) == (not fits(wanted, site))


@MANY
@given(sites(), st.lists(jobs(), min_size=1, max_size=4), st.sets(st.integers(0, 3)))
def test_a_bid_holds_whichever_of_those_made_before_it_lose(
    state: tuple[tuple[Node, ...], tuple[RunningJob, ...]], wanted: list[Job], lost: set[int]
) -> None:
    site, running = state
    answers = ask(scheduler(site, running), *wanted, priority=1)
    won = [bid for k, bid in enumerate(answers) if bid is not None and k not in lost]
    gone = [id_ for bid in won for id_ in bid.victims]
    assert len(gone) == len(set(gone))
    room = FreeCapacity(without(site, running, gone))
    for bid in won:
        for plan in bid.jobs:
            for name, share in plan.nodes.items():
                assert room.by_name[name].has(share)
            room.take(plan)


@MANY
@given(sites(), st.lists(jobs(), min_size=1, max_size=4), st.integers(1, 7))
def test_bidding_changes_nothing(
    state: tuple[tuple[Node, ...], tuple[RunningJob, ...]], wanted: list[Job], priority: int
) -> None:
    site, running = state
    asked = scheduler(site, running)
    first = ask(asked, *wanted, priority=priority)
    assert ask(asked, *wanted, priority=priority) == first
    assert ask(scheduler(site, running), *wanted, priority=priority) == first


@MANY
@given(
    sites(),
    st.one_of(
        jobs(),
        st.builds(
            lambda n, g: Job(name="t", nodes=n, gpus_per_node=g),
            st.integers(1, 4),
            st.integers(1, 8),
        ),
        st.builds(lambda g: Job(name="t", gpus=g), st.integers(1, 30)),
    ),
    st.integers(1, 7),
    st.sampled_from([inf, inf, 8.0, 16.0]),
)
def test_partitions_are_passed_over_only_where_nothing_better_is_to_be_had(
    state: tuple[tuple[Node, ...], tuple[RunningJob, ...]],
    wanted: Job,
    priority: int,
    budget: float,
) -> None:
    """Three partitions, one of them over both racks: with and without the quick bound."""
    site = tuple(
        replace(n, partitions=("left", "both") if n.switch == "a" else ("both", "right"))
        for n in state[0]
    )
    made = []
    for bounded in (True, False):
        found = SiteScheduler(("left", "both", "right"))
        found.update(site, (), running=state[1])
        with pytest.MonkeyPatch.context() as patch:
            if not bounded:
                patch.setattr(preemption, "can_be_bounded", lambda _: False)
            made += ask(found, wanted, priority=priority, budget=budget)
    assert made[0] == made[1]
