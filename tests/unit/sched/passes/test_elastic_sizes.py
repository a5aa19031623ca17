"""On how many nodes elastic jobs start: the whole federation in virtual time."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from msgspec import structs

from federator.model.draft import Draft
from federator.model.lifecycle import WorkloadState
from federator.model.message import DrainAsked
from federator.model.plan import Bid
from federator.model.reason import ReasonCode
from federator.model.score import Score
from federator.model.site_message import SiteAnswer
from federator.model.site_mode import SiteMode
from federator.model.sizes import MOST_TRIED
from federator.model.submission import NodeRange
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import Job, SiteName, TenantName, Workload, WorkloadId
from federator.policies.mast import Mast
from federator.sched.bid import bids
from federator.sched.bid.workload_plan import place_all
from federator.sched.passes import elastic_sizes
from federator.sched.passes.bid_validation import Validation
from federator.sched.passes.elastic_sizes import allowed_sizes, is_covered
from federator.sched.state.holdings import Holdings
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, plan_on, rack
from tests.fakes.loopback import Loopback

RUNS, WAITS = WorkloadState.RUNNING, WorkloadState.PENDING
VISION = TenantName("vision")
OWNER = Tenant(name=VISION, priority=3, quota=Allowance(gpus=640))


def fleet(*tenants: Tenant, rules: Rules | None = None, **nodes: int) -> Loopback:
    """Sites of 8-GPU nodes: alpine with 4 unless it is said."""
    sites = {name: rack(name[0], count) for name, count in (nodes or {"alpine": 4}).items()}
    return Loopback(sites, rules or Rules(), None, Mast(), tenants or (OWNER,))


def rigid(nodes: int, **more: object) -> Draft:
    wanted = replace(draft(gang(nodes, 8)), tenant=VISION, time_limit_s=36_000.0)
    return replace(wanted, **more)  # type: ignore[arg-type]


def elastic(least: int, most: int, asked: int = 0, step: int = 1, **more: object) -> Draft:
    sizes = NodeRange(least=least, most=most, step=step, asked=asked or most)
    return rigid(least, elastic=sizes, **more)


def nodes(f: Loopback, id_: WorkloadId) -> int:
    return len(f.entry(id_).node_names) if f.state(id_) is RUNS else 0


def started(f: Loopback, *drafts: Draft) -> list[WorkloadId]:
    ids = [f.submit(each) for each in drafts]
    f.run_for(10.0)
    return ids


@pytest.mark.parametrize(("taken", "got"), [(0, 4), (1, 3), (3, 1), (4, 0)])
def test_it_starts_on_as_many_nodes_as_are_free(taken: int, got: int) -> None:
    f = fleet()
    started(f, *[rigid(1)] * taken)
    (id_,) = started(f, elastic(1, 4))
    assert nodes(f, id_) == got


def test_what_waits_for_its_tenants_mode_alone_is_in_nobodys_way() -> None:
    bio = Tenant(name=TenantName("bio"), priority=3, mode=SiteMode.SHADOW)
    f = fleet(OWNER, bio)
    f.submit(rigid(1, tenant=bio.name))
    (id_,) = started(f, elastic(1, 4, asked=2))
    assert nodes(f, id_) == 4


def test_it_takes_whole_steps_only() -> None:
    f = fleet()
    started(f, rigid(1))
    (id_,) = started(f, elastic(2, 4, step=2))
    assert nodes(f, id_) == 2


def test_it_is_charged_for_the_size_that_it_takes() -> None:
    f = fleet()
    started(f, rigid(2))
    (id_,) = started(f, elastic(1, 4))
    charge = f.entry(id_).charge
    assert charge is not None
    assert charge.amounts[0] == 16
    assert f.entry(id_).award is not None


def test_it_takes_more_than_it_asked_for_only_while_nobody_waits() -> None:
    f = fleet()
    (alone,) = started(f, elastic(1, 4, asked=2))
    assert nodes(f, alone) == 4
    f = fleet()
    first, neighbour = started(f, elastic(1, 4, asked=2), rigid(2))
    assert (nodes(f, first), nodes(f, neighbour)) == (2, 2)


def test_behind_a_gang_that_waits_it_takes_no_node_that_is_kept_for_it() -> None:
    """A rigid job starts no later than behind a rigid job of the size that was asked for."""
    f = fleet()
    (runs,) = started(f, rigid(2, time_limit_s=600.0))
    gang_, id_ = started(f, rigid(4), elastic(1, 4, time_limit_s=3600.0))
    assert (f.state(gang_), f.state(id_)) == (WAITS, WAITS)
    f.slurm("alpine").end(f.entry(runs).attempt_id)
    f.run_for(30.0)
    assert (nodes(f, gang_), nodes(f, id_)) == (4, 0)


def test_it_takes_no_size_beyond_its_quota() -> None:
    f = fleet(replace(OWNER, quota=Allowance(gpus=16)))
    (id_,) = started(f, elastic(1, 4))
    assert nodes(f, id_) == 2
    award = f.entry(id_).award
    assert award is not None
    assert award.within_quota


def test_it_takes_no_size_beyond_a_limit() -> None:
    f = fleet(replace(OWNER, limit=Allowance(gpus=24)))
    (id_,) = started(f, elastic(1, 4))
    assert nodes(f, id_) == 3


@pytest.mark.parametrize(("quota", "largest"), [(inf, 65_536), (8_000, 1_000), (8, None)])
def test_of_a_range_without_end_few_sizes_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, quota: float, largest: int | None
) -> None:
    f = fleet(replace(OWNER, quota=Allowance(gpus=quota)))
    id_ = f.submit(elastic(1, 65_536))
    looked: list[int] = []

    def counted(workload: Workload, size: int, holdings: Holdings, *, within: bool) -> bool:
        looked.append(size)
        return is_covered(workload, size, holdings, within=within)

    monkeypatch.setattr(elastic_sizes, "is_covered", counted)
    ledger = f.federation.ledger
    for alone in (True, False):
        found = allowed_sizes(
            ledger.entries[id_].workload, ledger.holdings, within=True, alone=alone
        )
        assert next(iter(found), None) == largest
        assert len(found) <= MOST_TRIED + 2
        assert list(found) == sorted(set(found), reverse=True)
    assert len(looked) < 50


def test_no_site_plans_a_size_that_is_larger_than_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    f = fleet()
    planned: list[int] = []

    def placed(jobs: tuple[Job, ...], *more: Any) -> object:
        planned.append(jobs[0].nodes or 0)
        return place_all(jobs, *more)

    monkeypatch.setattr(bids, "place_all", placed)
    (id_,) = started(f, elastic(1, 8))
    assert (nodes(f, id_), max(planned)) == (4, 4)


def test_one_of_a_record_without_the_size_that_it_asked_for_keeps_its_nodes() -> None:
    f = fleet()
    (id_,) = started(f, rigid(2, elastic=NodeRange(least=1, most=4)))
    assert nodes(f, id_) == 2


def test_two_that_start_in_one_pass_stay_within_quota_together() -> None:
    f = fleet(replace(OWNER, quota=Allowance(gpus=32)), alpine=8)
    ids = started(f, elastic(1, 3), elastic(1, 3))
    f.run_for(900.0)
    assert all(a.within_quota for id_ in ids if (a := f.entry(id_).award) is not None)
    assert [nodes(f, id_) for id_ in ids] == [3, 1]


def test_of_two_sites_the_one_with_more_nodes_for_it_is_taken() -> None:
    f = fleet(alpine=2, baker=3)
    (id_,) = started(f, elastic(1, 4))
    assert (f.entry(id_).site, nodes(f, id_)) == ("baker", 3)


def test_while_it_waits_its_refusal_speaks_of_its_least_size() -> None:
    f = fleet(alpine=2)
    started(f, rigid(1))
    (id_,) = started(f, elastic(2, 8))
    (reason,) = f.entry(id_).refusals[SiteName("alpine")].reasons
    assert (reason.code, reason.needed) == (ReasonCode.RESOURCES, 2)


def test_after_its_site_is_drained_it_goes_on_at_the_size_that_fits_elsewhere() -> None:
    f = fleet(alpine=4, baker=2, rules=Rules(preempt_gpus=64))
    (id_,) = started(f, elastic(1, 4))
    assert (f.entry(id_).site, nodes(f, id_)) == ("alpine", 4)
    f.observe(DrainAsked(client=-1, site=SiteName("alpine"), reason="x", by="root", migrate=True))
    f.run_for(400.0)
    assert (f.entry(id_).site, nodes(f, id_)) == ("baker", 2)


@pytest.mark.parametrize(("planned", "sound"), [(2, True), (4, True), (3, False), (6, False)])
def test_a_plan_of_another_size_is_not_believed(planned: int, sound: bool) -> None:
    (job,) = elastic(2, 4).jobs
    names = [f"a{k}" for k in range(planned)]
    bid = Bid(score=Score(), jobs=plan_on(*names, job=job.name))
    came = SiteAnswer(id=WorkloadId(1), bid=bid)
    (said,) = Validation().validated([came], lambda _: (job,), lambda _: (4,))
    assert (said.bid is not None) is sound
    assert structs.replace(said, refusal=None).id == 1
