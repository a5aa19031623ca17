"""What a workload accepts, and how attempts are named."""

from __future__ import annotations

import pickle
from dataclasses import replace

import msgspec
import pytest

from federator.errors import InvalidRequest, StoreError
from federator.model.submission import Submission, pack_submission, unpack_submission
from federator.model.workload import FIRST_WORKLOAD_ID, AttemptId, Job, WorkloadId
from tests.fakes.build import attempt, gang, workload


def test_an_attempt_is_read_back_from_the_comment_it_prints() -> None:
    named = attempt(3, 2)
    assert str(named) == f"fed:{FIRST_WORKLOAD_ID + 3}:2"
    assert AttemptId.parse(str(named)) == named


def test_an_attempt_is_found_in_front_of_the_users_own_comment() -> None:
    assert AttemptId.parse("fed:4294967296:1 nightly run") == attempt()


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "fed",
        "fed:1",
        "fed:1:2:3",
        "fed:x:1",
        "fed:1:-1",
        "fed:1:1x",
        "my fed:1:1",
        "Fed:1:1",
        "fed::1",
        "fed:+1:1",
        "fed:99999999999999999999999:1",
        "fed:1:9223372036854775808",
        "fed:\u0661:1",
        "fed:1:\u00b2",
    ],
)
def test_another_comment_names_no_attempt(comment: str) -> None:
    assert AttemptId.parse(comment) is None


def test_the_largest_numbers_that_can_travel_name_an_attempt() -> None:
    largest = 2**63 - 1
    assert AttemptId.parse(f"fed:{largest}:{largest}") == AttemptId(
        workload=WorkloadId(largest), attempt=largest
    )


def test_ids_lie_above_every_slurm_job_id() -> None:
    assert WorkloadId(2**32) <= FIRST_WORKLOAD_ID


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"nodes": 0}, "at least 1 node"),
        ({"gpus_per_node": -1}, "negative"),
        ({"mem_mib_per_node": -1}, "negative"),
        ({"nodes": 2, "gpus": 8, "gpus_per_node": 8}, "contradict"),
        ({"nodes": 2**53 + 1}, "9007199254740993 nodes in all; ask for at most 9007199254740992"),
        ({"gpus": 2**53 + 1}, "GPUs in all"),
        ({"cpus": 2**71}, "CPUs in all"),
        ({"nodes": 2**30, "gpus_per_node": 2**30}, "GPUs in all"),
        ({"nodes": 2**30, "cpus_per_node": 2**30}, "CPUs in all"),
        ({"mem_mib_per_node": 2**71}, "MiB of memory in all"),
        ({"mem_mib_per_cpu": -1}, "negative"),
        ({"mem_mib_per_gpu": -1}, "negative"),
        ({"cpus": 2, "mem_mib_per_cpu": 2**53}, "MiB of memory in all"),
        ({"gpus": 2, "mem_mib_per_gpu": 2**53}, "MiB of memory in all"),
    ],
)
def test_a_job_that_cannot_be_is_refused_by_name(wrong: dict[str, int], words: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"'train'.*{words}"):
        Job(name="train", **wrong)  # type: ignore[arg-type]  # amounts only


def test_a_script_is_kept_to_the_byte() -> None:
    assert Submission(components=((),), script="é").script_bytes == "é".encode()
    odd = Submission(components=((),), script="\xe9\xff", script_encoding="latin-1")
    assert odd.script_bytes == b"\xe9\xff"


def test_a_workload_counts_the_gpus_of_all_its_jobs() -> None:
    totals = Job(name="any", gpus=5)
    assert workload(0, gang(2, 8), totals).total_gpus == 21


def test_a_workload_without_jobs_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no jobs"):
        type(workload())(
            id=FIRST_WORKLOAD_ID,
            name="",
            user="ada",
            tenant=workload().tenant,
            priority=1,
            jobs=(),
            submission=workload().submission,
            submitted_at_s=0.0,
        )


def test_a_submission_is_kept_packed_and_one_that_cannot_be_read_names_the_release() -> None:
    typed = Submission(components=((),), script="é", environment={"A": "1"})
    assert unpack_submission(pack_submission(typed)) == typed
    with pytest.raises(StoreError, match="start the release that wrote it, or a later one"):
        unpack_submission(msgspec.Raw(b"\x01"))


def test_jobs_are_keys_by_what_they_ask_for_also_after_a_copy() -> None:
    job = Job(name="train", nodes=2, gpus_per_node=8)
    assert hash(job) == hash(replace(job, name="serve"))
    assert {job: 1}[replace(job, name="serve")] == 1
    assert hash(replace(job, nodes=3)) == hash(Job(name="train", nodes=3, gpus_per_node=8))
    assert pickle.loads(pickle.dumps(job)) == job
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(job), type=Job)
    assert (decoded, hash(decoded)) == (job, hash(job))
