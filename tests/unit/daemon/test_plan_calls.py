"""Lending plans are taken from operators alone, and only if they make sense."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from federator.daemon.plan_calls import plan_asked
from federator.errors import InvalidRequest
from federator.model.event import Planned
from federator.model.lending import MOST_FORECASTS, LendingPlan, LoadForecast
from federator.model.tenant import Allowance, Tenancy, Tenant
from federator.model.workload import TenantName
from federator.sched.state.ledger import Ledger
from federator.wire.client_protocol import ErrorKind, ErrorReply, PlanCall, PlanReply
from tests.fakes.build import rack, tenant
from tests.fakes.loopback import Loopback
from tests.unit.daemon.test_api import Desk
from tests.unit.daemon.test_drain_calls import ask

NOW_S = 10_000.0
PLAN = LendingPlan(
    made_at_s=NOW_S,
    expires_at_s=NOW_S + 900,
    windows_s=(300.0, 3600.0),
    forecasts=(
        LoadForecast(tenant="vision", new_gpus=(0, 8)),
        LoadForecast(tenant="vision", gpu_type="h100", new_gpus=(0, 4), off=(False, True)),
    ),
    source="boosted",
)


def ledger(before: LendingPlan | None = None) -> Ledger:
    quota = Allowance(gpus=16, gpu_types={"h100": 8})
    found = Ledger(Tenancy([Tenant(name=TenantName("vision"), quota=quota)]))
    if before is not None:
        found.apply(Planned(at_s=before.made_at_s, plan=before))
    return found


def test_a_plan_that_makes_sense_is_taken() -> None:
    assert plan_asked(PlanCall(plan=PLAN), 7, ledger(), NOW_S).plan == PLAN


def forecast(**fields: Any) -> dict[str, Any]:
    return {"forecasts": (LoadForecast(**{"tenant": "vision", "new_gpus": (0, 8), **fields}),)}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"made_at_s": nan}, "made_at_s: expected a time within the last hour, found 'nan'"),
        ({"made_at_s": NOW_S - 3601}, "made_at_s: expected a time within the last hour"),
        ({"made_at_s": NOW_S + 61}, "made_at_s: expected no time to come"),
        ({"expires_at_s": inf}, "expires_at_s: expected within an hour from made_at_s"),
        ({"expires_at_s": NOW_S}, "expires_at_s: expected within an hour from made_at_s"),
        ({"made_at_s": NOW_S - 900, "expires_at_s": NOW_S}, "expires_at_s: expected a time to"),
        ({"windows_s": ()}, "windows_s: expected 1 to 8 lengths above 0, ascending"),
        ({"windows_s": (300.0, 300.0)}, "windows_s: expected 1 to 8 lengths"),
        ({"windows_s": (-1.0, 300.0)}, "windows_s: expected 1 to 8 lengths"),
        ({"windows_s": (nan, 300.0)}, "windows_s: expected"),
        ({"windows_s": (300.0, inf)}, "windows_s: expected at most 2592000 s, found 'inf'"),
        ({"source": "x" * 65}, "source: expected at most 64 characters, found '65'"),
        (
            {"forecasts": PLAN.forecasts * (MOST_FORECASTS // 2 + 1)},
            "forecasts: expected at most 10000",
        ),
        ({"forecasts": PLAN.forecasts[:1] * 2}, "forecasts[1]: expected each tenant and GPU type"),
        (forecast(tenant="visoin"), "forecasts[0].tenant: expected a tenant of federation.yaml, f"),
        (forecast(gpu_type="a100"), "forecasts[0].gpu_type: expected a GPU type that a quota coun"),
        (forecast(new_gpus=(1,)), "forecasts[0].new_gpus: expected one for each of 2 windows"),
        (forecast(new_gpus=(1, -1)), "forecasts[0].new_gpus: expected numbers from 0 to"),
        (forecast(new_gpus=(1, 2**60)), "forecasts[0].new_gpus: expected numbers from 0 to"),
        (forecast(off=(True,)), "forecasts[0]: expected one of each for each of 2 windows, or no"),
        (forecast(kept=(3, 0), promises=(2, 0)), "forecasts[0].kept: expected no more than promi"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_with_one_message(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        plan_asked(PlanCall(plan=replace(PLAN, **wrong)), 7, ledger(), NOW_S)
    assert str(refused.value).startswith(f"lending plan: {message}")
    assert "\n" not in str(refused.value)


def test_a_plan_in_force_gives_way_only_to_a_later_one() -> None:
    older = replace(PLAN, made_at_s=NOW_S - 1)
    with pytest.raises(InvalidRequest, match="later than the plan in force"):
        plan_asked(PlanCall(plan=older), 7, ledger(PLAN), NOW_S)
    expired = replace(PLAN, expires_at_s=NOW_S + 1)
    assert plan_asked(PlanCall(plan=PLAN), 7, ledger(older), NOW_S).plan == PLAN
    assert plan_asked(PlanCall(plan=older), 7, ledger(expired), NOW_S + 2).plan == older


def test_a_name_in_a_message_is_short() -> None:
    named = replace(PLAN, **forecast(tenant="v" * 5000))
    with pytest.raises(InvalidRequest) as refused:
        plan_asked(PlanCall(plan=named), 7, ledger(), NOW_S)
    assert len(str(refused.value)) < 200


def test_only_an_operator_brings_a_plan_which_is_in_the_log_when_it_is_answered(
    tmp_path: Path,
) -> None:
    federation = Loopback({"alpine": rack("a", 2)}, tenants=[tenant("vision", 8)])
    desk = Desk(federation)
    now_s = federation.clock()
    plan = LendingPlan(
        made_at_s=now_s,
        expires_at_s=now_s + 900,
        windows_s=(300.0,),
        forecasts=(LoadForecast(tenant="vision", new_gpus=(8,)),),
    )
    refused = desk.ask(PlanCall(plan=plan), "ada")
    assert isinstance(refused, ErrorReply)
    assert refused.kind is ErrorKind.DENIED
    assert isinstance(ask(desk, PlanCall(plan=plan), tmp_path), PlanReply)
    assert [e.plan for e in federation.log if isinstance(e, Planned)] == [plan]
    again = ask(desk, PlanCall(plan=plan), tmp_path)
    assert isinstance(again, ErrorReply)
    assert "later than the plan in force" in again.message
