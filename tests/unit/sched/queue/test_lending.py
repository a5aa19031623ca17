"""The GPUs that may be lent, as SIA has it: idle, less what owners are expected to want."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from federator.model.event import Awarded, QuotaLoan, Submitted
from federator.model.lending import LendingDecision, LendingPlan, LoadForecast
from federator.model.quota_loan import LoanStep
from federator.model.reason import ReasonCode
from federator.model.tenant import Allowance, Tenancy, Tenant
from federator.model.workload import FIRST_WORKLOAD_ID, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.queue.lending import Idle, LendingRoom
from federator.sched.state.ledger import Ledger
from tests.fakes.build import attempt, draft, gang, plan_on, tenant

NOW_S = 1000.0
VISION, NLP = TenantName("vision"), TenantName("nlp")


def plan(new_gpus: Mapping[str, Sequence[int]], off: Sequence[str] = ()) -> LendingPlan:
    """For 5 minutes and an hour; keys are TENANT or TENANT:TYPE."""
    return LendingPlan(
        made_at_s=NOW_S,
        expires_at_s=NOW_S + 900,
        windows_s=(300.0, 3600.0),
        forecasts=tuple(
            LoadForecast(
                tenant=key.partition(":")[0],
                gpu_type=key.partition(":")[2],
                new_gpus=tuple(gpus),
                off=(False, True) if key in off else (),
            )
            for key, gpus in new_gpus.items()
        ),
    )


def room(
    ledger: Ledger, plan_: LendingPlan | None, idle: int, reclaimable: float = 0.0
) -> LendingRoom:
    resources = len(ledger.tenancy.resources)
    Mast().rank(ledger, NOW_S).listed()  # scans the quotas
    return LendingRoom(ledger, plan_, lambda: Idle([idle] * resources, reclaimable), NOW_S)


def two_owners() -> Ledger:
    return Ledger(Tenancy([tenant("vision", 16), tenant("nlp", 16)]))


QUIET = {"vision": (0, 8), "nlp": (0, 0)}


def submit(ledger: Ledger, number: int, gpus: int, owner: str) -> WorkloadId:
    id_ = WorkloadId(FIRST_WORKLOAD_ID + number)
    wanted = draft(gang(1, gpus), tenant=owner)
    ledger.apply(Submitted(at_s=1.0, draft=wanted, first_id=id_, key=f"k{number}"))
    return id_


def run(ledger: Ledger, number: int, gpus: int, owner: str, lent: bool = False) -> None:
    submit(ledger, number, gpus, owner)
    ledger.apply(
        Awarded(
            at_s=2.0,
            attempt=attempt(number),
            site="alpine",
            jobs=plan_on(f"a{number}", gpus=gpus),
            within_quota=not lent,
            lending=LendingDecision(owners={}) if lent else None,
        )
    )


def test_the_forecast_of_each_window_is_kept_for_the_owner() -> None:
    assert room(two_owners(), plan(QUIET), idle=32).usable_gpus() == [32, 24]


def test_waiting_work_within_quota_is_kept_room_for_but_no_more_than_quota_is_left() -> None:
    ledger = two_owners()
    submit(ledger, 0, 8, "nlp")
    submit(ledger, 1, 8, "nlp")
    submit(ledger, 2, 8, "nlp")  # over quota
    assert room(ledger, plan(QUIET), idle=32).usable_gpus() == [16, 8]
    run(ledger, 3, 8, "nlp")
    assert room(ledger, plan(QUIET), idle=24).usable_gpus() == [16, 8]


def test_a_load_beyond_the_quota_is_kept_no_room_for() -> None:
    assert room(two_owners(), plan({"vision": (99, 99), "nlp": (0, 0)}), 32).usable_gpus() == [
        16,
        16,
    ]


def test_an_owner_without_a_forecast_or_with_one_that_is_off_keeps_all() -> None:
    assert room(two_owners(), plan({"nlp": (0, 0)}), idle=32).usable_gpus() == [16, 16]
    off = plan({"vision": (0, 0), "nlp": (0, 0)}, off=["nlp"])
    assert room(two_owners(), off, idle=32).usable_gpus() == [32, 16]


def test_lent_work_takes_nothing_from_its_own_tenants_quota() -> None:
    ledger = two_owners()
    run(ledger, 0, 8, "nlp", lent=True)
    row = ledger.tenancy.row(NLP)
    assert ledger.holdings.counted(row)[0] == 0
    assert ledger.holdings.used(row)[0] == 8
    # 24 are idle; nlp may want all of its 16 yet.
    assert room(ledger, plan({"vision": (0, 0), "nlp": (16, 16)}), 24).usable_gpus() == [8, 8]


def test_a_parents_quota_bounds_what_is_kept_for_those_below() -> None:
    children = [tenant("vision", 16, parent="org"), tenant("nlp", 16, parent="org")]
    ledger = Ledger(Tenancy([tenant("org", 20), *children]))
    busy = {"org": (0, 0), "vision": (16, 16), "nlp": (16, 16)}
    assert room(ledger, plan(busy), idle=40).usable_gpus() == [20, 20]
    del busy["nlp"]  # nobody knows: all of its quota, and no more than of the parent's is left
    assert room(ledger, plan(busy | {"vision": (2, 2)}), idle=40).usable_gpus() == [22, 22]


def test_a_child_without_a_quota_of_its_own_may_want_its_parents() -> None:
    ledger = Ledger(Tenancy([tenant("org", 20), tenant("vision", parent="org")]))
    quiet = {"org": (0, 0), "vision": (4, 4)}
    assert room(ledger, plan(quiet), idle=40).usable_gpus() == [36, 36]
    assert room(ledger, plan({"org": (0, 0)}), idle=40).usable_gpus() == [20, 20]


def test_a_gpu_type_with_a_quota_is_kept_as_well() -> None:
    owner = Tenant(name=VISION, quota=Allowance(gpus=16, gpu_types={"h100": 8}))
    ledger = Ledger(Tenancy([owner]))
    quiet = plan({"vision": (0, 8), "vision:h100": (0, 8)})
    found = room(ledger, quiet, idle=16)  # all of them h100, as it were
    assert found.decide((8, 1, 8), 300.0).held is None
    held = found.decide((12, 1, 12), 3600.0).held
    assert held is not None
    assert (held.code, held.needed, held.free) == (ReasonCode.KEPT, 12, 8)
    assert found.decide((8, 1, 0), 3600.0).held is None  # of another type


def test_guests_that_can_be_had_back_shrink_the_reserve() -> None:
    busy = plan({"vision": (16, 16), "nlp": (0, 16)})
    assert room(two_owners(), busy, idle=32, reclaimable=24).usable_gpus() == [32, 24]


def test_the_window_is_the_shortest_that_the_run_is_over_in() -> None:
    found = room(two_owners(), plan(QUIET), idle=32)
    short = found.decide((32, 1), 300.0)
    assert (short.held, short.window_s, short.until_s) == (None, 300.0, NOW_S + 300)
    longer = found.decide((32, 1), 301.0).held
    assert longer is not None
    assert (longer.code, longer.needed, longer.free) == (ReasonCode.KEPT, 32, 24)
    assert longer.more_in_s == 3600.0
    beyond = found.decide((1, 1), 3601.0).held
    assert beyond is not None
    assert (beyond.code, beyond.more_in_s) == (ReasonCode.BEYOND_FORECAST, 3600.0)


def test_the_owners_who_have_most_to_spare_lend_first_and_then_nobody() -> None:
    found = room(two_owners(), plan(QUIET), idle=40)
    assert found.decide((30, 1), 3600.0).owners == {"nlp": 16, "vision": 8, "": 6}
    assert found.decide((8, 1), 3600.0).owners == {"nlp": 8}


@pytest.mark.parametrize("asked_before", [True, False])
def test_each_start_leaves_less_to_lend(asked_before: bool) -> None:
    found = room(two_owners(), plan(QUIET), idle=32)
    if asked_before:
        found.usable_gpus()
    found.started((8, 1), None)  # one that may be evicted
    assert found.usable_gpus() == [24, 16]
    first = found.decide((12, 1), 3600.0)
    found.started((12, 1), first)
    assert first.owners == {"nlp": 12}
    assert found.usable_gpus() == [12, 4]
    assert found.decide((4, 1), 3600.0).owners == {"vision": 4}
    assert found.decide((5, 1), 3600.0).held is not None


def test_without_a_plan_nothing_is_lent() -> None:
    found = room(two_owners(), None, idle=32)
    held = found.decide((1, 1), 1.0).held
    assert held is not None
    assert held.code is ReasonCode.NO_PLAN
    assert found.never_lent((1, 1)) is not None


def test_a_lane_is_withheld_only_if_no_window_has_room() -> None:
    found = room(two_owners(), plan(QUIET), idle=32)
    assert found.never_lent((32, 1)) is None
    reason = found.never_lent((33, 1))
    assert reason is not None
    assert (reason.code, reason.free, reason.more_in_s) == (ReasonCode.KEPT, 32, 300.0)


def test_of_a_quota_that_is_lent_waiting_work_alone_is_kept_room_for() -> None:
    ledger = two_owners()
    submit(ledger, 0, 4, "nlp")
    busy = plan({"vision": (0, 0), "nlp": (16, 16)}, off=["nlp"])
    assert room(ledger, busy, idle=32).usable_gpus() == [16, 16]
    ledger.apply(QuotaLoan(at_s=3.0, tenant=NLP, step=LoanStep.NOTICED, lends_at_s=4.0))
    assert room(ledger, busy, idle=32).usable_gpus() == [16, 16]
    ledger.apply(QuotaLoan(at_s=4.0, tenant=NLP, step=LoanStep.LENT))
    assert room(ledger, busy, idle=32).usable_gpus() == [28, 28]
    nobody = plan({})  # forecasts nothing: vision keeps all of its quota
    assert room(ledger, nobody, idle=32).usable_gpus() == [12, 12]
    ledger.apply(QuotaLoan(at_s=5.0, tenant=NLP, step=LoanStep.USED))
    assert room(ledger, busy, idle=32).usable_gpus() == [16, 16]
