"""Sites that are gone are written off, and may come back: the whole federation in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.drain import DrainRefusalCode
from federator.model.event import Awarded, SiteReturned
from federator.model.lifecycle import TERMINAL, WorkloadState
from federator.model.message import (
    AnswerDrained,
    AnswerDrainRefused,
    DrainAsked,
    ResumeAsked,
    WriteOffAsked,
)
from federator.model.reason import ReasonCode
from federator.model.site import SiteJobState
from federator.model.workload import WorkloadId
from federator.sched.passes.write_off import AWAY_S
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_drains import (
    ALPINE,
    BAKER,
    RULES,
    RUNS,
    WAITS,
    filled,
    fleet,
    running_at,
    work,
)

ASKED = WriteOffAsked(client=-1, site=ALPINE, reason="fire", by="root")
Asked = WriteOffAsked | DrainAsked | ResumeAsked


def ask(f: Loopback, asked: Asked = ASKED) -> AnswerDrained | AnswerDrainRefused:
    f.observe(asked)
    answer = f.answers.pop(asked.client)
    assert isinstance(answer, AnswerDrained | AnswerDrainRefused)
    return answer


def refusal(f: Loopback, asked: Asked = ASKED) -> DrainRefusalCode:
    answer = ask(f, asked)
    assert isinstance(answer, AnswerDrainRefused), answer
    return answer.refusal.code


def gone(f: Loopback) -> AnswerDrained:
    """Alpine is away for long enough, and is written off."""
    f.site_down("alpine")
    f.run_for(AWAY_S + 1.0)
    answer = ask(f)
    assert isinstance(answer, AnswerDrained), answer
    return answer


def burns(f: Loopback) -> None:
    """Nothing is left of alpine's jobs."""
    for job in list(f.slurm("alpine").live()):
        f.slurm("alpine").end(job.attempt, SiteJobState.NODE_FAIL)


def test_workloads_of_a_site_that_burnt_down_go_on_elsewhere_as_new_attempts() -> None:
    f = fleet(alpine=4, baker=8)
    ids = filled(f, 8)
    here = running_at(f, ALPINE)
    f.site_down("alpine")
    burns(f)
    answer = gone(f)
    assert (answer.running, answer.not_requeued) == (len(here), 0)
    f.run_for(30.0)
    assert [f.state(id_) for id_ in ids] == [RUNS] * 8
    assert {f.entry(id_).site for id_ in ids} == {BAKER}
    assert all(f.entry(id_).attempt == 2 for id_ in here)
    assert not any(f.entry(id_).avoid_until_s for id_ in here)


def test_a_site_that_lives_or_has_just_left_is_not_written_off() -> None:
    f = fleet()
    assert refusal(f) is DrainRefusalCode.IN_CONTACT
    f.site_down("alpine")
    assert refusal(f) is DrainRefusalCode.JUST_LEFT
    f.run_for(AWAY_S - 1.0)
    f.restart()  # nothing has been heard since: the channel may just be made anew
    assert refusal(f) is DrainRefusalCode.JUST_LEFT
    f.run_for(AWAY_S + 1.0)
    assert isinstance(ask(f), AnswerDrained)
    assert refusal(f) is DrainRefusalCode.WRITTEN_OFF
    for other in (DrainAsked(client=-1, site=ALPINE), ResumeAsked(client=-1, site=ALPINE)):
        assert refusal(f, other) is DrainRefusalCode.WRITTEN_OFF


def without_invariants(f: Loopback) -> None:
    """A site that is written off and was only cut off runs its old attempts on."""
    f.check_invariants = lambda: None  # type: ignore[method-assign]


@pytest.mark.parametrize("restarts", [False, True])
def test_old_attempts_end_before_anything_new_starts_at_a_site_that_returns(
    restarts: bool,
) -> None:
    f = fleet(alpine=4, baker=4)
    ids = filled(f, 8)
    here = running_at(f, ALPINE)
    without_invariants(f)
    gone(f)
    f.run_for(30.0)
    assert {f.state(id_) for id_ in here} == {WAITS}  # baker is full
    if restarts:
        f.compact()
        f.restart()
    assert len(list(f.slurm("alpine").live())) == 4
    f.site_up("alpine")
    f.run_until(lambda: not f.slurm("alpine").live(), limit_s=60.0)
    f.run_for(60.0)
    returned = next(k for k, e in enumerate(f.log) if isinstance(e, SiteReturned))
    later = [e for e in f.log[returned:] if isinstance(e, Awarded) and e.site == ALPINE]
    earlier = [e for e in f.log[:returned] if isinstance(e, Awarded) and e.attempt.attempt > 1]
    assert {e.attempt.workload for e in later} == set(here)
    assert not earlier
    assert all(f.entry(id_).attempt == 2 for id_ in here)
    assert [f.state(id_) for id_ in ids] == [RUNS] * 8
    Loopback.check_invariants(f)


def test_the_end_of_an_old_attempt_does_not_count() -> None:
    f = fleet(alpine=4, baker=8)
    filled(f, 8)
    here = running_at(f, ALPINE)
    old = [f.entry(id_).attempt_id for id_ in here]
    without_invariants(f)
    gone(f)
    f.run_for(30.0)
    for attempt in old:
        f.slurm("alpine").end(attempt)  # completed, where nobody saw it
    f.site_up("alpine")
    f.run_for(60.0)
    assert [f.state(id_) for id_ in here] == [RUNS] * len(here)
    assert not f.federation.ledger.drains.written_off
    Loopback.check_invariants(f)


def test_what_was_submitted_or_only_awarded_there_is_fenced_too() -> None:
    f = fleet(alpine=8, baker=8)
    f.slurm("alpine").starts_jobs = False
    ids: list[WorkloadId] = []
    while not [id_ for id_ in ids if f.entry(id_).site == ALPINE]:
        ids.append(f.submit(work()))
        f.run_until(lambda: f.state(ids[-1]) is not WAITS)
    f.run_for(5.0)
    without_invariants(f)
    gone(f)
    f.run_for(30.0)
    f.slurm("alpine").starts_jobs = True
    f.site_up("alpine")
    f.run_for(60.0)
    assert not f.federation.ledger.drains.written_off
    assert [f.entry(id_).site for id_ in ids] == [BAKER] * len(ids)
    Loopback.check_invariants(f)


def test_one_that_may_not_be_requeued_has_failed_with_its_site() -> None:
    f = fleet(alpine=4, baker=1, rules=replace(RULES, preempt_gpus=0))
    ids = filled(f, 5, requeue=False)
    here = running_at(f, ALPINE)
    f.site_down("alpine")
    burns(f)
    assert gone(f).not_requeued == len(here)
    assert {f.state(id_) for id_ in here} == {WorkloadState.FAILED}
    reason = f.entry(here[0]).reason
    assert reason is not None
    assert (reason.code, reason.detail) == (ReasonCode.WRITTEN_OFF, "alpine")
    assert len(ids) == 5


def test_a_checkpoint_that_nobody_can_read_any_more_is_not_waited_for() -> None:
    rules = replace(RULES, regions={ALPINE: "west", BAKER: "east"})
    f = fleet(alpine=2, baker=4, rules=rules)
    ids = filled(f, 2)
    for id_ in running_at(f, BAKER):
        f.slurm("baker").end(f.entry(id_).attempt_id)
    here = running_at(f, ALPINE)
    assert here
    f.observe(
        DrainAsked(client=-1, site=ALPINE, deadline_s=f.clock.now_s + 200.0, reason="", by="root")
    )
    f.run_for(300.0)
    assert [f.state(id_) for id_ in here] == [WAITS] * len(here)
    assert {f.entry(id_).saved_at for id_ in here} == {ALPINE}
    gone(f)
    f.run_for(30.0)
    assert {f.entry(id_).site for id_ in here} == {BAKER}
    assert all(f.state(id_) in {RUNS, *TERMINAL} for id_ in ids)
    assert f.replayed().entries[here[0]].saved_at == ""
