"""Workloads wait for others as Slurm's jobs do, wherever these run."""

from __future__ import annotations

import pytest

from federator.model.eligibility import Condition, Dependency, DependencyKind, Hold
from federator.model.event import Amended, Changed
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import ControlAsked, ControlVerb
from federator.model.reason import ReasonCode
from federator.model.site import SiteJobState
from federator.model.workload import WorkloadId
from federator.sched.state.eligibility import dependency_text, ineligible_reason
from federator.slurm.options.dependency_option import dependency
from tests.fakes.build import draft, rack
from tests.fakes.loopback import Loopback

K = DependencyKind
INELIGIBLE, RUNNING = WorkloadState.INELIGIBLE, WorkloadState.RUNNING
CANCELLED = WorkloadState.CANCELLED
OK, BAD = SiteJobState.COMPLETED, SiteJobState.FAILED


def federation(nodes: int = 8) -> Loopback:
    return Loopback({"alpine": rack("a", nodes), "baker": rack("b", 2)})


def submit(
    f: Loopback, on: str = "", kill: bool = False, tasks: int = 0, name: str = "x"
) -> WorkloadId:
    waits_for = dependency(on) if on else Dependency()
    waits_for = Dependency(conditions=waits_for.conditions, any_of=waits_for.any_of, kill=kill)
    id_ = f.submit(draft(waits_for=waits_for, array_indices=tuple(range(tasks)), name=name))
    f.run_for(1.0)
    return id_


def end(f: Loopback, id_: int, state: SiteJobState = OK) -> None:
    entry = f.entry(WorkloadId(id_))
    assert entry.state is RUNNING
    f.slurm(entry.site).end(entry.attempt_id, state)
    f.run_for(11.0)


def why(f: Loopback, id_: int) -> ReasonCode:
    return ineligible_reason(f.entry(WorkloadId(id_))).code


# ---- each type ----


@pytest.mark.parametrize(
    ("kind", "ending", "starts"),
    [
        ("afterok", OK, True),
        ("afterok", BAD, False),
        ("afternotok", OK, False),
        ("afternotok", BAD, True),
        ("afterany", OK, True),
        ("afterany", BAD, True),
        ("aftercorr", OK, True),
        ("aftercorr", BAD, False),
    ],
)
def test_a_job_starts_or_never_does_by_the_end_of_another(
    kind: str, ending: SiteJobState, starts: bool
) -> None:
    f = federation()
    first = submit(f)
    second = submit(f, f"{kind}:{first}")
    assert (f.state(second), why(f, second)) == (INELIGIBLE, ReasonCode.DEPENDENCY)
    end(f, first, ending)
    assert f.state(second) is (RUNNING if starts else INELIGIBLE)
    assert starts or why(f, second) is ReasonCode.NEVER_SATISFIED


def test_after_waits_for_the_start_and_a_delay() -> None:
    f = federation()
    first = submit(f)
    f.control(ControlVerb.HOLD, first)
    held = f.submit(draft(hold=Hold.USER))
    at_once, later = submit(f, f"after:{held}"), submit(f, f"after:{held}+10")
    f.run_for(1_000.0)
    assert f.state(at_once) is INELIGIBLE
    f.control(ControlVerb.RELEASE, held)
    f.run_for(5.0)
    assert (f.state(held), f.state(at_once), f.state(later)) == (RUNNING, RUNNING, INELIGIBLE)
    f.run_for(590.0)
    assert f.state(later) is INELIGIBLE
    f.run_for(20.0)
    assert f.state(later) is RUNNING


def test_after_is_satisfied_by_a_cancel_before_the_start() -> None:
    f = federation()
    held = f.submit(draft(hold=Hold.USER))
    after, ok, notok = (submit(f, f"{k}:{held}") for k in ("after", "afterok", "afternotok"))
    f.cancel(held)
    f.run_for(1.0)
    assert (f.state(after), f.state(ok), f.state(notok)) == (RUNNING, INELIGIBLE, RUNNING)
    assert why(f, ok) is ReasonCode.NEVER_SATISFIED


def test_a_job_is_cancelled_that_can_never_start_if_its_user_wants_that() -> None:
    f = federation()
    first = submit(f)
    second = submit(f, f"afterok:{first}", kill=True)
    third = submit(f, f"afterok:{second}", kill=True)
    fourth = submit(f, f"afternotok:{third}")
    end(f, first, BAD)
    assert [f.state(WorkloadId(i)) for i in (second, third)] == [CANCELLED, CANCELLED]
    reason = f.entry(second).reason
    assert reason is not None
    assert reason.code is ReasonCode.NEVER_SATISFIED
    assert f.state(fourth) is RUNNING


def test_all_of_several_are_waited_for_or_any() -> None:
    f = federation()
    one, two = submit(f), submit(f)
    all_of = submit(f, f"afterok:{one},afterany:{two}")
    any_of = submit(f, f"afterok:{one}?afternotok:{two}")
    end(f, one, BAD)
    assert why(f, all_of) is ReasonCode.NEVER_SATISFIED
    assert why(f, any_of) is ReasonCode.DEPENDENCY  # the other may still fail
    end(f, two, BAD)
    assert (f.state(all_of), f.state(any_of)) == (INELIGIBLE, RUNNING)


def test_conditions_that_are_met_are_gone_from_what_is_shown() -> None:
    f = federation()
    one, two = submit(f), submit(f)
    id_ = submit(f, f"afterok:{one}:{two}")
    end(f, one)
    assert dependency_text(f.entry(id_).waits_for) == f"afterok:{two}(unfulfilled)"
    end(f, two, BAD)
    assert dependency_text(f.entry(id_).waits_for) == f"afterok:{two}(failed)"


def test_a_requeue_is_no_end() -> None:
    f = federation()
    first = submit(f)
    second = submit(f, f"afterany:{first}")
    started = submit(f, f"after:{first}")
    assert f.state(started) is RUNNING
    end(f, first, SiteJobState.NODE_FAIL)
    assert f.state(second) is INELIGIBLE
    f.run_for(60.0)
    end(f, first)
    assert f.state(second) is RUNNING


def test_a_dependency_that_is_satisfied_already_starts_at_once() -> None:
    f = federation()
    first = submit(f)
    end(f, first)
    assert f.state(submit(f, f"afterok:{first}")) is RUNNING
    assert f.state(failed := submit(f, f"afternotok:{first}")) is INELIGIBLE
    assert why(f, failed) is ReasonCode.NEVER_SATISFIED


# ---- arrays ----


def test_an_array_is_waited_for_as_a_whole() -> None:
    f = federation()
    array = submit(f, tasks=3)
    ok, notok = submit(f, f"afterok:{array}"), submit(f, f"afternotok:{array}")
    for k in (2, 0):
        end(f, array + k)
    assert (f.state(ok), f.state(notok)) == (INELIGIBLE, INELIGIBLE)
    end(f, array + 1)
    assert f.state(ok) is RUNNING
    assert why(f, notok) is ReasonCode.NEVER_SATISFIED


def test_one_task_of_an_array_can_be_waited_for() -> None:
    f = federation()
    array = submit(f, tasks=3)
    id_ = submit(f, f"afterok:{array}_1")
    end(f, array)
    assert f.state(id_) is INELIGIBLE
    end(f, array + 1)
    assert f.state(id_) is RUNNING


def test_aftercorr_waits_for_the_task_with_the_same_index() -> None:
    f = federation(16)
    array = submit(f, tasks=2)
    other = submit(f, f"aftercorr:{array}", tasks=3)  # its last task has no such one
    end(f, array + 1)
    states = [f.state(WorkloadId(other + k)) for k in range(3)]
    assert states == [INELIGIBLE, RUNNING, INELIGIBLE]
    end(f, array, BAD)
    states = [f.state(WorkloadId(other + k)) for k in range(3)]
    assert states == [INELIGIBLE, RUNNING, INELIGIBLE]
    assert why(f, other) is ReasonCode.NEVER_SATISFIED
    assert why(f, other + 2) is ReasonCode.NEVER_SATISFIED  # as afterok of the whole array


def test_the_tasks_of_an_array_wait_with_one_record_for_each_change() -> None:
    f = federation()
    one, two = submit(f), submit(f)
    array = submit(f, f"afterok:{one}:{two}", tasks=50)
    before = len(f.log)
    end(f, one)
    amended = [e for e in f.log[before:] if isinstance(e, Amended)]
    assert [e.workloads for e in amended] == [tuple(range(array, array + 50))]


# ---- singletons ----


def test_singletons_of_a_name_run_one_after_another() -> None:
    f = federation()
    plain = submit(f, name="s")
    ids = [submit(f, "singleton", name="s") for _ in range(3)]
    other = submit(f, "singleton", name="t")
    assert f.state(other) is RUNNING
    for done, next_ in zip([plain, *ids], ids, strict=False):
        assert f.state(next_) is INELIGIBLE
        end(f, done, BAD)
        assert f.state(next_) is RUNNING


def test_to_singletons_an_array_is_one_job_whose_tasks_run_side_by_side() -> None:
    """As in all three generations of Slurm (tests/slurm/test_random_dags.py)."""
    f = federation()
    before = submit(f, name="s")
    array = submit(f, "singleton", tasks=3, name="s")
    after = submit(f, "singleton", name="s")
    tasks = [WorkloadId(array + k) for k in range(3)]
    assert {f.state(id_) for id_ in (*tasks, after)} == {INELIGIBLE}
    end(f, before)
    assert {f.state(task) for task in tasks} == {RUNNING}
    for task in tasks:
        assert f.state(after) is INELIGIBLE
        end(f, task)
    assert f.state(after) is RUNNING


def test_a_later_job_that_runs_keeps_all_tasks_of_a_singleton_array_waiting() -> None:
    f = federation()
    held = f.submit(draft(name="s", hold=Hold.USER))
    array = submit(f, "singleton", tasks=2, name="s")
    later = submit(f, name="s")
    f.cancel(held)
    f.run_for(1.0)
    assert {f.state(WorkloadId(array + k)) for k in range(2)} == {INELIGIBLE}
    end(f, later)
    assert {f.state(WorkloadId(array + k)) for k in range(2)} == {RUNNING}


def test_a_singleton_waits_for_an_earlier_job_that_is_held() -> None:
    f = federation()
    held = f.submit(draft(name="s", hold=Hold.USER))
    later = submit(f, "singleton", name="s")
    f.run_for(100.0)
    assert f.state(later) is INELIGIBLE
    f.cancel(held)
    f.run_for(1.0)
    assert f.state(later) is RUNNING


# ---- with holds, restarts, and what is forgotten ----


def test_a_held_dependent_starts_when_it_is_released() -> None:
    f = federation()
    first = submit(f)
    second = submit(f, f"afterok:{first}")
    f.control(ControlVerb.HOLD, second)
    end(f, first)
    assert (f.state(second), why(f, second)) == (INELIGIBLE, ReasonCode.USER_HOLD)
    f.control(ControlVerb.RELEASE, second)
    f.run_for(1.0)
    assert f.state(second) is RUNNING


@pytest.mark.parametrize("compacts", [False, True])
def test_dependencies_outlive_restarts_and_snapshots(compacts: bool) -> None:
    f = federation(16)
    array, one = submit(f, tasks=2), submit(f, name="s")
    whole, task = submit(f, f"afterok:{array}"), submit(f, f"afterany:{array}_1")
    both, single = submit(f, f"afterok:{one}:{array}"), submit(f, "singleton", name="s")
    later = submit(f, f"after:{one}+30")
    end(f, one)
    end(f, array)
    if compacts:
        f.compact()
    f.restart()
    f.run_for(30.0)
    assert f.state(single) is RUNNING
    assert [f.state(i) for i in (whole, task, both, later)] == [INELIGIBLE] * 4
    end(f, array + 1)
    assert [f.state(i) for i in (whole, task, both)] == [RUNNING] * 3
    f.run_for(1_800.0)
    assert f.state(later) is RUNNING


def test_a_job_that_is_waited_for_is_not_forgotten() -> None:
    f = federation()
    array, held = submit(f, tasks=2), f.submit(draft(hold=Hold.USER))
    waits = submit(f, f"afterok:{array},afterany:{held}")
    gone = submit(f)
    for id_ in (array, array + 1, gone):
        end(f, id_)
    late = submit(f, f"afterok:{waits}")
    f.run_for(1_000.0)
    f.forget_ended(0.0)
    assert WorkloadId(array) not in f.federation.ledger.entries  # it has done its part
    assert gone not in f.federation.ledger.entries
    f.cancel(waits)
    f.forget_ended(0.0)
    f.run_for(1.0)
    assert why(f, late) is ReasonCode.NEVER_SATISFIED


def test_a_start_that_is_forgotten_is_not_waited_for_less() -> None:
    f = federation()
    first = submit(f)
    later = submit(f, f"after:{first}+60")
    end(f, first)
    f.run_for(100.0)
    f.forget_ended(0.0)
    assert first in f.federation.ledger.entries
    assert f.state(later) is INELIGIBLE
    f.run_for(3_600.0)
    assert f.state(later) is RUNNING
    f.forget_ended(0.0)
    assert first not in f.federation.ledger.entries


def test_a_dependent_enters_the_queue_once_and_costs_no_pass_before() -> None:
    f = federation()
    first = submit(f)
    second = submit(f, f"afterok:{first}", tasks=20)
    assert len(f.federation.ledger.backlog) == 0
    end(f, first)
    steps = [e.happening for e in f.log if isinstance(e, Changed) and e.workload == second]
    assert steps.count(WorkloadEvent.ELIGIBLE) == 1


def test_a_condition_is_written_as_squeue_writes_it() -> None:
    conditions = dependency("after:7+5,afterok:8_3").conditions
    assert [c.text() for c in conditions] == ["after:7+5(unfulfilled)", "afterok:8_3(unfulfilled)"]
    assert Condition(kind=K.SINGLETON).text() == "singleton(unfulfilled)"


def test_tasks_of_a_singleton_array_start_though_one_of_them_waits_for_nothing_more() -> None:
    f = federation()
    before, array = submit(f, name="s"), submit(f, "singleton", tasks=3, name="s")
    tasks = [WorkloadId(array + k) for k in range(3)]
    freed = Amended(at_s=0.0, workloads=(tasks[0],), waits_for=Dependency(), hold=Hold.USER)
    f.observe(
        ControlAsked(
            client=99,
            verb=ControlVerb.UPDATE,
            ids=(tasks[0],),
            by="ada",
            is_operator=False,
            amended=(freed,),
        )
    )
    f.run_for(1.0)
    end(f, before)
    f.run_for(100.0)
    assert [f.state(task) for task in tasks[1:]] == [WorkloadState.RUNNING] * 2
