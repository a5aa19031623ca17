"""Which workloads a pass tries, and in which order."""

from __future__ import annotations

from federator.model.event import Awarded, Submitted
from federator.model.reason import ReasonCode
from federator.model.workload import FIRST_WORKLOAD_ID, WorkloadId
from federator.policies.fifo import Fifo
from federator.sched.cycle import rank
from federator.sched.ledger import Ledger
from tests.fakes.build import attempt, draft, plan_on


def array_of(*indices: int, max_running: int) -> Ledger:
    ledger = Ledger()
    wanted = draft(array_indices=indices, array_max_running=max_running)
    ledger.apply(Submitted(at_s=0.0, draft=wanted, first_id=FIRST_WORKLOAD_ID, key="k"))
    return ledger


def test_tasks_beyond_their_arrays_throttle_are_told_apart_and_nothing_is_changed() -> None:
    ledger = array_of(1, 2, 3, max_running=2)
    queue, throttled = rank(ledger, Fifo(), 1.0)
    assert queue == [FIRST_WORKLOAD_ID, FIRST_WORKLOAD_ID + 1]
    assert list(throttled) == [FIRST_WORKLOAD_ID + 2]
    (reason,) = throttled[WorkloadId(FIRST_WORKLOAD_ID + 2)].reasons
    assert (reason.code, reason.needed) == (ReasonCode.ARRAY_LIMIT, 2)
    assert not any(entry.refusals for entry in ledger.entries.values())


def test_tasks_at_a_site_count_against_the_throttle() -> None:
    ledger = array_of(1, 2, 3, max_running=2)
    ledger.apply(Awarded(at_s=1.0, attempt=attempt(), site="alpine", jobs=plan_on("a1")))
    queue, throttled = rank(ledger, Fifo(), 1.0)
    assert (queue, list(throttled)) == ([FIRST_WORKLOAD_ID + 1], [FIRST_WORKLOAD_ID + 2])


def test_an_array_without_a_throttle_is_tried_as_a_whole() -> None:
    queue, throttled = rank(array_of(1, 2, 3, max_running=0), Fifo(), 1.0)
    assert (len(queue), throttled) == (3, {})
