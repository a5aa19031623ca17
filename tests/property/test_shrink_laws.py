"""Laws of shrinking: of who stays only what is optional goes, and all is accounted for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from hypothesis import event, given, settings
from hypothesis import strategies as st

from federator.model.event import Awarded, Changed
from federator.model.lifecycle import AT_SITE, WorkloadEvent, WorkloadState
from federator.model.plan import Bid
from federator.model.site import Node, NodeShare, RunningJob
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.bid.workload_plan import place_all
from federator.sched.passes.eviction import spared_jobs_yet, spared_yet
from tests.fakes.build import bid_request, draft, gang, rack
from tests.fakes.loopback import Loopback
from tests.property.test_federation_laws import CALM, FAULTS, HISTORIES, Act, acts, fresh, play
from tests.property.test_placement_laws import jobs

PARTITIONS = ("gpu",)
NOW_S = 1000.0
MANY = settings(max_examples=250, deadline=None)
Site = tuple[tuple[Node, ...], tuple[RunningJob, ...]]
SIMPLE = st.builds(gang, st.integers(1, 2), st.sampled_from([2, 4, 8]))
WANTED = st.one_of(SIMPLE, SIMPLE, SIMPLE, jobs())
Going = set[tuple[int, int]]  # workload and component


@st.composite
def sites(draw: st.DrawFn) -> Site:
    """Two racks with het jobs of up to three components, some of them optional."""
    nodes = [*rack("a", draw(st.integers(1, 4)), mem_mib=1000), *rack("b", 2, mem_mib=1000)]
    free = {n.name: n.gpus for n in nodes}
    running: list[RunningJob] = []
    for id_ in range(1, draw(st.integers(3, 12))):
        components: dict[int, dict[str, NodeShare]] = {}
        for k in range(draw(st.integers(1, 3))):
            gpus = draw(st.sampled_from([2, 4, 8, 8]))
            on = [name for name, left in free.items() if left >= gpus][: draw(st.integers(1, 2))]
            for name in on:
                free[name] -= gpus
            if on or not k:
                components[k] = {name: NodeShare(gpus=gpus, cpus=gpus) for name in on}
        if components[0]:
            optional = draw(st.sets(st.sampled_from([1, 2])))
            running.append(
                RunningJob(
                    id=id_,
                    tenant="nlp",
                    priority=draw(st.integers(5, 7)),
                    preemptible=True,
                    started_at_s=float(draw(st.integers(0, 3))),
                    components=components,
                    nodes=together(components.values()),
                    optional_jobs=tuple(sorted(optional)),
                    optional=draw(st.booleans()),
                    saves_in_time=draw(st.booleans()),
                )
            )
    return loaded(nodes, running, set()), tuple(running)


def together(parts: Iterable[dict[str, NodeShare]]) -> dict[str, NodeShare]:
    held: dict[str, NodeShare] = {}
    for name, share in (item for part in parts for item in part.items()):
        held[name] = held.get(name, NodeShare()) + share
    return held


def loaded(nodes: Iterable[Node], running: Sequence[RunningJob], gone: Going) -> tuple[Node, ...]:
    """The nodes with all that is not gone."""
    held = together(
        part for job in running for k, part in job.components.items() if (job.id, k) not in gone
    )
    shares = [(n, held.get(n.name, NodeShare())) for n in nodes]
    return tuple(replace(n, gpus_alloc=s.gpus, cpus_alloc=s.cpus) for n, s in shares)


def ask(site: Site, *wanted: Job, priority: int = 1, budget: float = inf) -> list[Bid | None]:
    found = SiteScheduler(PARTITIONS)
    found.update(site[0], (), running=site[1])
    requests = [
        bid_request(id=WorkloadId(k), jobs=(job,), priority=priority, preempt_gpus=budget)
        for k, job in enumerate(wanted)
    ]
    return [answer.bid for answer in found.bid(requests, NOW_S)]


def going(bid: Bid, running: Sequence[RunningJob]) -> Going:
    wholes = {(job.id, k) for job in running if job.id in bid.victims for k in job.components}
    return wholes | {(id_, k) for id_, k in bid.shrinks}


def fits(wanted: Job, site: Site, gone: Going) -> bool:
    room = FreeCapacity(loaded(site[0], site[1], gone))
    return isinstance(place_all((wanted,), room, PARTITIONS), Bid)


@MANY
@given(sites(), WANTED, st.integers(4, 7), st.sampled_from([4.0, 8.0, 20.0, inf]))
def test_only_optional_jobs_are_taken_of_who_stays_and_none_too_many(
    site: Site, wanted: Job, priority: int, budget: float
) -> None:
    (bid,) = ask(site, wanted, priority=priority, budget=budget)
    if bid is None:
        return
    event("shrinks" if bid.shrinks else "evicts" if bid.victims else "free")
    by_id = {job.id: job for job in site[1]}
    for id_, k in bid.shrinks:
        assert k > 0  # never the leader
        assert k in by_id[id_].optional_jobs
        assert id_ not in bid.victims
    assert all(by_id[id_].priority > priority for id_, _ in going(bid, site[1]))
    gone = going(bid, site[1])
    assert sum(s.gpus for id_, k in gone for s in by_id[id_].components[k].values()) <= budget
    assert fits(wanted, site, gone)
    for id_, k in bid.shrinks:
        assert not fits(wanted, site, gone - {(id_, k)})
    for victim in bid.victims:
        spared = {(id_, k) for id_, k in gone if id_ != victim}
        optional = {(victim, k) for k in by_id[victim].optional_jobs}
        assert not fits(wanted, site, spared | optional & gone)


@MANY
@given(sites(), WANTED, st.integers(4, 7))
def test_a_plan_is_found_just_when_one_exists_without_all_that_may_be_evicted(
    site: Site, wanted: Job, priority: int
) -> None:
    (bid,) = ask(site, wanted, priority=priority)
    all_gone = {(job.id, k) for job in site[1] if job.priority > priority for k in job.components}
    assert (bid is not None) == fits(wanted, site, all_gone)


@MANY
@given(sites(), st.lists(WANTED, min_size=1, max_size=4), st.sets(st.integers(0, 3)))
def test_a_bid_holds_whichever_of_those_made_before_it_lose(
    site: Site, wanted: list[Job], lost: set[int]
) -> None:
    made = [bid for k, bid in enumerate(ask(site, *wanted)) if bid is not None and k not in lost]
    gone = [each for bid in made for each in sorted(going(bid, site[1]))]
    assert len(gone) == len(set(gone))
    room = FreeCapacity(loaded(site[0], site[1], set(gone)))
    for plan in (plan for bid in made for plan in bid.jobs):
        assert all(room.by_name[name].has(share) for name, share in plan.nodes.items())
        room.take(plan)


@MANY
@given(sites(), st.lists(WANTED, min_size=1, max_size=4))
def test_bidding_changes_nothing(site: Site, wanted: list[Job]) -> None:
    found = SiteScheduler(PARTITIONS)
    found.update(site[0], (), running=site[1])
    requests = [
        bid_request(id=WorkloadId(k), jobs=(job,), priority=1, preempt_gpus=inf)
        for k, job in enumerate(wanted)
    ]
    first = found.bid(requests, NOW_S)
    assert found.bid(requests, NOW_S) == first


def test_these_sites_do_shrink() -> None:
    """Otherwise the laws above would say nothing of it."""
    nodes = rack("a", 2)
    parts = {0: {"a1": NodeShare(gpus=8)}, 1: {"a2": NodeShare(gpus=8)}}
    job = RunningJob(
        id=5,
        tenant="nlp",
        priority=7,
        preemptible=True,
        started_at_s=0.0,
        components=parts,
        nodes=together(parts.values()),
        optional_jobs=(1,),
    )
    (bid,) = ask((loaded(nodes, [job], set()), (job,)), gang(1))
    assert bid is not None
    assert (bid.victims, bid.shrinks) == ((), ((5, 1),))


# ---- the whole federation ----


def crowded(history: list[Act]) -> Loopback:
    """Every node is taken by somebody without quota who has optional jobs; then what may come."""
    f = fresh(evicting=True)
    for nodes in (3, 3, 2):
        jobs = (gang(1, 8), *(gang(1, 8, f"more{k}") for k in range(1, nodes)))
        f.ask(draft(*jobs, optional=tuple(range(1, nodes)), tenant="guest"))
    f.run_for(5.0)
    play(f, history)
    return f


@HISTORIES
@given(acts(CALM + FAULTS))
def test_whatever_happens_what_is_taken_was_optional_there_and_promised_to_one_alone(
    history: list[Act],
) -> None:
    f = crowded(history)
    ledger = f.new_ledger()
    for record in f.log:
        if isinstance(record, Awarded):
            for id_, k in record.shrinks:
                entry = ledger.entries[WorkloadId(id_)]
                assert k in entry.workload.optional_jobs
                assert entry.workload.preemptible
                assert k > 0
                assert id_ not in record.victims
                assert k not in entry.promised_jobs.keys() | entry.taken_jobs
                assert entry.promised_to is None
        if isinstance(record, Changed) and record.happening is WorkloadEvent.SHRUNK:
            event("shrunk")
            assert ledger.entries[record.workload].state is WorkloadState.RUNNING
        ledger.apply(record)


@HISTORIES
@given(acts(CALM + FAULTS))
def test_whatever_happens_a_tenant_holds_what_its_plans_hold_and_the_budget_is_kept(
    history: list[Act],
) -> None:
    f = crowded(history)
    ledger = f.federation.ledger
    for name in ("vision", "guest"):
        entries = [e for e in ledger.in_state(*AT_SITE) if e.workload.tenant == name]
        row = next((e.charge.row for e in entries if e.charge is not None), None)
        if row is not None:
            assert ledger.holdings.own(row)[0] == sum(entry.held_gpus for entry in entries)
    spent = ledger.evictions.within
    for last in spent:
        window = [e.gpus for e in spent if last.at_s - 60.0 < e.at_s <= last.at_s]
        assert sum(window) <= 40
    for entry in ledger.entries.values():
        if entry.state is not WorkloadState.RUNNING:
            continue
        for winner_id in {*entry.promised_jobs.values()}:
            winner = ledger.entries[winner_id]
            assert entry in [other for other, _ in spared_jobs_yet(winner, ledger)]
            assert entry not in spared_yet(winner, ledger)
