"""The sizes of elastic jobs: the model notices one that is no size of the job, or a lost job."""

from __future__ import annotations

from functools import partial

import pytest

from federator.faults.checks.evidence import Evidence, Moment
from federator.faults.checks.size_checks import SizeChecks
from federator.faults.client_scripts import ClientScript
from federator.faults.user_code import NOT_JOINED, SAVED, CodeRun
from federator.model.event import Awarded, Changed, Submitted
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.reason import Reason, ReasonCode
from federator.model.workload import AttemptId, WorkloadId
from federator.sched.state.ledger import Ledger
from tests.fakes.build import draft, plan_on

ID = WorkloadId(8)
SCRIPT = ClientScript(
    number=0, at_s=0.0, user="ada", parts=((1, 8),), time_limit_s=90, elastic="1-3:2"
)


class Watched:
    """The checks of one elastic job."""

    def __init__(self) -> None:
        self.evidence = Evidence(lambda _: None, lambda: 0.0)
        self.evidence.truth(ID).script = SCRIPT
        self.sizes = SizeChecks(self.evidence)
        self.attempt = 0

    @property
    def next_attempt(self) -> AttemptId:
        self.attempt += 1
        return AttemptId(workload=ID, attempt=self.attempt)

    def awarded(self, *nodes: str) -> list[str]:
        plans = plan_on(*nodes)
        event = Awarded(at_s=0.0, attempt=self.next_attempt, site="alpine", jobs=plans)
        self.evidence.truth(ID).last_attempt = self.attempt
        self.sizes.awarded(event)
        return self.evidence.broken

    def changed(self, happening: WorkloadEvent, nodes: int = 0) -> list[str]:
        reason = Reason(code=ReasonCode.RESIZED, needed=nodes, free=1, unit="nodes")
        self.sizes.changed(Changed(at_s=0.0, workload=ID, happening=happening, reason=reason))
        return self.evidence.broken


def test_a_job_is_awarded_one_of_its_sizes() -> None:
    assert Watched().awarded("a1") == []
    assert Watched().awarded("a1", "a2", "a3") == []
    assert Watched().awarded("a1", "a2") == [f"fed:{ID}:1 is awarded 2 nodes, and can run on 1-3:2"]


def test_it_runs_on_and_is_resized_to_one_of_its_sizes() -> None:
    watched = Watched()
    watched.sizes.began(CodeRun("alpine", watched.next_attempt, 7, "ada", 16, 0.0, nodes=2))
    assert watched.evidence.broken == [f"fed:{ID}:1 runs on 2 nodes, and can run on 1-3:2"]
    watched = Watched()
    assert watched.changed(WorkloadEvent.REQUEUE_ASKED, 3) == []
    assert watched.changed(WorkloadEvent.REQUEUE_ASKED, 2) != []


def test_a_size_that_has_failed_it_is_not_tried_again() -> None:
    watched = Watched()
    watched.awarded("a1", "a2", "a3")
    watched.changed(WorkloadEvent.GREW_IN_VAIN, 1)
    assert watched.awarded("a1") == []
    assert watched.awarded("a1", "a2", "a3") == [
        f"fed:{ID}:3 is awarded 3 nodes, and 3 have failed it"
    ]


@pytest.mark.parametrize("code", [ReasonCode.SBATCH_REFUSED, ReasonCode.PLAN_REFUSED])
def test_a_size_that_was_refused_is_not_tried_again_unless_it_is_the_least(
    code: ReasonCode,
) -> None:
    watched = Watched()
    refused = Changed(
        at_s=0.0, workload=ID, happening=WorkloadEvent.DECLINED, reason=Reason(code=code)
    )
    watched.awarded("a1")
    watched.sizes.changed(refused)
    assert watched.awarded("a1", "a2", "a3") == []
    watched.sizes.changed(refused)
    assert watched.awarded("a1", "a2", "a3") == [
        f"fed:{ID}:3 is awarded 3 nodes, and 3 have failed it"
    ]


def test_who_waits_for_a_resize_is_called_once_when_it_is_asked_for_and_when_it_is_awarded() -> (
    None
):
    watched, called = Watched(), list[tuple[Moment, str, AttemptId]]()
    for moment in Moment:
        watched.evidence.await_moment(moment, partial(_note, called, moment))
    watched.awarded("a1")
    assert called == []
    watched.changed(WorkloadEvent.REQUEUE_ASKED, 3)
    watched.awarded("a1", "a2", "a3")
    first, second = (AttemptId(workload=ID, attempt=k) for k in (1, 2))
    assert called == [
        (Moment.RESIZE_ASKED, "alpine", first),
        (Moment.RESIZE_AWARDED, "alpine", second),
    ]
    watched.changed(WorkloadEvent.REQUEUE_ASKED, 1)
    watched.awarded("a1")
    assert len(called) == 2


def _note(
    called: list[tuple[Moment, str, AttemptId]], moment: Moment, site: str, attempt: AttemptId
) -> None:
    called.append((moment, site, attempt))


def ended(*runs: CodeRun) -> list[str]:
    watched, ledger = Watched(), Ledger()
    ledger.apply(Submitted(at_s=0.0, draft=draft(), first_id=ID, key="k"))
    ledger.entries[ID].state = WorkloadState.FAILED
    watched.evidence.truth(ID).runs.extend(runs)
    watched.sizes.check_end(ledger)
    return watched.evidence.broken


def run(nodes: int, exit_code: int, *, notified: bool = False) -> CodeRun:
    which = AttemptId(workload=ID, attempt=1)
    return CodeRun(
        "alpine",
        which,
        7,
        "ada",
        8,
        0.0,
        notified=notified,
        exit_code=exit_code,
        nodes=nodes,
        joins=1,
    )


def test_a_job_that_ran_on_fewer_nodes_does_not_fail_for_more() -> None:
    saved, failed = run(1, SAVED, notified=True), run(3, NOT_JOINED)
    assert ended(saved, failed) == [f"{ID} has failed on 3 nodes, and ran on fewer before"]
    assert ended(failed) == []
    assert ended(saved, run(1, 1)) == []


@pytest.mark.parametrize("failed_first", [False, True])
def test_who_is_cancelled_before_the_failure_is_logged_does_not_go_back(failed_first: bool) -> None:
    watched, ledger = Watched(), Ledger()
    ledger.apply(Submitted(at_s=0.0, draft=draft(), first_id=ID, key="k"))
    ledger.entries[ID].state = WorkloadState.FAILED
    truth = watched.evidence.truth(ID)
    truth.runs.extend((run(1, SAVED, notified=True), run(3, NOT_JOINED)))
    failure = Changed(at_s=0.0, workload=ID, happening=WorkloadEvent.FAILED)
    truth.cancel_asked = not failed_first
    watched.sizes.changed(failure)
    truth.cancel_asked = True
    watched.sizes.check_end(ledger)
    assert bool(watched.evidence.broken) == failed_first
