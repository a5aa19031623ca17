"""By its key a submission that is sent twice is known again, until it is forgotten."""

from __future__ import annotations

from federator.model.workload import FIRST_WORKLOAD_ID, WorkloadId
from federator.sched.state.submission_keys import SubmissionKeys
from tests.fakes.build import workload

FIRST = FIRST_WORKLOAD_ID
SECOND = WorkloadId(FIRST + 1)


def test_a_key_names_its_workload_and_the_workload_its_key() -> None:
    keys = SubmissionKeys()
    keys.add("mine", FIRST)
    assert keys.id_of == {"mine": FIRST}
    assert keys.of(workload(0)) == "mine"
    assert keys.of(workload(1)) == ""


def test_keys_of_a_snapshot_are_found_from_the_workload_too() -> None:
    keys = SubmissionKeys()
    keys.id_of.update({"mine": FIRST})
    assert keys.of(workload(0)) == "mine"


def test_a_forgotten_key_may_come_again() -> None:
    keys = SubmissionKeys()
    keys.add("mine", FIRST)
    keys.add("yours", SECOND)
    keys.forget({FIRST})
    assert keys.id_of == {"yours": SECOND}
    assert keys.of(workload(0)) == ""
