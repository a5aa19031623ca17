"""No more victims save at a time in a region than its storage takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from federator.model.lifecycle import WorkloadState
from federator.model.reason import ReasonCode
from federator.model.tenant import Allowance
from federator.model.workload import SiteName
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
    evictions,
    guests_on,
    of,
)

MOST = 2
BOUND = replace(RULES, preempt_gpus=128, max_saves_per_region=MOST)
ONE_REGION = {SiteName("alpine"): "west", SiteName("cedar"): "west"}
TWO_REGIONS = {SiteName("alpine"): "west", SiteName("cedar"): "east"}


def fleet(rules: Rules = BOUND, sites: tuple[str, ...] = ("alpine",)) -> Loopback:
    """Sites of eight nodes; the budget would let all guests go at once."""
    owners = [replace(owner, quota=Allowance(gpus=128)) for owner in (OWNER, URGENT)]
    racks = {name: rack(name[0], 8) for name in sites}
    return Loopback(racks, rules, None, Mast(), (*owners, GUEST))


def most_at_once(f: Loopback, seconds: float, regions: Mapping[SiteName, str]) -> int:
    """The most that save at the same time in one region meanwhile."""
    most = 0
    for _ in range(int(seconds)):
        f.run_for(1.0)
        saving = [e.site for e in f.federation.ledger.in_state(WorkloadState.PREEMPTING)]
        by_region = [regions.get(site, "") for site in saving]
        most = max([most, *(by_region.count(region) for region in by_region)])
    return most


def test_victims_of_a_gang_leave_a_few_at_a_time() -> None:
    f = fleet()
    guests_on(f)
    owner = f.submit(of("owner", nodes=6))
    f.run_for(0.5)
    claim = f.federation.ledger.claims[owner]
    (refusal,) = [r for site, r in f.refusals(owner).items() if not site]
    assert refusal.reasons[0].code is ReasonCode.CLAIM
    assert most_at_once(f, 250.0, {}) == MOST
    assert f.state(owner) is RUNS
    assert len(evictions(f)) == 6
    assert f.entry(owner).started_at_s <= claim.promised_by_s


def test_without_a_bound_all_of_them_save_at_once() -> None:
    f = fleet(replace(BOUND, max_saves_per_region=0))
    guests_on(f)
    f.submit(of("owner", nodes=6))
    assert most_at_once(f, 80.0, {}) == 6


@pytest.mark.parametrize(("regions", "in_all"), [(ONE_REGION, MOST), (TWO_REGIONS, 2 * MOST)])
def test_sites_of_one_region_share_the_bound(regions: Mapping[SiteName, str], in_all: int) -> None:
    f = fleet(replace(BOUND, regions=regions), ("alpine", "cedar"))
    guests_on(f, 16)
    owners = [f.submit(of(name, nodes=8)) for name in ("owner", "urgent")]
    f.run_for(0.5)
    assert most_at_once(f, 60.0, {}) == in_all
    assert [f.state(id_) for id_ in owners] == [RUNS, RUNS]
    assert len(evictions(f)) == 16


def test_a_region_s_claim_does_not_wait_for_the_saves_of_another_region() -> None:
    f = fleet(replace(BOUND, regions=TWO_REGIONS), ("alpine", "cedar"))
    guests_on(f, 16)
    for name in ("owner", "urgent"):
        f.submit(of(name, nodes=8))
    ledger = f.federation.ledger
    while len(evictions(f)) < 16:
        f.run_for(0.25)
        saving = [e.site for e in ledger.in_state(WorkloadState.PREEMPTING)]
        assert [saving.count(site) for site in TWO_REGIONS] == [MOST, MOST]


def test_small_ones_that_need_a_victim_each_wait_for_their_turn() -> None:
    f = fleet()
    guests_on(f)
    owners = [f.submit(of("owner")) for _ in range(6)]
    assert most_at_once(f, 300.0, {}) == MOST
    assert [f.state(id_) for id_ in owners] == [RUNS] * 6
