"""The federation's own code in virtual time: what sites do, and that nothing is used twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.errors import FederatorError, InvalidRequest
from federator.model.draft import Draft
from federator.model.message import LaunchAt
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from federator.sim import fleet as module
from federator.sim.fleet import Fleet
from federator.sim.physics import Physics
from federator.sim.scenario import Arrival, JobTrace, Scenario, SimulatedSite
from federator.sim.site_state import SiteState
from federator.sim.trace import ReplayOptions
from tests.fakes.build import attempt, draft, gang, plan_on, rack, workload

pytestmark = pytest.mark.slow

OWNER = Tenant(name=TenantName("owner"), priority=2, quota=Allowance(gpus=16))
HUMBLE = Tenant(name=TenantName("humble"), priority=6, quota=Allowance(gpus=8))
GUEST = Tenant(name=TenantName("guest"))
EVICTING = Rules(preempt_gpus=64, grace_s=120.0, cooldown_s=0.0)
DAY_S = 86_400.0


def of(tenant: str, nodes: int = 1, gpus: int = 8, requeue: bool = True) -> Draft:
    wanted = draft(gang(nodes, gpus), requeue=requeue)
    return replace(wanted, tenant=TenantName(tenant), time_limit_s=inf)


def one_site(*arrivals: tuple[float, Draft, float], nodes: int = 1) -> Scenario:
    sites = (SimulatedSite(name=SiteName("alpine"), nodes=tuple(rack("a", nodes))),)
    return scenario(sites, arrivals)


def scenario(
    sites: tuple[SimulatedSite, ...], arrivals: Sequence[tuple[float, Draft, float]]
) -> Scenario:
    in_order = sorted(arrivals, key=lambda a: a[0])
    return Scenario(
        sites=sites,
        tenants=(OWNER, HUMBLE, GUEST),
        arrivals=tuple(Arrival(at_s=at, draft=d, duration_s=s) for at, d, s in in_order),
    )


def lived(
    given_: Scenario, rules: Rules | None = None, physics: Physics | None = None, seed: int = 0
) -> list[JobTrace]:
    options = ReplayOptions(seed=seed, audit=True)
    return Fleet(given_, Mast(), rules or Rules(), physics, options).run()


def times(life: JobTrace) -> tuple[float, float, float]:
    return life.first_start_s, life.start_s, life.end_s


def test_by_default_a_job_starts_at_once_and_runs_as_long_as_it_is_told() -> None:
    (life,) = lived(one_site((10.0, of("guest"), 100.0)))
    assert times(life) == (10.0, 10.0, 110.0)
    assert (life.site, life.preemptions, life.lost_gpu_s) == ("alpine", 0, 0.0)


def test_start_up_comes_before_the_useful_work_and_varies_by_start() -> None:
    jobs = [(1000.0 * k, of("guest"), 100.0) for k in range(9)]
    physics = Physics(startup_median_s=150.0, startup_p90_s=278.0)
    took = sorted(
        life.end_s - life.start_s - 100.0 for life in lived(one_site(*jobs), None, physics)
    )
    assert len(set(took)) == 9
    assert took[0] > 0
    assert 75.0 < took[4] < 300.0


def test_a_time_limit_ends_a_job() -> None:
    bounded = replace(of("guest"), time_limit_s=60.0)
    (life,) = lived(one_site((0.0, bounded, 100.0)))
    assert (life.end_s, life.timed_out) == (60.0, True)


def test_what_no_site_can_ever_run_is_refused_and_the_rest_goes_on() -> None:
    refused, ran = lived(one_site((0.0, of("guest", nodes=5), 10.0), (1.0, of("guest"), 10.0)))
    assert (refused.refused, refused.end_s) == (True, -1.0)
    assert ran.end_s == 11.0


def test_within_quota_is_told_of_the_first_award() -> None:
    owner, guest = lived(one_site((0.0, of("owner"), 10.0), (0.0, of("guest"), 10.0), nodes=2))
    assert (owner.within_quota, guest.within_quota) == (True, False)


# ---- evictions ----


def test_a_victim_saves_leaves_and_goes_on_where_it_stopped() -> None:
    physics = Physics(save_s=30.0, restore_s=20.0)
    guest, owner = lived(
        one_site((0.0, of("guest"), 1000.0), (400.0, of("owner"), 100.0)), EVICTING, physics
    )
    assert times(owner) == (430.0, 430.0, 530.0)  # the victim saves for 30 s
    assert times(guest) == (0.0, 530.0, 530.0 + 20.0 + 600.0)
    assert (guest.preemptions, guest.lost_gpu_s) == (1, 0.0)


def test_a_victim_that_came_back_is_evicted_again_while_its_evictor_runs() -> None:
    arrivals = (
        (0.0, of("owner"), 500.0),
        (1.0, of("guest"), 5000.0),
        (100.0, of("owner"), DAY_S),
        (2000.0, of("owner"), 50.0),  # while that runs for which the guest left the first time
    )
    _, guest, _, last = lived(one_site(*arrivals, nodes=2), EVICTING)
    assert guest.preemptions == 2
    assert last.start_s == 2000.0


def test_a_victim_that_cannot_save_in_time_is_gone_at_its_deadline_and_begins_anew() -> None:
    physics = Physics(save_s=500.0, restore_s=20.0)
    guest, owner = lived(
        one_site((0.0, of("guest"), 1000.0), (400.0, of("owner"), 100.0)), EVICTING, physics
    )
    assert owner.start_s == 520.0
    assert (guest.end_s, guest.lost_gpu_s) == (620.0 + 1000.0, 8 * 400.0)


def test_what_it_has_saved_by_itself_is_not_lost() -> None:
    physics = Physics(save_s=500.0, checkpoint_every_s=150.0)
    guest, _ = lived(
        one_site((0.0, of("guest"), 1000.0), (400.0, of("owner"), 100.0)), EVICTING, physics
    )
    assert guest.lost_gpu_s == 8 * 100.0
    assert guest.end_s == 620.0 + 700.0


def test_who_may_not_be_requeued_is_not_evicted() -> None:
    humble, owner = lived(
        one_site((0.0, of("humble", requeue=False), 1000.0), (400.0, of("owner"), 100.0)), EVICTING
    )
    assert (humble.preemptions, owner.start_s) == (0, 1000.0)


def test_who_may_not_be_evicted_and_has_no_quota_is_refused() -> None:
    (guest,) = lived(one_site((0.0, of("guest", requeue=False), 1000.0)), EVICTING)
    assert guest.refused


def test_without_a_budget_the_owner_waits() -> None:
    guest, owner = lived(one_site((0.0, of("guest"), 1000.0), (400.0, of("owner"), 100.0)))
    assert (guest.preemptions, owner.start_s) == (0, 1000.0)


def test_one_that_ends_while_it_should_save_has_ended() -> None:
    guest, owner = lived(
        one_site((0.0, of("guest"), 410.0), (400.0, of("owner"), 100.0)),
        EVICTING,
        Physics(save_s=30.0),
    )
    assert (guest.end_s, guest.preemptions, owner.start_s) == (410.0, 0, 410.0)


def test_moments_tell_what_is_held_and_what_waits() -> None:
    fleet = Fleet(one_site((0.0, of("guest"), 100.0), (50.0, of("guest"), 10.0)), Mast(), Rules())
    fleet.run()
    at = {moment.at_s: (moment.held_gpus, moment.waiting_gpus) for moment in fleet.moments}
    assert (at[0.0], at[50.0], at[100.0], at[110.0]) == ((8, 0), (8, 8), (8, 0), (0, 0))


# ---- nodes and local users ----


def test_a_failing_node_sends_its_job_back_to_begin_from_what_it_had_saved() -> None:
    physics = Physics(node_mtbf_s=40_000.0, node_repair_s=600.0, checkpoint_every_s=1000.0)
    lives = lived(
        one_site(*((0.0, of("guest"), 30_000.0) for _ in range(4)), nodes=4), None, physics
    )
    assert any(life.lost_gpu_s > 0 for life in lives)
    for life in lives:
        assert life.preemptions == 0
        assert life.lost_gpu_s < 8 * 1000.0 * 20
        assert (life.end_s > 30_000.0) >= (life.lost_gpu_s > 0)


def test_local_users_come_first_at_their_site() -> None:
    jobs = [(3600.0 * k, of("guest"), 600.0) for k in range(24)]
    alone = lived(one_site(*jobs, nodes=2))
    beside = lived(one_site(*jobs, nodes=2), None, Physics(local_load=0.6))
    assert all(life.start_s == arrival[0] for life, arrival in zip(alone, jobs, strict=True))
    assert sum(life.start_s for life in beside) > sum(life.start_s for life in alone)


@pytest.mark.parametrize(
    "wrong",
    [
        {"save_s": -1.0},
        {"node_mtbf_s": 0.0},
        {"local_load": inf},
        {"startup_median_s": 10.0, "startup_p90_s": 5.0},
    ],
)
def test_impossible_physics_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest, match=r"expected|negative"):
        Physics(**wrong)  # type: ignore[arg-type]


def test_a_job_that_may_not_be_requeued_fails_with_its_node() -> None:
    physics = Physics(node_mtbf_s=1000.0)
    (life,) = lived(one_site((0.0, of("guest", requeue=False), 1e5)), None, physics)
    assert (life.failed, life.lost_gpu_s) == (True, 8 * life.end_s)


# ---- laws ----

SITES = tuple(
    SimulatedSite(name=SiteName(name), nodes=tuple(rack(name, nodes)))
    for name, nodes in (("a", 3), ("b", 2))
)
ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 3000).map(float),
        st.builds(
            of,
            st.sampled_from(["owner", "guest"]),
            st.integers(1, 2),
            st.integers(1, 8),
            st.booleans(),
        ),
        st.integers(1, 2000).map(float),
    ),
    max_size=25,
)
PHYSICS = st.builds(
    Physics,
    save_s=st.sampled_from([0.0, 40.0, 500.0]),
    checkpoint_every_s=st.sampled_from([inf, 100.0]),
    node_mtbf_s=st.sampled_from([inf, 5000.0]),
    node_repair_s=st.just(300.0),
    local_load=st.sampled_from([0.0, 0.3]),
    local_duration_s=st.just(300.0),
)


@settings(max_examples=150, deadline=None)
@given(ARRIVALS, PHYSICS, st.sampled_from([0.0, 8.0, 100.0]), st.integers(0, 5))
def test_every_job_ends_no_gpu_is_used_twice_and_gpu_seconds_add_up(
    arrivals: list[tuple[float, Draft, float]], physics: Physics, budget: float, seed: int
) -> None:
    rules = Rules(preempt_gpus=budget, grace_s=60.0, cooldown_s=50.0)
    given_ = scenario(SITES, arrivals)
    fleet = Fleet(given_, Mast(), rules, physics, ReplayOptions(seed=seed, audit=True))
    lives = fleet.run()
    worked_gpu_s = saved_gpu_s = 0.0
    for arrival, life in zip(given_.arrivals, lives, strict=True):
        gpus = sum(job.total_gpus for job in arrival.draft.jobs)
        if life.refused:
            assert budget
            assert arrival.draft.tenant == "guest"
            assert not arrival.draft.preemptible
            continue
        if life.failed:
            assert not arrival.draft.requeue
            worked_gpu_s += life.lost_gpu_s
            continue
        assert arrival.at_s <= life.first_start_s <= life.start_s < life.end_s
        assert life.end_s - life.first_start_s >= arrival.duration_s
        worked_gpu_s += gpus * arrival.duration_s + life.lost_gpu_s
        saved_gpu_s += gpus * life.preemptions * min(physics.save_s, rules.grace_s)
    held_gpu_s = sum(
        then.held_gpus * (now.at_s - then.at_s)
        for then, now in zip(fleet.moments, fleet.moments[1:], strict=False)
    )
    assert worked_gpu_s - 1e-3 <= held_gpu_s <= worked_gpu_s + saved_gpu_s + 1e-3


@settings(max_examples=20, deadline=None)
@given(ARRIVALS, PHYSICS)
def test_the_same_seed_gives_the_same_lives(
    arrivals: list[tuple[float, Draft, float]], physics: Physics
) -> None:
    given_ = scenario(SITES, arrivals)
    assert lived(given_, EVICTING, physics, 3) == lived(given_, EVICTING, physics, 3)


@settings(max_examples=60, deadline=None)
@given(ARRIVALS, PHYSICS)
def test_what_the_federation_forgets_changes_nothing(
    arrivals: list[tuple[float, Draft, float]], physics: Physics
) -> None:
    given_ = scenario(SITES, arrivals)
    found = []
    for after in (1, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_FORGET_AFTER", after)
            options = ReplayOptions(seed=3, audit=True, keep_awards=True)
            fleet = Fleet(given_, Mast(), EVICTING, physics, options)
            found.append((fleet.run(), fleet.awards, fleet.moments))
    assert found[0] == found[1]


def test_a_long_replay_does_not_remember_all_of_its_workloads() -> None:
    given_ = one_site(*((60.0 * k, of("guest"), 30.0) for k in range(1500)))
    fleet = Fleet(given_, Mast(), Rules())
    fleet.run()
    assert len(fleet.federation.ledger.entries) < 600
    assert fleet.awards == []


# ---- what the weather may do at a bad time ----


def test_a_job_whose_nodes_fail_before_it_can_save_never_ends_and_that_is_said() -> None:
    physics = Physics(node_mtbf_s=1000.0, node_repair_s=60.0)
    with pytest.raises(FederatorError, match="1 workloads do not end"):
        lived(one_site((0.0, of("guest"), 30_000.0)), None, physics)


def test_who_waits_for_others_to_leave_does_not_start_on_a_node_that_is_down() -> None:
    physics = Physics(save_s=100.0, node_mtbf_s=3000.0, node_repair_s=400.0)
    rules = Rules(preempt_gpus=64, grace_s=200.0, cooldown_s=0.0)
    for seed in range(20):  # the audit finds what runs on a node that is down
        jobs = [(0.0, of("guest"), 900.0), (5.0, of("guest"), 900.0), (60.0, of("owner", 2), 50.0)]
        lived(one_site(*jobs, nodes=2), rules, physics, seed)


def test_local_jobs_are_no_larger_than_a_node() -> None:
    sites = (SimulatedSite(name=SiteName("alpine"), nodes=tuple(rack("a", 2, gpus=4))),)
    jobs = [(3600.0 * k, of("guest", gpus=4), 600.0) for k in range(24)]
    beside = lived(scenario(sites, jobs), None, Physics(local_load=0.5))
    assert any(life.start_s > arrival[0] for life, arrival in zip(beside, jobs, strict=True))


def test_the_audit_sees_a_node_that_is_used_twice() -> None:
    site = SiteState.of(one_site().sites[0])
    plan = plan_on("a1", gpus=8)
    for number in (1, 2):
        order = LaunchAt(
            site=SiteName("alpine"), attempt=attempt(number), workload=workload(number), jobs=plan
        )
        site.start(site.take(order), 0.0, tracked=False)
    assert site.overused() == "a1"
