"""Elastic jobs that run are resized: the whole federation in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from federator.model.event import Changed
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import ControlVerb, DrainAsked, ResumeAsked
from federator.model.reason import ReasonCode
from federator.model.site_mode import SiteMode
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import Job, SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.passes.growth import LOOKS_EVERY_S
from federator.sched.state.rules import Rules
from tests.fakes.build import gang, rack
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_elastic_sizes import (
    OWNER,
    RUNS,
    WAITS,
    elastic,
    fleet,
    nodes,
    rigid,
    started,
)
from tests.unit.sched.passes.test_kept_off import quarantined

COOLDOWN_S = 600.0
RULES = Rules(grace_s=60.0, cooldown_s=COOLDOWN_S, pass_interval_s=30.0)


def small(f: Loopback, *others: WorkloadId) -> WorkloadId:
    """An elastic job of 1 to 4 nodes that runs on two, since two were taken; now these are free."""
    taken = started(f, rigid(2))
    (id_,) = started(f, elastic(1, 4))
    assert nodes(f, id_) == 2
    for each in taken:
        f.slurm("alpine").end(f.entry(each).attempt_id)
    return id_


def resizes(f: Loopback, id_: WorkloadId) -> list[tuple[int, int]]:
    """Of each, the nodes that it had and was to have."""
    changes = [e for e in f.log if isinstance(e, Changed) and e.workload == id_]
    asked = [e.reason for e in changes if e.happening is WorkloadEvent.REQUEUE_ASKED]
    return [(r.free, r.needed) for r in asked if r and r.code is ReasonCode.RESIZED]


def test_it_goes_on_with_more_nodes_when_they_are_idle_and_its_cooldown_is_over() -> None:
    f = fleet(rules=RULES)
    id_ = small(f)
    f.run_for(COOLDOWN_S - 60.0)
    assert nodes(f, id_) == 2
    f.run_for(240.0)
    assert (nodes(f, id_), f.entry(id_).attempt) == (4, 2)
    assert resizes(f, id_) == [(2, 4)]
    assert not len(f.federation.ledger.evictions.within)  # nor has it cost any of the budget


def _less_time(f: Loopback) -> WorkloadId:
    taken = started(f, rigid(2))
    (id_,) = started(f, elastic(1, 4, time_limit_s=COOLDOWN_S + 900.0))
    f.slurm("alpine").end(f.entry(taken[0]).attempt_id)
    return id_


def _somebody_waits(f: Loopback) -> WorkloadId:
    id_ = small(f)
    f.submit(rigid(3))
    return id_


def _may_not_start_again(f: Loopback) -> WorkloadId:
    taken = started(f, rigid(2))
    (id_,) = started(f, elastic(1, 4, requeue=False))
    f.slurm("alpine").end(f.entry(taken[0]).attempt_id)
    return id_


@pytest.mark.parametrize("case", [_less_time, _somebody_waits, _may_not_start_again])
def test_it_stays_as_it_is(case: Callable[[Loopback], WorkloadId]) -> None:
    f = fleet(rules=RULES)
    id_ = case(f)
    f.run_for(COOLDOWN_S + 120.0)
    assert (nodes(f, id_), resizes(f, id_)) == (2, [])


def test_it_grows_again_after_it_has_given_back() -> None:
    f = fleet(rules=RULES)
    taken = started(f, rigid(2))
    (id_,) = started(f, elastic(1, 4, asked=2))
    f.slurm("alpine").end(f.entry(taken[0]).attempt_id)
    f.run_for(COOLDOWN_S + 240.0)
    neighbour = f.submit(rigid(2))
    f.run_for(LOOKS_EVERY_S + 120.0)
    assert (nodes(f, id_), nodes(f, neighbour)) == (2, 2)
    f.slurm("alpine").end(f.entry(neighbour).attempt_id)
    f.run_for(COOLDOWN_S + 240.0)
    assert resizes(f, id_) == [(2, 4), (4, 2), (2, 4)]
    assert nodes(f, id_) == 4


def test_it_grows_no_further_than_its_quota() -> None:
    f = fleet(replace(OWNER, quota=Allowance(gpus=24)), rules=RULES)
    taken = started(f, rigid(1))
    (id_,) = started(f, elastic(1, 4))
    assert nodes(f, id_) == 2
    f.slurm("alpine").end(f.entry(taken[0]).attempt_id)
    f.run_for(COOLDOWN_S + 240.0)
    assert (nodes(f, id_), resizes(f, id_)) == (3, [(2, 3)])


def test_surplus_is_given_back_to_one_that_waits_for_it() -> None:
    f = fleet(rules=RULES)
    (id_,) = started(f, elastic(1, 4, asked=2))
    assert nodes(f, id_) == 4
    neighbour = f.submit(rigid(2))
    f.run_for(LOOKS_EVERY_S + 120.0)
    assert (nodes(f, id_), nodes(f, neighbour)) == (2, 2)
    assert resizes(f, id_) == [(4, 2)]


def test_while_its_site_has_not_told_its_nodes_nothing_is_given_back() -> None:
    """A first report is complete without them where the site's list of nodes was cut off."""
    f = fleet(rules=RULES)
    (id_,) = started(f, elastic(1, 4, asked=2))
    f.submit(rigid(2))
    f.run_for(1.0)
    view = f.federation.sites[SiteName("alpine")]
    known, view.empty = view.empty, None
    f.run_for(LOOKS_EVERY_S + 120.0)
    assert (nodes(f, id_), resizes(f, id_)) == (4, [])
    view.empty = known
    f.run_for(LOOKS_EVERY_S + 120.0)
    assert resizes(f, id_) == [(4, 2)]


def test_for_one_whom_the_surplus_does_not_help_nothing_is_given_back() -> None:
    f = fleet(rules=RULES)
    (id_,) = started(f, elastic(1, 4, asked=2))
    gang_ = f.submit(rigid(3))
    f.run_for(600.0)
    assert (nodes(f, id_), f.state(gang_), resizes(f, id_)) == (4, WAITS, [])


H100 = replace(gang(1, 8), gpu_types=("h100",))
CPU = replace(gang(1, 0), features=("big",))


@pytest.mark.parametrize("job", [H100, CPU])
def test_for_one_who_waits_for_other_nodes_nothing_is_given_back(job: Job) -> None:
    others = (*rack("h", 1, gpu_type="h100"), *rack("c", 1, gpus=0, features=("big",)))
    f = Loopback({"alpine": (*rack("a", 4), *others)}, RULES, None, Mast(), (OWNER,))
    (id_,) = started(f, elastic(1, 4, asked=2))
    assert nodes(f, id_) == 4
    whole = replace(job, cpus_per_node=rack("c", 1)[0].cpus)
    (first,) = started(f, rigid(1, jobs=(whole,)))
    (second,) = started(f, rigid(1, jobs=(whole,)))
    f.run_for(600.0)
    assert (f.state(first), f.state(second)) == (RUNS, WAITS)
    assert resizes(f, id_) == []


def test_for_one_beyond_a_limit_of_its_tenant_nothing_is_given_back() -> None:
    limited = Tenant(name=TenantName("nlp"), priority=3, limit=Allowance(gpus=16))
    f = fleet(OWNER, limited, alpine=6, rules=RULES)
    started(f, rigid(2, tenant=limited.name))
    (id_,) = started(f, elastic(1, 4, asked=2))
    assert nodes(f, id_) == 4
    started(f, rigid(2, tenant=limited.name))
    f.run_for(600.0)
    assert resizes(f, id_) == []


def test_it_gives_back_while_another_leaves_its_site() -> None:
    f = fleet(alpine=5, rules=RULES)
    f.save_s = 50.0
    (other,) = started(f, rigid(1))
    (id_,) = started(f, elastic(1, 4, asked=2))
    assert nodes(f, id_) == 4
    f.submit(rigid(2))
    f.control(ControlVerb.REQUEUE, other)
    f.run_for(LOOKS_EVERY_S + 5.0)
    assert f.state(other) is WorkloadState.PREEMPTING
    assert resizes(f, id_) == [(4, 2)]


def test_two_give_back_one_after_the_other() -> None:
    f = fleet(alpine=8, rules=RULES)
    (one,) = started(f, elastic(1, 4, asked=2))
    (two,) = started(f, elastic(1, 4, asked=2))
    assert (nodes(f, one), nodes(f, two)) == (4, 4)
    (neighbour,) = started(f, rigid(2))
    f.run_for(600.0)
    assert nodes(f, neighbour) == 2
    assert resizes(f, one) + resizes(f, two) == [(4, 2)]


def test_it_gives_back_once_in_a_cooldown() -> None:
    f = fleet(rules=RULES)
    (id_,) = started(f, elastic(1, 4, asked=2))
    first = f.submit(rigid(2))
    while not resizes(f, id_):
        f.run_for(1.0)
    f.cancel(first)
    f.run_for(120.0)
    assert nodes(f, id_) == 4
    second = f.submit(rigid(2))
    f.run_for(120.0)
    assert (f.state(second), resizes(f, id_)) == (WAITS, [(4, 2)])
    f.run_for(COOLDOWN_S)
    assert (nodes(f, second), resizes(f, id_)) == (2, [(4, 2), (4, 2)])


def test_what_it_asked_for_is_given_to_nobody() -> None:
    f = fleet(rules=RULES)
    (id_,) = started(f, elastic(1, 4))
    f.submit(rigid(1))
    f.run_for(600.0)
    assert (nodes(f, id_), f.state(id_), resizes(f, id_)) == (4, RUNS, [])


def test_it_goes_from_two_nodes_to_four_to_one_to_two_over_two_sites() -> None:
    f = fleet(alpine=4, baker=2, rules=RULES)
    taken = started(f, rigid(2))
    assert f.entry(taken[0]).site == "alpine"
    (guest,) = started(f, rigid(1, jobs=(replace(gang(1, 8), nodelist=("b1",)),)))
    (id_,) = started(f, elastic(1, 4))
    sizes = [(f.entry(id_).site, nodes(f, id_))]
    f.slurm("alpine").end(f.entry(taken[0]).attempt_id)
    f.run_for(COOLDOWN_S + 240.0)
    sizes.append((f.entry(id_).site, nodes(f, id_)))
    f.observe(DrainAsked(client=-1, site=SiteName("alpine"), reason="x", by="root", migrate=True))
    f.run_for(COOLDOWN_S / 2)
    sizes.append((f.entry(id_).site, nodes(f, id_)))
    f.observe(ResumeAsked(client=-1, site=SiteName("alpine"), by="root"))
    started(f, rigid(4))
    f.slurm("baker").end(f.entry(guest).attempt_id)
    f.run_for(COOLDOWN_S + 240.0)
    sizes.append((f.entry(id_).site, nodes(f, id_)))
    assert sizes == [("alpine", 2), ("alpine", 4), ("baker", 1), ("baker", 2)]


WATCHED = replace(OWNER, mode=SiteMode.SHADOW)


def test_a_job_whose_tenant_has_stepped_down_runs_on_as_it_is() -> None:
    f = fleet(rules=RULES)
    id_ = small(f)
    f.reload(tenants=(WATCHED,))
    f.run_for(2 * COOLDOWN_S)
    assert (nodes(f, id_), f.entry(id_).attempt) == (2, 1)


def test_what_waits_for_its_tenants_mode_alone_keeps_nobody_small() -> None:
    bio = Tenant(name=TenantName("bio"), priority=3, mode=SiteMode.SHADOW)
    f = fleet(OWNER, bio, rules=RULES)
    f.submit(rigid(1, tenant=bio.name))
    id_ = small(f)
    f.run_for(COOLDOWN_S + 180.0)
    assert (nodes(f, id_), resizes(f, id_)) == (4, [(2, 4)])


def test_it_does_not_grow_onto_slow_nodes() -> None:
    f = fleet(rules=RULES)
    id_ = small(f)
    idle = {"a1", "a2", "a3", "a4"} - {*f.entry(id_).node_names}
    quarantined(f, *idle)
    f.run_for(COOLDOWN_S + 240.0)
    assert (nodes(f, id_), resizes(f, id_)) == (2, [])


def test_slow_nodes_that_are_idle_are_no_room_for_whoever_waits() -> None:
    """It gives nothing back for a gang that would need them beside its surplus."""
    f = fleet(rules=RULES)
    (id_,) = started(f, elastic(1, 3, asked=2))
    assert nodes(f, id_) == 3
    (idle,) = {"a1", "a2", "a3", "a4"} - {*f.entry(id_).node_names}
    quarantined(f, idle)
    f.submit(rigid(2))
    f.run_for(COOLDOWN_S + 240.0)
    assert (nodes(f, id_), resizes(f, id_)) == (3, [])
