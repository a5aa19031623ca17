"""What users have wished for: the model notices an award or a start that is against it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.faults.checks.evidence import Evidence
from federator.faults.checks.wish_checks import WishChecks
from federator.faults.client_scripts import Chain, ClientScript
from federator.model.event import Awarded, Submitted
from federator.model.lifecycle import WorkloadState
from federator.model.workload import AttemptId, WorkloadId
from tests.fakes.build import draft, plan_on

FIRST, SECOND = WorkloadId(8), WorkloadId(9)
PLAIN = ClientScript(number=0, at_s=0.0, user="ada", parts=((1, 8),), time_limit_s=90)


class Watched:
    """The checks of two submissions."""

    def __init__(self, first: ClientScript, second: ClientScript = PLAIN) -> None:
        self.evidence = Evidence(lambda _: None, lambda: 0.0)
        self.wishes = WishChecks(self.evidence)
        self.wishes.scripts = {
            "ada:1": replace(first, number=0),
            "ada:2": replace(second, number=1),
        }
        for id_, key in ((FIRST, "ada:1"), (SECOND, "ada:2")):
            self.wishes.submitted(Submitted(at_s=0.0, draft=draft(), first_id=id_, key=key))

    def awarded(self, site: str, node: str) -> list[str]:
        """What is broken when the first goes there."""
        self.evidence.broken.clear()
        goes = AttemptId(workload=FIRST, attempt=1)
        self.wishes.awarded(Awarded(at_s=0.0, attempt=goes, site=site, jobs=plan_on(node)))
        return self.evidence.broken


def test_a_named_node_is_awarded_and_an_excluded_one_is_not() -> None:
    named = Watched(replace(PLAIN, site="alpine", nodelist="a1"))
    assert named.awarded("alpine", "a1") == []
    said = named.awarded("alpine", "a2")
    assert said == [f"fed:{FIRST}:1 is to have alpine:a1, and is awarded alpine:a2"]
    assert named.awarded("breeze", "a1") != []
    excluded = Watched(replace(PLAIN, exclude="a2"))
    assert excluded.awarded("alpine", "a1") == []
    assert excluded.awarded("alpine", "a2") == [f"fed:{FIRST}:1 is awarded a2, and excludes it"]


def test_what_is_on_hold_runs_only_when_it_is_released() -> None:
    watched = Watched(replace(PLAIN, released_after_s=5.0))
    watched.wishes.began(FIRST)
    assert watched.evidence.broken == [f"{FIRST} is on hold, and runs"]
    watched.evidence.broken.clear()
    watched.evidence.truth(FIRST).release_asked = True
    watched.wishes.began(FIRST)
    assert watched.evidence.broken == []


@pytest.mark.parametrize(
    ("kind", "ends", "may_start", "never_starts"),
    [
        ("afterok", WorkloadState.RUNNING, False, False),
        ("afterok", WorkloadState.COMPLETED, True, False),
        ("afterok", WorkloadState.FAILED, False, True),
        ("afternotok", WorkloadState.COMPLETED, False, True),
        ("afternotok", WorkloadState.TIMEOUT, True, False),
        ("afterany", WorkloadState.RUNNING, False, False),
        ("afterany", WorkloadState.CANCELLED, True, False),
        ("after", WorkloadState.PENDING, False, False),
        ("after", WorkloadState.CANCELLED, True, False),
    ],
)
def test_a_job_that_waits_for_another_starts_when_that_has_come_to_its_end(
    kind: str, ends: WorkloadState, may_start: bool, never_starts: bool
) -> None:
    watched = Watched(PLAIN, replace(PLAIN, waits_for=Chain(kind=kind, script=0)))
    watched.evidence.truth(FIRST).state = ends
    watched.wishes.began(SECOND)
    assert (watched.evidence.broken == []) is may_start
    assert watched.wishes.never_starts(watched.evidence.truth(SECOND)) is never_starts


def test_after_is_met_when_slurm_has_started_the_other() -> None:
    """Its prolog may send it back before user code runs."""
    watched = Watched(PLAIN, replace(PLAIN, waits_for=Chain(kind="after", script=0)))
    watched.evidence.truth(FIRST).has_started = True
    watched.wishes.began(SECOND)
    assert watched.evidence.broken == []
