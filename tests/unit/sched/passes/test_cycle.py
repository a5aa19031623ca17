"""Which workloads a pass tries, and in which order."""

from __future__ import annotations

from federator.model.event import Awarded, Submitted
from federator.model.plan import BidRequest
from federator.model.reason import ReasonCode
from federator.model.workload import FIRST_WORKLOAD_ID, WorkloadId
from federator.policies.fifo import Fifo
from federator.sched.passes.cycle import SchedulingPass
from federator.sched.state.ledger import Ledger
from tests.fakes.build import attempt, draft, plan_on


def array_of(*indices: int, max_running: int) -> Ledger:
    ledger = Ledger()
    wanted = draft(array_indices=indices, array_max_running=max_running)
    ledger.apply(Submitted(at_s=0.0, draft=wanted, first_id=FIRST_WORKLOAD_ID, key="k"))
    return ledger


def window_of(ledger: Ledger) -> tuple[WorkloadId, ...]:
    return ids(SchedulingPass(Fifo().rank(ledger, 1.0), ledger).next_window((), 100))


def ids(window: tuple[BidRequest, ...]) -> tuple[WorkloadId, ...]:
    return tuple(request.id for request in window)


def test_tasks_beyond_their_arrays_throttle_are_left_out_and_told_why() -> None:
    ledger = array_of(1, 2, 3, max_running=2)
    assert window_of(ledger) == (FIRST_WORKLOAD_ID, FIRST_WORKLOAD_ID + 1)
    (refusal,) = ledger.entries[WorkloadId(FIRST_WORKLOAD_ID + 2)].refusals.values()
    (reason,) = refusal.reasons
    assert (reason.code, reason.needed) == (ReasonCode.ARRAY_LIMIT, 2)


def test_tasks_at_a_site_count_against_the_throttle() -> None:
    ledger = array_of(1, 2, 3, max_running=2)
    ledger.apply(Awarded(at_s=1.0, attempt=attempt(), site="alpine", jobs=plan_on("a1")))
    assert window_of(ledger) == (FIRST_WORKLOAD_ID + 1,)
    assert ledger.entries[WorkloadId(FIRST_WORKLOAD_ID + 2)].refusals


def test_an_array_without_a_throttle_is_tried_as_a_whole() -> None:
    assert len(window_of(array_of(1, 2, 3, max_running=0))) == 3


def test_a_window_ends_where_it_is_full_and_the_next_goes_on_from_there() -> None:
    ledger = array_of(1, 2, 3, max_running=0)
    pass_ = SchedulingPass(Fifo().rank(ledger, 1.0), ledger)
    first = ids(pass_.next_window((), 2))
    assert (first, ids(pass_.next_window(first[1:], 2))) == (
        (FIRST_WORKLOAD_ID, FIRST_WORKLOAD_ID + 1),
        (FIRST_WORKLOAD_ID + 1, FIRST_WORKLOAD_ID + 2),
    )
