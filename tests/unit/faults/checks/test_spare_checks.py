"""Gangs with a spare: the model notices one that is ended for nothing, or has no spare."""

from __future__ import annotations

import pytest

from federator.faults.checks.evidence import Evidence
from federator.faults.checks.spare_checks import SpareChecks
from federator.faults.client_scripts import ClientScript
from federator.faults.user_code import CodeRun
from federator.model.event import Awarded
from federator.model.site import SiteJobState
from federator.model.workload import AttemptId, WorkloadId
from tests.fakes.build import plan_on

ID = WorkloadId(8)
FIRST = AttemptId(workload=ID, attempt=1)
SCRIPT = ClientScript(number=0, at_s=0.0, user="ada", parts=((2, 8),), time_limit_s=90, spare=1)


@pytest.fixture
def evidence() -> Evidence:
    found = Evidence(lambda _: None, lambda: 0.0)
    found.truth(ID).script = SCRIPT
    return found


def test_it_is_awarded_its_nodes_and_its_spare(evidence: Evidence) -> None:
    checks = SpareChecks(evidence)
    checks.awarded(Awarded(at_s=0.0, attempt=FIRST, site="alpine", jobs=plan_on("a1", "a2", "a3")))
    assert evidence.broken == []
    checks.awarded(Awarded(at_s=0.0, attempt=FIRST, site="alpine", jobs=plan_on("a1", "a2")))
    assert evidence.broken == [f"fed:{ID}:1 is awarded 2 nodes, and asks for 3 with its spare"]


def ended(evidence: Evidence, how: SiteJobState, lost_nodes: int = 1) -> list[str]:
    run = CodeRun("alpine", FIRST, 7, "ada", 24, 0.0, nodes=3, lost_nodes=lost_nodes)
    run.ended = how
    SpareChecks(evidence).ended(run)
    return evidence.broken


def test_nobody_ends_one_that_went_on(evidence: Evidence) -> None:
    assert ended(evidence, SiteJobState.COMPLETED) == []
    assert ended(evidence, SiteJobState.CANCELLED) == [
        f"fed:{ID}:1 went on with its spare, and was ended for nothing"
    ]


def test_its_user_may_end_it_and_anybody_one_that_has_too_few_nodes(evidence: Evidence) -> None:
    assert ended(evidence, SiteJobState.CANCELLED, lost_nodes=2) == []
    evidence.truth(ID).cancel_asked = True
    assert ended(evidence, SiteJobState.CANCELLED) == []
