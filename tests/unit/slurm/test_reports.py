"""A het job is one attempt, whatever its components do."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from federator.agent.base import KnownJobs, Launched, federated_and_local
from federator.model.site import (
    LocalJob,
    NodeShare,
    SiteComponent,
    SiteJob,
    SiteJobState,
    combined_state,
)
from federator.model.workload import AttemptId, WorkloadId
from federator.slurm.reports import as_launched, attempt_reports, holders_of

S = SiteJobState
ATTEMPT = AttemptId(workload=WorkloadId(2**32 + 1), attempt=2)


def job(
    job_id: int,
    state: SiteJobState = S.RUNNING,
    *,
    leader: int = 0,
    comment: str = str(ATTEMPT),
    exit_code: int = 0,
    started_at_s: float = 0.0,
    ended_at_s: float = 0.0,
    reason: str = "",
    nodes: tuple[str, ...] = (),
) -> SiteJob:
    return SiteJob(
        job_id=job_id,
        name="j",
        user="vision1",
        account="vision",
        partition="fed",
        state=state,
        reason=reason,
        comment=comment,
        exit_code=exit_code,
        het_job_id=leader,
        het_offset=job_id - leader if leader else 0,
        started_at_s=started_at_s,
        ended_at_s=ended_at_s,
        nodes=dict.fromkeys(nodes, NodeShare()),
    )


@pytest.mark.parametrize(
    ("states", "combined"),
    [
        ([S.PENDING, S.PENDING], S.PENDING),
        ([S.RUNNING, S.PENDING], S.RUNNING),
        ([S.COMPLETED, S.RUNNING], S.RUNNING),
        ([S.SUSPENDED, S.PENDING], S.SUSPENDED),
        ([S.CANCELLED, S.PENDING], S.PENDING),
        ([S.COMPLETED, S.COMPLETED], S.COMPLETED),
        ([S.COMPLETED, S.CANCELLED], S.CANCELLED),
        ([S.CANCELLED, S.FAILED], S.FAILED),
        ([S.FAILED, S.TIMEOUT], S.TIMEOUT),
        ([S.FAILED, S.PREEMPTED], S.PREEMPTED),
        ([S.CANCELLED, S.NODE_FAIL, S.PREEMPTED], S.NODE_FAIL),
        ([S.OUT_OF_MEMORY, S.FAILED], S.OUT_OF_MEMORY),
        ([S.BOOT_FAIL, S.DEADLINE], S.BOOT_FAIL),
    ],
)
def test_components_combine_by_the_documented_rules(
    states: list[SiteJobState], combined: SiteJobState
) -> None:
    assert combined_state(states) is combined
    assert combined_state(reversed(states)) is combined


@pytest.mark.parametrize("state", list(SiteJobState))
def test_every_state_alone_stays_what_it_is(state: SiteJobState) -> None:
    assert combined_state([state]) is state


def test_a_plain_job_is_reported_as_it_is() -> None:
    only = job(7, started_at_s=5.0, nodes=("n1", "n2"), reason="Prolog")
    (report,) = attempt_reports([only])
    assert (report.attempt, report.site_job_id, report.state) == (ATTEMPT, 7, S.RUNNING)
    assert (report.started_at_s, report.ended_at_s) == (5.0, 0.0)
    assert (report.nodes, report.reason) == (("n1", "n2"), "Prolog")


@pytest.mark.parametrize(
    ("state", "slurms_word", "comment", "reason"),
    [
        (S.CANCELLED, "", "fed-watch:idle-7200s", "fed-watch:idle-7200s"),
        (S.CANCELLED, "", "fed-gate:no-lease x", "fed-gate:no-lease"),
        (S.PENDING, "BeginTime", "fed-watch:zombie-600s mine", "BeginTime fed-watch:zombie-600s"),
        (S.RUNNING, "", "fed-watch:zombie-600s", ""),
        (S.COMPLETED, "", "fed-watch:zombie-600s", ""),
        (S.CANCELLED, "", "mine fed-watch:zombie-600s", ""),
        (S.CANCELLED, "", "fed-watch=off", ""),
    ],
)
def test_the_watchs_note_tells_why_a_job_was_ended_or_put_back(
    state: SiteJobState, slurms_word: str, comment: str, reason: str
) -> None:
    (report,) = attempt_reports([job(7, state, comment=f"{ATTEMPT} {comment}", reason=slurms_word)])
    assert report.reason == reason


def test_jobs_that_name_no_attempt_are_left_out() -> None:
    assert attempt_reports([job(1, comment="mine"), job(2, comment="fed:x:1")]) == ()


BEGUN = AttemptId(workload=WorkloadId(8), attempt=1)
OURS = KnownJobs(
    launched={7: Launched(attempt=ATTEMPT, user="vision1", at_s=1000.0)}, begun=frozenset({BEGUN})
)


@pytest.mark.parametrize("comment", ["", "lr=3e-4", "fed:", "fed:x:1", "fed:9:1"])
def test_a_job_that_was_renamed_is_known_by_its_id(comment: str) -> None:
    renamed = replace(job(7, comment=comment, nodes=("n1",)), submitted_at_s=999.0)
    (report,) = attempt_reports([as_launched(renamed, OURS)])
    assert (report.attempt, report.site_job_id) == (ATTEMPT, 7)
    component = replace(job(8, leader=7, comment=comment), submitted_at_s=999.0)
    assert as_launched(component, OURS).comment == str(ATTEMPT)


@pytest.mark.parametrize(
    "other",
    [
        replace(job(8, comment="mine"), submitted_at_s=999.0),  # was never launched
        replace(job(7, comment="mine"), submitted_at_s=999.0, user="mallory"),
        replace(job(7, comment="mine"), submitted_at_s=5000.0),  # ids have come again
        replace(job(7, comment=str(BEGUN)), submitted_at_s=999.0),  # so they have, and who it is
    ],
)
def test_a_job_that_only_has_the_id_keeps_its_comment(other: SiteJob) -> None:
    assert as_launched(other, OURS) is other


def test_what_slurm_put_back_was_submitted_later_and_is_the_same_job() -> None:
    again = replace(job(7, comment="mine"), submitted_at_s=5000.0, restarts=1)
    assert as_launched(again, OURS).comment == str(ATTEMPT)


def test_an_ended_het_job_has_its_leaders_exit_code_and_its_last_end() -> None:
    leader = job(7, S.FAILED, leader=7, exit_code=3, started_at_s=1.0, ended_at_s=4.0)
    other = job(8, S.CANCELLED, leader=7, exit_code=9, started_at_s=2.0, ended_at_s=5.0)
    (report,) = attempt_reports([other, leader])
    assert (report.site_job_id, report.state, report.exit_code) == (7, S.FAILED, 3)
    assert (report.started_at_s, report.ended_at_s) == (2.0, 5.0)


def test_a_het_job_has_no_end_while_a_component_runs() -> None:
    (report,) = attempt_reports(
        [job(7, S.FAILED, leader=7, ended_at_s=4.0), job(8, leader=7, nodes=("n3",))]
    )
    assert (report.state, report.ended_at_s, report.nodes) == (S.RUNNING, 0.0, ("n3",))


def test_a_het_job_whose_leader_is_forgotten_keeps_its_id() -> None:
    (report,) = attempt_reports([job(8, leader=7)])
    assert report.site_job_id == 7


def test_two_jobs_of_one_attempt_are_two_reports() -> None:
    assert [r.site_job_id for r in attempt_reports([job(9), job(7)])] == [7, 9]


def holding(job_: SiteJob, gpus: int, ends_by_s: float, *nodes: str) -> SiteJob:
    shares = {name: NodeShare(gpus=gpus, cpus=8) for name in nodes}
    return replace(job_, nodes=shares, ends_by_s=ends_by_s)


def test_the_components_of_a_het_job_hold_their_nodes_as_one_until_the_last_of_them_ends() -> None:
    parts = [
        holding(job(10, leader=10, started_at_s=5.0), 8, 100.0, "n1", "n2"),
        holding(job(11, leader=10, started_at_s=6.0), 1, 200.0, "n2"),
    ]
    (one,) = holders_of(parts)
    assert (one.job_id, one.attempt, one.started_at_s, one.ends_by_s) == (10, ATTEMPT, 6.0, 200.0)
    assert one.nodes == {"n1": NodeShare(gpus=8, cpus=8), "n2": NodeShare(gpus=9, cpus=16)}


def test_what_holds_no_nodes_is_no_holder() -> None:
    jobs = [
        holding(job(3, comment="mine"), 0, 50.0, "n1"),
        job(4, S.PENDING, comment="mine"),
        job(5, S.COMPLETED),
    ]
    assert [(h.job_id, h.attempt) for h in holders_of(jobs)] == [(3, None)]


def test_only_a_genuine_attempt_runs_for_the_federation_everything_else_is_local() -> None:
    """Two jobs pretend: one by another attempt's name, one by that of an attempt that is here."""
    genuine = holding(job(10, started_at_s=5.0), 8, 100.0, "n1")
    forged = [
        holding(job(11, comment=f"fed:{2**32 + 1}:9"), 8, inf, "n2"),
        holding(job(12), 8, inf, "n3"),
    ]
    running, local = federated_and_local(holders_of([genuine, *forged]), {ATTEMPT: 10})
    assert [(r.id, tuple(r.nodes), r.ends_by_s) for r in running] == [(2**32 + 1, ("n1",), 100.0)]
    assert not running[0].preemptible  # the site knows nothing of priorities
    assert local == (
        LocalJob(id=11, nodes=("n2",), ends_by_s=inf),
        LocalJob(id=12, nodes=("n3",), ends_by_s=inf),
    )


def test_of_two_attempts_of_a_workload_one_runs_for_the_federation() -> None:
    older = AttemptId(workload=ATTEMPT.workload, attempt=1)
    jobs = [
        holding(job(10), 8, 100.0, "n1"),
        holding(job(9, comment=str(older)), 8, 50.0, "n2"),
    ]
    running, local = federated_and_local(holders_of(jobs), {ATTEMPT: 10, older: 9})
    assert [tuple(r.nodes) for r in running] == [("n1",)]
    assert [j.nodes for j in local] == [("n2",)]


def test_a_report_tells_how_each_component_of_a_het_job_stands() -> None:
    parts = [job(10, leader=10), replace(job(11, S.CANCELLED, leader=10), het_offset=1)]
    (report,) = attempt_reports(parts)
    assert report.state is S.RUNNING
    assert report.components == {
        0: SiteComponent(10, S.RUNNING),
        1: SiteComponent(11, S.CANCELLED),
    }
    assert attempt_reports([job(12)])[0].components == {}


def test_a_holder_tells_what_each_component_of_a_het_job_holds() -> None:
    parts = [
        holding(job(10, leader=10), 8, 100.0, "n1"),
        replace(holding(job(11, leader=10), 1, 200.0, "n2"), het_offset=1),
    ]
    (one,) = holders_of(parts)
    assert {k: list(held) for k, held in one.components.items()} == {0: ["n1"], 1: ["n2"]}
    assert holders_of([holding(job(3), 8, 50.0, "n1")])[0].components == {}
