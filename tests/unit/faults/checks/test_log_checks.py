"""The log as the model sees it: each record is a step that its workload may take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.faults.checks.evidence import Evidence, Size
from federator.faults.checks.log_checks import LogChecks
from federator.faults.checks.output_checks import OutputChecks
from federator.faults.checks.wish_checks import WishChecks
from federator.faults.client_scripts import ClientScript
from federator.model.event import Awarded, Changed, Planned, QuotaLoan, encode_event
from federator.model.lending import LendingDecision, LendingPlan
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.quota_loan import LoanStep
from federator.model.reason import Reason, ReasonCode
from federator.model.workload import TenantName, WorkloadId
from tests.fakes.build import attempt, plan_on, rack

ID = WorkloadId(4739357696)
PLAIN = ClientScript(number=0, at_s=0.0, user="ada", parts=((1, 8),), time_limit_s=90)


def changed(event: WorkloadEvent) -> bytes:
    return encode_event(Changed(at_s=0.0, workload=ID, happening=event))


def test_what_has_ended_does_not_end_again() -> None:
    evidence = Evidence(lambda _: None, lambda: 0.0)
    log = LogChecks(evidence, WishChecks(evidence), OutputChecks(evidence))
    log.logged([changed(WorkloadEvent.CANCEL_ASKED)])
    assert evidence.broken == []
    log.logged([changed(WorkloadEvent.CANCEL_ASKED)])
    assert evidence.broken == [f"{ID} has ended, CANCELLED, and is cancel asked for"]


def test_what_is_held_was_refused_by_every_site_that_is_large_enough() -> None:
    evidence = Evidence(lambda _: None, lambda: 0.0)
    log = LogChecks(evidence, WishChecks(evidence), OutputChecks(evidence))
    log.nodes = {"alpine": rack("a", 4), "baker": rack("b", 1)}
    evidence.truth(ID).needs = Size(with_gpus=2, nodes=2)
    log.logged([changed(WorkloadEvent.HELD)])
    assert evidence.broken == [f"{ID} is held, and alpine has not refused it"]
    evidence.broken.clear()
    evidence.truth(ID).refused_at.add("alpine")
    log.logged([changed(WorkloadEvent.HELD)])
    assert evidence.broken == []


def test_what_is_held_was_refused_where_its_owner_lets_it_run() -> None:
    evidence = Evidence(lambda _: None, lambda: 0.0)
    log = LogChecks(evidence, WishChecks(evidence), OutputChecks(evidence))
    log.nodes = {"alpine": rack("a", 2), "baker": rack("b", 2), "cedar": rack("c", 2)}
    truth = evidence.truth(ID)
    truth.needs = Size(with_gpus=2, nodes=2)
    truth.script = replace(PLAIN, site="baker", nodelist="b1")
    log.logged([changed(WorkloadEvent.HELD)])
    assert evidence.broken == [f"{ID} is held, and baker has not refused it"]
    evidence.broken.clear()
    truth.script = replace(PLAIN, exclude="c2")
    truth.refused_at.update(("alpine", "baker"))
    log.logged([changed(WorkloadEvent.HELD)])
    assert evidence.broken == []


def test_no_more_save_for_others_at_a_time_than_may() -> None:
    evidence = Evidence(lambda _: None, lambda: 0.0)
    log = LogChecks(evidence, WishChecks(evidence), OutputChecks(evidence))
    log.most_saves = 2
    told = Reason(code=ReasonCode.PREEMPTED, detail="9")
    ids = [WorkloadId(k) for k in (1, 2, 3)]
    for id_ in ids:
        evidence.truth(id_).state = WorkloadState.RUNNING

    def happens(id_: WorkloadId, what: WorkloadEvent) -> None:
        event = Changed(at_s=1.0, workload=id_, happening=what, reason=told)
        log.logged([encode_event(event)])

    happens(ids[0], WorkloadEvent.EVICTED)
    happens(ids[1], WorkloadEvent.EVICTED)
    happens(ids[0], WorkloadEvent.PREEMPTED)
    happens(ids[2], WorkloadEvent.EVICTED)
    assert evidence.broken == []
    evidence.truth(ids[0]).state = WorkloadState.RUNNING
    happens(ids[0], WorkloadEvent.EVICTED)
    assert evidence.broken == [f"3 save at a time, {ids[0]} the last"]


def planned(made_at_s: float) -> bytes:
    plan = LendingPlan(made_at_s=made_at_s, expires_at_s=made_at_s + 100, windows_s=(300.0,))
    return encode_event(Planned(at_s=made_at_s, plan=plan))


def lent(at_s: float, planned_at_s: float | None, *, within_quota: bool = False) -> bytes:
    lending = None if planned_at_s is None else LendingDecision(planned_at_s=planned_at_s)
    return encode_event(
        Awarded(
            at_s=at_s,
            attempt=attempt(),
            site="alpine",
            jobs=plan_on("a1"),
            within_quota=within_quota,
            lending=lending,
        )
    )


@pytest.mark.parametrize(
    ("award", "words"),
    [
        (lent(1000.0, None), "is over quota, and nothing was lent to it"),
        (lent(1000.0, None, within_quota=True), ""),
        (lent(1000.0, 990.0), ""),
        (lent(1020.0, 990.0), ""),  # its pass began before the later plan came
        (lent(1060.0, 990.0), "by a plan that is not in force"),
        (lent(1060.0, 1010.0), ""),
        (lent(1141.0, 1010.0), "by a plan that is not in force"),  # it has expired
        (lent(1000.0, 123.0), "by a plan that is not in force"),
    ],
)
def test_who_is_over_quota_is_lent_gpus_by_the_plan_in_force(award: bytes, words: str) -> None:
    evidence = Evidence(lambda _: None, lambda: 0.0)
    log = LogChecks(evidence, WishChecks(evidence), OutputChecks(evidence))
    log.lends = True
    log.logged([planned(990.0), planned(1010.0), award])
    assert len(evidence.broken) == bool(words)
    assert all(words in said for said in evidence.broken)


def loan(step: LoanStep, at_s: float, lends_at_s: float = 0.0) -> bytes:
    tenant = TenantName("prod")
    return encode_event(QuotaLoan(at_s=at_s, tenant=tenant, step=step, lends_at_s=lends_at_s))


@pytest.mark.parametrize(
    ("records", "broken"),
    [
        ([loan(LoanStep.NOTICED, 1.0, 7.0), loan(LoanStep.LENT, 7.0)], False),
        ([loan(LoanStep.NOTICED, 1.0, 7.0), loan(LoanStep.LENT, 6.9)], True),
        ([loan(LoanStep.LENT, 7.0)], True),
        (
            [
                loan(LoanStep.NOTICED, 1.0, 7.0),
                loan(LoanStep.USED, 5.0),
                loan(LoanStep.LENT, 7.0),
            ],
            True,
        ),
    ],
)
def test_a_quota_is_lent_when_its_notice_is_over(records: list[bytes], *, broken: bool) -> None:
    evidence = Evidence(lambda _: None, lambda: 0.0)
    log = LogChecks(evidence, WishChecks(evidence), OutputChecks(evidence))
    log.lends = True
    log.logged(records)
    text = "the quota of prod is lent before its notice is over"
    assert evidence.broken == ([text] if broken else [])


def test_no_quota_is_lent_where_none_are_to_be() -> None:
    evidence = Evidence(lambda _: None, lambda: 0.0)
    log = LogChecks(evidence, WishChecks(evidence), OutputChecks(evidence))
    log.logged([loan(LoanStep.NOTICED, 1.0, 7.0)])
    assert evidence.broken == ["the quota of prod is noticed"]
