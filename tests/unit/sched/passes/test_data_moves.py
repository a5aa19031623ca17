"""Plans of where data sets should be are carried out as copies: the whole federation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as with_fields

from federator.model.data_placement import DataPlacement, DataPlanning, MovedSet, PlannedMove
from federator.model.dataset import (
    CopyPhase,
    DataGiven,
    DataPlace,
    DataReplica,
    DataSet,
    DataVerb,
    ReplicaState,
    home_of,
)
from federator.model.event import DataSetKept
from federator.model.message import (
    AnswerData,
    AnswerPlanned,
    CopySeen,
    DataAsked,
    DataPlacementAsked,
)
from federator.model.workload import TenantName
from federator.sched.passes.data_copies import PLANNED_TRIES
from federator.sched.state.rules import DataMoving, Rules
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_data_copies import DIGEST, GIB, RULES, fleet

AUTOMATIC = replace(RULES, moving=DataMoving(planning=DataPlanning.AUTOMATIC, quota_bytes=3 * GIB))
ADVISORY = replace(RULES, moving=DataMoving(planning=DataPlanning.ADVISORY, quota_bytes=3 * GIB))
DAY_S = 86_400.0


def data_asked(f: Loopback, verb: DataVerb, given: DataGiven) -> None:
    f.observe(DataAsked(client=-7, verb=verb, sets=(given,), by="ada"))
    f.run_for(2.0)
    assert isinstance(f.answers.pop(-7), AnswerData)


def add(f: Loopback, *names: str, gib: int = 1) -> None:
    for name in names:
        at = (DataPlace(domain="west", path=f"sets/{name}"),)
        given = DataGiven(name=name, version="1", at=at, digest=DIGEST, size_bytes=gib * GIB)
        data_asked(f, DataVerb.ADD, given)


def moved(*names: str, to: str = "east", home: bool = True) -> PlannedMove:
    return PlannedMove(
        sets=tuple(MovedSet(name, "1", GIB) for name in names), to=to, home=home, why="saves 1 TB"
    )


def plan(f: Loopback, *moves: PlannedMove, lasts_s: float = 10 * DAY_S) -> None:
    now_s = f.clock()
    made = DataPlacement(made_at_s=now_s, expires_at_s=now_s + lasts_s, moves=moves)
    f.observe(DataPlacementAsked(client=-8, plan=made))
    f.run_for(1.0)
    assert isinstance(f.answers.pop(-8), AnswerPlanned)


def tell(f: Loopback, name: str, phase: CopyPhase, domain: str = "east") -> None:
    f.observe(CopySeen(name=name, version="1", domain=domain, digest=DIGEST, phase=phase))
    f.run_for(1.0)


def found(f: Loopback, name: str) -> DataSet:
    of = f.federation.ledger.catalogue.find(name, "1")
    assert of is not None
    return of


def replica(f: Loopback, name: str, domain: str = "east") -> DataReplica | None:
    return found(f, name).replica_in(domain)


def begun(f: Loopback) -> list[str]:
    return [e.kept.name for e in f.log if isinstance(e, DataSetKept) and e.moved_to]


def days_pass(f: Loopback) -> None:
    """A day, in which no site says anything: that would take long."""
    for name in ("alpine", "baker"):
        f.site_down(name)
    f.run_for(DAY_S)


def test_a_move_is_a_copy_and_then_the_home_changes_and_the_old_one_stays() -> None:
    f = fleet(AUTOMATIC)
    add(f, "a")
    plan(f, moved("a"))
    copied = replica(f, "a")
    assert copied is not None
    assert copied.copy is not None
    assert (copied.state, copied.copy.planned, home_of(found(f, "a"))) == (
        ReplicaState.COPYING,
        True,
        "west",
    )
    tell(f, "a", CopyPhase.DONE)
    assert home_of(found(f, "a")) == "east"
    states = {r.domain: r.state for r in found(f, "a").replicas}
    assert states == {"west": ReplicaState.READY, "east": ReplicaState.READY}


def test_a_further_copy_changes_no_home() -> None:
    f = fleet(AUTOMATIC)
    add(f, "a")
    plan(f, moved("a", home=False))
    tell(f, "a", CopyPhase.DONE)
    assert home_of(found(f, "a")) == "west"


def test_what_is_there_already_becomes_the_home_without_a_copy() -> None:
    f = fleet(AUTOMATIC)
    add(f, "a")
    plan(f, moved("a", home=False))
    tell(f, "a", CopyPhase.DONE)
    used = f.federation.ledger.data_moves.used_bytes(f.clock())
    plan(f, moved("a"))
    assert home_of(found(f, "a")) == "east"
    assert f.federation.ledger.data_moves.used_bytes(f.clock()) == used == GIB


@pytest.mark.parametrize("rules", [ADVISORY, RULES])
def test_nothing_is_moved_by_advice_nor_with_planning_off(rules: Rules) -> None:
    f = fleet(rules)
    add(f, "a")
    plan(f, moved("a"))
    f.run_for(320.0)
    assert replica(f, "a") is None


def test_one_copy_to_a_domain_at_a_time_in_the_order_of_the_plan() -> None:
    f = fleet(AUTOMATIC)
    add(f, "a", "b", "c")
    plan(f, moved("b"), moved("a", "c"))
    assert begun(f) == ["b"]
    tell(f, "b", CopyPhase.DONE)
    assert begun(f) == ["b", "a"]


def test_copies_begun_within_24_hours_never_exceed_the_quota() -> None:
    f = fleet(AUTOMATIC)
    names = ("a", "b", "c", "d")
    add(f, *names)
    plan(f, moved(*names))
    for name in names[:3]:
        tell(f, name, CopyPhase.DONE)
    f.run_for(320.0)
    assert begun(f) == ["a", "b", "c"]
    days_pass(f)
    assert begun(f) == ["a", "b", "c", "d"]


def test_what_is_larger_than_the_quota_lets_smaller_ones_go_first() -> None:
    f = fleet(AUTOMATIC)
    add(f, "a", gib=4)
    add(f, "b")
    plan(f, moved("a"), moved("b"))
    assert begun(f) == ["b"]


def test_an_expired_plan_begins_nothing_more() -> None:
    f = fleet(AUTOMATIC)
    add(f, "a", "b")
    plan(f, moved("a"), moved("b"), lasts_s=100.0)
    f.run_for(100.0)
    tell(f, "a", CopyPhase.DONE)
    f.run_for(320.0)
    assert begun(f) == ["a"]


def test_a_daemon_killed_in_mid_plan_goes_on_and_counts_what_was_begun() -> None:
    f = fleet(AUTOMATIC)
    names = ("a", "b", "c", "d")
    add(f, *names)
    plan(f, moved(*names))
    f.restart()
    assert replica(f, "a") is not None
    tell(f, "a", CopyPhase.DONE)
    assert begun(f) == ["a", "b"]
    tell(f, "b", CopyPhase.DONE)
    f.compact()
    f.restart()
    tell(f, "c", CopyPhase.DONE)
    f.run_for(320.0)
    assert home_of(found(f, "c")) == "east"
    assert replica(f, "d") is None  # the quota is used up, as it was before
    days_pass(f)
    assert replica(f, "d") is not None


def test_a_reload_to_off_stops_new_moves_and_lets_those_under_way_end() -> None:
    f = fleet(AUTOMATIC)
    add(f, "a", "b")
    plan(f, moved("a"), moved("b"))
    f.reload(rules=RULES)
    tell(f, "a", CopyPhase.DONE)
    f.run_for(320.0)
    assert begun(f) == ["a"]
    assert home_of(found(f, "a")) == "east"


def test_a_copy_that_its_owner_takes_out_is_not_begun_again_that_day() -> None:
    f = fleet(AUTOMATIC)
    add(f, "a")
    plan(f, moved("a"))
    east = DataGiven(name="a", version="1", at=(DataPlace(domain="east"),))
    data_asked(f, DataVerb.REMOVE, east)
    f.run_for(320.0)
    assert replica(f, "a") is None
    assert begun(f) == ["a"]


def test_a_copy_that_no_job_wants_may_fail_a_few_times_before_it_is_given_up() -> None:
    f = fleet(AUTOMATIC)
    add(f, "a")
    plan(f, moved("a"))
    for number in range(PLANNED_TRIES):
        assert replica(f, "a") is not None, number
        tell(f, "a", CopyPhase.FAILED)
    assert replica(f, "a") is None
    assert [r.state for r in found(f, "a").replicas] == [ReplicaState.READY]


def test_a_copy_that_fails_keeps_its_place_until_it_is_given_up() -> None:
    f = fleet(AUTOMATIC)
    add(f, "a", "b", "c")
    plan(f, moved("a", "b", "c"))
    for _ in range(PLANNED_TRIES - 1):
        tell(f, "a", CopyPhase.FAILED)
        assert begun(f) == ["a"], "a dead source must not use up the quota"
    tell(f, "a", CopyPhase.FAILED)
    assert begun(f) == ["a", "b"]


@pytest.mark.parametrize("has_failed", [False, True])
def test_a_users_copy_takes_over_a_planned_one_which_stays_and_becomes_the_home(
    has_failed: bool,
) -> None:
    f = fleet(AUTOMATIC)
    add(f, "a")
    plan(f, moved("a"))
    if has_failed:
        tell(f, "a", CopyPhase.FAILED)
    data_asked(f, DataVerb.COPY, DataGiven(name="a", version="1", at=(DataPlace(domain="east"),)))
    for _ in range(PLANNED_TRIES + 1):
        tell(f, "a", CopyPhase.FAILED)
    failed = replica(f, "a")
    assert failed is not None, "it was given up though a user had asked for it"
    assert failed.copy is not None
    assert failed.copy.by == "ada"
    tell(f, "a", CopyPhase.DONE)
    assert home_of(found(f, "a")) == "east"


def test_a_home_that_is_gone_is_where_the_first_whole_replica_is() -> None:
    west = DataReplica(domain="west", path="a")
    east = DataReplica(domain="east", path="a", state=ReplicaState.LOST)
    of = DataSet(
        name="a",
        version="1",
        owner="ada",
        tenant=TenantName(""),
        replicas=(east, west),
        home="east",
    )
    assert home_of(of) == "west"
    assert home_of(with_fields(of, replicas=(east,))) == ""


def test_what_may_not_be_copied_is_passed_over() -> None:
    f = fleet(AUTOMATIC)
    add(f, "a", "b")
    west = (DataPlace(domain="west", path="sets/u"),)
    data_asked(f, DataVerb.ADD, DataGiven(name="u", version="1", at=west, size_bytes=GIB))
    plan(f, moved("u"), moved("gone"), moved("a", to="nowhere"), moved("b"))
    assert begun(f) == ["b"]
