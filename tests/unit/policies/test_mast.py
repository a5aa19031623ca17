"""MAST's order over a ledger: what waits, what is held, and the usage that comes of it."""

from __future__ import annotations

from federator.model.event import Awarded, Changed, LogRecord, Submitted
from federator.model.lifecycle import WorkloadEvent
from federator.model.tenant import Tenancy
from federator.model.workload import FIRST_WORKLOAD_ID, WorkloadId
from federator.policies.mast import Mast
from federator.sched.state.credit import CreditWeights
from federator.sched.state.ledger import Ledger
from federator.sched.state.usage import WindowAverage
from tests.fakes.build import attempt, draft, plan_on, tenant

DAY_S = 86_400.0
TENANTS = (tenant("vision", 16, priority=2), tenant("speech", 16, priority=2))


def ledger_with(*events: LogRecord) -> Ledger:
    ledger = Ledger(Tenancy(TENANTS), WindowAverage(DAY_S))
    for event in events:
        ledger.apply(event)
    return ledger


def submitted(number: int, name: str, at_s: float = 0.0) -> Submitted:
    id_ = WorkloadId(FIRST_WORKLOAD_ID + number)
    return Submitted(at_s=at_s, draft=draft(tenant=name), first_id=id_, key=str(number))


def awarded(number: int, at_s: float, nodes: int = 1) -> Awarded:
    names = [f"a{k}" for k in range(nodes)]
    return Awarded(
        at_s=at_s, attempt=attempt(number), site="alpine", jobs=plan_on(*names), within_quota=True
    )


def cancelled(number: int, at_s: float) -> Changed:
    id_ = WorkloadId(FIRST_WORKLOAD_ID + number)
    return Changed(at_s=at_s, workload=id_, happening=WorkloadEvent.CANCEL_ASKED)


def order(ledger: Ledger, now_s: float, weights: CreditWeights | None = None) -> list[int]:
    ranking = (Mast() if weights is None else Mast(weights)).rank(ledger, now_s)
    assert list(ranking) == list(ranking.listed())
    return [r.id - FIRST_WORKLOAD_ID for r in ranking]


def test_nobody_waits() -> None:
    assert order(ledger_with(), 0.0) == []


def test_who_ran_lately_goes_behind_who_did_not() -> None:
    events: list[LogRecord] = [
        submitted(0, "vision"),
        awarded(0, 0.0),
        submitted(1, "vision", 10.0),
        submitted(2, "speech", 20.0),
    ]
    assert order(ledger_with(*events), DAY_S) == [2, 1]


def test_without_a_weight_for_fair_share_who_ran_lately_is_no_worse_off() -> None:
    events: list[LogRecord] = [
        submitted(0, "vision"),
        awarded(0, 0.0),
        submitted(1, "vision", 10.0),
        submitted(2, "speech", 20.0),
    ]
    assert order(ledger_with(*events), DAY_S, CreditWeights(fair_share=0.0)) == [1, 2]


def test_use_longer_ago_than_the_window_is_forgotten() -> None:
    events: list[LogRecord] = [
        submitted(0, "vision"),
        awarded(0, 0.0),
        Changed(at_s=1.0, workload=FIRST_WORKLOAD_ID, happening=WorkloadEvent.DECLINED),
        cancelled(0, 2.0),
        submitted(1, "vision", 10.0),
        submitted(2, "speech", 20.0),
    ]
    assert order(ledger_with(*events), 100.0) == [2, 1]
    assert order(ledger_with(*events), 2 * DAY_S) == [1, 2]


def test_what_is_at_a_site_counts_against_the_quota_until_it_has_left() -> None:
    events: list[LogRecord] = [
        submitted(0, "vision"),
        awarded(0, 1.0, nodes=2),
        submitted(1, "vision"),
    ]
    ledger = ledger_with(*events)
    assert [r.within_quota for r in Mast().rank(ledger, 5.0)] == [False]
    ledger.apply(cancelled(0, 6.0))  # asked for, and the site has not said so
    assert [r.within_quota for r in Mast().rank(ledger, 7.0)] == [False]
    ledger.apply(Changed(at_s=8.0, workload=FIRST_WORKLOAD_ID, happening=WorkloadEvent.LOST))
    assert [r.within_quota for r in Mast().rank(ledger, 9.0)] == [True]


def test_who_comes_back_from_a_site_keeps_its_place_and_frees_its_quota() -> None:
    events: list[LogRecord] = [
        submitted(0, "vision"),
        submitted(1, "vision", 5.0),
        submitted(2, "vision", 6.0),
        awarded(0, 7.0),
    ]
    ledger = ledger_with(*events)
    assert [r.within_quota for r in Mast().rank(ledger, 8.0)] == [True, False]
    back = Changed(at_s=9.0, workload=FIRST_WORKLOAD_ID, happening=WorkloadEvent.DECLINED)
    ledger.apply(back)
    assert order(ledger, 10.0) == [0, 1, 2]
    assert [r.within_quota for r in Mast().rank(ledger, 10.0)] == [True, True, False]


def test_the_priority_a_workload_was_submitted_with_counts_for_nothing() -> None:
    ledger = ledger_with(submitted(0, "vision"))
    (found,) = Mast().rank(ledger, 1.0)
    assert ledger.entries[FIRST_WORKLOAD_ID].workload.priority == 3
    assert found.priority == 2  # its tenant's, as configured now


def test_who_is_in_no_tenant_of_the_configuration_is_ranked_last() -> None:
    ledger = ledger_with(submitted(0, "gone"), submitted(1, "vision", 50.0))
    ranked = list(Mast().rank(ledger, 100.0))
    assert [(r.priority, r.within_quota) for r in ranked] == [(2, True), (7, False)]
