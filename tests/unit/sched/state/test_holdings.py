"""What tenants hold, by hand."""

from __future__ import annotations

import pytest

from federator.model.plan import JobPlan
from federator.model.site import NodeShare
from federator.model.tenant import Allowance, Tenancy, Tenant
from federator.model.workload import TenantName
from federator.sched.state.credit import usage_shares
from federator.sched.state.holdings import Charge, Holdings, fits
from federator.sched.state.usage import DecayedAverage, WindowAverage
from tests.fakes.build import plan_on, tenant

LAB, VISION, SPEECH = 0, 1, 2


def lab() -> Tenancy:
    return Tenancy(
        [
            tenant("lab", Allowance(gpus=24, gpu_types={"h100": 8}), limit=32),
            tenant("vision", 16, parent="lab", limit=20),
            tenant("speech", parent="lab"),
        ],
        {"h100": 2.0},
    )


def holdings() -> Holdings:
    return Holdings(lab(), WindowAverage(168.0))


def charge(row: int, gpus: int, cpus: int = 1, h100: int = 0) -> Charge:
    return Charge(row=row, amounts=(gpus, cpus, h100), weighted_gpus=float(gpus))


def test_a_charge_is_what_the_plans_take_on_all_their_nodes() -> None:
    train = JobPlan(
        name="train",
        partition="gpu",
        gpu_types={"h100": 8},
        nodes={"a1": NodeShare(gpus=8, cpus=64)},
    )
    serve = JobPlan(
        name="serve",
        partition="gpu",
        gpu_types={"a100": 4},
        nodes={"a2": NodeShare(gpus=2, cpus=3), "a3": NodeShare(gpus=2)},
    )
    found = holdings().charge_for(VISION, (train, serve))
    assert (found.row, found.amounts) == (VISION, (12, 67, 8))
    assert found.weighted_gpus == 8 * 2.0 + 4


def test_a_charge_is_of_the_resource_that_weighs_most_and_so_is_the_tenants_share() -> None:
    tenancy = Tenancy([tenant("vision", 16), tenant("prep")], {}, 1 / 16, 1 / 128)
    held = Holdings(tenancy, DecayedAverage(3600.0))
    shares = (NodeShare(gpus=8, cpus=8, mem_mib=1024), NodeShare(cpus=384, mem_mib=1024))
    for row, share in enumerate(shares):
        plan = JobPlan(name="j", partition="p", gpu_types={}, nodes={f"a{row}": share})
        held.add(held.charge_for(row, (plan,)), True, 0.0)
    shared = usage_shares(held.averages(7200.0))
    assert shared.tolist() == pytest.approx([8 / 32, 24 / 32])


def test_memory_of_whole_nodes_counts_whatever_was_asked_of_it() -> None:
    held = Holdings(Tenancy([tenant("vision", 16)], {}, 1 / 16, 1 / 128), DecayedAverage(3600.0))
    nodes = {"a1": NodeShare(gpus=1, cpus=16, mem_mib=1024)}
    plan = JobPlan(name="j", partition="p", nodes=nodes, whole_mem_mib=512 * 1024)
    assert held.charge_for(0, (plan,)).weighted_gpus == 4.0
    asked = JobPlan(name="j", partition="p", nodes=nodes)
    assert held.charge_for(0, (plan, asked)).weighted_gpus == pytest.approx(513 / 128)


def test_a_plan_of_an_older_release_without_types_counts_gpus_and_cpus() -> None:
    found = holdings().charge_for(VISION, plan_on("a1", "a2"))
    assert (found.amounts, found.weighted_gpus) == ((16, 2, 0), 16.0)


def test_a_charge_counts_for_the_tenant_and_every_ancestor() -> None:
    held = holdings()
    held.add(charge(VISION, 8, 4, 8), True, 0.0)
    held.add(charge(SPEECH, 2), False, 0.0)
    held.add(charge(LAB, 1), False, 0.0)
    assert [list(held.own(row)) for row in range(3)] == [[1, 1, 0], [8, 4, 8], [2, 1, 0]]
    assert [list(held.used(row)) for row in range(3)] == [[11, 6, 8], [8, 4, 8], [2, 1, 0]]
    assert [list(held.within(row)) for row in range(3)] == [[8, 4, 8], [8, 4, 8], [0, 0, 0]]


def test_a_release_undoes_a_charge() -> None:
    held = holdings()
    for within in (True, False):
        held.add(charge(VISION, 8), within, 0.0)
    held.release(charge(VISION, 8), True, 84.0)
    assert (list(held.used(LAB)), list(held.within(LAB))) == ([8, 1, 0], [0, 0, 0])
    held.release(charge(VISION, 8), False, 84.0)
    assert (list(held.used(LAB)), list(held.own(VISION))) == ([0, 0, 0], [0, 0, 0])
    assert held.averages(168.0).tolist() == [0.0, 8.0, 0.0]  # 16 GPUs for half the window


def test_usage_is_the_tenants_own_and_not_counted_again_for_its_parent() -> None:
    held = holdings()
    held.add(charge(VISION, 8), True, 0.0)
    assert held.averages(168.0).tolist() == [0.0, 8.0, 0.0]


def test_a_charge_keeps_the_quota_until_one_of_the_chain_would_be_passed() -> None:
    held = holdings()
    held.add(charge(VISION, 8), True, 0.0)
    assert held.keeps_quota(charge(VISION, 8))
    assert not held.keeps_quota(charge(VISION, 9))  # 17 of 16
    assert held.keeps_quota(charge(SPEECH, 16))
    assert not held.keeps_quota(charge(SPEECH, 17))  # 25 of the lab's 24
    assert held.keeps_quota(charge(VISION, 8, h100=8))
    assert not held.keeps_quota(charge(VISION, 9 - 1, h100=9))  # 9 h100 of the lab's 8


def test_what_was_borrowed_does_not_count_when_an_award_within_quota_is_made() -> None:
    held = holdings()
    held.add(charge(VISION, 16), False, 0.0)
    assert held.keeps_quota(charge(VISION, 16))


def test_a_tenant_without_any_quota_above_it_keeps_none() -> None:
    assert not Holdings(Tenancy([tenant()]), WindowAverage(1.0)).keeps_quota(
        Charge(row=0, amounts=(0, 0), weighted_gpus=0.0)
    )


def test_the_first_limit_that_would_be_passed_is_named() -> None:
    held = holdings()
    held.add(charge(VISION, 16), False, 0.0)
    assert held.beyond_limit(VISION, (4, 99, 0)) is None
    assert held.beyond_limit(VISION, (5, 99, 0)) == (VISION, 0)  # 21 of 20
    assert held.beyond_limit(SPEECH, (16, 1, 0)) is None
    assert held.beyond_limit(SPEECH, (17, 1, 0)) == (LAB, 0)  # 33 of the lab's 32


def test_a_limit_that_is_passed_already_does_not_hold_back_who_asks_for_none_of_it() -> None:
    held = holdings()
    held.add(charge(VISION, 30), False, 0.0)
    assert held.beyond_limit(VISION, (0, 8, 0)) is None


def test_a_limit_may_be_of_one_gpu_type() -> None:
    only = Tenant(name=TenantName("vision"), limit=Allowance(gpu_types={"h100": 8}))
    held = Holdings(Tenancy([only]), WindowAverage(1.0))
    assert held.beyond_limit(0, (64, 64, 8)) is None
    assert held.beyond_limit(0, (64, 64, 9)) == (0, 2)


def test_a_tenant_met_later_holds_nothing_at_first() -> None:
    held = holdings()
    row = held.tenancy.row(TenantName("stranger"))
    assert list(held.used(row)) == list(held.own(row)) == list(held.within(row)) == [0, 0, 0]
    assert held.averages(1.0).size == 4


def test_what_fits_exactly_fits() -> None:
    assert fits((8, 1), (8, 1), (16, 2))
    assert not fits((8, 1), (9, 1), (16, 2))
    assert not fits((8, 1), (8, 2), (16, 2))
    assert fits((8,), (8,), None)
