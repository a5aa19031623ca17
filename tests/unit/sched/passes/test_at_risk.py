"""Checkpoints of jobs that run are copied ahead, if these are likely to have to leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.dataset import CopyPhase
from federator.model.event import CheckpointCopied
from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerDrained, ControlVerb, WriteOffAsked
from federator.model.prices import SPOT, PriceRule
from federator.model.site import SiteJobState
from federator.model.workload import WorkloadId
from federator.policies.mast import Mast
from federator.sched.passes import checkpoint_moves
from federator.sched.passes.at_risk import at_risk
from federator.sched.passes.checkpoint_moves import (
    AHEAD_EVERY_S,
    GIVES_WAY_S,
    LOOK_EVERY_S,
    MOST_TRIES,
    PLAN_EVERY_S,
)
from federator.sched.passes.write_off import AWAY_S
from federator.sched.state.rules import Rules, Staging
from tests.fakes.build import rack
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_checkpoint_moves import (
    ALPINE,
    AUTO,
    CEDAR,
    DELTA,
    NAME,
    RUNS,
    SIZE,
    TENANT,
    WAITS,
    copies,
    cordon,
    fleet,
    found,
    looks,
    resume,
    seen,
    start,
    start_three,
)
from tests.unit.sched.passes.test_drains import drain
from tests.unit.sched.passes.test_write_off import burns

AHEAD = replace(AUTO, staging=Staging(checkpoints=True, ahead=True))
HOUR_S = 3600.0
NEWER, OTHER = "ckpt-00000004-step-40", "sealed:" + "1e" * 32
SPOT_WEST = (PriceRule(site=ALPINE, tier=SPOT),)


def under_drain(rules: Rules = AHEAD) -> tuple[Loopback, WorkloadId]:
    """One that runs at a site from which all must leave in an hour."""
    f = fleet(rules)
    id_ = start(f)
    drain(f, ALPINE, deadline_s=f.clock.now_s + HOUR_S)
    f.run_for(15.0)
    assert f.state(id_) is RUNS
    return f, id_


def copied(f: Loopback) -> list[str]:
    return [event.checkpoint for event in f.log if isinstance(event, CheckpointCopied)]


def words(f: Loopback, id_: WorkloadId) -> str:
    return f.federation.checkpoints.ahead_words(f.entry(id_))


def test_the_newest_checkpoint_of_one_under_a_drain_is_copied_while_it_runs() -> None:
    f, id_ = under_drain()
    found(f, id_)
    assert copies(f) == [(str(id_), "east", f"ada/checkpoints/{id_}/{NAME}")]
    seen(f, id_, CopyPhase.COPYING, "east", copied_bytes=SIZE // 2)
    assert words(f, id_) == "being copied to east, 50 %"
    seen(f, id_, CopyPhase.DONE, "east")
    assert (f.state(id_), f.entry(id_).copied_to, copied(f)) == (RUNS, CEDAR, [NAME])
    assert words(f, id_) == "a copy is at cedar"
    assert (copies(f), looks(f)) == ([], [])
    assert f.replayed().entries[id_].copied_to == CEDAR


def test_what_a_site_says_of_a_copy_is_told_as_it_is() -> None:
    f, id_ = under_drain()
    found(f, id_)
    seen(f, id_, CopyPhase.FAILED, "east", detail="rsync (code 23)")
    assert words(f, id_) == "its copy to east has failed, and is tried again: rsync (code 23)"


@pytest.mark.parametrize("rules", [AUTO, replace(AUTO, staging=Staging(ahead=True))])
def test_nothing_is_copied_ahead_unless_an_admin_has_said_so(rules: Rules) -> None:
    f, _ = under_drain(rules)
    assert looks(f) == []


def test_under_a_cordon_and_where_it_could_go_on_in_its_region_nothing_is_copied() -> None:
    f = fleet(AHEAD, birch=1)
    id_ = start(f)
    cordon(f, ALPINE)
    f.run_for(15.0)
    assert looks(f) == []
    resume(f, ALPINE)
    drain(f, ALPINE, deadline_s=f.clock.now_s + HOUR_S)
    f.run_for(15.0)
    found(f, id_)
    assert copies(f) == []


def test_a_newer_one_is_copied_when_time_has_passed_and_the_same_one_never_again() -> None:
    f, id_ = under_drain()
    found(f, id_)
    seen(f, id_, CopyPhase.DONE, "east")
    f.run_for(AHEAD_EVERY_S - LOOK_EVERY_S)
    assert looks(f) == []
    f.run_for(LOOK_EVERY_S)
    found(f, id_)  # the same
    assert (copies(f), looks(f)) == ([], [])
    f.run_for(AHEAD_EVERY_S)
    found(f, id_, f"{NEWER} {OTHER}", digest=OTHER)
    assert [path.rpartition("/")[2] for _, _, path in copies(f)] == [NEWER]
    seen(f, id_, CopyPhase.DONE, "east", digest=OTHER)
    assert copied(f) == [NAME, NEWER]


def test_a_drain_that_is_over_ends_what_is_being_copied() -> None:
    f, id_ = under_drain()
    found(f, id_)
    assert copies(f)
    resume(f, ALPINE)
    f.run_for(15.0)
    assert (copies(f), looks(f)) == ([], [])


def test_one_place_is_left_for_those_that_wait() -> None:
    f = fleet(AHEAD)
    ids = start_three(f)
    drain(f, ALPINE, deadline_s=f.clock.now_s + HOUR_S)
    f.run_for(15.0)
    for id_ in ids:
        found(f, id_)
    assert len(copies(f)) == AHEAD.staging.at_once - 1


def three_of_which_one_waits(f: Loopback) -> list[WorkloadId]:
    """Three that ran at a site from which all must leave: two are at risk, the last has left."""
    ids = start_three(f)
    drain(f, ALPINE, deadline_s=f.clock.now_s + HOUR_S)
    f.run_for(15.0)
    leaves(f, ids[-1])
    return ids


def leaves(f: Loopback, id_: WorkloadId) -> None:
    f.control(ControlVerb.REQUEUE, id_)
    f.run_until(lambda: f.state(id_) is WAITS)
    assert f.entry(id_).saved_at == ALPINE


def test_one_that_waits_comes_first_though_it_was_found_last() -> None:
    f = fleet(replace(AHEAD, staging=replace(AHEAD.staging, at_once=3)))
    ids = three_of_which_one_waits(f)
    f.run_for(5.0)
    for id_ in ids:
        found(f, id_)
    assert [id_ for id_, _, _ in copies(f)] == [str(id_) for id_ in (ids[2], *ids[:2])]


def test_with_one_copy_at_a_time_it_is_of_the_one_that_waits() -> None:
    f = fleet(replace(AHEAD, staging=replace(AHEAD.staging, at_once=1)))
    ids = three_of_which_one_waits(f)
    cordon(f, CEDAR)
    f.run_for(5.0)
    for id_ in ids:
        found(f, id_)
    assert copies(f) == []
    resume(f, CEDAR)
    f.run_for(2 * PLAN_EVERY_S)
    assert [id_ for id_, _, _ in copies(f)] == [str(ids[2])]


def test_one_at_risk_without_a_place_to_go_on_leaves_its_turn_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though its checkpoint was found; and whoever waits gets a turn before the next at risk."""
    monkeypatch.setattr(checkpoint_moves, "MOST", 1)
    f = fleet(AHEAD)
    ids = start_three(f)
    cordon(f, CEDAR)
    drain(f, ALPINE, deadline_s=f.clock.now_s + HOUR_S)
    f.run_for(15.0)
    assert looks(f) == ids[:1]
    found(f, ids[0])
    assert copies(f) == []
    leaves(f, ids[2])
    f.run_until(lambda: bool(looks(f)), limit_s=GIVES_WAY_S + 2 * PLAN_EVERY_S)
    assert looks(f) == ids[2:]


def test_a_copy_that_fails_once_is_tried_again_and_begins_anew_when_it_fails_again() -> None:
    """What has come of it stays. Its original may be gone by then: the job has newer ones."""
    f, id_ = under_drain()
    found(f, id_)
    for _ in range(MOST_TRIES):
        assert copies(f) != []
        seen(f, id_, CopyPhase.FAILED, "east", detail="vanished")
    assert copies(f) == []
    f.run_for(LOOK_EVERY_S)
    assert looks(f) == [id_]


def test_once_it_has_saved_as_it_leaves_that_one_is_copied_and_not_the_older_one_used() -> None:
    f, id_ = under_drain()
    found(f, id_)
    seen(f, id_, CopyPhase.DONE, "east")
    f.run_until(lambda: f.state(id_) is WAITS, limit_s=2 * HOUR_S)
    assert (f.entry(id_).saved_at, f.entry(id_).copied_to) == (ALPINE, "")
    f.run_for(5.0)
    found(f, id_, f"{NEWER} {OTHER}", digest=OTHER)
    seen(f, id_, CopyPhase.DONE, "east", digest=OTHER)
    f.run_until(lambda: f.state(id_) is RUNS)
    assert f.entry(id_).site == CEDAR


# ---- where to, and what is left of it when the job leaves ----


def of_three_regions() -> tuple[Loopback, WorkloadId]:
    """One at risk has a copy in the east; the north, which is larger, takes work since then."""
    rules = replace(AHEAD, regions={ALPINE: "west", CEDAR: "east", DELTA: "north"})
    sites = {"alpine": rack("a", 2), "cedar": rack("c", 2), "delta": rack("d", 4)}
    f = Loopback(sites, rules, None, Mast(), (TENANT,))
    cordon(f, DELTA)
    id_ = start_in_the_west(f)
    drain(f, ALPINE, deadline_s=f.clock.now_s + HOUR_S)
    f.run_for(15.0)
    found(f, id_)
    seen(f, id_, CopyPhase.DONE, "east")
    assert f.entry(id_).copied_to == CEDAR
    resume(f, DELTA)
    return f, id_


def start_in_the_west(f: Loopback) -> WorkloadId:
    cordon(f, CEDAR)
    id_ = start(f)
    resume(f, CEDAR)
    return id_


def regions_of_copies(f: Loopback) -> list[str]:
    return [region for _, region, _ in copies(f)]


@pytest.mark.parametrize("restarts", [True, False])
def test_a_newer_one_goes_where_the_one_before_is(restarts: bool) -> None:
    f, id_ = of_three_regions()
    if restarts:
        f.compact()
        f.restart()
        f.run_for(15.0)
    else:
        f.run_for(AHEAD_EVERY_S)
    found(f, id_, f"{NEWER} {OTHER}", digest=OTHER)
    assert regions_of_copies(f) == ["east"]


def test_if_it_leaves_and_saved_nothing_newer_its_copy_is_asked_for_again() -> None:
    f, id_ = of_three_regions()
    leaves(f, id_)
    f.run_for(5.0)
    found(f, id_)
    assert regions_of_copies(f) == ["east"]
    seen(f, id_, CopyPhase.DONE, "east")
    f.run_until(lambda: f.state(id_) is RUNS)
    assert f.entry(id_).site == CEDAR


def test_another_region_is_chosen_if_that_of_the_copy_has_no_room() -> None:
    f, id_ = of_three_regions()
    cordon(f, CEDAR)
    leaves(f, id_)
    f.run_for(5.0)
    found(f, id_)
    assert regions_of_copies(f) == ["north"]


def left_while_it_was_copied() -> tuple[Loopback, WorkloadId]:
    f, id_ = under_drain()
    found(f, id_)
    seen(f, id_, CopyPhase.COPYING, "east", copied_bytes=SIZE // 2)
    f.control(ControlVerb.REQUEUE, id_)
    f.run_until(lambda: f.state(id_) is WorkloadState.PREEMPTING)
    assert (regions_of_copies(f), looks(f)) == (["east"], [])
    f.run_until(lambda: f.state(id_) is WAITS)
    f.run_for(5.0)
    assert regions_of_copies(f) == ["east"]
    return f, id_


def test_what_is_half_copied_goes_on_if_nothing_newer_was_saved_as_it_left() -> None:
    f, id_ = left_while_it_was_copied()
    seen(f, id_, CopyPhase.DONE, "east")
    assert f.entry(id_).copied_to == ""  # it may not be the newest
    found(f, id_)
    assert (regions_of_copies(f), looks(f)) == (["east"], [])
    seen(f, id_, CopyPhase.DONE, "east")
    f.run_until(lambda: f.state(id_) is RUNS)
    assert f.entry(id_).site == CEDAR


def test_what_is_half_copied_is_dropped_for_what_was_saved_as_it_left() -> None:
    f, id_ = left_while_it_was_copied()
    found(f, id_, f"{NEWER} {OTHER}", digest=OTHER)
    assert copies(f) == [(str(id_), "east", f"ada/checkpoints/{id_}/{NEWER}")]
    seen(f, id_, CopyPhase.DONE, "east")  # of the one before
    assert f.entry(id_).copied_to == ""


def test_what_is_half_copied_is_begun_anew_if_nothing_can_be_found_any_more() -> None:
    f, id_ = left_while_it_was_copied()
    found(f, id_, "- its folder holds no sealed checkpoint")
    assert copies(f) == []
    f.run_for(LOOK_EVERY_S)
    found(f, id_)
    assert regions_of_copies(f) == ["east"]


def test_one_that_has_ended_as_it_was_to_leave_is_thought_of_no_more() -> None:
    f, id_ = under_drain()
    found(f, id_)
    f.control(ControlVerb.REQUEUE, id_)
    f.run_until(lambda: f.state(id_) is WorkloadState.PREEMPTING)
    (job,) = [job for _, job in f.live_jobs(id_)]
    f.slurm("alpine").end(job.attempt, SiteJobState.COMPLETED)
    f.run_until(lambda: f.state(id_) is WorkloadState.COMPLETED)
    f.run_for(15.0)
    assert (copies(f), looks(f)) == ([], [])


def test_one_whose_region_is_lost_goes_on_from_the_copy() -> None:
    f, id_ = under_drain()
    found(f, id_)
    seen(f, id_, CopyPhase.DONE, "east")
    f.site_down("alpine")
    burns(f)
    f.run_for(AWAY_S + 1.0)
    f.observe(WriteOffAsked(client=97, site=ALPINE, reason="fire", by="root"))
    assert isinstance(f.answers.pop(97), AnswerDrained)
    assert (f.state(id_), f.entry(id_).saved_at) == (WAITS, CEDAR)
    assert f.replayed().entries[id_].saved_at == CEDAR
    f.run_until(lambda: f.state(id_) is RUNS)
    assert f.entry(id_).site == CEDAR


def test_after_a_restart_it_is_looked_again_and_the_copy_is_known() -> None:
    f, id_ = under_drain()
    found(f, id_)
    seen(f, id_, CopyPhase.DONE, "east")
    f.compact()
    f.restart()
    f.run_for(15.0)
    assert f.entry(id_).copied_to == CEDAR
    found(f, id_)
    assert copies(f) == [(str(id_), "east", f"ada/checkpoints/{id_}/{NAME}")]  # it is there: asked
    seen(f, id_, CopyPhase.DONE, "east")
    assert (copies(f), looks(f)) == ([], [])


# ---- spot ----


def is_at_spot_risk(hours_ago: float, prices: tuple[PriceRule, ...]) -> bool:
    """Of one that runs at alpine, and has lost its nodes there so long ago."""
    f = fleet(replace(AHEAD, prices=prices))
    entry = f.entry(start(f))
    met_s, plan = f.clock.now_s - hours_ago * HOUR_S, entry.plan[0]
    entry.interruptions = ((met_s, ALPINE, plan.partition, plan.gpu_type),)
    return list(at_risk(f.federation.ledger, f.federation.rules, f.clock.now_s)) == [entry]


@pytest.mark.parametrize(
    ("hours_ago", "prices", "is_at_risk"),
    [
        (1.0, SPOT_WEST, True),
        (25.0, SPOT_WEST, False),
        (1.0, (PriceRule(site=CEDAR, tier=SPOT),), False),
        (1.0, (), False),
    ],
)
def test_who_lost_spot_nodes_within_a_day_and_is_on_such_again_is_at_risk(
    hours_ago: float, prices: tuple[PriceRule, ...], is_at_risk: bool
) -> None:
    assert is_at_spot_risk(hours_ago, prices) == is_at_risk
