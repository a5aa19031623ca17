"""Arrays take one row while they wait, and nobody's many jobs hide those of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, ValuesView
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from federator.daemon.queue_selection import index_list
from federator.daemon.views import find, outcome_of, queue_rows, unknown_ids
from federator.model.eligibility import Condition, Dependency, DependencyKind, Hold
from federator.model.lifecycle import WorkloadState
from federator.model.reason import ReasonCode
from federator.model.site import SiteJobState
from federator.model.submission import Option, Submission, pack_submission
from federator.model.workload import Job, WorkloadId
from federator.wire.client_protocol import QueueCall, QueueReply, QueueRow, frame
from federator.wire.queue_rows import QueueOutcome
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback


def fleet() -> Loopback:
    return Loopback({"alpine": rack("a", 2)})


def array(federation: Loopback, indices: Sequence[int], at_once: int = 0, user: str = "ada") -> int:
    one = draft(gang(1), user=user, array_indices=tuple(indices), array_max_running=at_once)
    return int(federation.submit(one))


def shown(federation: Loopback, call: QueueCall, limit: int = 100) -> list[str]:
    rows, _ = queue_rows(federation.federation, call, limit)
    return [
        f"{row.array_id}_{row.array_tasks or row.array_index}" if row.array_id else str(row.id)
        for row in rows
    ]


@pytest.mark.parametrize(
    ("indices", "text"),
    [  # as squeue 22.05, 24.11 and 26.05 wrote them
        (range(11), "0-10"),
        (range(0, 401, 3), "0-399:3"),
        ([7], "7"),
        ([1, 3, 5, 9], "1,3,5,9"),
        ([7, 8], "7-8"),
        ([1, 2, 4, 5], "1-2,4-5"),
    ],
)
def test_tasks_are_listed_as_slurm_lists_them(indices: Sequence[int], text: str) -> None:
    assert index_list(list(indices)) == text


def test_tasks_that_run_have_rows_of_their_own_and_the_rest_has_one() -> None:
    f = fleet()
    id_ = array(f, range(100), at_once=4)
    f.run_for(30.0)
    running = [f"{id_}_{k}" for k in (0, 1)]
    assert sorted(shown(f, QueueCall(collapsed=True))) == sorted([*running, f"{id_}_[2-99%4]"])
    rows, left_off = queue_rows(f.federation, QueueCall(collapsed=True), 100)
    assert [row.tasks for row in rows if row.array_tasks] == [98]
    assert left_off == 0
    assert len(shown(f, QueueCall())) == 100


def test_tasks_asked_for_by_index_are_shown_so() -> None:
    f = fleet()
    id_ = array(f, range(100), at_once=4)
    f.run_for(30.0)
    assert shown(f, QueueCall(ids=(f"{id_}_7",), collapsed=True)) == [f"{id_}_7"]
    both = QueueCall(ids=(f"{id_}_7", f"{id_}_8"), collapsed=True)
    assert shown(f, both) == [f"{id_}_[7-8]"]


def test_what_runs_and_what_others_wait_for_is_not_crowded_out() -> None:
    f = fleet()
    first = int(f.submit(draft(gang(1), user="bob")))
    f.run_for(30.0)
    waits = int(f.submit(draft(gang(2), user="bob")))
    for _ in range(20):
        f.submit(draft(gang(2), user="ada"))
    rows, left_off = queue_rows(f.federation, QueueCall(collapsed=True), 4)
    assert [row.id for row in rows][:2] == [first, waits]
    assert [row.user for row in rows] == ["bob", "bob", "ada", "ada"]
    assert left_off == 18


def test_many_tasks_that_wait_count_as_one_row_and_all_of_them_as_left_off() -> None:
    f = fleet()
    f.submit(draft(gang(2), user="bob"))
    f.run_for(30.0)
    array(f, range(50))
    newest = array(f, range(70), user="cleo")
    found: tuple[tuple[QueueRow, ...], int]
    found = queue_rows(f.federation, QueueCall(collapsed=True), 2)
    assert [row.user for row in found[0]] == ["bob", "cleo"]
    assert (found[0][1].array_id, found[1]) == (newest, 50)


def test_ids_that_no_job_ever_had_are_told_apart() -> None:
    f = fleet()
    id_ = array(f, range(3))
    asked = (str(id_), f"{id_}_2", f"{id_}_99", "7", "7_1", "x")
    assert unknown_ids(f.federation.ledger, asked) == ("7", "7_1", "x")


class Unlisted(dict[int, WorkloadId]):
    """Tasks of an array of which nobody goes through all."""

    def values(self) -> Any:
        return UnlistedValues(self)


class UnlistedValues(ValuesView[WorkloadId]):
    def __iter__(self) -> Iterator[WorkloadId]:
        raise AssertionError("all tasks of the array were gone through")


def test_whether_an_array_is_known_is_told_without_going_through_its_tasks() -> None:
    """A call may name 1,000 tasks of an array of 10,000, and the daemon serves nobody meanwhile."""
    f = fleet()
    id_ = array(f, range(3))
    ledger = f.federation.ledger
    ledger.array_tasks[WorkloadId(id_)] = Unlisted(ledger.array_tasks[WorkloadId(id_)])
    asked = QueueCall(ids=(f"{id_}_0", f"{id_}_2"))
    assert unknown_ids(ledger, (*asked.ids, str(id_))) == ()
    assert len(queue_rows(f.federation, asked, 10)[0]) == 2


def test_the_outcome_of_an_array_of_any_size_is_a_few_numbers_and_rows() -> None:
    f = fleet()
    id_ = array(f, range(6_000))  # more tasks than one answer has rows
    call = QueueCall(ids=(str(id_),), ended=True, outcome=True)
    f.run_for(1.0)
    assert outcome_of(f.federation, call, 10) == (QueueOutcome(unsettled=6_000), ())
    first, second, *others = find(f.federation.ledger, str(id_))
    f.cancel(*others)
    f.slurm("alpine").end(f.entry(first).attempt_id, SiteJobState.FAILED, exit_code=7)
    f.slurm("alpine").end(f.entry(second).attempt_id)
    f.run_for(60.0)
    outcome, rows = outcome_of(f.federation, call, 10)
    assert outcome == QueueOutcome(failed=5_999, exit_code=7)
    assert len(rows) == 10
    assert len(frame(QueueReply(rows=rows, now_s=0.0, outcome=outcome))) < 10_000


@pytest.mark.parametrize(
    ("state", "exit_code", "outcome"),
    [
        (SiteJobState.COMPLETED, 0, QueueOutcome()),
        (SiteJobState.FAILED, 3, QueueOutcome(failed=1, exit_code=3)),
        (SiteJobState.FAILED, 0, QueueOutcome(failed=1, exit_code=1)),
        (SiteJobState.TIMEOUT, 0, QueueOutcome(failed=1, exit_code=1)),
        (SiteJobState.CANCELLED, 0, QueueOutcome(failed=1, exit_code=1)),
    ],
)
def test_the_outcome_of_a_job_is_its_exit_code_or_one(
    state: SiteJobState, exit_code: int, outcome: QueueOutcome
) -> None:
    f = fleet()
    id_ = f.submit(draft(gang(1)))
    f.run_for(30.0)
    f.slurm("alpine").end(f.entry(id_).attempt_id, state, exit_code)
    f.run_for(30.0)
    call = QueueCall(ids=(str(id_),), ended=True, outcome=True)
    assert outcome_of(f.federation, call, 10)[0] == outcome


def test_the_outcome_of_what_no_site_takes_is_one() -> None:
    f = fleet()
    f.refuse_launches("alpine", code=ReasonCode.SBATCH_REFUSED)
    id_ = f.submit(draft(gang(1)))
    f.run_for(30.0)
    assert f.state(id_) is WorkloadState.HELD
    outcome, rows = outcome_of(f.federation, QueueCall(ids=(str(id_),), outcome=True), 10)
    assert outcome == QueueOutcome(failed=1, exit_code=1)
    assert rows[0].reason is not None


# ---- what a call selects ----


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["runs", "waits"]),
        ({"names": ("RUNS",)}, ["runs"]),
        ({"tenants": ("Vision",)}, ["runs", "waits"]),
        ({"tenants": ("nlp",)}, []),
        ({"states": ("RUNNING",)}, ["runs"]),
        ({"states": ("COMPLETED",), "ended": True}, ["ended"]),
        ({"states": ("COMPLETED", "RUNNING")}, ["runs"]),  # without ``ended`` none that have
        ({"states": ("none",)}, []),
        ({"ended": True}, ["ended", "runs", "waits"]),
        ({"ended": True, "names": ("ended",), "users": ("ada",)}, ["ended"]),
        ({"partitions": ("gpu",)}, ["runs"]),
        ({"partitions": ("cpu",)}, []),
        ({"clusters": ("alpine",)}, ["runs"]),
        ({"users": ("ada",)}, ["runs", "waits"]),
        ({"users": ("bob",)}, []),
    ],
)
def test_a_call_selects_by_what_workloads_are(asked: dict[str, Any], found: list[str]) -> None:
    f = Loopback({"alpine": rack("a", 2)})
    ended = f.submit(draft(gang(2), name="ended"))
    f.run_for(1.0)
    f.slurm("alpine").end(f.entry(ended).attempt_id)
    f.run_for(1.0)
    f.submit(draft(gang(2), name="runs"))
    f.run_for(1.0)
    f.submit(draft(gang(2), name="waits"))
    f.run_for(1.0)
    rows, _ = queue_rows(f.federation, QueueCall(**asked), 100)
    assert [row.name for row in rows] == found


def test_a_brief_row_has_what_a_table_shows_and_no_more() -> None:
    f = Loopback({"alpine": rack("a", 2)})
    f.submit(draft(gang(2)))
    f.run_for(1.0)
    f.submit(draft(gang(2)))
    f.run_for(1.0)
    (runs, waits), _ = queue_rows(f.federation, QueueCall(brief=True), 100)
    assert (runs.offers, waits.refusals, waits.preemption) == ({}, {}, None)
    assert waits.reason is not None
    assert runs.node_names == ("a1", "a2")


def test_a_brief_row_has_its_partitions_without_details() -> None:
    f = Loopback({"alpine": rack("a", 1)})
    f.submit(draft(gang(1)))
    f.run_for(1.0)
    for partitions in (("gpu", "long"), ()):
        f.submit(draft(replace(gang(1), partitions=partitions)))
    rows, _ = queue_rows(f.federation, QueueCall(brief=True), 100)
    assert [row.partition for row in rows] == ["gpu", "gpu,long", ""]
    assert {row.details for row in rows} == {None}


# ---- what only squeue's formats show ----


def test_details_are_of_the_plan_or_else_of_the_request() -> None:
    f = Loopback({"alpine": rack("a", 2)})
    given = (
        Option(name="gres", value="gpu:8"),
        Option(name="qos", value="high"),
        Option(name="mincpus", value="4"),
        Option(name="export", value="TOKEN=secret"),
        Option(name="contiguous"),
    )
    packed = pack_submission(Submission(components=(given,), script="#!/bin/sh\n"))
    job = Job(
        name="t",
        nodes=2,
        gpus_per_node=8,
        cpus_per_node=4,
        mem_mib_per_node=100,
        gpu_types=("a100",),
    )
    wanted = replace(draft(job, requeue=False, nice=3), submission=packed)
    f.submit(wanted)
    f.run_for(1.0)
    f.submit(wanted)
    f.run_for(1.0)
    (runs, waits), _ = queue_rows(f.federation, QueueCall(details=True), 100)
    for row, partitions in ((runs, ("gpu",)), (waits, ())):
        assert row.details is not None
        assert row.details.partitions == partitions
        assert (row.details.cpus, row.details.mem_mib) == (8, 200)
        assert (row.details.min_cpus, row.details.min_mem_mib) == (4, 100)
        assert (row.details.requeue, row.details.nice, row.details.restarts) == (False, 3, 0)
        assert row.details.gpu_types == {"a100": 16}
        # Never what may be a secret.
        assert row.details.options == {"gres": "gpu:8", "qos": "high", "contiguous": ""}
    assert queue_rows(f.federation, QueueCall(), 100)[0][0].details is None


def test_a_row_of_an_older_daemon_is_read() -> None:
    old = {
        "id": 1,
        "name": "n",
        "user": "u",
        "tenant": "t",
        "priority": 1,
        "state": "PENDING",
        "attempt": 0,
        "submitted_at_s": 0.0,
        "offers": {},
        "time_limit_s": 60.0,
    }
    row = msgspec.msgpack.decode(msgspec.msgpack.encode(old), type=QueueRow)
    assert (row.details, row.time_limit_s) == (None, 60.0)
    asked = msgspec.msgpack.decode(msgspec.msgpack.encode({"type": "queue"}), type=QueueCall)
    assert asked == QueueCall()


def test_tasks_that_can_never_start_stand_apart_from_those_that_still_may() -> None:
    f = fleet()
    first = array(f, range(2))
    corresponding = Condition(kind=DependencyKind.AFTER_CORR, job=WorkloadId(first))
    f.submit(draft(gang(1), name="s", hold=Hold.USER))
    waits_for = Dependency(conditions=(corresponding, Condition(kind=DependencyKind.SINGLETON)))
    tasks = draft(gang(1), name="s", waits_for=waits_for, array_indices=(0, 1))
    second = f.submit(tasks)
    f.run_for(5.0)
    f.cancel(WorkloadId(first + 1))
    f.run_for(30.0)
    call = QueueCall(collapsed=True)
    assert {f"{second}_[0]", f"{second}_[1]"} <= set(shown(f, call))
