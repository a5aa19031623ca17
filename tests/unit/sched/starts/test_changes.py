"""Changes that may help a workload: half its size, any type or partition, less memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.start_estimate import HelpKind
from federator.model.submission import NodeRange
from federator.model.workload import Job
from federator.sched.starts.changes import changes_of
from tests.fakes.build import gang, workload


@pytest.mark.parametrize(
    ("job", "kind", "amount", "gpus"),
    [
        (gang(4), HelpKind.FEWER_NODES, 2, 16),
        (gang(5), HelpKind.FEWER_NODES, 2, 16),
        (gang(1), HelpKind.FEWER_GPUS, 4, 4),
        (Job(name="train", gpus=6), HelpKind.FEWER_GPUS, 3, 3),
        (Job(name="train", nodes=4, gpus=16), HelpKind.FEWER_NODES, 2, 8),
        (replace(gang(6), tensor_parallel=8, pipeline_stages=2), HelpKind.FEWER_NODES, 2, 16),
        (Job(name="train", gpus=12, tensor_parallel=4), HelpKind.FEWER_GPUS, 4, 4),
    ],
)
def test_half_the_size_is_one_or_the_next_below_with_whole_replicas(
    job: Job, kind: HelpKind, amount: int, gpus: int
) -> None:
    (change,) = changes_of(workload(1, job))
    assert (change.kind, change.amount) == (kind, amount)
    assert change.workload.total_gpus == gpus
    assert change.workload.id == workload(1, job).id


def test_what_restricts_it_is_left_out_one_at_a_time() -> None:
    asked = replace(gang(1, 1), gpu_types=("h100",), partitions=("fast",), mem_mib_per_node=64_000)
    found = {change.kind: change for change in changes_of(workload(1, asked))}
    assert list(found) == [HelpKind.ANY_GPU_TYPE, HelpKind.ANY_PARTITION, HelpKind.LESS_MEMORY]
    assert found[HelpKind.ANY_GPU_TYPE].workload.jobs == (replace(asked, gpu_types=()),)
    assert found[HelpKind.ANY_PARTITION].workload.jobs == (replace(asked, partitions=()),)
    assert found[HelpKind.LESS_MEMORY].amount == 32_000


def test_memory_that_goes_with_cpus_is_not_halved_for_each_node() -> None:
    asked = Job(name="tasks", cpus=8, mem_mib_per_node=1000, mem_mib_per_cpu=1000)
    assert changes_of(workload(1, asked)) == []


def test_there_is_none_for_what_cannot_be_less() -> None:
    assert changes_of(workload(1, gang(1, 1))) == []


def test_sizes_of_several_jobs_and_of_named_nodes_are_kept() -> None:
    assert changes_of(workload(1, gang(4), gang(2))) == []
    assert changes_of(workload(1, replace(gang(2), nodelist=("a1", "a2")))) == []


def test_a_change_that_may_not_be_asked_for_is_none() -> None:
    """Eight GPUs of a node that must be together: half of them are no place for them."""
    assert changes_of(workload(1, replace(gang(1), tensor_parallel=8))) == []


@pytest.mark.parametrize(("passing_s", "minutes"), [(0.0, []), (600.0, [11])])
def test_a_shorter_limit_is_one_with_which_it_may_pass_a_window(
    passing_s: float, minutes: list[int]
) -> None:
    asked = replace(workload(1, gang(1, 1)), time_limit_s=3600.0)
    changes = changes_of(asked, passing_s)
    assert changes_of(replace(asked, time_limit_s=600.0), passing_s) == []
    assert [change.amount for change in changes] == minutes
    assert all(change.kind is HelpKind.LESS_TIME for change in changes)
    assert [change.workload.time_limit_s for change in changes] == [60.0 * m for m in minutes]


def test_there_is_none_for_an_elastic_job() -> None:
    """It asks for its least size, and may start with more."""
    asked = replace(gang(4), partitions=("fast",))
    assert changes_of(workload(1, asked))
    assert changes_of(replace(workload(1, asked), elastic=NodeRange(least=4, most=8))) == []
