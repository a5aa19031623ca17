"""Dumps of three real Slurms are read alike, as text and as JSON (tests/data/sacct/README.md)."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from federator.errors import InvalidRequest
from federator.sim.importers.history import PastJob, past_jobs
from federator.sim.importers.sacct import COMMAND, SacctRecord, read_records
from federator.sim.importers.trace_file import read_any_trace
from federator.sim.trace import LeftOutReason
from tests.fakes.traces import pool

DATA = Path(__file__).resolve().parents[3] / "data" / "sacct"
CLUSTERS = {"22.05": "alpha", "24.11": "beta", "26.05": "gamma"}
RELEASES = pytest.mark.parametrize("release", CLUSTERS)
DUMPS = pytest.mark.parametrize(
    "name", ["jobs.txt", "duplicates.txt", "epoch.txt", "steps.txt", "jobs.json.gz"]
)


def records(release: str, name: str) -> list[SacctRecord]:
    return read_records(DATA / release / name)


def jobs(release: str, name: str) -> dict[str, PastJob]:
    return {job.last.job_id: job for job in past_jobs(records(release, name))}


def known(found: dict[str, PastJob]) -> list[PastJob]:
    return [job for job in found.values() if job.left_out is None]


def test_the_dumps_are_of_three_generations() -> None:
    versions = {r: (DATA / r / "version").read_text().split()[-1][:5] for r in CLUSTERS}
    assert versions == {release: release for release in CLUSTERS}


@RELEASES
@DUMPS
def test_every_dump_holds_the_same_jobs(release: str, name: str) -> None:
    found = jobs(release, name)
    assert {job.last.cluster for job in found.values()} == {CLUSTERS[release]}
    why = {job_id: job.left_out for job_id, job in found.items() if job.left_out is not None}
    pending = "35" if name.endswith(".gz") else "35_[1-3]"  # JSON shows tasks as bits of a mask
    assert why == {
        "12": LeftOutReason.NO_GPU,
        "14+1": LeftOutReason.NO_GPU,
        "31": LeftOutReason.NEVER_RAN,
        "32": LeftOutReason.NEVER_RAN,
        "33": LeftOutReason.NEVER_RAN,
        "34": LeftOutReason.NEVER_RAN,
        pending: LeftOutReason.NEVER_RAN,
    }
    ran = known(found)
    tasks = {"4_0", "4_1", "4_2", "4_3", "22_1", "22_5", "14+0", "14+2"}
    assert {job.last.job_id for job in ran if not job.last.job_id.isdigit()} == tasks
    assert Counter(job.shape.gpus for job in ran) == {1: 17, 2: 4, 3: 2, 6: 1, 8: 1, 12: 1, 16: 2}
    assert Counter((job.last.account, job.last.user) for job in ran) == {
        ("vision", "ann"): 5,
        ("vision", "bob"): 8,
        ("speech", "cem"): 8,
        ("robots", "dora"): 7,
    }
    assert Counter(job.last.states[0] for job in ran) == {
        "COMPLETED": 22,
        "FAILED": 2,
        "CANCELLED": 2,
        "TIMEOUT": 1,
        "NODE_FAIL": 1,
    }
    assert Counter(job.last.partition for job in ran) == {"gpu": 27, "spot": 1}


@RELEASES
@DUMPS
def test_single_jobs_are_read_as_they_ran(release: str, name: str) -> None:
    found = jobs(release, name)
    nodes, six, instant = found["5"].last, found["6"].last, found["10"]
    assert (nodes.gpus, nodes.nodes, nodes.cpus, nodes.limit_s) == (8, 2, 2, 86_400.0)
    assert (six.gpus, six.nodes, six.limit_s) == (6, 2, 1800.0)
    assert (instant.duration_s in (0, 1), instant.last.gpus) == (True, 1)
    assert found["8"].last.limit_s == (31_536_000.0 if release == "24.11" else inf)
    assert [job.last.job_id for job in known(found) if job.shape.gpu_type] == ["2"]
    assert (found["2"].last.gpu_type, found["2"].last.gpus) == ("a100", 3)
    late = found["17"]
    assert late.last.limit_s == 60.0 < (late.duration_s or 0) < 90
    assert all(0 <= (job.start_s or 0) - (job.came_s or 0) < 60 for job in known(found))


@RELEASES
def test_text_with_duplicates_and_json_say_the_same(release: str) -> None:
    text = [replace(r, line=0) for r in records(release, "duplicates.txt")]
    data = [r for r in records(release, "jobs.json.gz") if r.job_id != "35"]
    plain = {frozenset(r.states) - {"PENDING"} for r in data if len(r.states) > 1}
    assert plain == (
        set() if release == "22.05" else {frozenset({w}) for w in ("REQUEUED", "RESIZING")}
    )

    def ran(found: list[SacctRecord]) -> list[SacctRecord]:
        alike = [replace(r, states=r.states[-1:]) for r in found if r.ran]
        return sorted(alike, key=lambda r: (r.submit_s or 0, r.job_id, r.states))

    assert ran(data) == ran(text)


@RELEASES
def test_text_in_seconds_says_the_same_as_in_dates(release: str) -> None:
    assert records(release, "epoch.txt") == records(release, "jobs.txt")


@RELEASES
@pytest.mark.parametrize("name", ["duplicates.txt", "jobs.json.gz"])
def test_a_requeued_job_waited_from_its_first_submission(release: str, name: str) -> None:
    found = jobs(release, name)
    victim = found["28"]
    assert (len(victim.records), victim.preemptions, victim.duration_s) == (2, 1, 12)
    assert victim.start_s == victim.first.start_s
    wait_s = (victim.start_s or 0) - (victim.came_s or 0)
    assert 35 <= wait_s <= 50  # a job with a time limit of 1 min was in its way
    assert [gpus for _, _, gpus in victim.held] == [16, 16]
    again = found["24"]
    assert (len(again.records), again.preemptions, again.duration_s) == (2, 0, 8)
    assert sum(job.preemptions for job in found.values()) == 1
    alone = jobs(release, "jobs.txt")["28"]
    assert (len(alone.records), alone.preemptions) == (1, 0)
    assert (alone.came_s or 0) > (victim.start_s or 0)


@RELEASES
@DUMPS
def test_a_resized_job_is_one_job_and_holds_each_size_for_its_time(release: str, name: str) -> None:
    job = jobs(release, name)["27"]
    assert [record.gpus for record in job.records] == [2, 1]
    (began, changed, before), (goes_on, ended, after) = job.held
    assert (before, after, changed) == (2, 1, goes_on)
    assert (job.start_s, job.duration_s) == (began, ended - began)
    assert (job.shape.gpus, job.left_out) == (2, None)


@RELEASES
def test_a_suspended_job_ran_less_than_it_was_there(release: str) -> None:
    assert 1 <= (jobs(release, "jobs.txt")["25"].duration_s or 0) <= 3  # of 6 to 7 s


@RELEASES
@DUMPS
def test_a_trace_of_them_by_partition_or_by_cluster_and_partition(release: str, name: str) -> None:
    cluster = CLUSTERS[release]
    path = DATA / release / name
    plain = read_any_trace(path, [pool("gpu", 4, 4), pool("spot", 4, 4)])
    assert (len(plain), len(plain.left_out)) == (28, 7)
    assert sum(plain.gpus) == 89
    both = read_any_trace(path, [pool(f"{cluster}/gpu", 4, 4), pool("spot", 4, 4)])
    assert (both.gpus, both.submit_s, both.pool) == (plain.gpus, plain.submit_s, plain.pool)
    other = read_any_trace(path, [pool("delta/gpu", 4, 4), pool("spot", 4, 4)])
    assert (len(other), len(other.left_out)) == (1, 34)


def test_one_dump_of_several_clusters_keeps_them_apart(tmp_path: Path) -> None:
    texts = [(DATA / release / "epoch.txt").read_text().splitlines() for release in CLUSTERS]
    path = tmp_path / "all.txt"
    path.write_text("\n".join([texts[0][0], *(line for text in texts for line in text[1:])]))
    found = past_jobs(read_records(path))
    assert Counter(job.last.cluster for job in found) == {"alpha": 35, "beta": 35, "gamma": 35}
    pools = [
        pool(f"{name}/{part}", 4, 4) for name in ("alpha", "gamma") for part in ("gpu", "spot")
    ]
    trace = read_any_trace(path, pools)
    assert Counter(trace.pool) == {0: 27, 1: 1, 2: 27, 3: 1}


def test_an_id_that_comes_again_after_its_job_ended_is_another_job(tmp_path: Path) -> None:
    head = "JobID|Partition|State|Submit|ElapsedRaw|AllocTRES|User\n"
    path = tmp_path / "dump"

    def count(*rows: str) -> int:
        path.write_text(head + "".join(f"7|gpu|{row}\n" for row in rows))
        return len(past_jobs(read_records(path)))

    assert count("COMPLETED|100|9|gres/gpu=1|ann", "COMPLETED|900|9|gres/gpu=1|ann") == 2
    assert count("NODE_FAIL|100|9|gres/gpu=1|ann", "COMPLETED|900|9|gres/gpu=1|ann") == 1
    assert count("NODE_FAIL|100|9|gres/gpu=1|ann", "COMPLETED|900|9|gres/gpu=1|bob") == 2


# ---- mistakes ----


def mistake(path: Path, text: str | bytes, more: frozenset[str] = frozenset()) -> str:
    path = path / "dump"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InvalidRequest) as caught:
        read_records(path, more)
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"{path.parent}/")


@RELEASES
def test_the_columns_that_sacct_prints_by_itself_do_not_do(tmp_path: Path, release: str) -> None:
    message = mistake(tmp_path, (DATA / release / "default.txt").read_bytes())
    assert message.startswith("dump:1: Submit: expected a column of this name in the header, found")
    assert message.endswith(f"see this command: {COMMAND}")


def test_a_column_that_is_needed_only_for_more_is_asked_for(tmp_path: Path) -> None:
    head = "JobID|Partition|State|Submit|ElapsedRaw|AllocTRES\n"
    assert mistake(tmp_path, head, frozenset({"Start"})).startswith("dump:1: Start: expected a col")
    assert read_records(tmp_path / "dump") == []


def test_a_name_with_a_bar_is_explained(tmp_path: Path) -> None:
    head = "JobName|JobID|Partition|State|Submit|ElapsedRaw|AllocTRES\n"
    assert mistake(tmp_path, head + "a|b|7|gpu|COMPLETED|1|1|gres/gpu=1\n") == (
        "dump:2: expected 7 fields, found 8; "
        "leave out columns that may hold a '|', such as JobName and Comment"
    )


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("Submit", "yesterday", "Submit: expected a time such as 2026-11-21T20:37:49"),
        ("Submit", "1969-12-31T00:00:00", "Submit: expected a time since 1970"),
        ("ElapsedRaw", "253402300799", "ElapsedRaw: expected an end by 253402300799"),
        ("Start", "0001-01-01T00:00:00+23:59", "Start: expected a time since 1970"),
        ("Start", "9" * 17, "Start: expected a whole number from 0 to"),
        ("TimelimitRaw", "1-00:00:00", "TimelimitRaw: expected a whole number from 0 to"),
        ("ElapsedRaw", "-1", "ElapsedRaw: expected a whole number from 0 to"),
    ],
)
def test_a_wrong_field_is_named_with_its_line(
    tmp_path: Path, column: str, value: str, said: str
) -> None:
    row = {
        "JobID": "7",
        "Partition": "gpu",
        "State": "COMPLETED",
        "Submit": "5",
        "Start": "6",
        "ElapsedRaw": "1",
        "AllocTRES": "gres/gpu=1",
        "TimelimitRaw": "9",
    }
    text = "|".join(row) + "\n" + "|".join((row | {column: value}).values()) + "\n"
    assert mistake(tmp_path, text).startswith(f"dump:2: {said}")


def job_json(**more: Any) -> dict[str, Any]:
    return {
        "job_id": 7,
        "time": {"submission": 5, "elapsed": 1},
        "state": {"current": "FAILED"},
        "tres": {},
    } | more


def test_json_that_is_nothing_of_sacct_is_refused(tmp_path: Path) -> None:
    for text in (
        "{",
        '{"jobs": 1}',
        '{"jobs": [{}]}',
        '{"jobs": [' * 9000,
        '{"a": "\\ud800"}',
        json.dumps({"jobs": [job_json(time={"submission": 10**40, "elapsed": 1})]}),
        json.dumps({"jobs": [job_json(array={"task_id": "x"})]}),
        gzip.compress(b"{", mtime=0) + b"\0",
    ):
        assert mistake(tmp_path, text).startswith("dump: ")
    big = job_json(time={"submission": 2**60, "elapsed": 1})
    assert mistake(tmp_path, json.dumps({"jobs": [job_json(), big]})) == (
        "dump: jobs[1]: expected smaller numbers"
    )
