"""Laws of reservations: they are as early as can be promised, and no bid ever delays them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.model.plan import Bid
from federator.model.site import Node, NodeShare, RunningJob
from federator.model.site_message import SiteAnswer
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.bid.workload_plan import place_all
from tests.fakes.build import bid_request

SOME = settings(max_examples=250, deadline=None)
NOW_S = 1_000.0
State = tuple[tuple[Node, ...], tuple[RunningJob, ...]]
limits = st.sampled_from([50.0, 100.0, 150.0, inf])


@st.composite
def states(draw: st.DrawFn) -> State:
    """Up to four nodes in two racks, with jobs of the federation that end at some time or never."""
    nodes = [
        Node(name=f"n{k}", partitions=("gpu",), switch=f"r{k % 2}", cpus=8, gpus=8, gpu_type="a")
        for k in range(draw(st.integers(1, 4)))
    ]
    running: list[RunningJob] = []
    for id_ in range(draw(st.integers(0, 6))):
        gpus = draw(st.sampled_from([2, 4, 8]))
        width = draw(st.sampled_from([1, 1, 2]))
        hosts = [k for k, n in enumerate(nodes) if n.gpus - n.gpus_alloc >= gpus][:width]
        for k in hosts:
            nodes[k] = replace(
                nodes[k],
                gpus_alloc=nodes[k].gpus_alloc + gpus,
                cpus_alloc=nodes[k].cpus_alloc + gpus,
            )
        if hosts:
            running.append(
                RunningJob(
                    id=id_,
                    tenant="t",
                    priority=draw(st.integers(3, 7)),
                    preemptible=True,
                    started_at_s=0.0,
                    nodes={nodes[k].name: NodeShare(gpus=gpus, cpus=gpus) for k in hosts},
                    ends_by_s=NOW_S + draw(limits),
                )
            )
    return tuple(nodes), tuple(running)


jobs = st.builds(
    lambda nodes, gpus: Job(name="t", nodes=nodes, gpus_per_node=gpus, cpus_per_node=max(1, gpus)),
    st.integers(1, 4),
    st.sampled_from([0, 2, 4, 8]),
)


def scheduler(state: State) -> SiteScheduler:
    found = SiteScheduler(("gpu",))
    found.update(state[0], (), running=state[1])
    return found


def at(state: State, bids: Sequence[tuple[float, Bid]], at_s: float) -> FreeCapacity:
    """The site at a time to come: who must have ended has, who need not have has not."""
    gone = {id_ for _, bid in bids for id_ in bid.victims}
    running = [job for job in state[1] if job.ends_by_s > at_s and job.id not in gone]
    nodes = [replace(n, gpus_alloc=0, cpus_alloc=0) for n in state[0]]
    room = FreeCapacity(nodes)
    for job in running:
        for name, share in job.nodes.items():
            room.by_name[name].take(share)
    for ends_by_s, bid in bids:
        for plan in bid.jobs if ends_by_s > at_s else ():
            room.take(plan)
    return room


def fits(job: Job, room: FreeCapacity) -> bool:
    return isinstance(place_all((job,), room, ("gpu",)), Bid)


@SOME
@given(states(), jobs)
def test_what_is_promised_holds_and_nothing_earlier_could_be_promised(
    state: State, job: Job
) -> None:
    (answer,) = scheduler(state).bid([bid_request(id=WorkloadId(1), jobs=(job,))], NOW_S)
    if answer.refusal is None or answer.refusal.kind.value == "reject":
        return
    ends = sorted({j.ends_by_s for j in state[1] if j.ends_by_s < inf})
    possible = [at_s for at_s in ends if fits(job, at(state, (), at_s))]
    if answer.refusal.starts_in_s is None:
        assert not possible
    else:
        assert possible[0] == NOW_S + answer.refusal.starts_in_s


@SOME
@given(
    states(),
    jobs,
    st.lists(st.tuples(jobs, limits, st.sampled_from([0.0, inf])), min_size=1, max_size=5),
    st.sets(st.integers(0, 4)),
    st.integers(0, 2),
)
def test_no_bid_delays_the_workload_that_room_is_kept_for(
    state: State,
    blocked: Job,
    others: list[tuple[Job, float, float]],
    lost: set[int],
    before: int,
) -> None:
    """Whichever of the bids are taken, and however long they run within their time limits."""
    requests = [
        bid_request(
            id=WorkloadId(101 + k),
            jobs=(job,),
            time_limit_s=limit_s,
            priority=2,
            preempt_gpus=budget,
        )
        for k, (job, limit_s, budget) in enumerate(others)
    ]
    requests.insert(before, bid_request(id=WorkloadId(100), jobs=(blocked,), priority=1))
    rest = list(scheduler(state).bid(requests, NOW_S, reserving=True))
    first = next(answer for answer in rest if answer.id == 100)
    if any(a.refusal is not None and a.refusal.kind.value == "wait" for a in rest[:before]):
        return  # room is kept for another
    rest.remove(first)
    if first.refusal is None or first.refusal.starts_in_s is None:
        return
    taken = [
        (NOW_S + limit_s, answer.bid)
        for k, ((_, limit_s, _), answer) in enumerate(zip(others, rest, strict=True))
        if answer.bid is not None and k not in lost
    ]
    assert fits(blocked, at(state, taken, NOW_S + first.refusal.starts_in_s))


@SOME
@given(
    states(),
    jobs,
    st.lists(st.tuples(jobs, limits, limits), min_size=1, max_size=5),
    st.dictionaries(st.integers(0, 5), limits.map(lambda in_s: NOW_S + in_s)),
)
def test_predictions_change_nothing_where_time_limits_promise_a_start(
    state: State, blocked: Job, others: list[tuple[Job, float, float]], ends: dict[int, float]
) -> None:
    """They neither let anybody delay who has a promise, nor refuse anybody for another reason."""
    requests = [bid_request(id=WorkloadId(100), jobs=(blocked,), priority=1)]
    for k, (job, limit_s, _) in enumerate(others):
        requests.append(bid_request(id=WorkloadId(101 + k), jobs=(job,), time_limit_s=limit_s))
    plain = scheduler(state).bid(requests, NOW_S, reserving=True)
    if plain[0].refusal is None or plain[0].refusal.starts_in_s is None:
        return
    expecting = scheduler(state)
    expecting.expect({WorkloadId(id_): at_s for id_, at_s in ends.items()})
    requests[1:] = [
        msgspec.structs.replace(request, predicted_run_s=run_s)
        for request, (_, _, run_s) in zip(requests[1:], others, strict=True)
    ]
    found = expecting.bid(requests, NOW_S, reserving=True)
    sooner = found[0].refusal
    assert sooner is not None
    assert msgspec.structs.replace(sooner, sooner_in_s=None) == plain[0].refusal
    assert sooner.sooner_in_s is None or sooner.sooner_in_s < plain[0].refusal.starts_in_s
    assert [a.bid for a in found] == [a.bid for a in plain]
    assert not any(a.refusal.predicted for a in found[:1] if a.refusal is not None)


@SOME
@given(
    states(),
    jobs,
    st.lists(st.tuples(jobs, limits, limits), min_size=1, max_size=5),
    st.dictionaries(st.integers(0, 5), limits.map(lambda in_s: NOW_S + in_s)),
)
def test_no_bid_delays_a_predicted_start_if_predictions_come_true(
    state: State, blocked: Job, others: list[tuple[Job, float, float]], ends: dict[int, float]
) -> None:
    requests = [bid_request(id=WorkloadId(100), jobs=(blocked,), priority=1)]
    for k, (job, limit_s, run_s) in enumerate(others):
        asked = bid_request(id=WorkloadId(101 + k), jobs=(job,), time_limit_s=limit_s)
        requests.append(msgspec.structs.replace(asked, predicted_run_s=run_s))
    expecting = scheduler(state)
    expecting.expect({WorkloadId(id_): at_s for id_, at_s in ends.items()})
    first, *rest = expecting.bid(requests, NOW_S, reserving=True)
    if first.refusal is None or not first.refusal.predicted:
        return
    taken = [
        (NOW_S + min(limit_s, run_s), answer.bid)
        for (_, limit_s, run_s), answer in zip(others, rest, strict=True)
        if answer.bid is not None
    ]
    running = tuple(
        replace(job, ends_by_s=min(job.ends_by_s, ends.get(job.id, inf))) for job in state[1]
    )
    assert first.refusal.starts_in_s is not None
    assert fits(blocked, at((state[0], running), taken, NOW_S + first.refusal.starts_in_s))


@SOME
@given(states(), jobs, st.lists(st.tuples(jobs, limits), min_size=1, max_size=5))
def test_who_is_refused_for_a_reservation_would_else_have_a_place(
    state: State, blocked: Job, others: list[tuple[Job, float]]
) -> None:
    requests = [
        bid_request(id=WorkloadId(101 + k), jobs=(job,), time_limit_s=limit_s)
        for k, (job, limit_s) in enumerate(others)
    ]
    reserve = bid_request(id=WorkloadId(100), jobs=(blocked,))
    fenced = scheduler(state).bid(requests, NOW_S, reserve=reserve)
    for k, answer in enumerate(fenced):
        asked_before = others[k][0] in [job for job, _ in others[:k]]  # answered as it was then
        if _code(answer) == "FedReserved" and not asked_before:
            made = [(NOW_S + others[i][1], a.bid) for i, a in enumerate(fenced[:k]) if a.bid]
            assert fits(others[k][0], at(state, made, NOW_S))


def _code(answer: SiteAnswer) -> str:
    return "" if answer.refusal is None else answer.refusal.reasons[0].code.value
