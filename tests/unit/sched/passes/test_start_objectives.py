"""Start objectives: owners have their nodes back in time, beyond the budget if it takes that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.errors import InvalidRequest
from federator.model.event import Changed
from federator.model.tenant import Tenancy, Tenant
from federator.model.workload import TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from tests.fakes.build import rack
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_claims import (
    GUEST,
    OWNER,
    RULES,
    RUNS,
    URGENT,
    WAITS,
    WINDOW_S,
    evictions,
    guests_on,
    of,
)

SOON_S = 200.0
LATER_S = 2.5 * WINDOW_S


def fleet(within_s: float, beyond: float = 0.75, rules: Rules = RULES) -> Loopback:
    """Eight nodes of 8 GPUs; the budget of a window is two nodes."""
    owner = replace(OWNER, start_within_s=within_s)
    rules = replace(rules, beyond_budget_frac=beyond)
    return Loopback({"alpine": rack("a", 8)}, rules, None, Mast(), (owner, URGENT, GUEST))


def beyond(f: Loopback) -> list[Changed]:
    return [e for e in evictions(f) if e.beyond_budget]


def wait_of(f: Loopback, id_: WorkloadId, limit_s: float) -> float:
    began_s = f.clock.now_s
    f.run_until(lambda: f.state(id_) is RUNS, limit_s=limit_s)
    return f.clock.now_s - began_s


def test_a_gang_starts_within_its_objective_whatever_the_budget() -> None:
    f = fleet(SOON_S)
    guests = guests_on(f)
    owner = f.submit(of("owner", nodes=6))
    assert wait_of(f, owner, 2 * SOON_S) <= SOON_S
    assert (len(evictions(f)), len(beyond(f))) == (6, 4)
    assert sum(f.state(id_) is RUNS for id_ in guests) == 2


def test_it_goes_beyond_the_budget_only_by_what_the_windows_until_then_lack() -> None:
    f = fleet(LATER_S)  # two nodes at once, and two in each of two windows
    guests_on(f)
    owner = f.submit(of("owner", nodes=6))
    assert wait_of(f, owner, 2 * LATER_S) <= LATER_S
    assert (len(evictions(f)), len(beyond(f))) == (6, 0)
    f = fleet(LATER_S)
    guests_on(f)
    owner = f.submit(of("owner", nodes=7))
    assert wait_of(f, owner, 2 * LATER_S) <= LATER_S
    assert (len(evictions(f)), len(beyond(f))) == (7, 1)


def test_the_fleet_bounds_what_objectives_may_take_in_a_window() -> None:
    f = fleet(SOON_S, beyond=0.25)  # two nodes
    guests_on(f)
    owner = f.submit(of("owner", nodes=8))
    waited_s = wait_of(f, owner, 4 * WINDOW_S)
    times = [e.at_s for e in evictions(f)]
    assert all(sum(t <= u < t + WINDOW_S for u in times) <= 4 for t in times)
    assert WINDOW_S < waited_s <= WINDOW_S + 90.0  # two windows instead of four


def test_the_start_that_is_told_at_first_is_within_the_objective_and_kept() -> None:
    f = fleet(SOON_S)
    guests_on(f)
    owner = f.submit(of("owner", nodes=6))
    f.run_until(lambda: owner in f.federation.ledger.claims, limit_s=10.0)
    claim = f.federation.ledger.claims[owner]
    assert claim.promised_by_s <= claim.since_s + SOON_S
    f.run_until(lambda: f.state(owner) is RUNS, limit_s=SOON_S)
    assert f.clock.now_s <= claim.promised_by_s


def test_an_objective_is_met_when_the_budget_is_spent_already() -> None:
    f = fleet(SOON_S)
    guests_on(f)
    first = f.submit(of("urgent", nodes=2))
    f.run_until(lambda: f.state(first) is RUNS, limit_s=90.0)
    owner = f.submit(of("owner", nodes=2))
    assert wait_of(f, owner, WINDOW_S) <= SOON_S
    assert len(beyond(f)) == 2


def test_what_goes_beyond_the_budget_takes_nothing_from_a_claim_of_higher_priority() -> None:
    f = fleet(SOON_S)
    guests_on(f)
    owner = f.submit(of("owner", nodes=4))
    f.run_until(lambda: bool(beyond(f)), limit_s=60.0)
    urgent = f.submit(of("urgent", nodes=4))
    f.run_until(lambda: f.state(urgent) is RUNS, limit_s=3 * WINDOW_S)
    within = [e.at_s for e in evictions(f) if not e.beyond_budget]
    assert all(sum(t <= u < t + WINDOW_S for u in within) <= 2 for t in within)
    assert {e.winner for e in beyond(f)} == {owner}


def test_who_is_in_its_cooldown_stays_whatever_the_objective() -> None:
    f = fleet(SOON_S)
    guests_on(f)
    first = f.submit(of("owner", nodes=2))
    f.run_until(lambda: f.state(first) is RUNS, limit_s=100.0)
    spared = {e.workload: e.at_s + RULES.cooldown_s for e in evictions(f)}
    f.slurm("alpine").end(f.entry(first).attempt_id)
    f.run_until(lambda: all(f.state(id_) is RUNS for id_ in spared), limit_s=60.0)
    before = len(evictions(f))
    gang = f.submit(of("owner", nodes=8))
    f.run_until(lambda: f.state(gang) is RUNS, limit_s=RULES.cooldown_s + 2 * WINDOW_S)
    again = {e.workload: e.at_s for e in evictions(f)[before:]}
    assert all(again[id_] >= until_s for id_, until_s in spared.items())


def test_nothing_goes_beyond_the_budget_without_an_objective() -> None:
    f = fleet(0.0)
    guests_on(f)
    owner = f.submit(of("owner", nodes=6))
    assert wait_of(f, owner, 3 * WINDOW_S) > WINDOW_S
    assert not beyond(f)


def test_a_victim_that_is_predicted_to_end_in_time_is_left_alone() -> None:
    f = fleet(LATER_S, rules=replace(RULES, preempt_gpus=8.0))  # one node a window
    for name, run_s in (("short", 400.0), ("long", 4000.0)):
        for _ in range(10):  # their like have run for so long, often enough to be known
            id_ = f.submit(of("guest", name=name))
            f.run_for(run_s)
            f.slurm("alpine").end(f.entry(id_).attempt_id)
            f.run_for(10.0)
    short = [f.submit(of("guest", name="short")) for _ in range(4)]
    long = [f.submit(of("guest", name="long")) for _ in range(4)]
    f.run_for(10.0)
    owner = f.submit(of("owner", nodes=8))
    f.run_for(20.0)
    told = {e.workload for e in evictions(f)}
    assert told <= set(long)
    f.run_for(400.0)
    for id_ in short:
        if f.state(id_) is RUNS:
            f.slurm("alpine").end(f.entry(id_).attempt_id)
    f.run_until(lambda: f.state(owner) is RUNS, limit_s=LATER_S)
    assert {e.workload for e in evictions(f)} <= set(long)


def test_what_went_beyond_the_budget_is_remembered_after_a_compaction_and_a_restart() -> None:
    f = fleet(SOON_S, beyond=0.25)
    guests_on(f)
    f.submit(of("owner", nodes=8))
    f.run_until(lambda: len(beyond(f)) == 2, limit_s=30.0)
    f.compact()
    f.restart()
    f.run_for(WINDOW_S / 2)
    ledger = f.federation.ledger
    assert (len(ledger.evictions.within), len(ledger.evictions.beyond)) == (2, 2)


def test_children_have_the_objective_of_the_nearest_above_them() -> None:
    tenancy = Tenancy(
        [
            Tenant(name=TenantName("lab"), start_within_s=900.0),
            Tenant(name=TenantName("team"), parent=TenantName("lab")),
            Tenant(name=TenantName("swift"), parent=TenantName("team"), start_within_s=60.0),
            Tenant(name=TenantName("other")),
        ]
    )
    found = [tenancy.start_within_s(row) for row in range(4)]
    assert found == [900.0, 900.0, 60.0, 0.0]


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_an_objective_is_a_number_of_seconds(seconds: float) -> None:
    with pytest.raises(InvalidRequest, match="start_within_s"):
        Tenant(name=TenantName("lab"), start_within_s=seconds)


def test_work_over_quota_has_no_objective() -> None:
    f = fleet(SOON_S)
    guests_on(f)
    f.submit(of("owner", nodes=8))
    late = f.submit(of("owner", nodes=2))
    f.run_for(WINDOW_S)
    assert f.state(late) is WAITS
    assert late not in {e.winner for e in evictions(f)}
