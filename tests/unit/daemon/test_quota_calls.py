"""Operators keep quotas back and release them; the answers and the log say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from federator.audit.acts import act_of
from federator.daemon.quota_calls import loan_rows, quota_asked
from federator.daemon.transition_log import TransitionLog
from federator.errors import InvalidRequest
from federator.model.event import QuotaLoan
from federator.model.message import QuotaAsked
from federator.model.quota_loan import LoanStep
from federator.model.tenant import Tenancy
from federator.model.workload import TenantName
from federator.sched.state.ledger import Ledger
from federator.wire.client_protocol import ErrorKind, ErrorReply
from federator.wire.quota_messages import LoanReply, QuotaCall
from federator.wire.status_rows import LoanRow
from tests.fakes.build import rack, tenant
from tests.fakes.loopback import Loopback
from tests.unit.daemon.test_api import Desk
from tests.unit.daemon.test_drain_calls import ask

NOW_S = 1_000_000.0
VISION = TenantName("vision")
TENANTS = (tenant("vision", 16), tenant("guest"))


def test_an_operator_keeps_a_quota_and_releases_it(tmp_path: Path) -> None:
    desk = Desk(Loopback({"alpine": rack("a", 2)}, tenants=TENANTS))
    assert ask(desk, QuotaCall(tenant="vision"), tmp_path) == LoanReply(
        tenant="vision", step="kept"
    )
    ledger = desk.federation.federation.ledger
    (row,) = loan_rows(ledger)
    assert (row.tenant, row.step, row.until_s) == ("vision", "kept", 0.0)
    assert row.by
    released = ask(desk, QuotaCall(tenant="vision", keep=False), tmp_path)
    assert released == LoanReply(tenant="vision", step="released")
    assert loan_rows(ledger) == ()


def test_a_user_may_not() -> None:
    desk = Desk(Loopback({"alpine": rack("a", 2)}, tenants=TENANTS))
    reply = desk.ask(QuotaCall(tenant="vision"), "ada")
    assert isinstance(reply, ErrorReply)
    assert reply.kind is ErrorKind.DENIED


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (QuotaCall(tenant="visio"), "unknown tenant 'visio'"),
        (QuotaCall(tenant="guest"), "guest has no quota of its own"),
        (QuotaCall(tenant="vision", until_s=NOW_S - 1), "within a year"),
        (QuotaCall(tenant="vision", until_s=float("nan")), "within a year"),
        (QuotaCall(tenant="vision", until_s=NOW_S + 4e7), "within a year"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(call: QuotaCall, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        quota_asked(call, "root", 1, Tenancy(TENANTS), NOW_S)


def test_a_release_has_no_end() -> None:
    call = QuotaCall(tenant="vision", keep=False, until_s=NOW_S + 60)
    asked = quota_asked(call, "root", 1, Tenancy(TENANTS), NOW_S)
    assert asked == QuotaAsked(client=1, tenant=VISION, keep=False, by="root")


def loan(step: LoanStep, **fields: float) -> QuotaLoan:
    return QuotaLoan(at_s=5.0, tenant=VISION, step=step, **fields)  # type: ignore[arg-type]


def test_what_is_in_use_again_is_not_shown() -> None:
    ledger = Ledger(Tenancy(TENANTS))
    ledger.apply(loan(LoanStep.NOTICED, used_frac=0.04, days=3, lends_at_s=9.0))
    assert loan_rows(ledger) == (
        LoanRow(
            tenant="vision", step="noticed", since_s=5.0, used_frac=0.04, days=3, lends_at_s=9.0
        ),
    )
    for step in (LoanStep.USED, LoanStep.ENDED):
        ledger.apply(loan(step))
        assert loan_rows(ledger) == ()


def test_the_log_and_the_audit_tell_of_each_step() -> None:
    ledger = Ledger(Tenancy(TENANTS))
    records = [
        loan(LoanStep.NOTICED, used_frac=0.04, days=3, lends_at_s=9.0),
        loan(LoanStep.LENT),
        QuotaLoan(at_s=6.0, tenant=VISION, step=LoanStep.KEPT, by="root"),
    ]
    lines = TransitionLog(ledger).lines(records)
    assert [line.event for line in lines] == ["quota_noticed", "quota_lent", "quota_kept"]
    assert lines[0].fields == {"tenant": "vision", "used_frac": 0.04, "days": 3, "lends_at_s": 9.0}
    assert lines[2].fields == {"tenant": "vision", "by": "root"}
    acts = [act_of(record, k) for k, record in enumerate(records)]
    assert [(act.act, act.by, act.on) for act in acts if act is not None] == [
        ("quota-noticed", "", "vision"),
        ("quota-lent", "", "vision"),
        ("quota-kept", "root", "vision"),
    ]
