"""Whom a plan evicts: the paper's rules, by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from msgspec import structs

from federator.model.plan import Bid
from federator.model.site import START_UP_S, Node, NodeShare, RunningJob
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.state.preemption_cost import SAVE_EVERY_S
from tests.fakes.build import bid_request, gang, rack

NOW_S = 10_000.0


def running(
    id_: int,
    gpus: int,
    *nodes: str,
    priority: int = 7,
    started_at_s: float = 0.0,
    preemptible: bool = True,
    cooldown_until_s: float = 0.0,
) -> RunningJob:
    return RunningJob(
        id=id_,
        tenant="nlp",
        priority=priority,
        preemptible=preemptible,
        started_at_s=started_at_s,
        nodes=dict.fromkeys(nodes, NodeShare(gpus=gpus, cpus=1)),
        cooldown_until_s=cooldown_until_s,
    )


def site(nodes: tuple[Node, ...], *jobs: RunningJob) -> SiteScheduler:
    """Nodes on which exactly these run."""
    found = []
    for n in nodes:
        shares = [job.nodes[n.name] for job in jobs if n.name in job.nodes]
        found.append(
            replace(
                n, gpus_alloc=sum(s.gpus for s in shares), cpus_alloc=sum(s.cpus for s in shares)
            )
        )
    scheduler = SiteScheduler(("gpu",))
    scheduler.update(found, ())
    for job in jobs:
        scheduler.started(job)
    return scheduler


def bid(scheduler: SiteScheduler, *jobs: Job, priority: int = 2, budget: float = inf) -> Bid | None:
    request = bid_request(id=WorkloadId(1), jobs=jobs, priority=priority, preempt_gpus=budget)
    (answer,) = scheduler.bid([request], NOW_S)
    return answer.bid


def victims(scheduler: SiteScheduler, *jobs: Job, **rights: float) -> tuple[int, ...] | None:
    made = bid(scheduler, *jobs, **rights)  # type: ignore[arg-type]
    return None if made is None else made.victims


def test_the_papers_example_evicts_only_the_12_gpu_job() -> None:
    nodes = rack("a", 3, gpus=12)
    jobs = (
        running(4, 4, "a1"),
        running(5, 5, "a2", started_at_s=1.0),
        running(12, 12, "a3", started_at_s=2.0),
    )
    full = site(nodes, *jobs, running(90, 8, "a1", priority=1), running(91, 7, "a2", priority=1))
    assert victims(full, Job(name="t", gpus=10)) == (12,)


def test_nobody_is_evicted_where_there_is_room() -> None:
    made = bid(site(rack("a", 2), running(1, 8, "a1")), gang(1))
    assert made is not None
    assert (made.victims, made.score.preempts) == ((), 0)


def test_the_lowest_priority_goes_first_then_the_longest_running() -> None:
    low = running(1, 8, "a1", priority=7, started_at_s=900.0)
    middle = running(2, 8, "a2", priority=5, started_at_s=0.0)
    old = running(3, 8, "a3", priority=7, started_at_s=100.0)
    full = site(rack("a", 3), low, middle, old)
    assert victims(full, gang(1)) == (3,)
    assert set(victims(full, gang(2)) or ()) == {1, 3}
    assert set(victims(full, gang(3)) or ()) == {1, 2, 3}


def test_equal_or_higher_priority_is_never_evicted() -> None:
    full = site(rack("a", 2), running(1, 8, "a1", priority=3), running(2, 8, "a2", priority=2))
    assert victims(full, gang(1), priority=3) is None
    assert victims(full, gang(1), priority=2) == (1,)


def test_neither_the_non_preemptible_nor_those_that_cool_down_are_evicted() -> None:
    full = site(
        rack("a", 3),
        running(1, 8, "a1", preemptible=False),
        running(2, 8, "a2", cooldown_until_s=NOW_S + 1),
        running(3, 8, "a3", cooldown_until_s=NOW_S),
    )
    assert victims(full, gang(1)) == (3,)
    assert victims(full, gang(2)) is None


def test_a_gang_goes_as_a_whole_and_counts_whole_against_the_budget() -> None:
    full = site(rack("a", 2), running(1, 8, "a1", "a2"))
    assert victims(full, gang(1), budget=8.0) is None
    assert victims(full, gang(1), budget=16.0) == (1,)


def test_without_a_budget_nobody_is_evicted() -> None:
    assert victims(site(rack("a", 1), running(1, 8, "a1")), gang(1), budget=0.0) is None


def test_the_score_tells_whose_work_is_lost_and_how_much() -> None:
    since_s = NOW_S - SAVE_EVERY_S  # half of its start-up is worked off
    saved = replace(running(1, 8, "a1", priority=5, started_at_s=since_s), saved_at_s=NOW_S - 40.0)
    unknown = replace(running(2, 8, "a2", priority=6, started_at_s=since_s), restart_s=300.0)
    made = bid(site(rack("a", 2), saved, unknown), gang(2))
    assert made is not None
    each = (40.0 + 1.5 * START_UP_S, SAVE_EVERY_S / 2 + 1.5 * 300.0)
    assert made.score[:4] == (1, 5, 2, 8 * sum(each))


def test_of_equals_at_a_site_whoever_loses_the_least_work_goes_first() -> None:
    """Not the longest running: it saved 29 minutes ago, the other one 5 seconds ago."""
    old = replace(running(1, 8, "a1", started_at_s=0.0), saved_at_s=NOW_S - 29 * 60.0)
    saved = replace(running(2, 8, "a2", started_at_s=NOW_S - 3600.0), saved_at_s=NOW_S - 5.0)
    unknown = running(3, 8, "a3", started_at_s=100.0)  # 15 min: the expected age of its last save
    full = site(rack("a", 3), old, saved, unknown)
    assert victims(full, gang(1)) == (2,)
    assert set(victims(full, gang(2)) or ()) == {2, 3}
    assert bid_at(full, NOW_S + 1799.0) == (3,)  # by then 2 has saved nothing for half an hour
    important = replace(saved, priority=4)
    assert victims(site(rack("a", 3), old, important, unknown), gang(1)) == (3,)


def test_where_nothing_is_known_of_saves_the_longest_running_goes_first() -> None:
    """MAST's third rule, also among those that started within a second of each other."""
    starts_s = (NOW_S - 1.0, 500.25, NOW_S - 60.0, 500.5, 500.0)
    jobs = [running(k, 8, f"a{k}", started_at_s=s) for k, s in enumerate(starts_s, 1)]
    full = site(rack("a", 5), *jobs)
    for count, expected in enumerate(({5}, {5, 2}, {5, 2, 4}, {5, 2, 4, 3}), 1):
        assert set(victims(full, gang(count)) or ()) == expected


def bid_at(full: SiteScheduler, now_s: float) -> tuple[int, ...] | None:
    """Whom a gang of one node would evict then."""
    request = bid_request(id=WorkloadId(1), jobs=(gang(1),), priority=2, preempt_gpus=inf)
    (answer,) = full.bid([request], now_s)
    return answer.bid.victims if answer.bid is not None else None


def lost(**fields: float) -> float:
    """The work that evicting one job of 8 GPUs loses, as its site bids."""
    job = replace(running(1, 8, "a1"), **fields)  # type: ignore[arg-type]
    made = bid(site(rack("a", 1), job), gang(1))
    assert made is not None
    return made.score.lost_work_gpu_s


def test_who_has_just_started_loses_more_than_the_long_running() -> None:
    """MAST's third rule, wherever nothing is known of saves."""
    ages_s = (0.0, 1.0, 60.0, 1000.0, 5000.0, NOW_S)
    losses = [lost(started_at_s=NOW_S - age_s) for age_s in ages_s]
    assert losses == sorted(set(losses), reverse=True)
    assert losses[0] == 8 * (SAVE_EVERY_S / 2 + 2 * START_UP_S)


def test_who_saved_lately_loses_less_than_who_did_long_ago() -> None:
    saves = [lost(saved_at_s=NOW_S - age_s) for age_s in (0.0, 1.0, 600.0, 5000.0)]
    assert saves == sorted(set(saves))
    assert saves[0] < lost() < saves[-1]


def test_a_save_before_the_start_says_nothing_of_what_was_done_since() -> None:
    started = {"started_at_s": 500.0}
    assert lost(saved_at_s=400.0, **started) == lost(**started)


def test_who_saves_when_it_is_told_loses_no_more_than_that_takes() -> None:
    assert lost(save_s=30.0) == lost(saved_at_s=NOW_S - 30.0)
    assert lost(save_s=30.0, saved_at_s=NOW_S - 10.0) == lost(saved_at_s=NOW_S - 10.0)
    assert lost(save_s=30.0, saves_in_time=False) == lost()


def test_what_is_taken_alone_is_not_told_and_cannot_save() -> None:
    held = {0: {"a1": NodeShare(gpus=1, cpus=1)}, 1: {"a2": NodeShare(gpus=8, cpus=1)}}
    job = replace(
        running(1, 0), optional_jobs=(1,), components=held, save_s=30.0, nodes=held[0] | held[1]
    )
    made = bid(site(rack("a", 2), job), gang(1))
    assert made is not None
    assert (made.victims, [k for _, k in made.shrinks]) == ((), [1])
    assert made.score.lost_work_gpu_s == lost()


def test_who_holds_no_gpu_loses_as_if_it_held_one() -> None:
    cpus = replace(running(1, 0), nodes={"a1": NodeShare(cpus=64)})
    made = bid(site(rack("a", 1, cpus=64), cpus), Job(name="t", nodes=1, cpus_per_node=8))
    assert made is not None
    assert made.score.lost_work_gpu_s == pytest.approx(lost() / 8)


def test_jobs_of_one_workload_share_no_victims_room_twice() -> None:
    full = site(rack("a", 2), running(1, 8, "a1"), running(2, 8, "a2"))
    made = bid(full, gang(1, 8, "train"), gang(1, 8, "serve"))
    assert made is not None
    assert sorted(made.victims) == [1, 2]
    assert {n for plan in made.jobs for n in plan.nodes} == {"a1", "a2"}


def test_a_job_that_has_ended_is_no_victim_any_more() -> None:
    full = site(rack("a", 1), running(1, 8, "a1"))
    full.ended(1)
    assert victims(full, gang(1)) is None


def test_the_budget_is_for_victims_not_for_whoever_was_looked_at() -> None:
    """Each node has an older job of 1 GPU and a newer one of 7; one node is enough."""
    names = [f"a{k}" for k in range(1, 11)]
    old = [running(100 + k, 1, n, started_at_s=float(k)) for k, n in enumerate(names)]
    new = [running(200 + k, 7, n, started_at_s=100.0 + k) for k, n in enumerate(names)]
    full = site(rack("a", 10), *old, *new)
    assert victims(full, gang(1), budget=8.0) == (100, 200)
    assert victims(full, gang(1), budget=7.0) is None


def test_what_a_bid_would_evict_takes_nothing_from_those_beside_it() -> None:
    """After a bid that evicts from a1, two jobs of 4 GPUs fit on a2, and a CPU job anywhere."""
    full = site(rack("a", 2), running(1, 8, "a1"))
    asked = [
        bid_request(
            id=WorkloadId(1), jobs=(gang(1), gang(1, name="u")), priority=2, preempt_gpus=inf
        ),
        bid_request(id=WorkloadId(2), jobs=(Job(name="t", nodes=2, cpus_per_node=8),)),
    ]
    evicting, cpus = full.bid(asked, NOW_S)
    assert evicting.bid is not None
    assert evicting.bid.victims == (1,)
    assert cpus.bid is not None

    full = site(rack("a", 2), running(1, 8, "a1", started_at_s=5.0))
    one = bid_request(id=WorkloadId(1), jobs=(gang(1, 8),), priority=2, preempt_gpus=inf)
    two = bid_request(id=WorkloadId(2), jobs=(gang(1, 4), gang(1, 4, name="u")))
    held, *_ = full.bid([one, structs.replace(one, id=WorkloadId(3)), two], NOW_S)
    assert held.bid is not None
