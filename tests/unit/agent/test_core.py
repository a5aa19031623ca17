"""Orders and answers that meet at a bad moment, decided by the core alone."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from federator.agent.attempt_table import AttemptState
from federator.agent.effects import Kill, MakeSweep, Notify, ReadFolders, Sbatch, Scancel
from federator.agent.journal import JournalMark, JournalStep
from federator.agent.observations import Done, Ordered
from federator.model.site import SiteJobState
from federator.model.site_message import CancelOrder, LaunchAccepted
from tests.fakes.one_attempt import ATTEMPT, ORDERS, OneAttempt

HELD = ("Kill: done", "Sbatch: done")  # until a test has them answered


def running() -> OneAttempt:
    """Its job was submitted, started, and is seen to run."""
    site = OneAttempt()
    site.first_sweep()
    for name in ("launch", "OpenLease: done", "Sbatch: done", "MakeSweep: done", "the job starts"):
        site.options()[name]()
    site.settle_down(for_s=10.0)
    return site


def until(site: OneAttempt, name: str) -> None:
    """Let everything be done until this can happen, then have it happen."""
    for _ in range(200):
        options = site.options()
        if name in options:
            options[name]()
            return
        done = next((n for n in options if n.endswith(": done") and n not in HELD), "")
        options[done or "time passes"]()
    pytest.fail(f"{name} never could happen: {sorted(site.options())}")


def test_a_late_answer_of_an_earlier_grace_is_nothing_to_the_next_one() -> None:
    site = running()
    site.observe(Ordered(message=ORDERS["preempt"]))
    until(site, "ReadFolders: saved")
    while not any(isinstance(effect, Kill) for effect in site.under_way):
        until(site, "time passes")
    site.options()["the job ends"]()
    record = site.core.memory.records[ATTEMPT]
    while record.grace is not None:
        until(site, "MakeSweep: done")
        until(site, "SettleLeases: done")
    site.observe(Ordered(message=ORDERS["preempt"]))  # was in the pipe
    assert site.core.memory.state_of(ATTEMPT) is AttemptState.EVICTING
    site.options()["Kill: fails"]()
    assert site.core.memory.state_of(ATTEMPT) is AttemptState.EVICTING
    site.settle_down()
    assert site.core.memory.records == {}


def test_the_job_of_another_user_is_none_of_an_attempt_launched_while_folders_are_read() -> None:
    site = OneAttempt()
    site.first_sweep()
    site.core.memory.sweep_soon = True
    until(site, "time passes")
    (sweep,) = (effect for effect in site.under_way if isinstance(effect, MakeSweep))
    site.under_way.remove(sweep)
    site._submit()
    shown = site._sweep()
    site.jobs.clear()
    failed = replace(shown.attempts[0], user="eve", state=SiteJobState.FAILED, signal=53)
    site.observe(Done(effect=sweep, value=replace(shown, attempts=(failed,))))
    for name in ("launch", "OpenLease: done", "Sbatch: never"):
        site.options()[name]()
    until(site, "Inspect: done")
    site.settle_down()
    assert not any(isinstance(message, LaunchAccepted) for message in site.said)


def test_a_repeated_eviction_does_not_move_the_deadline_of_one_that_is_being_submitted() -> None:
    site = OneAttempt()
    site.first_sweep()
    for name in ("launch", "OpenLease: done"):
        site.options()[name]()
    site._submit()
    site._start()
    until(site, "MakeSweep: done")  # which shows it before sbatch has answered
    until(site, "SettleLeases: done")
    began_s = site.now_s
    for _ in range(3):
        site.observe(Ordered(message=ORDERS["preempt"]))
        site.now_s += 10.0
    (sbatch,) = (effect for effect in site.under_way if isinstance(effect, Sbatch))
    site.jobs.pop()
    site.options()["Sbatch: done"]()
    assert sbatch not in site.under_way
    grace = msgspec.structs.asdict(ORDERS["preempt"])["grace_s"]
    assert site.core.memory.mark(ATTEMPT).leave_by_s == began_s + grace


def test_what_was_given_up_and_runs_all_the_same_can_be_evicted() -> None:
    site = OneAttempt(accounts=False)
    site.first_sweep()
    for name in ("launch", "OpenLease: done", "Sbatch: refused", "Release: done"):
        site.options()[name]()
    site._submit()
    site.jobs[0].state = SiteJobState.RUNNING  # at a site without a gate
    site.settle_down(for_s=30.0)
    site.observe(Ordered(message=ORDERS["preempt"]))
    assert site.core.memory.state_of(ATTEMPT) is AttemptState.EVICTING
    site.settle_down()
    assert site.jobs[0].state.ended
    assert not any(isinstance(effect, ReadFolders) for effect in site.under_way)


def test_a_job_that_has_saved_is_not_notified_again_though_its_notice_failed() -> None:
    site = running()
    site.record = True
    site.observe(Ordered(message=ORDERS["preempt"]))
    site.options()["Notify: fails"]()  # it would be repeated 2 s later
    until(site, "ReadFolders: saved")
    for _ in range(20):
        until(site, "time passes")
    assert site.core.memory.records[ATTEMPT].grace is not None  # its Kill is not answered yet
    decided = [effect for _, _, effects in site.story for effect in effects]
    assert [type(effect) for effect in decided].count(Notify) == 1


def test_a_job_that_ended_before_its_order_came_has_its_folder_read_before_it_is_settled() -> None:
    """The sweep that shows its end looked into no folder: it was not told to leave then."""
    site = running()
    folders, memory = site.core._grace_folders, site.core.memory
    ended = replace(
        memory.known[ATTEMPT], state=SiteJobState.COMPLETED, ended_at_s=site.now_s + 1.0
    )
    assert folders.looks({ATTEMPT: ended}) == []
    site.observe(Ordered(message=ORDERS["preempt"]))
    folders.complete({ATTEMPT: ended})
    grace = memory.records[ATTEMPT].grace
    assert grace is not None
    assert not grace.settled
    assert len(folders.looks({ATTEMPT: ended})) == 1
    folders.complete({ATTEMPT: ended})
    assert grace.settled


def test_a_cancel_from_a_queue_that_never_heard_of_the_job_is_answered_with_the_job_first() -> None:
    site = OneAttempt(accounts=False)
    site.first_sweep()
    for name in ("launch", "OpenLease: done", "Sbatch: done"):
        site.options()[name]()
    site.jobs.clear()  # it has ended, and slurmctld has forgotten it
    site.settle_down(for_s=10.0)
    site.said.clear()
    site.observe(Ordered(message=ORDERS["withdraw"]))
    site.settle_down(for_s=10.0)
    told = [m for m in site.said if isinstance(m, LaunchAccepted) or getattr(m, "gone", False)]
    assert [type(m).__name__ for m in told] == ["LaunchAccepted", "Report"]


def test_a_job_that_has_the_id_of_an_earlier_one_is_not_cancelled_in_its_place() -> None:
    """slurmctld had lost the earlier one, whose id its hooks had noted, and gave it again."""
    site = OneAttempt()
    site.first_sweep()
    begun = JournalMark(step=JournalStep.INTENT, at_s=site.now_s, user="ada")
    job = replace(begun, step=JournalStep.JOB, job_id=103)
    other = replace(ATTEMPT, attempt=ATTEMPT.attempt + 1)
    index = site.core.memory.index
    for attempt, mark in ((ATTEMPT, begun), (other, job), (ATTEMPT, replace(job, late=True))):
        index.remember(attempt, mark)
    site.record = True
    site.observe(Ordered(message=CancelOrder(attempt=ATTEMPT, user="ada", pending_only=True)))
    site.settle_down()
    decided = [effect for _, _, effects in site.story for effect in effects]
    assert not any(isinstance(effect, Scancel) for effect in decided)
    accepted = [message for message in site.said if isinstance(message, LaunchAccepted)]
    assert [(each.attempt, each.site_job_id) for each in accepted] == [(ATTEMPT, 103)]
