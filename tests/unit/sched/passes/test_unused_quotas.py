"""Quotas that are hardly used are lent fully, after notice, and returned on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from federator.model.event import QuotaLoan
from federator.model.lending import Lending
from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerLoan, QuotaAsked, QuotasMeasured
from federator.model.quota_loan import LoanStep, UnusedQuotaRules
from federator.model.workload import TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack, tenant
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_guest_rules import bring

RUNS, WAITS = WorkloadState.RUNNING, WorkloadState.PENDING
VISION = TenantName("vision")
UNUSED = UnusedQuotaRules(below_frac=0.25, days=1, notice_s=3600.0)
RULES = Rules(lending=Lending.ON, unused=UNUSED, pass_interval_s=300.0)
BUSY: dict[str, Sequence[int]] = {
    "vision": (16, 16),
    "nlp": (0, 0),
}  # all of vision's quota is forecast to be wanted
DAY_S = 86_400.0


def fleet(mode: Lending = Lending.ON, rules: Rules = RULES) -> Loopback:
    """Two nodes of 8 GPUs, all of them guaranteed to vision; nlp has a quota elsewhere."""
    owner = replace(tenant("vision", 16), unused_quota=mode)
    tenants = (owner, tenant("nlp", 0))
    return Loopback({"alpine": rack("a", 2)}, rules, None, Mast(), tenants)


def measure(f: Loopback, **unused: float) -> None:
    f.observe(QuotasMeasured(unused={TenantName(name): frac for name, frac in unused.items()}))


def steps(f: Loopback) -> list[LoanStep]:
    return [event.step for event in f.log if isinstance(event, QuotaLoan)]


def submit(f: Loopback, name: str, gpus: int = 8) -> WorkloadId:
    id_ = f.submit(draft(gang(1, gpus), tenant=name, time_limit_s=3000.0))
    f.run_for(5.0)
    return id_


def test_nothing_is_held_back_for_a_tenant_once_it_had_notice() -> None:
    f = fleet()
    bring(f, BUSY, lasts_s=7200.0)
    guest = submit(f, "nlp")
    assert f.state(guest) is WAITS
    measure(f, vision=0.01)
    assert steps(f) == [LoanStep.NOTICED]
    f.run_for(1800.0)
    assert f.state(guest) is WAITS  # the tenant knows, and may still want it
    f.run_for(2200.0)
    assert steps(f) == [LoanStep.NOTICED, LoanStep.LENT]
    assert f.state(guest) is RUNS


@pytest.mark.parametrize("mode", [Lending.ON, Lending.ADVISORY])
def test_a_quota_of_which_nothing_was_used_is_said_with_the_days_that_were_looked_at(
    mode: Lending,
) -> None:
    f = fleet(mode)
    bring(f, BUSY, lasts_s=7200.0)
    measure(f, vision=0.0)
    f.run_for(UNUSED.notice_s + 5.0)
    assert {event.days for event in f.log if isinstance(event, QuotaLoan)} == {UNUSED.days}


def test_by_advice_nothing_is_lent() -> None:
    f = fleet(Lending.ADVISORY)
    bring(f, BUSY, lasts_s=9000.0)
    guest = submit(f, "nlp")
    measure(f, vision=0.01)
    f.run_for(8000.0)
    measure(f, vision=0.01)
    assert steps(f) == [LoanStep.ADVISED]
    assert f.state(guest) is WAITS


def test_a_tenant_whose_mode_is_off_is_left_alone() -> None:
    f = fleet(Lending.OFF)
    measure(f, vision=0.0)
    assert steps(f) == []


def lent(f: Loopback) -> None:
    measure(f, vision=0.01)
    f.run_for(4000.0)
    assert steps(f)[-1] is LoanStep.LENT


def test_work_of_the_owner_starts_at_once_and_ends_the_loan() -> None:
    f = fleet()
    lent(f)
    own = submit(f, "vision")
    assert f.state(own) is RUNS
    f.run_for(600.0)
    assert steps(f)[-1] is LoanStep.USED
    bring(f, BUSY, lasts_s=900.0)
    assert f.state(submit(f, "nlp")) is WAITS  # the rest of the quota is held back again


def test_work_of_the_owner_that_waits_has_its_room_while_the_quota_is_lent() -> None:
    f = fleet()
    lent(f)
    bring(f, BUSY, lasts_s=3600.0)
    first = submit(f, "nlp")
    own = submit(f, "vision", 16 // 2)
    assert (f.state(first), f.state(own)) == (RUNS, RUNS)


def test_use_within_the_notice_ends_it() -> None:
    f = fleet()
    measure(f, vision=0.01)
    submit(f, "vision")
    f.run_for(600.0)
    assert steps(f) == [LoanStep.NOTICED, LoanStep.USED]


def test_a_quota_that_was_used_lately_gets_no_notice_before_its_days_are_over() -> None:
    f = fleet()
    measure(f, vision=0.01)
    own = submit(f, "vision")
    f.run_for(600.0)
    f.cancel(own)
    f.run_for(3000.0)
    measure(f, vision=0.01)
    assert steps(f) == [LoanStep.NOTICED, LoanStep.USED]
    f.run_for(DAY_S)
    measure(f, vision=0.01)
    assert steps(f)[-1] is LoanStep.NOTICED


def test_what_is_in_use_at_the_moment_gets_no_notice_whatever_the_days_say() -> None:
    f = fleet()
    submit(f, "vision", 4)
    measure(f, vision=0.01)
    assert steps(f) == []


def test_the_use_of_other_days_ends_a_loan() -> None:
    f = fleet()
    lent(f)
    measure(f)
    assert steps(f)[-1] is LoanStep.ENDED


def test_an_operator_keeps_a_quota_back_and_releases_it() -> None:
    f = fleet()
    lent(f)
    now_s = f.clock()
    f.observe(QuotaAsked(client=7, tenant=VISION, keep=True, until_s=now_s + DAY_S, by="root"))
    assert f.answers[7] == AnswerLoan(client=7, tenant=VISION, step=LoanStep.KEPT)
    measure(f, vision=0.0)
    assert steps(f)[-1] is LoanStep.KEPT
    bring(f, BUSY, lasts_s=900.0)
    assert f.state(submit(f, "nlp")) is WAITS
    f.run_for(DAY_S + 600.0)
    assert steps(f)[-1] is LoanStep.RELEASED
    measure(f, vision=0.0)
    assert steps(f)[-1] is LoanStep.NOTICED
    f.observe(QuotaAsked(client=8, tenant=VISION, keep=True, by="root"))
    f.observe(QuotaAsked(client=9, tenant=VISION, keep=False, by="root"))
    assert f.federation.ledger.loans.by_tenant == {}


@pytest.mark.parametrize("mode", [Lending.OFF, Lending.ADVISORY])
def test_a_configuration_that_ends_loans_ends_them(mode: Lending) -> None:
    f = fleet()
    lent(f)
    f.reload(tenants=[replace(tenant("vision", 16), unused_quota=mode), tenant("nlp", 0)])
    f.run_for(600.0)
    assert steps(f)[-1] is LoanStep.ENDED


def test_a_loan_outlives_a_restart_and_a_snapshot() -> None:
    f = fleet()
    lent(f)
    f.restart()
    assert f.federation.ledger.loans.is_lent(VISION)
    f.compact()
    f.restart()
    assert f.federation.ledger.loans.is_lent(VISION)


def test_tenants_below_a_quota_use_it_and_share_its_loan() -> None:
    org = replace(tenant("org", 16), unused_quota=Lending.ON)
    below = [replace(tenant(name, parent="org"), quota=None) for name in ("vision", "speech")]
    f = Loopback({"alpine": rack("a", 2)}, RULES, None, Mast(), (org, *below, tenant("nlp", 0)))
    bring(f, {"org": (0, 0), "vision": (16, 16), "speech": (16, 16), "nlp": (0, 0)}, 7200.0)
    guest = submit(f, "nlp")
    measure(f, org=0.0)
    f.run_for(4000.0)
    assert f.state(guest) is RUNS
    submit(f, "speech")
    f.run_for(600.0)
    assert steps(f)[-1] is LoanStep.USED
