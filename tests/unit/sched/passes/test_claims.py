"""Gangs within quota get their nodes back in stages: the whole federation in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from federator.model.draft import Draft
from federator.model.event import Awarded, Changed, Claimed, ClaimEnded
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.reason import ReasonCode
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.passes.vain_claims import AGAIN_S
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

RUNS, WAITS = WorkloadState.RUNNING, WorkloadState.PENDING
WINDOW_S = 300.0
RULES = Rules(preempt_gpus=16, preempt_window_s=WINDOW_S, grace_s=60.0, cooldown_s=600.0)
OWNER = Tenant(name=TenantName("owner"), priority=3, quota=Allowance(gpus=64))
URGENT = Tenant(name=TenantName("urgent"), priority=2, quota=Allowance(gpus=64))
FIRM = Tenant(name=TenantName("firm"), priority=3, quota=Allowance(gpus=32))
GUEST = Tenant(name=TenantName("guest"))


def fleet(rules: Rules = RULES, sites: Sequence[str] = ("alpine",), nodes: int = 8) -> Loopback:
    """Sites of 8-GPU nodes; a window of 300 s has a budget of two nodes."""
    racks = {name: rack(name[0], nodes) for name in sites}
    return Loopback(racks, rules, None, Mast(), (OWNER, URGENT, FIRM, GUEST))


def of(tenant: str, nodes: int = 1, gpus: int = 8, **more: object) -> Draft:
    wanted = draft(gang(nodes, gpus))
    return replace(wanted, tenant=TenantName(tenant), **more)  # type: ignore[arg-type]


def guests_on(f: Loopback, number: int = 8) -> list[WorkloadId]:
    ids = [f.submit(of("guest")) for _ in range(number)]
    f.run_for(10.0)
    assert [f.state(id_) for id_ in ids] == [RUNS] * number
    return ids


def evictions(f: Loopback) -> list[Changed]:
    return [e for e in f.log if isinstance(e, Changed) and e.happening is WorkloadEvent.EVICTED]


def keeps_budget(f: Loopback, gpus: float, each: int = 8) -> bool:
    times = [e.at_s for e in evictions(f)]
    return all(sum(each for t in times if first <= t < first + WINDOW_S) <= gpus for first in times)


def test_a_gang_beyond_the_budget_starts_after_as_many_windows_as_its_victims_need() -> None:
    f = fleet()
    guests = guests_on(f)
    began_s = f.clock.now_s
    owner = f.submit(of("owner", nodes=6))
    f.run_until(lambda: f.state(owner) is RUNS, limit_s=4 * WINDOW_S)
    assert f.clock.now_s - began_s <= 2 * WINDOW_S + 60.0  # 16 GPUs at once, and in each window
    assert keeps_budget(f, 16)
    assert len(evictions(f)) == 6
    assert sum(f.state(id_) is RUNS for id_ in guests) == 2


def test_it_starts_by_the_time_that_was_told_at_first() -> None:
    f = fleet()
    guests_on(f)
    owner = f.submit(of("owner", nodes=6))
    f.run_for(10.0)
    claim = f.federation.ledger.claims[owner]
    (refusal,) = [r for site, r in f.refusals(owner).items() if not site]
    assert refusal.reasons[0].code is ReasonCode.CLAIM
    assert refusal.starts_in_s == pytest.approx(claim.promised_by_s - f.clock.now_s, abs=10)
    f.run_until(lambda: f.state(owner) is RUNS, limit_s=4 * WINDOW_S)
    assert f.clock.now_s <= claim.promised_by_s


def test_nobody_takes_what_has_come_free_for_a_claim() -> None:
    f = fleet()
    guests = guests_on(f)
    owner = f.submit(of("owner", nodes=6))
    late = [f.submit(of("guest", gpus=1)) for _ in range(4)]
    f.run_for(WINDOW_S + 100.0)
    assert [f.state(id_) for id_ in late] == [WAITS] * 4
    assert f.state(owner) is WAITS
    claimed = {n for plan in f.federation.ledger.claims[owner].jobs for n in plan.nodes}
    for id_ in guests:
        if f.state(id_) is RUNS:
            f.slurm("alpine").end(f.entry(id_).attempt_id)  # a natural ending shortens the wait
            break
    f.run_for(20.0)
    busy = {n for id_ in late if f.state(id_) is RUNS for n in f.entry(id_).node_names}
    assert not busy & claimed


def test_a_claimant_that_is_cancelled_gives_its_nodes_back_at_once() -> None:
    f = fleet()
    guests = guests_on(f)
    owner = f.submit(of("owner", nodes=6))
    f.run_for(30.0)
    assert owner in f.federation.ledger.claims
    f.cancel(owner)
    f.run_for(20.0)
    assert not f.federation.ledger.claims
    assert [f.state(id_) for id_ in guests] == [RUNS] * 8


def test_a_claim_outlives_its_daemon_and_a_compaction() -> None:
    f = fleet()
    guests_on(f)
    began_s = f.clock.now_s
    owner = f.submit(of("owner", nodes=6))
    f.run_for(100.0)
    before = f.federation.ledger.claims[owner]
    f.compact()
    f.restart()
    assert f.federation.ledger.claims[owner] == before
    f.run_until(lambda: f.state(owner) is RUNS, limit_s=4 * WINDOW_S)
    assert f.clock.now_s - began_s <= 2 * WINDOW_S + 60.0
    assert keeps_budget(f, 16)


def test_the_budget_is_kept_for_the_oldest_claim() -> None:
    f = fleet()
    guests_on(f)
    gang_ = f.submit(of("owner", nodes=5))
    f.run_for(10.0)
    small = [f.submit(of("owner", gpus=8)) for _ in range(3)]
    f.run_until(lambda: f.state(gang_) is RUNS, limit_s=4 * WINDOW_S)
    first = [e.winner for e in evictions(f)][:4]
    assert set(first) == {gang_}
    assert keeps_budget(f, 16)
    f.run_for(4 * WINDOW_S)
    assert [f.state(id_) for id_ in small] == [RUNS] * 3


def test_a_claim_never_delays_a_workload_of_a_higher_priority() -> None:
    f = fleet()
    guests_on(f)
    owner = f.submit(of("owner", nodes=6))
    f.run_for(100.0)  # two nodes have come free for it
    urgent = f.submit(of("urgent", nodes=2))
    f.run_for(10.0)
    assert f.state(urgent) is RUNS
    f.run_until(lambda: f.state(owner) is RUNS, limit_s=6 * WINDOW_S)
    assert keeps_budget(f, 16)


def test_two_claims_are_served_one_after_the_other() -> None:
    f = fleet(sites=("alpine", "cedar"))
    guests_on(f, 16)
    owners = [f.submit(of("owner", nodes=4)) for _ in range(2)]
    f.run_for(10.0)
    assert set(f.federation.ledger.claims) == set(owners)
    f.run_until(lambda: all(f.state(id_) is RUNS for id_ in owners), limit_s=6 * WINDOW_S)
    assert len(evictions(f)) == 8
    assert keeps_budget(f, 16)


def test_a_claim_moves_when_its_site_is_gone() -> None:
    f = fleet(sites=("alpine", "cedar"))
    guests_on(f, 16)
    owner = f.submit(of("owner", nodes=6))
    f.run_for(10.0)
    first = f.federation.ledger.claims[owner].site
    f.site_down(first)
    f.run_until(lambda: f.state(owner) is RUNS, limit_s=8 * WINDOW_S)
    assert f.entry(owner).site != first


def test_a_gang_for_which_nobody_may_go_has_no_claim() -> None:
    f = fleet()
    firm = [f.submit(of("firm", no_preempt=True)) for _ in range(4)]
    f.run_for(10.0)
    guests = guests_on(f, 4)
    owner = f.submit(of("owner", nodes=6))
    f.run_for(2 * WINDOW_S)
    assert f.state(owner) is WAITS
    assert not evictions(f)
    assert owner not in f.federation.ledger.claims
    assert [f.state(id_) for id_ in (*firm, *guests)] == [RUNS] * 8


def test_a_victim_larger_than_the_budget_of_a_window_takes_that_of_as_many_windows() -> None:
    """It was never evicted, so small ones were, again and again, or the owner waited for ever."""
    f = fleet(sites=("alpine", "cedar"))
    large = [f.submit(of("guest", nodes=8)) for _ in range(2)]
    f.run_until(lambda: all(f.state(id_) is RUNS for id_ in large), limit_s=30.0)
    began_s = f.clock.now_s
    owner = f.submit(of("owner", nodes=4))
    f.run_until(lambda: f.state(owner) is RUNS, limit_s=90.0)
    assert len(evictions(f)) == 1  # 64 GPUs at once, of a budget of 16
    other = f.submit(of("owner", nodes=4))  # where the guest was
    f.run_until(lambda: f.state(other) is RUNS, limit_s=30.0)
    for id_ in (owner, other):
        f.slurm(f.entry(id_).site).end(f.entry(id_).attempt_id)
    f.run_until(lambda: sum(f.state(id_) is RUNS for id_ in large) == 2, limit_s=60.0)
    urgent = f.submit(of("urgent", nodes=4))
    f.run_until(lambda: f.state(urgent) is RUNS, limit_s=5 * WINDOW_S)
    assert f.clock.now_s >= began_s + 4 * WINDOW_S


def test_a_large_victim_goes_last_as_it_is_paid_for_afterwards() -> None:
    f = fleet()
    large = f.submit(of("guest", nodes=4))
    f.run_for(10.0)
    guests_on(f, 4)
    owner = f.submit(of("owner", nodes=6))
    f.run_for(10.0)
    promised_by_s = f.federation.ledger.claims[owner].promised_by_s
    f.run_until(lambda: f.state(owner) is RUNS, limit_s=4 * WINDOW_S)
    assert f.clock.now_s <= promised_by_s
    gone = [e.workload for e in evictions(f)]
    assert (len(gone), gone[-1]) == (3, large)


def test_a_claim_behind_one_with_a_large_victim_is_not_promised_too_much() -> None:
    """Its small victim was reckoned to go first; but a claim is served before those after it."""
    f = fleet(sites=("alpine", "cedar"), nodes=4)
    large = f.submit(of("guest", nodes=4))
    f.run_for(10.0)
    guests_on(f, 4)
    f.submit(of("owner"))  # takes half of the budget of the first window
    f.run_for(10.0)
    first = f.submit(of("owner", nodes=4))
    f.run_for(10.0)
    second = f.submit(of("owner"))
    f.run_for(10.0)
    claims = f.federation.ledger.claims
    assert claims[first].victims == (large,)
    promised_by_s = claims[second].promised_by_s
    f.run_until(lambda: f.state(second) is RUNS, limit_s=5 * WINDOW_S)
    assert f.clock.now_s <= promised_by_s


def test_a_gang_that_comes_while_its_victims_are_being_started_is_tried_again() -> None:
    """They may not be evicted yet, and no pass was due when they may be: it waited for 300 s."""
    f = fleet()
    guests = [f.submit(of("guest")) for _ in range(8)]
    f.run_until(lambda: all(f.state(id_) is not WAITS for id_ in guests), limit_s=10.0)
    assert sum(f.state(id_) is RUNS for id_ in guests) == 4
    owner = f.submit(of("owner", nodes=6))
    f.run_until(lambda: owner in f.federation.ledger.claims, limit_s=AGAIN_S + 5.0)


def test_a_shape_that_is_to_be_tried_again_while_the_budget_is_spent_causes_no_passes() -> None:
    """The time at which it was due stayed, and a pass followed the other at one instant."""
    f = fleet()
    for _ in range(4):
        f.submit(of("guest"))
    f.run_for(30.0)
    starting = [f.submit(of("guest")) for _ in range(4)]
    f.run_until(lambda: all(f.state(id_) is not WAITS for id_ in starting), limit_s=10.0)
    urgent = f.submit(of("urgent", nodes=8))  # it finds too few that may be evicted yet
    owners = [f.submit(of("owner")) for _ in range(2)]
    f.run_for(AGAIN_S + 30.0)
    assert [f.state(id_) for id_ in (urgent, *owners)] == [WAITS, RUNS, RUNS]
    assert f.federation.eviction_budget(f.clock.now_s)[1] == 0.0


def test_who_is_over_quota_has_no_claim() -> None:
    f = fleet(nodes=10)
    guests_on(f, 10)
    owner = f.submit(of("owner", nodes=9))
    f.run_for(2 * WINDOW_S)
    assert f.state(owner) is WAITS
    assert not [e for e in f.log if isinstance(e, Claimed)]


def test_an_award_ends_the_claim_without_a_word() -> None:
    f = fleet()
    guests_on(f)
    owner = f.submit(of("owner", nodes=6))
    f.run_until(lambda: f.state(owner) is RUNS, limit_s=4 * WINDOW_S)
    assert not f.federation.ledger.claims
    assert not [e for e in f.log if isinstance(e, ClaimEnded)]
    award = [e for e in f.log if isinstance(e, Awarded)][-1]
    assert award.site == SiteName("alpine")
    assert f.replayed().claims == {}


def test_no_claim_is_made_where_an_older_agent_would_give_its_nodes_away() -> None:
    f = fleet()
    guests = guests_on(f)
    agent = f.sites[SiteName("alpine")].agent
    assert agent is not None
    agent.keeps_claims = False
    owner = f.submit(of("owner", nodes=6))
    f.run_for(2 * WINDOW_S)
    assert (f.state(owner), evictions(f)) == (WAITS, [])
    assert [f.state(id_) for id_ in guests] == [RUNS] * 8


def test_a_victim_that_has_come_within_its_quota_is_not_evicted_any_more() -> None:
    f = fleet()
    firm = [f.submit(of("firm")) for _ in range(8)]  # four within quota, four beyond it
    f.run_for(10.0)
    owner = f.submit(of("owner", nodes=4))
    f.run_for(20.0)
    assert len(evictions(f)) == 2  # of the four victims
    remaining = [id_ for id_ in f.federation.ledger.claims[owner].victims if f.state(id_) is RUNS]
    assert len(remaining) == 2
    ended = [id_ for id_ in firm if f.state(id_) is RUNS and id_ not in remaining][:2]
    for id_ in ended:  # so the other two are within quota now, and there is room as well
        f.slurm("alpine").end(f.entry(id_).attempt_id)
    f.run_for(2 * WINDOW_S)
    assert f.state(owner) is RUNS
    assert len(evictions(f)) == 2


def test_a_claim_whose_victims_may_not_go_any_more_ends_and_frees_its_nodes() -> None:
    f = fleet()
    guests = guests_on(f)
    owner = f.submit(of("owner", nodes=6))
    f.run_for(20.0)
    assert owner in f.federation.ledger.claims
    urgent = [f.submit(of("urgent", nodes=4)) for _ in range(2)]  # all that is evictable goes there
    f.run_for(8 * WINDOW_S)
    assert [f.state(id_) for id_ in urgent] == [RUNS, RUNS]
    assert (f.state(owner), f.federation.ledger.claims) == (WAITS, {})
    assert not any(f.state(id_) is RUNS for id_ in guests)
    assert keeps_budget(f, 16)


@pytest.mark.parametrize("throttle", [1, 2])
def test_tasks_that_run_or_have_a_claim_are_no_more_than_the_throttle(throttle: int) -> None:
    """Seed 300301: a task whose like were refused everywhere got a claim, and ran as the third."""
    f = fleet()
    guests_on(f)
    wanted = of("owner", nodes=3, array_indices=(0, 1, 2, 3), array_max_running=throttle)
    first = f.submit(wanted)
    ids = [WorkloadId(first + k) for k in range(4)]
    most = 0
    for _ in range(80):
        f.run_for(20.0)
        running = [id_ for id_ in ids if f.state(id_) is RUNS]
        assert len(running) + len(f.federation.ledger.claims) <= throttle
        most = max(most, len(running))
        if len(running) == throttle:  # the next one may
            f.slurm("alpine").end(f.entry(running[0]).attempt_id)
    assert most == throttle
    assert WAITS not in {f.state(id_) for id_ in ids}


def test_a_claim_waits_for_the_end_of_a_cooldown_and_nobody_takes_the_rest_meanwhile() -> None:
    """Small guests, of whom one or another was always spared, kept a gang waiting for hours."""
    f = fleet()
    guests_on(f)
    first = f.submit(of("owner", nodes=2))
    f.run_until(lambda: f.state(first) is RUNS, limit_s=100.0)
    spared = {e.workload: e.at_s + RULES.cooldown_s for e in evictions(f)}
    assert len(spared) == 2
    f.slurm("alpine").end(f.entry(first).attempt_id)
    f.run_until(lambda: all(f.state(id_) is RUNS for id_ in spared), limit_s=60.0)
    before = len(evictions(f))
    gang_ = f.submit(of("owner", nodes=8))  # all must go, also those two
    f.run_until(lambda: gang_ in f.federation.ledger.claims, limit_s=1.5 * WINDOW_S)
    assert f.clock.now_s < min(spared.values())
    claim = f.federation.ledger.claims[gang_]
    assert set(spared) <= set(claim.victims)
    f.run_until(lambda: f.state(gang_) is RUNS, limit_s=6 * WINDOW_S)
    assert f.clock.now_s <= claim.promised_by_s
    gone = {e.workload: e.at_s for e in evictions(f)[before:]}
    assert all(gone[id_] >= until_s for id_, until_s in spared.items())
    assert len(gone) == 8
    assert keeps_budget(f, 16)


def test_room_that_is_kept_for_a_guest_stands_in_no_claim_s_way() -> None:
    """An evicted guest with a time limit waits where it ran, and has room kept there."""
    owner = replace(OWNER, start_within_s=36_000.0)  # so that it may claim in a spent window
    f = Loopback({"alpine": rack("a", 8)}, RULES, None, Mast(), (owner, GUEST))
    guests_on(f)
    first = f.submit(of("owner", nodes=2))
    f.run_until(lambda: f.state(first) is RUNS, limit_s=100.0)
    f.slurm("alpine").end(f.entry(first).attempt_id)
    f.run_for(10.0)
    gang_ = f.submit(of("owner", nodes=8))
    f.run_until(lambda: f.state(gang_) is RUNS, limit_s=6 * WINDOW_S)
    assert not [e for e in f.log if isinstance(e, ClaimEnded)]
    assert keeps_budget(f, 16)


def test_room_that_is_kept_for_its_equal_stands_in_a_claimant_s_way() -> None:
    """A large gang waits for a job that ends soon; a small one behind it would end later."""
    owner = replace(OWNER, quota=Allowance(gpus=512))
    f = Loopback({"alpine": rack("a", 8)}, RULES, None, Mast(), (owner, FIRM))
    f.submit(of("firm", time_limit_s=600.0, no_preempt=True))
    f.run_for(10.0)
    gang_ = f.submit(of("owner", nodes=8, time_limit_s=60.0))
    f.run_for(10.0)
    long = f.submit(of("owner", time_limit_s=1_800.0))
    f.run_for(60.0)
    assert (f.state(gang_), f.state(long)) == (WAITS, WAITS)
    (refusal,) = f.entry(long).refusals.values()
    assert refusal.reasons[0].code is ReasonCode.RESERVED


@pytest.mark.parametrize("restarts", [False, True])
def test_claims_end_when_nobody_may_be_evicted_any_more(*, restarts: bool) -> None:
    f = fleet(replace(RULES, cooldown_s=0.0))
    guests = guests_on(f)
    owner = f.submit(of("owner", nodes=6))
    f.run_for(10.0)
    (claim,) = f.federation.ledger.claims.values()
    f.reload(rules=replace(RULES, preempt_gpus=0.0))
    if restarts:  # with a claim that an earlier build left in the log
        f.log.append(claim)
        f.restart()
        assert f.federation.ledger.claims
        f.run_for(60.0)
    assert not f.federation.ledger.claims
    for id_ in guests:
        if f.live_jobs(id_):
            f.slurm("alpine").end(f.entry(id_).attempt_id)
    f.run_until(lambda: f.state(owner) is RUNS, limit_s=200.0)
