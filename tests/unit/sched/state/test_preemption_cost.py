"""What evictions destroy, for whom, and how long saving takes: learned from the log alone."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.model.event import Awarded, Changed, LogRecord, Submitted
from federator.model.lifecycle import InvalidTransition, WorkloadEvent, WorkloadState
from federator.model.site import Leave
from federator.model.workload import FIRST_WORKLOAD_ID, TenantName, WorkloadId
from federator.sched.passes.continuation import AT_LIMIT
from federator.sched.passes.orders import leave_by_s
from federator.sched.state.ledger import Ledger
from federator.sched.state.preemption_cost import destroyed_gpu_s
from federator.sched.state.rules import Rules
from federator.sched.state.save_times import SaveTimes, family_of
from tests.fakes.build import attempt, draft, plan_on, workload
from tests.fakes.ledger_dump import dump

GUEST, OWNER = FIRST_WORKLOAD_ID, WorkloadId(FIRST_WORKLOAD_ID + 1)
FAMILY = family_of(workload())
FAMILY_OF_GUEST = (TenantName("guest"), "ada", "train")
_TIMES_S = st.floats(0, 1e9)


def applied(*events: LogRecord) -> Ledger:
    ledger = Ledger()
    for event in events:
        ledger.apply(event)
    return ledger


def changed(id_: WorkloadId, happening: WorkloadEvent, at_s: float, **fields: object) -> Changed:
    return Changed(at_s=at_s, workload=id_, happening=happening, attempt=1, **fields)  # type: ignore[arg-type]


EVICTED_AT_100_S: tuple[LogRecord, ...] = (
    Submitted(at_s=0.0, draft=draft(tenant="guest"), first_id=GUEST, key="g"),
    Submitted(at_s=0.0, draft=draft(tenant="owner"), first_id=OWNER, key="o"),
    Awarded(at_s=1.0, attempt=attempt(0), site="alpine", jobs=plan_on("a1")),
    changed(GUEST, WorkloadEvent.ACCEPTED, 1.0),
    changed(GUEST, WorkloadEvent.STARTED, 2.0, started_at_s=2.0),
    Awarded(at_s=99.0, attempt=attempt(1), site="alpine", jobs=plan_on("a1"), victims=(GUEST,)),
    changed(OWNER, WorkloadEvent.ACCEPTED, 100.0),
    changed(GUEST, WorkloadEvent.EVICTED, 100.0),
)


def gone(leave: Leave | None) -> Changed:
    """It has left at 110 s."""
    return changed(
        GUEST, WorkloadEvent.PREEMPTED, 111.0, started_at_s=2.0, ended_at_s=110.0, leave=leave
    )


@pytest.mark.parametrize(
    ("leave", "lost_gpu_s"),
    [
        (Leave(told_at_s=101.0, saved_at_s=108.0), 8 * 9.0),  # all since it was told
        (Leave(told_at_s=101.0, saved_at_s=60.0, forced=True), 8 * 50.0),  # since it saved last
        (Leave(told_at_s=101.0, forced=True), 8 * 108.0),  # since its start
        (None, 8 * 108.0),
    ],
)
def test_lost_is_what_was_done_after_the_last_moment_of_use(
    leave: Leave | None, lost_gpu_s: float
) -> None:
    ledger = applied(*EVICTED_AT_100_S, gone(leave))
    guest, owner = ledger.entries[GUEST], ledger.entries[OWNER]
    assert (guest.lost_gpu_s, guest.preemptions, guest.evicted_for) == (lost_gpu_s, 1, OWNER)
    assert (owner.destroyed_gpu_s, owner.evictions) == (lost_gpu_s, 1)
    assert ledger.tax.by_preemptor == {TenantName("owner"): lost_gpu_s}
    assert ledger.tax.by_victim == {TenantName("guest"): lost_gpu_s}


@pytest.mark.parametrize("first", [WorkloadEvent.STARTED, WorkloadEvent.CANCEL_ASKED])
def test_whatever_becomes_of_the_winner_meanwhile_the_loss_is_charged_to_its_tenant(
    first: WorkloadEvent,
) -> None:
    ledger = applied(*EVICTED_AT_100_S, changed(OWNER, first, 110.0), gone(None))
    assert ledger.tax.by_preemptor == {TenantName("owner"): 8 * 108.0}


def test_who_ends_by_itself_while_it_should_leave_has_lost_nothing() -> None:
    ended = changed(GUEST, WorkloadEvent.COMPLETED, 110.0, ended_at_s=109.0)
    ledger = applied(*EVICTED_AT_100_S, ended)
    assert (ledger.tax.gpu_s, ledger.entries[OWNER].evictions) == (0.0, 0)


def test_a_step_that_cannot_follow_changes_nothing_at_all() -> None:
    ledger = applied(*EVICTED_AT_100_S)
    before = dump(ledger.entries)
    with pytest.raises(InvalidTransition):
        ledger.apply(
            changed(
                GUEST, WorkloadEvent.STARTED, 105.0, leave=Leave(told_at_s=101.0, saved_at_s=104.0)
            )
        )
    assert dump(ledger.entries) == before
    assert ledger.entries[GUEST].saved_at == ""
    assert (ledger.saves.seen(FAMILY_OF_GUEST), ledger.tax.victims) == (0, 0)


@pytest.mark.parametrize(
    "leave",
    [
        None,
        Leave(told_at_s=-1e300, saved_at_s=1e300),
        Leave(told_at_s=1e300, saved_at_s=1e300),
        Leave(told_at_s=101.0, saved_at_s=-1e300, forced=True),
    ],
)
def test_no_site_can_claim_more_than_the_time_since_the_award(leave: Leave | None) -> None:
    lies = changed(
        GUEST, WorkloadEvent.PREEMPTED, 111.0, started_at_s=-1e300, ended_at_s=1e300, leave=leave
    )
    ledger = applied(*EVICTED_AT_100_S, lies)
    assert 0.0 <= ledger.tax.gpu_s <= 8 * 110.0
    assert ledger.entries[GUEST].lost_gpu_s == ledger.tax.gpu_s
    assert (ledger.saves.p95_s(FAMILY_OF_GUEST) or 0.0) <= 110.0


def test_who_is_killed_at_its_own_limit_teaches_nothing_of_save_times() -> None:
    """It was told when its limit said so, not when it could save; its kin are not slow for that."""
    near = changed(GUEST, WorkloadEvent.LIMIT_NEAR, 3500.0, reason=AT_LIMIT)
    forced = Leave(told_at_s=3500.0, saved_at_s=3000.0, forced=True)
    struck = changed(GUEST, WorkloadEvent.LIMIT_STRUCK, 3602.0, ended_at_s=3602.0, leave=forced)
    assert applied(*EVICTED_AT_100_S[:5], near, struck).saves.seen(FAMILY_OF_GUEST) == 0
    saved = Leave(told_at_s=3500.0, saved_at_s=3520.0)
    left = changed(GUEST, WorkloadEvent.PREEMPTED, 3602.0, ended_at_s=3520.0, leave=saved)
    assert applied(*EVICTED_AT_100_S[:5], near, left).saves.p95_s(FAMILY_OF_GUEST) == 20.0


def test_only_who_is_told_to_leave_has_a_time_by_which_it_must() -> None:
    rules = Rules(grace_s=60.0)
    ledger = applied(*EVICTED_AT_100_S)
    assert leave_by_s(ledger.entries[GUEST], rules) == 160.0
    assert leave_by_s(ledger.entries[OWNER], rules) == 0.0
    ledger.apply(gone(None))
    assert ledger.entries[GUEST].state is WorkloadState.PENDING
    assert leave_by_s(ledger.entries[GUEST], rules) == 0.0


def test_who_leaves_at_its_own_time_limit_costs_nobody_a_tax() -> None:
    near = changed(GUEST, WorkloadEvent.LIMIT_NEAR, 3500.0, reason=AT_LIMIT)
    ledger = applied(*EVICTED_AT_100_S[:5], near)
    assert leave_by_s(ledger.entries[GUEST], Rules()) == 2.0 + 3600.0
    ledger.apply(gone(None))
    assert (ledger.tax.gpu_s, ledger.entries[GUEST].lost_gpu_s) == (0.0, 0.0)


@given(
    gpus=st.integers(0, 1000), start_s=_TIMES_S, ran_s=_TIMES_S, told_s=_TIMES_S, saved_s=_TIMES_S
)
def test_no_more_is_lost_than_was_run_and_a_later_save_never_loses_more(
    gpus: int, start_s: float, ran_s: float, told_s: float, saved_s: float
) -> None:
    end_s = start_s + ran_s
    never = destroyed_gpu_s(gpus, start_s, end_s, None)
    earlier = destroyed_gpu_s(gpus, start_s, end_s, Leave(told_at_s=told_s, saved_at_s=saved_s / 2))
    later = destroyed_gpu_s(gpus, start_s, end_s, Leave(told_at_s=told_s, saved_at_s=saved_s))
    assert 0.0 <= later <= earlier <= never == gpus * (end_s - start_s)


def learned(*leaves: Leave) -> SaveTimes:
    saves = SaveTimes()
    for leave in leaves:
        saves.learn(FAMILY, leave, 10.0)
    return saves


def test_a_familys_save_time_is_that_which_95_in_100_do_not_exceed() -> None:
    saves = learned(*(Leave(told_at_s=100.0, saved_at_s=100.0 + k) for k in range(1, 21)))
    assert (saves.seen(FAMILY), saves.p95_s(FAMILY)) == (20, 19.0)
    assert (saves.in_time(FAMILY, 19.0), saves.in_time(FAMILY, 18.0)) == (True, False)


def test_one_odd_save_of_a_few_decides_nothing() -> None:
    odd = learned(
        *(Leave(told_at_s=100.0, saved_at_s=101.0),) * 18, Leave(told_at_s=100.0, saved_at_s=900.0)
    )
    assert (odd.seen(FAMILY), odd.p95_s(FAMILY), odd.in_time(FAMILY, 60.0)) == (19, 1.0, True)
    deaf = learned(
        *(Leave(told_at_s=100.0, saved_at_s=101.0),) * 18,
        Leave(told_at_s=100.0, saved_at_s=50.0, forced=True),
    )
    assert (deaf.p95_s(FAMILY), deaf.in_time(FAMILY, 60.0)) == (1.0, True)
    lately = learned(
        *(Leave(told_at_s=100.0, saved_at_s=101.0),) * 2, Leave(told_at_s=100.0, saved_at_s=900.0)
    )
    assert lately.p95_s(FAMILY) == 1.0


def test_a_checkpoint_from_before_its_start_is_no_sign_that_it_saves() -> None:
    """The folder is the workload's: a file that was touched once, ages ago, proves nothing."""
    deaf = learned(Leave(told_at_s=100.0, saved_at_s=3.0, forced=True))
    assert (deaf.seen(FAMILY), deaf.in_time(FAMILY, 1.0)) == (0, True)


def test_who_was_cut_off_while_saving_was_too_slow_and_who_never_saves_says_nothing() -> None:
    cut_off = learned(Leave(told_at_s=100.0, saved_at_s=50.0, forced=True))
    assert (cut_off.seen(FAMILY), cut_off.p95_s(FAMILY)) == (1, inf)
    never = learned(Leave(told_at_s=100.0, forced=True))
    assert (never.seen(FAMILY), never.p95_s(FAMILY), never.in_time(FAMILY, 1.0)) == (0, None, True)


def test_what_is_known_of_a_family_follows_its_latest_saves() -> None:
    times = SaveTimes()
    times.restore([(*FAMILY, (5.0, 7.0))])
    assert times.known_s(FAMILY) == times.known_s(FAMILY) == 5.0
    times.learn(FAMILY, Leave(told_at_s=0.0, saved_at_s=9.0), 0.0)
    assert (times.known_s(FAMILY), times.in_time(FAMILY, 6.0)) == (7.0, False)
    times.restore([(*FAMILY, (3.0,))])
    assert times.known_s(FAMILY) == 3.0
