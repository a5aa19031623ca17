"""A workload goes on in another region, from a copy of its checkpoint: the whole federation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from federator.model.dataset import CopyPhase
from federator.model.event import CheckpointCopied
from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerDrained, CopySeen, DrainAsked, ResumeAsked, WriteOffAsked
from federator.model.reason import ReasonCode
from federator.model.site import SiteJobState
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.passes import checkpoint_moves
from federator.sched.passes.checkpoint_moves import (
    CHECKPOINT,
    GIVES_WAY_S,
    LOOK_EVERY_S,
    MOST_TRIES,
    PLAN_EVERY_S,
)
from federator.sched.passes.data_copies import SETUP_S
from federator.sched.passes.write_off import AWAY_S
from federator.sched.state.rules import Rules, Staging
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_drains import drain

RUNS, WAITS = WorkloadState.RUNNING, WorkloadState.PENDING
ALPINE, BIRCH, CEDAR, DELTA = map(SiteName, ("alpine", "birch", "cedar", "delta"))
REGIONS = {ALPINE: "west", BIRCH: "west", CEDAR: "east"}
NAME, DIGEST = "ckpt-00000003-step-30", "sealed:" + "0f" * 32
MIB = 2**20
SIZE = 1000 * MIB
COPY_S = SETUP_S + 10.0
AUTO = Rules(
    preempt_gpus=64,
    preempt_window_s=300.0,
    grace_s=30.0,
    regions=REGIONS,
    staging=Staging(checkpoints=True),
)
TENANT = Tenant(name=TenantName("guest"), quota=Allowance(gpus=640))


def fleet(rules: Rules = AUTO, *, birch: int = 0, cedar: int = 2) -> Loopback:
    sites = {"alpine": rack("a", 2), "birch": rack("b", birch), "cedar": rack("c", cedar)}
    sites = {name: nodes for name, nodes in sites.items() if nodes}
    return Loopback(sites, rules, None, Mast(), (TENANT,))


def start(f: Loopback, gpus: int = 8) -> WorkloadId:
    """One that runs in the west."""
    id_ = f.submit(replace(draft(gang(1, gpus)), tenant=TenantName("guest")))
    f.run_until(lambda: f.state(id_) is RUNS)
    assert f.entry(id_).site == ALPINE
    return id_


def start_three(f: Loopback) -> list[WorkloadId]:
    """Three that run in the west, while the east takes none."""
    cordon(f, CEDAR)
    ids = [start(f, gpus=4) for _ in range(3)]
    resume(f, CEDAR)
    return ids


def looks(f: Loopback) -> list[WorkloadId]:
    return [move.workload for move in f.federation.checkpoints.looks(f.clock.now_s)]


def seen(f: Loopback, id_: WorkloadId, phase: CopyPhase, domain: str = "", **more: Any) -> None:
    said: dict[str, Any] = {"digest": DIGEST, "copied_bytes": SIZE} | more
    version = str(id_)
    f.observe(CopySeen(name=CHECKPOINT, version=version, domain=domain, phase=phase, **said))
    f.run_for(3.0)


def found(f: Loopback, id_: WorkloadId, detail: str = f"{NAME} {DIGEST}", **more: Any) -> None:
    """A site of the west has looked."""
    assert id_ in looks(f)
    seen(f, id_, CopyPhase.FOUND, detail=detail, **more)


def copies(f: Loopback) -> list[tuple[str, str, str]]:
    return [
        (of.version, replica.domain, replica.path)
        for of, replica in f.federation.checkpoints.copies()
    ]


def cordon(f: Loopback, site: SiteName) -> None:
    f.observe(DrainAsked(client=98, site=site, reason="", by="root", cordon=True))


def resume(f: Loopback, site: SiteName) -> None:
    f.observe(ResumeAsked(client=99, site=site))


def copied_already(f: Loopback, id_: WorkloadId) -> None:
    """Its checkpoint is in the east, too, where it may not start now."""
    cordon(f, CEDAR)
    copied = CheckpointCopied(at_s=f.clock.now_s, workload=id_, site=CEDAR)
    f.federation.ledger.apply(copied)
    f.log.append(copied)


def leave(f: Loopback) -> WorkloadId:
    """One that has saved in the west, which is drained: it waits."""
    id_ = start(f)
    until_s = f.clock.now_s + 120.0
    drain(f, ALPINE, deadline_s=until_s)
    f.run_until(lambda: f.state(id_) is WAITS, limit_s=300.0)
    assert f.entry(id_).saved_at == ALPINE
    f.run_for(5.0)
    return id_


def test_a_drained_workload_goes_on_in_the_other_region_once_the_copy_is_whole() -> None:
    f = fleet()
    id_ = leave(f)
    found(f, id_)
    assert copies(f) == [(str(id_), "east", f"ada/checkpoints/{id_}/{NAME}")]
    seen(f, id_, CopyPhase.COPYING, "east", copied_bytes=SIZE // 4)
    assert f.state(id_) is WAITS
    seen(f, id_, CopyPhase.COPYING, "east", copied_bytes=SIZE // 2)
    reason = f.refusals(id_)[CEDAR].reasons[0]
    assert reason.code is ReasonCode.CHECKPOINT
    assert reason.detail.startswith("alpine (being copied to east, 50 %, about ")
    seen(f, id_, CopyPhase.DONE, "east")
    f.run_until(lambda: f.state(id_) is RUNS)
    assert f.entry(id_).site == f.entry(id_).saved_at == CEDAR
    assert f.entry(id_).copied_to == ""
    assert copies(f) == []
    assert f.replayed().entries[id_].saved_at == CEDAR


def test_nothing_is_copied_unless_an_admin_has_said_so() -> None:
    f = fleet(replace(AUTO, staging=Staging(auto=True)))
    id_ = leave(f)
    assert looks(f) == []
    f.run_for(600.0)
    assert f.state(id_) is WAITS


def test_while_its_region_could_run_it_a_workload_waits_as_long_as_the_copy_takes() -> None:
    f = fleet(birch=1)
    for site in (ALPINE, CEDAR):
        cordon(f, site)
    blocker = f.submit(replace(draft(gang(1, 8)), tenant=TenantName("guest")))
    f.run_until(lambda: f.state(blocker) is RUNS)
    for site in (ALPINE, CEDAR):
        resume(f, site)
    id_ = leave(f)
    began_s = f.clock.now_s
    found(f, id_)
    assert copies(f) == []
    f.run_until(lambda: bool(copies(f)), limit_s=120.0)
    assert COPY_S - 10.0 <= f.clock.now_s - began_s <= COPY_S + 5.0


@pytest.mark.parametrize(
    "detail",
    [
        "- its folder holds other files, too: events.log",
        f"../../etc {DIGEST}",
        f"{NAME} sealed:zz",
        f"{NAME}\n {DIGEST}",
        "",
    ],
)
def test_what_is_no_sealed_checkpoint_stays_and_is_looked_at_again_later(detail: str) -> None:
    f = fleet()
    id_ = leave(f)
    found(f, id_, detail)
    assert copies(f) == []
    assert looks(f) == []
    f.run_for(LOOK_EVERY_S)
    found(f, id_)
    assert copies(f)


def test_one_that_is_too_large_waits_in_its_region_and_says_so() -> None:
    f = fleet(replace(AUTO, staging=Staging(checkpoints=True, most_bytes=SIZE - 1)))
    id_ = leave(f)
    found(f, id_)
    assert copies(f) == []
    assert "larger than data.stage_max_gib" in f.refusals(id_)[CEDAR].reasons[0].detail


def test_a_copy_that_fails_again_and_again_begins_with_another_look() -> None:
    f = fleet()
    id_ = leave(f)
    found(f, id_)
    for _ in range(MOST_TRIES):
        assert copies(f)
        seen(f, id_, CopyPhase.FAILED, "east", detail="no route")
    assert copies(f) == []
    f.run_for(LOOK_EVERY_S)
    assert looks(f) == [id_]


def test_a_copy_is_not_wanted_any_more_once_the_workload_runs_where_it_was() -> None:
    f = fleet()
    id_ = leave(f)
    found(f, id_)
    seen(f, id_, CopyPhase.COPYING, "east", copied_bytes=SIZE // 2)
    resume(f, ALPINE)
    f.run_until(lambda: f.state(id_) is RUNS)
    assert f.entry(id_).site == ALPINE
    assert copies(f) == []
    seen(f, id_, CopyPhase.DONE, "east")  # it comes too late
    assert f.entry(id_).copied_to == ""


def test_after_a_copy_the_workload_starts_wherever_there_is_room_first() -> None:
    f = fleet()
    id_ = leave(f)
    found(f, id_)
    copied_already(f, id_)
    resume(f, ALPINE)
    f.run_until(lambda: f.state(id_) is RUNS)
    assert (f.entry(id_).saved_at, f.entry(id_).copied_to) == (ALPINE, "")


def test_a_copy_to_a_site_that_takes_no_work_any_more_is_given_up() -> None:
    f = fleet()
    id_ = leave(f)
    found(f, id_)
    cordon(f, CEDAR)
    f.run_for(5.0)
    assert copies(f) == []


def test_what_a_site_tells_of_copies_that_nobody_ordered_counts_for_nothing() -> None:
    f = fleet()
    id_ = leave(f)
    seen(f, id_, CopyPhase.DONE, "east")
    seen(f, WorkloadId(77), CopyPhase.FOUND, detail=f"{NAME} {DIGEST}")
    found(f, id_)
    seen(f, id_, CopyPhase.DONE, "west")
    seen(f, id_, CopyPhase.DONE, "east", digest="sealed:" + "1" * 64)
    assert f.state(id_) is WAITS


def test_a_restarted_daemon_asks_again_and_knows_what_was_whole() -> None:
    f = fleet()
    id_ = leave(f)
    found(f, id_)
    f.restart()
    f.run_for(5.0)
    found(f, id_)
    assert copies(f)
    copied_already(f, id_)
    f.compact()
    f.restart()
    assert f.entry(id_).copied_to == CEDAR
    f.run_for(5.0)
    assert looks(f) == []


def test_a_workload_whose_region_is_written_off_goes_on_from_the_copy() -> None:
    f = fleet()
    id_ = leave(f)
    copied_already(f, id_)
    f.site_down("alpine")
    f.run_for(AWAY_S + 1.0)
    f.observe(WriteOffAsked(client=97, site=ALPINE, reason="fire", by="root"))
    assert isinstance(f.answers.pop(97), AnswerDrained)
    assert (f.entry(id_).saved_at, f.entry(id_).copied_to) == (CEDAR, "")


@pytest.mark.parametrize("sealed", [True, False])
def test_a_drain_moves_to_another_region_only_what_has_a_sealed_checkpoint(sealed: bool) -> None:
    f = fleet()
    id_ = start(f)
    drain(f, ALPINE, migrate=True)
    f.run_for(15.0)
    assert f.state(id_) is RUNS
    found(f, id_, f"{NAME} {DIGEST}" if sealed else "- its folder holds no sealed checkpoint")
    f.run_for(60.0)
    assert (f.state(id_) is WAITS) == sealed
    if sealed:
        found(f, id_)  # it has saved anew
        seen(f, id_, CopyPhase.DONE, "east")
        f.run_until(lambda: f.state(id_) is RUNS)
        assert f.entry(id_).site == CEDAR


def test_a_newer_checkpoint_makes_the_copy_of_no_account() -> None:
    """It started where it was, unseen, and saved before its node failed."""
    f = fleet()
    id_ = leave(f)
    copied_already(f, id_)
    resume(f, ALPINE)
    f.run_until(lambda: f.state(id_) is RUNS)
    (job,) = [job for _, job in f.live_jobs(id_)]
    f.slurm("alpine").end(job.attempt, SiteJobState.NODE_FAIL)
    f.run_for(30.0)
    assert (f.entry(id_).saved_at, f.entry(id_).copied_to) == (ALPINE, "")


# ---- sites that are taken out ----


def test_a_copy_whose_site_is_taken_out_opens_no_region_and_is_made_anew_elsewhere() -> None:
    rules = replace(AUTO, regions={ALPINE: "west", CEDAR: "east", DELTA: "north"})
    sites = {"alpine": rack("a", 2), "cedar": rack("c", 2), "delta": rack("d", 2)}
    f = Loopback(sites, rules, None, Mast(), (TENANT,))
    cordon(f, DELTA)
    id_ = leave(f)
    copied_already(f, id_)
    f.reload(replace(rules, regions={ALPINE: "west", DELTA: "north"}), without="cedar")
    resume(f, DELTA)
    f.run_for(60.0)
    assert f.state(id_) is WAITS
    assert f.refusals(id_)[DELTA].reasons[0].code is ReasonCode.CHECKPOINT
    found(f, id_)
    seen(f, id_, CopyPhase.DONE, "north")
    f.run_until(lambda: f.state(id_) is RUNS)
    assert f.entry(id_).site == DELTA


def test_an_answer_about_a_site_that_was_taken_out_meanwhile_counts_for_nothing() -> None:
    f = fleet(birch=1)
    cordon(f, BIRCH)
    id_ = leave(f)
    assert looks(f) == [id_]
    f.reload(replace(AUTO, regions={BIRCH: "west", CEDAR: "east"}), without="alpine")
    seen(f, id_, CopyPhase.FOUND, detail=f"{NAME} {DIGEST}")
    assert looks(f) == []
    assert copies(f) == []


# ---- more than are thought of at a time ----


def test_those_that_have_nothing_to_copy_or_no_answer_leave_their_places_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint_moves, "MOST", 1)
    f = fleet()
    ids = start_three(f)
    cordon(f, CEDAR)
    drain(f, ALPINE, deadline_s=f.clock.now_s + 120.0)
    f.run_until(lambda: {f.state(id_) for id_ in ids} == {WAITS}, limit_s=300.0)
    resume(f, CEDAR)
    (silent,) = looks(f)
    f.run_until(lambda: looks(f) != [silent], limit_s=GIVES_WAY_S + PLAN_EVERY_S)
    (empty,) = looks(f)
    found(f, empty, "- its folder holds other files")
    assert looks(f) == []
    f.run_until(lambda: bool(looks(f)), limit_s=GIVES_WAY_S + PLAN_EVERY_S)
    (third,) = looks(f)
    assert {silent, empty, third} == set(ids)  # nobody twice before each had a turn
    assert "(not copied: its folder holds" in f.refusals(empty)[CEDAR].reasons[0].detail
    found(f, third)
    f.run_for(2 * LOOK_EVERY_S)
    assert [id_ for id_, _, _ in copies(f)] == [str(third)]  # it keeps its place
    seen(f, third, CopyPhase.DONE, "east")
    assert looks(f) == [silent]
    f.run_until(lambda: looks(f) == [empty], limit_s=GIVES_WAY_S + PLAN_EVERY_S)


def test_who_has_nothing_to_copy_keeps_its_place_while_nobody_else_waits_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint_moves, "MOST", 1)
    f = fleet()
    id_ = leave(f)
    found(f, id_, "- its folder holds other files")
    f.run_for(LOOK_EVERY_S)
    assert looks(f) == [id_]


def test_a_drain_asks_about_each_that_runs_though_others_have_nothing_to_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint_moves, "MOST", 1)
    f = fleet()
    ids = start_three(f)
    drain(f, ALPINE, migrate=True)
    asked = []
    for _ in ids:
        f.run_until(lambda: bool(looks(f)), limit_s=2 * GIVES_WAY_S)
        (id_,) = looks(f)
        found(f, id_, "- its folder holds no sealed checkpoint")
        asked.append(id_)
    assert sorted(asked) == sorted(ids)
