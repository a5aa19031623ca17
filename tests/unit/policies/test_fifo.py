"""First come, first served inside each priority level."""

from __future__ import annotations

from itertools import permutations

from federator.policies import POLICIES
from federator.policies.fifo import Fifo
from tests.fakes.build import workload

URGENT = workload(2, priority=1, submitted_at_s=30.0)
EARLY = workload(1, priority=3, submitted_at_s=10.0)
LATE = workload(0, priority=3, submitted_at_s=20.0)
SAME_SECOND = workload(3, priority=3, submitted_at_s=20.0)


def test_priority_goes_before_submission_and_submission_before_id() -> None:
    expected = [URGENT, EARLY, LATE, SAME_SECOND]
    for order in permutations(expected):
        assert Fifo().order(order, now_s=100.0) == expected


def test_nobody_is_dropped_and_nobody_is_added() -> None:
    assert Fifo().order([], now_s=0.0) == []
    assert Fifo().order(iter([LATE]), now_s=0.0) == [LATE]


def test_it_is_found_by_the_name_in_the_configuration() -> None:
    assert isinstance(POLICIES["fifo"], Fifo)
