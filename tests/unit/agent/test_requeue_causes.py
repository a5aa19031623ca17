"""What earlier sweeps say of a job that was put back, or ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.agent.requeue_causes import RequeueCauses
from federator.model.site import AttemptReport, Node, NodeState, SiteJobState
from federator.model.workload import AttemptId
from tests.fakes.build import attempt, rack

ID = attempt()
RUNS = AttemptReport(
    attempt=ID, user="ada", site_job_id=7, state=SiteJobState.RUNNING, nodes=("a1", "a2")
)
WAITS = replace(RUNS, state=SiteJobState.PENDING, nodes=(), restarts=1)


def unplanned(_: AttemptId) -> tuple[str, ...]:
    return ()


def broken(*names: str) -> tuple[Node, ...]:
    return tuple(
        replace(node, state=NodeState.DOWN) if node.name in names else node for node in rack("a", 3)
    )


def last(setbacks: RequeueCauses, *sweeps: tuple[AttemptReport, tuple[Node, ...]]) -> AttemptReport:
    found = RUNS
    for report, nodes in sweeps:
        found = setbacks.complete({ID: report}, nodes)[ID]
    return found


def test_the_nodes_of_a_requeued_job_that_take_no_jobs_any_more_have_failed_it() -> None:
    sweeps = ((RUNS, rack("a", 3)), (WAITS, broken("a2", "a3")))
    assert last(RequeueCauses(unplanned), *sweeps).failed_nodes == ("a2",)


def test_a_job_on_its_way_out_has_nodes_that_squeue_names_no_more() -> None:
    leaving = replace(RUNS, nodes=("a1",))
    sweeps = ((RUNS, rack("a", 3)), (leaving, broken("a2")), (WAITS, broken("a2")))
    assert last(RequeueCauses(unplanned), *sweeps).failed_nodes == ("a2",)


def test_a_job_that_no_sweep_has_seen_before_it_is_on_its_way_out_has_the_nodes_of_its_plan() -> (
    None
):
    leaving = replace(RUNS, nodes=("a1",))
    sweeps = ((leaving, broken("a2")), (WAITS, broken("a2")))
    assert last(RequeueCauses(lambda _: ("a1", "a2")), *sweeps).failed_nodes == ("a2",)


def test_a_job_that_was_never_seen_to_run_has_the_nodes_of_its_plan() -> None:
    setbacks = RequeueCauses(lambda _: ("a1", "a3"))
    assert last(setbacks, (WAITS, broken("a3"))).failed_nodes == ("a3",)


def test_a_job_that_waits_for_its_first_start_has_failed_on_nothing() -> None:
    first = replace(WAITS, restarts=0)
    assert last(RequeueCauses(lambda _: ("a1",)), (first, broken("a1"))).failed_nodes == ()


@pytest.mark.parametrize("state", [SiteJobState.NODE_FAIL, SiteJobState.BOOT_FAIL])
def test_all_nodes_have_failed_it_where_none_can_be_told(state: SiteJobState) -> None:
    ended = replace(RUNS, state=state, nodes=())
    assert last(
        RequeueCauses(unplanned), (RUNS, rack("a", 3)), (ended, rack("a", 3))
    ).failed_nodes == (
        "a1",
        "a2",
    )


def test_a_preemption_is_remembered_while_the_job_waits_and_no_longer() -> None:
    setbacks = RequeueCauses(unplanned)
    chosen = replace(RUNS, preempted=True)
    assert last(setbacks, (chosen, ()), (WAITS, ()), (WAITS, ())).preempted
    again = replace(RUNS, restarts=1)
    assert not last(setbacks, (again, ()), (WAITS, ())).preempted


def test_a_node_for_jobs_of_one_node_has_failed_a_put_back_job_of_several() -> None:
    marked = tuple(
        replace(node, features=("fed_single_node",)) if node.name == "a2" else node
        for node in rack("a", 3)
    )
    assert last(RequeueCauses(unplanned), (RUNS, marked), (WAITS, marked)).failed_nodes == ("a2",)
    alone = replace(RUNS, nodes=("a2",))
    assert last(RequeueCauses(unplanned), (alone, marked), (WAITS, marked)).failed_nodes == ()


def drained(why: str, *names: str) -> tuple[Node, ...]:
    return tuple(replace(node, drain_reason=why) for node in broken(*names))


def test_why_a_node_was_taken_out_is_told_in_the_sites_own_words() -> None:
    why = "fed-gate: nvlink: link 5 is down"
    told = last(RequeueCauses(unplanned), (RUNS, rack("a", 3)), (WAITS, drained(why, "a1", "a2")))
    assert (told.failed_nodes, told.failed_why) == (("a1", "a2"), f"a1,a2: {why}")


@pytest.mark.parametrize(
    ("why", "failed"), [("fed-gate: ecc", ("a2",)), ("Prolog error", ("a2",)), ("new fan", ())]
)
def test_what_slurm_cancelled_since_a_prolog_refused_it_has_failed_on_that_node(
    why: str, failed: tuple[str, ...]
) -> None:
    cancelled = replace(RUNS, state=SiteJobState.CANCELLED, nodes=())
    sweeps = ((RUNS, rack("a", 3)), (cancelled, drained(why, "a2", "a3")))
    assert last(RequeueCauses(unplanned), *sweeps).failed_nodes == failed


@pytest.mark.parametrize(
    ("exit_code", "lasted_s", "failed"),
    [(1, 3.0, ("a2",)), (1, 60.0, ()), (2, 3.0, ()), (0, 3.0, ())],
)
def test_a_job_that_failed_at_once_on_a_node_that_its_prolog_drained_never_began(
    exit_code: int, lasted_s: float, failed: tuple[str, ...]
) -> None:
    """Slurm calls it CANCELLED or FAILED, as it comes; what ran longer has failed by itself."""
    ended = replace(
        RUNS,
        state=SiteJobState.FAILED,
        nodes=(),
        exit_code=exit_code,
        started_at_s=100.0,
        ended_at_s=100.0 + lasted_s,
    )
    sweeps = ((RUNS, rack("a", 3)), (ended, drained("Prolog error", "a2")))
    assert last(RequeueCauses(unplanned), *sweeps).failed_nodes == failed


def test_what_has_started_again_has_not_failed_when_it_is_cancelled_later() -> None:
    cancelled = replace(RUNS, state=SiteJobState.CANCELLED, nodes=())
    elsewhere = replace(RUNS, nodes=("a1", "a3"), restarts=1)
    setbacks, well = RequeueCauses(unplanned), rack("a", 3)
    assert last(setbacks, (RUNS, well), (WAITS, broken("a2"))).failed_nodes == ("a2",)
    assert last(setbacks, (elsewhere, well), (cancelled, well)).failed_nodes == ()
