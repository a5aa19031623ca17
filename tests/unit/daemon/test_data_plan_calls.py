"""Plans of where data should be are taken from operators alone, and only if they make sense."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from federator.config import FederationConfig
from federator.config_storage import DataConfig
from federator.daemon.callers import Caller
from federator.daemon.data_plan_calls import MOST_WHY, placement_asked, shown_plan
from federator.errors import InvalidRequest
from federator.model.data_placement import DataPlacement, MovedSet, PlannedMove
from federator.model.dataset import DataReplica, DataSet
from federator.model.event import DataPlanned, DataSetKept
from federator.model.workload import TenantName
from federator.sched.state.ledger import Ledger
from federator.wire.client_protocol import ErrorKind, ErrorReply, PlanReply
from federator.wire.data_rows import DataPlanCall, DataPlanReply, PlaceDataCall
from tests.fakes.build import rack
from tests.fakes.loopback import Loopback
from tests.unit.daemon.test_api import Desk
from tests.unit.daemon.test_data_calls import WITH_STORAGE
from tests.unit.daemon.test_drain_calls import ask

NOW_S = 10_000.0
MOVE = PlannedMove(
    sets=(MovedSet("wiki", "1", 2**30), MovedSet("maps", "2", 0)),
    to="west",
    home=True,
    why="wiki@1: east -> west: saves 3.1 TB/day of remote reads for vision; 1.1 GB to move",
)
PLAN = DataPlacement(
    made_at_s=NOW_S,
    expires_at_s=NOW_S + 3 * 3600,
    moves=(MOVE,),
    cost_before=100.0,
    cost_after=40.0,
    bound=38.0,
    storage_price={"west": 0.5},
)


def config(planning: Any = "advisory") -> FederationConfig:
    data = DataConfig(planning=planning, move_quota_gib_per_day=10)
    return WITH_STORAGE.model_copy(update={"data": data})


def ledger(before: DataPlacement | None = None) -> Ledger:
    found = Ledger()
    if before is not None:
        found.apply(DataPlanned(at_s=before.made_at_s, plan=before))
    return found


def taken(plan: DataPlacement, before: DataPlacement | None = None) -> DataPlacement:
    return placement_asked(PlaceDataCall(plan=plan), 7, config(), ledger(before), NOW_S).plan


def moves(**fields: Any) -> dict[str, Any]:
    return {"moves": (replace(MOVE, **fields),)}


def test_a_plan_that_makes_sense_is_taken() -> None:
    assert taken(PLAN) == PLAN


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"made_at_s": nan}, "made_at_s: expected a time within the last hour, found 'nan'"),
        ({"made_at_s": NOW_S - 3601}, "made_at_s: expected a time within the last hour"),
        ({"made_at_s": NOW_S + 61}, "made_at_s: expected no time to come"),
        ({"expires_at_s": inf}, "expires_at_s: expected within two days from made_at_s"),
        ({"made_at_s": NOW_S - 900, "expires_at_s": NOW_S}, "expires_at_s: expected a time to"),
        ({"cost_after": nan}, "costs and prices: expected numbers from 0 to"),
        ({"bound": -1.0}, "costs and prices: expected numbers from 0 to"),
        ({"storage_price": {"moon": 1.0}}, "storage_price: expected storage domains of fed"),
        ({"nowhere": -1}, "counts: expected numbers from 0 to"),
        ({"moves": (MOVE,) * 501}, "moves: expected at most 500, found '501'"),
        ({"moves": (MOVE, MOVE)}, "moves[1]: expected each data set and storage domain once"),
        (
            {"moves": (MOVE, replace(MOVE, to="east"))},
            "moves[1]: expected one home of each data set, found 'wiki'",
        ),
        (moves(to="moon"), "moves[0].to: expected a storage domain of federation.yaml"),
        (moves(sets=()), "moves[0].sets: expected 1 to 1000 data sets"),
        (moves(sets=(MovedSet("../x", "1", 0),)), "moves[0].sets: expected names and versions"),
        (moves(sets=(MovedSet("x", "1", -1),)), "moves[0].sets: expected sizes from 0"),
        (moves(why="a\nb"), "moves[0].why: expected one line of at most 1000 characters"),
        (moves(why="x" * (MOST_WHY + 1)), "moves[0].why: expected one line"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_with_one_message(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        taken(replace(PLAN, **wrong))
    assert str(refused.value).startswith(f"data plan: {message}")
    assert "\n" not in str(refused.value)


def test_a_data_set_may_have_one_home_and_further_copies() -> None:
    plan = replace(PLAN, moves=(MOVE, replace(MOVE, to="east", home=False)))
    assert taken(plan) == plan


def test_a_plan_in_force_gives_way_only_to_a_later_one() -> None:
    older = replace(PLAN, made_at_s=NOW_S - 1)
    with pytest.raises(InvalidRequest, match="later than the plan in force"):
        taken(older, PLAN)
    assert taken(PLAN, older) == PLAN


def test_with_planning_off_no_plan_is_taken() -> None:
    with pytest.raises(InvalidRequest, match=r"data\.planning is off"):
        placement_asked(PlaceDataCall(plan=PLAN), 7, config("off"), ledger(), NOW_S)


def test_the_plan_in_force_is_shown_with_what_was_made_of_it() -> None:
    found = ledger(PLAN)
    replicas = (DataReplica(domain="west", path="maps"),)
    maps = DataSet(
        name="maps", version="2", owner="ada", tenant=TenantName("vision"), replicas=replicas
    )
    found.apply(DataSetKept(at_s=NOW_S, kept=maps))
    operator = Caller(user="root", operator=True)
    shown = shown_plan(operator, config(), found, NOW_S)
    assert isinstance(shown, DataPlanReply)
    assert (shown.plan, shown.progress) == (PLAN, ((1, 0),))
    assert (shown.planning, shown.quota_bytes, shown.moved_bytes) == ("advisory", 10 * 2**30, 0)
    late = shown_plan(operator, config(), found, PLAN.expires_at_s)
    assert isinstance(late, DataPlanReply)
    assert late.plan is None


def test_only_who_sees_all_data_sets_is_shown_the_plan() -> None:
    refused = shown_plan(Caller(user="ada", operator=False), config(), ledger(PLAN), NOW_S)
    assert isinstance(refused, ErrorReply)
    assert refused.kind is ErrorKind.DENIED


def test_only_an_operator_brings_a_plan_which_is_in_the_log_when_it_is_answered(
    tmp_path: Path,
) -> None:
    federation = Loopback({"alpine": rack("a", 2)})
    desk = Desk(federation)
    desk.api.reconfigure(config())
    now_s = federation.clock()
    plan = replace(PLAN, made_at_s=now_s, expires_at_s=now_s + 900)
    refused = desk.ask(PlaceDataCall(plan=plan), "ada")
    assert isinstance(refused, ErrorReply)
    assert refused.kind is ErrorKind.DENIED
    assert isinstance(ask(desk, PlaceDataCall(plan=plan), tmp_path), PlanReply)
    assert [e.plan for e in federation.log if isinstance(e, DataPlanned)] == [plan]
    shown = ask(desk, DataPlanCall(), tmp_path)
    assert isinstance(shown, DataPlanReply)
    assert shown.plan == plan
