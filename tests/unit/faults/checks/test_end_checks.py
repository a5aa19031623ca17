"""The end of a history: what Slurm ran, and what clients asked for, agrees with every end."""

from __future__ import annotations

import pytest

from federator.daemon.own_config import new_federation
from federator.faults.checks.end_checks import check_end, differences
from federator.faults.checks.evidence import Evidence, Truth
from federator.faults.checks.wish_checks import WishChecks
from federator.faults.user_code import CodeRun
from federator.faults.world import SITES, config_of
from federator.model.event import Changed, Submitted
from federator.model.lifecycle import WorkloadEvent
from federator.model.site import SiteJobState
from federator.model.workload import SiteName
from federator.sched.state.ledger import Ledger
from tests.fakes.build import attempt, draft

ID = attempt().workload


def ledger(*events: WorkloadEvent) -> Ledger:
    """One workload, and what became of it by the log."""
    found = new_federation(config_of([SiteName(name) for name in SITES])).ledger
    found.apply(Submitted(at_s=1.0, first_id=ID, key="ada:1", draft=draft(tenant="prod")))
    for event in events:
        found.apply(Changed(at_s=2.0, workload=ID, happening=event))
    return found


def ran(ended: SiteJobState | None, exit_code: int = 0) -> Truth:
    run = CodeRun("alpine", attempt(), 7, "ada", 8, 0.0, ended=ended, exit_code=exit_code)
    return Truth(runs=[run])


@pytest.mark.parametrize(
    ("truth", "wrong"),
    [
        (Truth(cancel_asked=True), []),
        (Truth(ended_outside=True), []),
        (Truth(), [f"{ID} is CANCELLED, but nobody cancelled it"]),
        (
            ran(SiteJobState.COMPLETED),
            [f"{ID} is CANCELLED, but its user code completed"],
        ),
    ],
)
def test_a_cancelled_workload_was_cancelled_by_somebody(truth: Truth, wrong: list[str]) -> None:
    evidence = Evidence(lambda _: None, lambda: 0.0)
    evidence.truths[ID] = truth
    check_end(evidence, WishChecks(evidence), ledger(WorkloadEvent.CANCEL_ASKED))
    assert evidence.broken == wrong


def test_what_has_not_ended_or_still_runs_is_noticed() -> None:
    evidence = Evidence(lambda _: None, lambda: 0.0)
    evidence.truths[ID] = ran(None)
    check_end(evidence, WishChecks(evidence), ledger())
    assert evidence.broken == [f"{ID} never ended: PENDING", f"{ID} still runs"]


def test_two_ledgers_of_one_log_do_not_differ_and_of_two_logs_they_do() -> None:
    one, same, other = ledger(), ledger(), ledger(WorkloadEvent.CANCEL_ASKED)
    assert differences(one, same) == {}
    assert f"{ID}.state" in differences(one, other)
