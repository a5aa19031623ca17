"""What becomes of a workload at its time limit when it asked to go on: in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.draft import Draft
from federator.model.event import Changed
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import PreemptAt
from federator.model.reason import ReasonCode
from federator.model.site import SiteJobState
from federator.model.workload import WorkloadId
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

RUNS, WAITS = WorkloadState.RUNNING, WorkloadState.PENDING
LEAVES, ENDED = WorkloadState.PREEMPTING, WorkloadState.COMPLETED
CHAIN = draft(gang(1), continues=True, time_limit_s=600.0)


def fleet(duration_s: float | None = 1500.0, grace_s: float = 60.0) -> Loopback:
    """One site of two nodes, whose Slurm ends what reaches its limit."""
    f = Loopback({"alpine": rack("a", 2)}, Rules(grace_s=grace_s), duration_s)
    f.enforces_limits = True
    return f


def happenings(f: Loopback, id_: WorkloadId) -> list[WorkloadEvent]:
    return [e.happening for e in f.log if isinstance(e, Changed) and e.workload == id_]


def told_after_s(f: Loopback) -> list[float]:
    """How long each attempt had been running when it was told to leave."""
    started = [
        e.at_s for e in f.log if isinstance(e, Changed) and e.happening is WorkloadEvent.STARTED
    ]
    told = [
        e.at_s for e in f.log if isinstance(e, Changed) and e.happening is WorkloadEvent.LIMIT_NEAR
    ]
    return [round(b - a) for a, b in zip(started, told, strict=False)]


# ---- the chain ----


def test_a_workload_longer_than_its_limit_finishes_over_several_attempts() -> None:
    f = fleet()
    began_s = f.clock.now_s
    id_ = f.submit(CHAIN)
    f.run_until_all_end()
    assert (f.state(id_), f.entry(id_).attempt) == (ENDED, 3)
    assert f.clock.now_s < began_s + 1600.0  # nothing was done twice


def test_it_is_told_to_leave_a_grace_before_its_limit() -> None:
    f = fleet(grace_s=60.0)
    f.submit(CHAIN)
    f.run_until_all_end()
    assert told_after_s(f) == [540, 540]
    graces_s = [c.grace_s for c in f.commands if isinstance(c, PreemptAt)]
    assert graces_s == [pytest.approx(60.0)] * 2


def test_with_a_grace_longer_than_half_the_limit_it_works_for_half_of_it() -> None:
    f = fleet(grace_s=900.0)
    f.submit(CHAIN)
    f.run_until_all_end()
    assert set(told_after_s(f)) == {300}


@pytest.mark.parametrize(("lead_s", "after_s"), [(10.0, 530), (120.0, 420), (900.0, 300)])
def test_it_is_told_before_slurm_signals_it_by_itself(lead_s: float, after_s: int) -> None:
    f = fleet(grace_s=60.0)
    f.submit(replace(CHAIN, signal_lead_s=lead_s))
    f.run_for(601.0)
    assert told_after_s(f)[0] == pytest.approx(after_s, abs=1)


@pytest.mark.parametrize("lead_s", [560.0, 600.0, 10_000.0])
def test_with_a_lead_as_long_as_its_limit_each_attempt_works_for_half_of_it(lead_s: float) -> None:
    """Else it would be told the moment it starts, and go round for ever."""
    f = fleet()
    id_ = f.submit(replace(CHAIN, signal_lead_s=lead_s))
    f.run_for(310.0)
    assert told_after_s(f) == [300]
    f.run_until_all_end()
    assert set(told_after_s(f)) == {300}
    assert (f.state(id_), f.entry(id_).attempt) == (ENDED, 5)


def test_while_it_leaves_its_state_and_reason_say_so() -> None:
    f = fleet()
    f.save_s = 30.0
    id_ = f.submit(CHAIN)
    f.run_until(lambda: f.state(id_) is LEAVES, 700.0)
    entry = f.entry(id_)
    assert entry.at_its_limit
    assert entry.reason is not None
    assert entry.reason.code is ReasonCode.TIME_LIMIT


def test_it_is_no_eviction() -> None:
    f = fleet()
    id_ = f.submit(CHAIN)
    f.run_until(lambda: f.entry(id_).attempt == 2, 700.0)
    entry = f.entry(id_)
    assert (entry.preemptions, entry.evicted_at_s, entry.avoid_until_s) == (0, 0.0, {})
    assert not f.federation.ledger.evictions.within


def test_its_place_in_the_queue_is_that_of_its_submission() -> None:
    f = fleet()
    first = f.submit(replace(CHAIN, jobs=(gang(2),)))
    f.run_for(100.0)
    second = f.submit(draft(gang(2), time_limit_s=7200.0))
    f.run_until(lambda: f.entry(first).attempt == 2, 700.0)
    assert f.state(second) is WAITS


def test_without_a_time_limit_the_option_says_nothing() -> None:
    f = fleet()
    id_ = f.submit(replace(CHAIN, time_limit_s=float("inf")))
    f.run_until_all_end()
    assert (f.state(id_), f.entry(id_).attempt) == (ENDED, 1)


def test_who_did_not_ask_for_it_ends_at_the_limit() -> None:
    f = fleet()
    id_ = f.submit(replace(CHAIN, continues=False))
    f.run_until_all_end()
    assert (f.state(id_), f.entry(id_).attempt) == (WorkloadState.TIMEOUT, 1)


@pytest.mark.parametrize(
    "wanted",
    [replace(CHAIN, array_indices=(0, 1)), replace(CHAIN, jobs=(gang(1), gang(1, 4, "serve")))],
)
def test_arrays_and_het_jobs_go_on_too(wanted: Draft) -> None:
    f = fleet()
    f.submit(wanted)
    f.run_until_all_end()
    entries = f.federation.ledger.entries.values()
    assert {(e.state, e.attempt) for e in entries} == {(ENDED, 3)}


# ---- ends of its own ----


def test_one_that_ends_before_it_is_told_has_completed() -> None:
    f = fleet(duration_s=500.0)
    id_ = f.submit(CHAIN)
    f.run_until_all_end()
    assert happenings(f, id_)[-1] is WorkloadEvent.COMPLETED
    assert f.entry(id_).attempt == 1


@pytest.mark.parametrize("told", [False, True])
def test_a_failure_of_its_own_is_its_end(told: bool) -> None:
    f = fleet()
    f.save_s = 50.0
    id_ = f.submit(CHAIN)
    f.run_for(560.0 if told else 100.0)
    assert f.state(id_) is (LEAVES if told else RUNS)
    f.slurm("alpine").end(f.entry(id_).attempt_id, SiteJobState.FAILED, 139 if told else 1)
    f.run_until_all_end()
    assert (f.state(id_), f.entry(id_).attempt) == (WorkloadState.FAILED, 1)


def test_a_cancel_ends_it_also_while_it_leaves() -> None:
    f = fleet()
    f.save_s = 50.0
    id_ = f.submit(CHAIN)
    f.run_until(lambda: f.state(id_) is LEAVES, 700.0)
    f.cancel(id_)
    f.run_until_all_end()
    assert f.state(id_) is WorkloadState.CANCELLED


# ---- when things go wrong ----


def test_after_a_restart_of_the_daemon_it_is_told_all_the_same() -> None:
    f = fleet()
    id_ = f.submit(CHAIN)
    f.run_for(100.0)
    f.restart()
    f.run_until_all_end()
    assert (f.state(id_), f.entry(id_).attempt) == (ENDED, 3)
    assert told_after_s(f) == [540, 540]


def test_a_restart_of_the_daemon_while_it_leaves_changes_nothing() -> None:
    f = fleet()
    f.save_s = 30.0
    id_ = f.submit(CHAIN)
    f.run_until(lambda: f.state(id_) is LEAVES, 700.0)
    f.restart()
    f.run_until_all_end()
    entry = f.entry(id_)
    assert (entry.state, entry.attempt, entry.preemptions) == (ENDED, 3, 0)
    last = [c.grace_s for c in f.commands if isinstance(c, PreemptAt)][1]
    assert last < 60.0  # what was left of it then


def test_one_whose_site_is_not_heard_is_told_when_it_is_back() -> None:
    f = fleet()
    id_ = f.submit(CHAIN)
    f.run_for(500.0)
    f.site_down("alpine")
    f.run_for(60.0)
    assert f.state(id_) is RUNS
    f.site_up("alpine")
    f.run_for(5.0)
    assert f.state(id_) in (LEAVES, WAITS, WorkloadState.LAUNCHING, RUNS)
    assert WorkloadEvent.LIMIT_NEAR in happenings(f, id_)


def test_one_whose_limit_struck_first_goes_on_as_well() -> None:
    f = fleet()
    id_ = f.submit(CHAIN)
    f.run_for(500.0)
    f.site_down("alpine")
    f.run_for(200.0)
    f.site_up("alpine")
    f.run_for(5.0)
    assert happenings(f, id_).count(WorkloadEvent.LIMIT_STRUCK) == 1
    assert (f.state(id_), f.entry(id_).attempt) == (RUNS, 2)
    assert f.entry(id_).fruitless_attempts == 0  # it had no chance to save


def test_three_attempts_in_a_row_that_save_nothing_are_its_last() -> None:
    f = fleet()
    f.save_s = 1e6
    id_ = f.submit(CHAIN)
    f.run_until_all_end()
    entry = f.entry(id_)
    assert (entry.state, entry.attempt) == (WorkloadState.TIMEOUT, 3)
    assert entry.reason is not None
    assert (entry.reason.code, entry.reason.needed) == (ReasonCode.NO_PROGRESS, 3)


def test_an_attempt_that_saves_makes_up_for_those_before_it() -> None:
    f = fleet(duration_s=3000.0)
    f.save_s = 1e6
    id_ = f.submit(CHAIN)
    f.run_until(lambda: f.entry(id_).attempt == 3, 2000.0)
    assert f.entry(id_).fruitless_attempts == 2
    f.save_s = 1.0
    f.run_until(lambda: f.entry(id_).attempt == 4, 2000.0)
    assert f.entry(id_).fruitless_attempts == 0
    f.run_until_all_end()
    assert f.state(id_) is ENDED


def test_the_log_alone_tells_how_far_a_chain_has_come() -> None:
    f = fleet()
    f.save_s = 1e6
    id_ = f.submit(CHAIN)
    f.run_until(lambda: f.entry(id_).attempt == 3, 2000.0)
    assert f.replayed().entries[id_] == f.entry(id_)
