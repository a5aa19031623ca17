"""--dependency is read as sbatch reads it; what cannot be meant is refused in its words."""

from __future__ import annotations

import pytest

from federator.errors import InvalidRequest
from federator.model.eligibility import NO_DEPENDENCY, Condition, DependencyKind
from federator.model.workload import WorkloadId
from federator.slurm.options.dependency_option import MAX_CONDITIONS, dependency, read_dependency

K = DependencyKind


def of(kind: DependencyKind, job: int, task: int | None = None, minutes: int = 0) -> Condition:
    return Condition(kind=kind, job=WorkloadId(job), task=task, delay_s=60.0 * minutes)


@pytest.mark.parametrize(
    ("text", "conditions", "any_of"),
    [
        ("afterok:7", [of(K.AFTER_OK, 7)], False),
        ("AfterOK:7:8", [of(K.AFTER_OK, 7), of(K.AFTER_OK, 8)], False),
        ("after:7+5:8", [of(K.AFTER, 7, minutes=5), of(K.AFTER, 8)], False),
        ("afterany:7,afternotok:8", [of(K.AFTER_ANY, 7), of(K.AFTER_NOT_OK, 8)], False),
        ("afterok:7?afterok:8", [of(K.AFTER_OK, 7), of(K.AFTER_OK, 8)], True),
        ("7", [of(K.AFTER_ANY, 7)], False),
        ("7,8", [of(K.AFTER_ANY, 7), of(K.AFTER_ANY, 8)], False),
        ("aftercorr:7", [of(K.AFTER_CORR, 7)], False),
        ("afterok:7_3", [of(K.AFTER_OK, 7, 3)], False),
        ("afterok:7_*", [of(K.AFTER_OK, 7)], False),
        ("afterok:7_[1,3-4]", [of(K.AFTER_OK, 7, k) for k in (1, 3, 4)], False),
        ("singleton", [Condition(kind=K.SINGLETON)], False),
        ("singleton,afterok:7", [Condition(kind=K.SINGLETON), of(K.AFTER_OK, 7)], False),
        ("afterok:7:7", [of(K.AFTER_OK, 7)], False),
    ],
)
def test_a_dependency_is_read_as_sbatch_reads_it(
    text: str, conditions: list[Condition], any_of: bool
) -> None:
    found = dependency(text)
    assert (list(found.conditions), found.any_of) == (conditions, any_of)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("afterok", "'afterok' is no TYPE:JOB"),
        ("afterok:", "'' is no job id"),
        ("afterok:x", "'x' is no job id"),
        ("afterok:0", "'0' is no job id"),
        ("afterok:7,", "'' is no TYPE:JOB"),
        ("afterok:7,afterok:8?afterok:9", "it has both , (all) and ? (any)"),
        ("afterok:7+5", "only after:JOB+MINUTES has a delay"),
        ("after:7+0", "only after:JOB+MINUTES has a delay"),
        ("before:7", "'before' is none of after, afterany"),
        ("singleton:7", "'singleton:7' is no TYPE:JOB"),
        ("afterok:7;demo", "'7;demo' is no job id"),
        (
            "afterok:" + ":".join(map(str, range(1, MAX_CONDITIONS + 2))),
            f"it names more than {MAX_CONDITIONS} jobs",
        ),
    ],
)
def test_a_dependency_that_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        dependency(text)
    assert str(refused.value).startswith("Batch job submission failed: Job dependency problem: ")
    assert said in str(refused.value)


@pytest.mark.parametrize("kind", ["expand", "afterburstbuffer"])
def test_types_that_no_federation_has_are_refused_with_what_to_do(kind: str) -> None:
    with pytest.raises(InvalidRequest, match=f"--dependency={kind} is not supported: .*; "):
        dependency(f"{kind}:7")


def test_a_het_job_has_one_dependency() -> None:
    assert read_dependency([None, "afterok:7"], [None, "yes"]).kill
    assert read_dependency([None, "0"], [None, None]) == NO_DEPENDENCY
    assert read_dependency(["", None], ["no", None]) == NO_DEPENDENCY
    with pytest.raises(InvalidRequest, match="differs between components"):
        read_dependency(["afterok:7", "afterok:8"], [None, None])
    with pytest.raises(InvalidRequest, match="Invalid --kill-on-invalid-dep specification: maybe"):
        read_dependency(["afterok:7"], ["maybe"])
