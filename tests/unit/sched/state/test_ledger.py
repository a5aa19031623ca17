"""What the log alone makes true."""

from __future__ import annotations

import msgspec
import pytest

from federator.model.event import (
    Awarded,
    Changed,
    EpochBegan,
    Submitted,
    decode_event,
    encode_event,
)
from federator.model.lifecycle import Effect, InvalidTransition, WorkloadEvent, WorkloadState
from federator.model.reason import Reason, ReasonCode
from federator.model.tenant import Tenancy
from federator.model.workload import FIRST_WORKLOAD_ID, SiteName, TenantName
from federator.sched.state.backoff import RETRY_AFTER_MAX_S, RETRY_AFTER_S
from federator.sched.state.failures import DAY_S
from federator.sched.state.ledger import Ledger, WorkloadRecord
from tests.fakes.build import attempt, draft, plan_on, tenant

ID = FIRST_WORKLOAD_ID
A = SiteName("alpine")


def ledger_with_one() -> Ledger:
    ledger = Ledger()
    ledger.apply(Submitted(at_s=0.0, draft=draft(), first_id=ID, key="k"))
    return ledger


def award(ledger: Ledger, nth: int = 1, site: str = "alpine") -> tuple[Effect, ...]:
    return ledger.apply(Awarded(at_s=1.0, attempt=attempt(0, nth), site=site, jobs=plan_on("a1")))


def change(
    ledger: Ledger, happening: WorkloadEvent, at_s: float = 2.0, **fields: object
) -> WorkloadRecord:
    event = Changed(at_s=at_s, workload=ID, happening=happening, **fields)  # type: ignore[arg-type]
    ledger.apply(event)
    return ledger.entries[ID]


def test_the_first_id_is_above_every_slurm_job_id_and_ids_never_repeat() -> None:
    ledger = Ledger()
    assert ledger.next_id == FIRST_WORKLOAD_ID
    ledger.apply(Submitted(at_s=0.0, draft=draft(array_indices=(3, 5)), first_id=ID, key="k"))
    assert ledger.next_id == FIRST_WORKLOAD_ID + 2
    assert ledger.keys.id_of["k"] == FIRST_WORKLOAD_ID


def test_the_tasks_of_an_array_share_one_submission() -> None:
    event = Submitted(
        at_s=9.0, draft=draft(array_indices=(3, 5), array_max_running=1), first_id=ID, key="k"
    )
    ledger = Ledger()
    ledger.apply(decode_event(encode_event(event)))
    first, second = (e.workload for e in ledger.entries.values())
    assert first.submission is second.submission
    assert first.jobs is second.jobs
    assert [w.array and (w.array.array_id, w.array.index) for w in (first, second)] == [
        (ID, 3),
        (ID, 5),
    ]
    assert (second.id, second.submitted_at_s) == (ID + 1, 9.0)


def test_a_new_workload_waits_and_makes_a_pass_due() -> None:
    ledger = Ledger()
    effects = ledger.apply(Submitted(at_s=0.0, draft=draft(), first_id=ID, key="k"))
    assert effects == (Effect.RANK_AGAIN,)
    assert [e.workload.id for e in ledger.in_state(WorkloadState.PENDING)] == [ID]


def test_an_award_keeps_site_plan_and_attempt() -> None:
    ledger = ledger_with_one()
    assert award(ledger) == (Effect.LAUNCH,)
    entry = ledger.entries[ID]
    assert (entry.site, entry.plan, entry.attempt_id) == (A, plan_on("a1"), attempt())
    assert list(ledger.in_state(WorkloadState.PENDING)) == []
    assert list(ledger.in_state(WorkloadState.AWARDED)) == [entry]


def test_an_illegal_event_changes_nothing() -> None:
    ledger = ledger_with_one()
    award(ledger)
    with pytest.raises(InvalidTransition):
        award(ledger, 2, "baker")
    entry = ledger.entries[ID]
    assert (entry.attempt, entry.site, entry.state) == (1, A, WorkloadState.AWARDED)


def test_the_epoch_is_the_last_that_began() -> None:
    ledger = Ledger()
    for epoch in (1, 2):
        ledger.apply(EpochBegan(at_s=0.0, epoch=epoch))
    assert ledger.epoch == 2


def test_who_comes_back_avoids_the_site_for_twice_as_long_each_time() -> None:
    ledger = ledger_with_one()
    waits = []
    for nth in range(1, 10):
        award(ledger, nth)
        entry = change(ledger, WorkloadEvent.DECLINED, at_s=100.0)
        waits.append(entry.avoid_until_s[A] - 100.0)
    assert waits[:3] == [RETRY_AFTER_S, 2 * RETRY_AFTER_S, 4 * RETRY_AFTER_S]
    assert waits[-1] == RETRY_AFTER_MAX_S


def test_a_start_forgives_the_sites_failures() -> None:
    ledger = ledger_with_one()
    award(ledger, 1)
    change(ledger, WorkloadEvent.DECLINED)
    award(ledger, 2)
    change(ledger, WorkloadEvent.ACCEPTED, site_job_id=7)
    assert change(ledger, WorkloadEvent.STARTED, started_at_s=3.0).failures_at == {}
    back = change(ledger, WorkloadEvent.NODE_FAILED, at_s=100.0)
    assert back.avoid_until_s[A] == 100.0 + RETRY_AFTER_S


def test_who_is_back_in_the_queue_is_at_no_site() -> None:
    ledger = ledger_with_one()
    award(ledger)
    change(ledger, WorkloadEvent.ACCEPTED, site_job_id=7)
    change(ledger, WorkloadEvent.STARTED, started_at_s=3.0)
    entry = change(ledger, WorkloadEvent.NODE_FAILED)
    assert entry.state is WorkloadState.PENDING
    assert (entry.site, entry.plan, entry.site_job_id, entry.started_at_s) == ("", (), 0, 0.0)
    assert entry.attempt == 1  # the next one is new


def test_the_lease_runs_from_the_sites_acceptance() -> None:
    ledger = ledger_with_one()
    award(ledger)
    assert change(ledger, WorkloadEvent.ACCEPTED, at_s=5.0).lease_from_s == 5.0
    assert change(ledger, WorkloadEvent.LEASE_OVER, at_s=70.0).withdrawing


def test_what_its_site_put_back_is_withdrawn_at_once() -> None:
    ledger = ledger_with_one()
    award(ledger)
    change(ledger, WorkloadEvent.ACCEPTED, site_job_id=7)
    change(ledger, WorkloadEvent.STARTED, started_at_s=3.0)
    entry = change(ledger, WorkloadEvent.SITE_REQUEUED, at_s=90.0)
    assert (entry.state, entry.withdrawing) == (WorkloadState.LAUNCHING, True)


def test_nodes_that_failed_it_are_avoided_and_not_their_site() -> None:
    ledger = ledger_with_one()
    award(ledger)
    change(ledger, WorkloadEvent.ACCEPTED, site_job_id=7)
    change(ledger, WorkloadEvent.STARTED, started_at_s=3.0)
    why = Reason(code=ReasonCode.NODE_FAILED, detail="a1")
    entry = change(ledger, WorkloadEvent.NODE_FAILED, 100.0, failed_nodes=("a1",), reason=why)
    assert entry.bad_nodes.avoided(A, 100.0) == ("a1",)
    assert (entry.avoid_until_s, entry.setbacks) == ({}, {A: why})


def test_the_failure_rate_comes_with_the_log() -> None:
    ledger = ledger_with_one()
    award(ledger)
    change(ledger, WorkloadEvent.ACCEPTED, site_job_id=7)
    change(ledger, WorkloadEvent.STARTED, started_at_s=100.0)
    before = ledger.failures.per_node_s(A)
    change(ledger, WorkloadEvent.NODE_FAILED, at_s=100.0 + 100 * DAY_S, failed_nodes=("a1",))
    assert before == pytest.approx(6.5 / 1000 / DAY_S)
    assert ledger.failures.per_node_s(A) == pytest.approx((0.65 + 1) / (200 * DAY_S))


def test_exit_code_and_signal_are_those_of_the_end() -> None:
    ledger = ledger_with_one()
    award(ledger)
    change(ledger, WorkloadEvent.ACCEPTED, site_job_id=7)
    change(ledger, WorkloadEvent.STARTED, started_at_s=3.0)
    entry = change(ledger, WorkloadEvent.FAILED, ended_at_s=9.0, exit_code=2, signal=9)
    assert (entry.exit_code, entry.signal, entry.started_at_s, entry.ended_at_s) == (2, 9, 3.0, 9.0)


def test_every_workload_is_in_the_index_of_its_state_and_no_other() -> None:
    ledger = ledger_with_one()
    award(ledger)
    change(ledger, WorkloadEvent.DECLINED)
    assert [e.workload.id for e in ledger.in_state(*WorkloadState)] == [ID]


# ---- what is held ----


def test_an_award_is_charged_and_released_once_when_the_workload_has_left() -> None:
    ledger = ledger_with_one()
    holdings, row = ledger.holdings, ledger.tenancy.row(TenantName("vision"))
    award(ledger)
    assert list(holdings.used(row)) == [8, 1]
    for happening in (WorkloadEvent.ACCEPTED, WorkloadEvent.STARTED, WorkloadEvent.CANCEL_ASKED):
        change(ledger, happening)
        assert list(holdings.used(row)) == [8, 1]
    assert change(ledger, WorkloadEvent.CANCELLED).charge is None
    assert list(holdings.used(row)) == [0, 0]
    with pytest.raises(InvalidTransition):
        change(ledger, WorkloadEvent.CANCELLED)
    assert list(holdings.used(row)) == [0, 0]


def test_what_waits_is_in_the_backlog_and_nothing_else_is() -> None:
    ledger = ledger_with_one()
    assert len(ledger.backlog) == 1
    award(ledger)
    assert len(ledger.backlog) == 0
    change(ledger, WorkloadEvent.DECLINED)
    assert len(ledger.backlog) == 1
    change(ledger, WorkloadEvent.CANCEL_ASKED)
    assert len(ledger.backlog) == 0


def test_a_record_of_an_award_from_an_older_release_replays_as_over_quota() -> None:
    now = Awarded(
        at_s=1.0,
        attempt=attempt(),
        site="alpine",
        jobs=plan_on("a1"),
        priority=3,
        within_quota=True,
        credit=24.0,
    )
    fields = msgspec.msgpack.decode(encode_event(now))
    for new in ("priority", "within_quota", "credit", "offers"):
        fields.pop(new, None)
    for plan in fields["jobs"]:
        plan.pop("gpu_types", None)
    old = decode_event(msgspec.msgpack.encode(fields))
    assert isinstance(old, Awarded)
    assert (old.priority, old.within_quota, old.credit) == (0, False, 0.0)
    ledger = Ledger(Tenancy([tenant("vision", 8)]))
    ledger.apply(Submitted(at_s=0.0, draft=draft(), first_id=ID, key="k"))
    ledger.apply(old)
    assert (list(ledger.holdings.used(0)), list(ledger.holdings.within(0))) == ([8, 1], [0, 0])
    change(ledger, WorkloadEvent.DECLINED)
    assert list(ledger.holdings.used(0)) == [0, 0]


def test_a_submission_of_an_older_release_asks_for_no_demotion() -> None:
    event = Submitted(at_s=0.0, draft=draft(), first_id=ID, key="k")
    fields = msgspec.msgpack.decode(encode_event(event))
    for new in ("asked_priority", "nice"):
        del fields["draft"][new]
    ledger = Ledger()
    ledger.apply(decode_event(msgspec.msgpack.encode(fields)))
    found = ledger.entries[ID].workload
    assert (found.asked_priority, found.nice) == (1, 0)
