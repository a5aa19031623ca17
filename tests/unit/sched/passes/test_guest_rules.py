"""Work over quota that cannot be had back starts only on a forecast: in virtual time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from federator.model.draft import Draft
from federator.model.event import Awarded
from federator.model.lending import Lending, LendingDecision, LendingPlan, LoadForecast
from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerPlanned, AnswerRefused, AnswerTested, PlanAsked
from federator.model.reason import ReasonCode
from federator.model.workload import SiteName, WorkloadId
from federator.policies.fifo import Fifo
from federator.policies.mast import Mast
from federator.sched.passes.withheld import MOST_NOT_LENT
from federator.sched.queue.policy import Policy
from federator.sched.queue.quota_status import quota_statuses
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack, tenant
from tests.fakes.loopback import Loopback

RUNS, WAITS = WorkloadState.RUNNING, WorkloadState.PENDING
TENANTS = (tenant("vision", 16), tenant("nlp", 16))
WINDOWS_S = (300.0, 3600.0)
QUIET: dict[str, Sequence[int]] = {"vision": (0, 0), "nlp": (0, 0)}
GUEST = draft(gang(1), tenant="nlp", time_limit_s=3000.0)
OWNER = draft(gang(1), tenant="vision", time_limit_s=3000.0)


def fleet(
    lending: Lending = Lending.ON, *, evicts: bool = False, policy: Policy | None = None
) -> Loopback:
    """Four nodes of 8 GPUs; vision and nlp have 16 GPUs each."""
    rules = Rules(lending=lending, preempt_gpus=64 if evicts else 0)
    return Loopback({"alpine": rack("a", 4)}, rules, None, policy or Mast(), TENANTS)


def bring(
    f: Loopback, new_gpus: dict[str, Sequence[int]], lasts_s: float = 900.0
) -> AnswerPlanned | None:
    """A lending plan comes, as from the planner."""
    now_s = f.clock()
    plan = LendingPlan(
        made_at_s=now_s,
        expires_at_s=now_s + lasts_s,
        windows_s=WINDOWS_S,
        forecasts=tuple(LoadForecast(tenant=t, new_gpus=tuple(g)) for t, g in new_gpus.items()),
    )
    f.observe(PlanAsked(client=999, plan=plan))
    answer = f.answers.get(999)
    assert isinstance(answer, AnswerPlanned)
    return answer


def submit(f: Loopback, *wanted: Draft) -> list[WorkloadId]:
    ids = [f.submit(each) for each in wanted]
    f.run_for(5.0)
    return ids


def lending_of(f: Loopback, id_: WorkloadId) -> LendingDecision | None:
    award = f.entry(id_).award
    assert award is not None
    return award.lending


def own_reason(f: Loopback, id_: WorkloadId) -> ReasonCode:
    return f.refusals(id_)[SiteName("")].reasons[0].code


def test_a_guest_starts_only_on_what_its_owner_is_expected_to_leave_over() -> None:
    f = fleet()
    bring(f, {"vision": (8, 8), "nlp": (0, 0)})
    ids = submit(f, *[GUEST] * 4)
    # Two are within quota; of vision's 16 idle GPUs 8 may be lent.
    assert [f.state(id_) for id_ in ids] == [RUNS, RUNS, RUNS, WAITS]
    assert [lending_of(f, id_) for id_ in ids[:2]] == [None, None]
    lent = lending_of(f, ids[2])
    assert lent is not None
    assert lent.is_lent
    assert (lent.owners, lent.window_s) == ({"vision": 8}, 3600.0)
    assert lent.until_s == pytest.approx(f.clock() + 3000.0, abs=10.0)
    (reason,) = f.refusals(ids[3])[SiteName("")].reasons
    assert (reason.code, reason.needed, reason.free) == (ReasonCode.KEPT, 8, 0)
    (owners,) = submit(f, OWNER)
    assert f.state(owners) is RUNS  # nobody had to leave for it


def test_lent_work_is_never_within_quota_and_takes_nothing_from_it() -> None:
    f = fleet()
    bring(f, QUIET)
    ids = submit(f, *[GUEST] * 3)
    assert f.state(ids[2]) is RUNS
    assert not quota_statuses(f.federation.ledger)[ids[2]].within_quota
    for id_ in ids[:2]:
        f.slurm("alpine").end(f.entry(id_).attempt_id)
    f.run_for(20.0)
    assert not quota_statuses(f.federation.ledger)[ids[2]].within_quota
    again = submit(f, *[GUEST] * 2)  # its own two places
    assert [lending_of(f, id_) for id_ in again] == [None, None]


def test_a_run_is_lent_gpus_by_the_window_that_it_is_over_in() -> None:
    f = fleet()
    bring(f, {"vision": (0, 16), "nlp": (0, 0)})
    submit(f, *[GUEST] * 2)
    long, short, endless = submit(
        f,
        draft(gang(1), tenant="nlp", time_limit_s=301.0),
        draft(gang(1), tenant="nlp", time_limit_s=300.0),
        draft(gang(1), tenant="nlp", time_limit_s=7200.0),
    )
    assert [f.state(id_) for id_ in (long, short, endless)] == [WAITS, RUNS, WAITS]
    assert own_reason(f, long) is ReasonCode.KEPT
    assert own_reason(f, endless) is ReasonCode.BEYOND_FORECAST


def test_waiting_owners_come_before_every_guest() -> None:
    f = fleet()
    bring(f, QUIET)
    filler = submit(f, *[OWNER] * 2, *[GUEST] * 2)
    waiting = submit(f, draft(gang(2), tenant="vision"))  # over quota now
    f.slurm("alpine").end(f.entry(filler[0]).attempt_id)
    f.run_for(20.0)
    guest = submit(f, GUEST)
    assert f.state(guest[0]) is RUNS  # vision's gang of 16 is over quota while 8 run
    f.slurm("alpine").end(f.entry(filler[1]).attempt_id)
    f.run_for(20.0)
    assert f.state(waiting[0]) is WAITS  # by the guest, for at most an hour: it was lent to it
    late = submit(f, GUEST)
    assert f.state(late[0]) is WAITS
    assert own_reason(f, late[0]) is ReasonCode.KEPT
    f.slurm("alpine").end(f.entry(guest[0]).attempt_id)
    f.run_for(20.0)
    assert f.state(waiting[0]) is RUNS


def test_without_a_plan_or_with_an_expired_one_work_within_quota_runs_on() -> None:
    f = fleet()
    ids = submit(f, *[GUEST] * 3)
    assert [f.state(id_) for id_ in ids] == [RUNS, RUNS, WAITS]
    assert own_reason(f, ids[2]) is ReasonCode.NO_PLAN
    bring(f, QUIET, lasts_s=60.0)
    f.run_for(5.0)
    assert f.state(ids[2]) is RUNS
    f.run_for(60.0)
    after = submit(f, GUEST, OWNER)
    assert [f.state(id_) for id_ in after] == [WAITS, RUNS]
    assert own_reason(f, after[0]) is ReasonCode.NO_PLAN


def test_a_tenant_whose_forecast_is_missing_lends_nothing() -> None:
    f = fleet()
    bring(f, {"nlp": (0, 0)})
    ids = submit(f, *[GUEST] * 3)
    assert [f.state(id_) for id_ in ids] == [RUNS, RUNS, WAITS]


def test_advice_holds_nobody_and_is_recorded() -> None:
    f = fleet(Lending.ADVISORY)
    bring(f, {"vision": (8, 8), "nlp": (0, 0)})
    ids = submit(f, *[GUEST] * 4)
    assert {f.state(id_) for id_ in ids} == {RUNS}
    lent, held = lending_of(f, ids[2]), lending_of(f, ids[3])
    assert lent is not None
    assert held is not None
    assert lent.owners == {"vision": 8}
    assert held.held is not None
    assert held.held.code is ReasonCode.KEPT
    assert not lent.is_lent  # nothing follows from it: it counts against its tenant's quota
    row = f.federation.ledger.tenancy.row(GUEST.tenant)
    assert f.federation.ledger.holdings.counted(row)[0] == 32


@pytest.mark.parametrize("plan", [True, False])
def test_off_is_as_if_there_were_no_planner(plan: bool) -> None:
    f = fleet(Lending.OFF)
    if plan:
        bring(f, {"vision": (16, 16), "nlp": (16, 16)})
    ids = submit(f, *[GUEST] * 4)
    assert {f.state(id_) for id_ in ids} == {RUNS}
    assert all(lending_of(f, id_) is None for id_ in ids)


def test_where_no_policy_knows_quotas_nothing_is_lent_or_held() -> None:
    f = fleet(policy=Fifo())
    ids = submit(f, *[GUEST] * 4)
    assert {f.state(id_) for id_ in ids} == {RUNS}


# ---- with evictions ----


FIRM = draft(gang(1), tenant="nlp", no_preempt=True, time_limit_s=3000.0)


def test_guests_that_may_be_evicted_start_as_before() -> None:
    f = fleet(evicts=True)
    ids = submit(f, *[GUEST] * 4)
    assert {f.state(id_) for id_ in ids} == {RUNS}
    assert all(lending_of(f, id_) is None for id_ in ids)


def test_work_that_may_not_be_evicted_borrows_what_owners_leave_over() -> None:
    f = fleet(evicts=True)
    bring(f, {"vision": (8, 8), "nlp": (0, 0)})
    ids = submit(f, *[FIRM] * 4)
    assert [f.state(id_) for id_ in ids] == [RUNS, RUNS, RUNS, WAITS]
    lent = lending_of(f, ids[2])
    assert lent is not None
    assert lent.owners == {"vision": 8}
    assert own_reason(f, ids[3]) is ReasonCode.KEPT


def test_by_advice_work_that_may_not_be_evicted_still_borrows_nothing() -> None:
    f = fleet(Lending.ADVISORY, evicts=True)
    bring(f, QUIET)
    ids = submit(f, *[FIRM] * 3)
    assert [f.state(id_) for id_ in ids] == [RUNS, RUNS, WAITS]
    assert own_reason(f, ids[2]) is ReasonCode.NOT_LENT


def test_what_can_be_had_back_in_time_need_not_be_kept() -> None:
    f = fleet(evicts=True)
    bring(f, {"vision": (16, 16), "nlp": (16, 16)})
    preemptible = submit(f, *[GUEST] * 2, *[draft(gang(1), tenant="nlp", name="spare")] * 1)
    assert {f.state(id_) for id_ in preemptible} == {RUNS}
    # 8 are idle; vision may want 16, of which 8 can be had back from the guest that is over quota.
    (firm,) = submit(f, draft(gang(1, 4), tenant="nlp", no_preempt=True, time_limit_s=200.0))
    assert f.state(firm) is RUNS


def test_with_lending_on_a_firm_request_beyond_the_quota_waits_and_is_not_refused() -> None:
    wanted = draft(gang(3), tenant="nlp", no_preempt=True, time_limit_s=3000.0)
    assert isinstance(fleet(Lending.OFF, evicts=True).ask(wanted), AnswerRefused)
    f = fleet(evicts=True)
    (id_,) = submit(f, wanted)
    assert f.state(id_) is WAITS
    bring(f, QUIET)
    f.run_for(5.0)
    assert f.state(id_) is RUNS


def test_a_question_is_answered_by_the_same_rule() -> None:
    f = fleet()
    submit(f, *[GUEST] * 2)
    answer = f.ask(GUEST, test_only=True)
    assert isinstance(answer, AnswerTested)
    refusal = answer.answers[SiteName("")].refusal
    assert answer.winner is None
    assert refusal is not None
    assert refusal.reasons[0].code is ReasonCode.NO_PLAN
    bring(f, QUIET)
    f.run_for(5.0)
    lent = f.ask(GUEST, test_only=True)
    assert isinstance(lent, AnswerTested)
    assert lent.winner == "alpine"


# ---- what it costs, and what survives ----


def test_of_many_that_run_too_long_only_some_are_looked_at_and_all_say_why() -> None:
    f = fleet()
    bring(f, {"vision": (0, 16), "nlp": (0, 0)})
    submit(f, *[GUEST] * 2)
    ids = submit(f, *[GUEST] * (MOST_NOT_LENT + 20))
    assert {f.state(id_) for id_ in ids} == {WAITS}
    assert {own_reason(f, id_) for id_ in ids} == {ReasonCode.KEPT}


def test_a_restart_changes_nothing() -> None:
    f = fleet()
    bring(f, {"vision": (8, 8), "nlp": (0, 0)})
    ids = submit(f, *[GUEST] * 4)
    f.restart()
    f.run_for(30.0)
    assert [f.state(id_) for id_ in ids] == [RUNS, RUNS, RUNS, WAITS]
    awards = [e for e in f.log if isinstance(e, Awarded)]
    assert [award.lending is not None for award in awards] == [False, False, True]
    row = f.federation.ledger.tenancy.row(GUEST.tenant)
    assert f.federation.ledger.holdings.counted(row)[0] == 16
