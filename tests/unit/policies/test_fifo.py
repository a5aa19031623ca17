"""First come, first served inside each priority level."""

from __future__ import annotations

from itertools import permutations

from federator.model.event import Submitted
from federator.model.workload import Workload, WorkloadId
from federator.policies import POLICIES
from federator.policies.fifo import Fifo
from federator.sched.state.credit import CreditWeights
from federator.sched.state.ledger import Ledger
from tests.fakes.build import draft, workload

URGENT = workload(2, priority=1, submitted_at_s=30.0)
EARLY = workload(1, priority=3, submitted_at_s=10.0)
LATE = workload(0, priority=3, submitted_at_s=20.0)
SAME_SECOND = workload(3, priority=3, submitted_at_s=20.0)


def ranked(*waiting: Workload) -> list[WorkloadId]:
    """Ids in the order in which they would be tried."""
    ledger = Ledger()
    for each in waiting:
        wanted = draft(priority=each.priority)
        ledger.apply(
            Submitted(at_s=each.submitted_at_s, draft=wanted, first_id=each.id, key=str(each.id))
        )
    return [r.id for r in Fifo().rank(ledger, 100.0)]


def test_priority_goes_before_submission_and_submission_before_id() -> None:
    expected = [URGENT, EARLY, LATE, SAME_SECOND]
    for order in permutations(expected):
        assert ranked(*order) == [w.id for w in expected]


def test_nobody_is_dropped_and_nobody_is_added() -> None:
    assert ranked() == []
    assert ranked(LATE) == [LATE.id]


def test_it_is_found_by_the_name_in_the_configuration() -> None:
    assert isinstance(POLICIES["global-fifo"](CreditWeights()), Fifo)
