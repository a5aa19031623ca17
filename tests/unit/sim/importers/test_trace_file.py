"""Dumps of sacct and logs in SWF are told from CSV by how they begin, and read as documented."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from federator.errors import InvalidRequest
from federator.sim.importers.trace_file import read_any_trace
from federator.sim.trace import LeftOutReason, Trace, TracePool
from tests.fakes.traces import pool

GPU, BIG = pool("gpu", 2, 8), pool("big", 4, 8)

SACCT = """\
JobID|JobName|User|Partition|State|Submit|ElapsedRaw|AllocTRES|NNodes|NCPUS
7|a job|ann|gpu|COMPLETED|2026-11-21T20:00:00|60|cpu=8,gres/gpu:a100=4,gres/gpu=4,node=1|1|8
7.batch|batch||||2026-11-21T20:00:00|60|cpu=8,gres/gpu=4|1|8
8_3|b|bob|big|CANCELLED by 1001|2026-11-21T20:00:05|0|cpu=64,gres/gpu:a100=8,gres/gpu:h100=4|2|64
9|c|bob|big|PENDING|2026-11-21T20:00:06|0||2|64
10|d|bob|big|RUNNING|2026-11-21T20:00:06|99|cpu=1,gres/gpu=1|1|1
11|e|bob|big|COMPLETED|2026-11-21T20:00:06|99|cpu=1,mem=1G|1|1
12|f|bob|login|COMPLETED|2026-11-21T20:00:06|99|cpu=1,gres/gpu=1|1|1
"""
MIDNIGHT_S = 1_795_219_200  # 2026-11-21T00:00:00 UTC


def read(path: Path, text: str | bytes, *pools: TracePool) -> Trace:
    file = path / "trace"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_any_trace(file, pools or (GPU, BIG))


def mistake(path: Path, text: str) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read(path, text)
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"{path}/")


def test_sacct_as_text(tmp_path: Path) -> None:
    for data in (SACCT.encode(), gzip.compress(SACCT.encode())):
        jobs = read(tmp_path, data)
        assert jobs.job_id == ["7", "8_3"]
        assert jobs.submit_s == [MIDNIGHT_S + 20 * 3600, MIDNIGHT_S + 20 * 3600 + 5]
        assert (jobs.duration_s, jobs.gpus, jobs.cpus) == ([60, 1], [4, 12], [8, 64])
        assert (jobs.num_nodes, jobs.pool, jobs.user) == ([1, 2], [0, 1], ["ann", "bob"])
        assert [(job.job_id, job.line, job.reason) for job in jobs.left_out] == [
            ("9", 5, LeftOutReason.NEVER_RAN),
            ("10", 6, LeftOutReason.NEVER_RAN),
            ("11", 7, LeftOutReason.NO_GPU),
            ("12", 8, LeftOutReason.OTHER_POOL),
        ]


def test_sacct_times_in_seconds_or_with_an_offset(tmp_path: Path) -> None:
    text = SACCT.replace("2026-11-21T20:00:00", "1763755200", 1)
    text = text.replace("2026-11-21T20:00:05", "2026-11-21T20:00:05+01:00")
    assert read(tmp_path, text).submit_s == [1763755200, MIDNIGHT_S + 19 * 3600 + 5]


def test_mistakes_in_sacct_text(tmp_path: Path) -> None:
    assert mistake(tmp_path, SACCT.replace("|60|", "|1:00|", 1)).startswith(
        "trace:2: ElapsedRaw: expected a whole number from 0 to"
    )
    assert mistake(tmp_path, SACCT.replace("2026-11-21T20:00:05", "yesterday")) == (
        "trace:4: Submit: expected a time such as 2026-11-21T20:37:49, found 'yesterday'"
    )
    assert mistake(tmp_path, SACCT.replace("ElapsedRaw", "Elapsed")).startswith(
        "trace:1: ElapsedRaw: expected a column of this name in the header"
    )
    assert mistake(tmp_path, SACCT.replace("a job", "a|job")) == (
        "trace:2: expected 10 fields, found 11; "
        "leave out columns that may hold a '|', such as JobName and Comment"
    )


def sacct_job(**more: Any) -> dict[str, Any]:
    tres = [
        {"type": "cpu", "name": "", "id": 1, "count": 8},
        {"type": "gres", "name": "gpu", "id": 1001, "count": 4},
        {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 4},
    ]
    return {
        "job_id": 7,
        "partition": "gpu",
        "user": "ann",
        "allocation_nodes": 1,
        "state": {"current": ["COMPLETED"], "reason": "None"},
        "time": {"submission": 1000, "start": 1010, "end": 1070, "elapsed": 60},
        "tres": {"allocated": tres, "requested": tres},
        **more,
    }


def test_sacct_as_json(tmp_path: Path) -> None:
    jobs = [
        sacct_job(),
        sacct_job(state={"current": "CANCELLED"}, array={"job_id": 5, "task_id": 3}),
        sacct_job(array={"job_id": 5, "task_id": {"set": True, "infinite": False, "number": 4}}),
        sacct_job(array={"job_id": 0, "task_id": {"set": False, "number": 0}}),
        sacct_job(state={"current": ["RUNNING"]}),
        sacct_job(tres={"allocated": []}),
        sacct_job(partition="login"),
    ]
    found = read(tmp_path, json.dumps({"jobs": jobs, "meta": {}}))
    assert found.job_id == ["7", "5_3", "5_4", "7"]
    assert (found.submit_s[0], found.duration_s[0], found.gpus[0]) == (1000, 60, 4)
    assert (found.cpus[0], found.user[0], found.num_nodes[0]) == (8, "ann", 1)
    assert [job.reason for job in found.left_out] == [
        LeftOutReason.NEVER_RAN,
        LeftOutReason.NEVER_RAN,
        LeftOutReason.OTHER_POOL,
    ]


def test_json_that_is_no_dump(tmp_path: Path) -> None:
    for text in ("{", '{"jobs": 1}', '{"jobs": [{}]}'):
        assert mistake(tmp_path, text).startswith("trace: not the output of sacct --json: ")


SWF = """\
; Version: 2.2
  1  0  5  60  4 -1 -1  8 100 -1 1  3 1 1 1  2 -1 -1

  2 10 -1 -1  4 -1 -1 -1 100 -1 0 -1 1 1 1 -1 -1 -1
  3 12 -1  0 -1 -1 -1  8 100 -1 0 -1 1 1 1  1 -1 -1 ; requested only
"""


def test_swf(tmp_path: Path) -> None:
    jobs = read(tmp_path, SWF, pool("1", 1, 8), pool("2", 1, 8))
    assert (jobs.job_id, jobs.submit_s, jobs.duration_s) == (["1", "3"], [0, 12], [60, 1])
    assert (jobs.gpus, jobs.pool, jobs.user) == ([4, 8], [1, 0], ["3", ""])
    assert [job.reason for job in jobs.left_out] == [LeftOutReason.NO_POOL]
    only = read(tmp_path, SWF.partition("\n")[2], GPU)  # without the comment, and one pool
    assert (only.job_id, only.pool) == (["1", "3"], [0, 0])
    assert [job.reason for job in only.left_out] == [LeftOutReason.NO_DURATION]


def test_mistakes_in_swf(tmp_path: Path) -> None:
    assert mistake(tmp_path, SWF + "1 2 3\n") == "trace:6: expected 18 fields, found 3"
    assert mistake(tmp_path, SWF.replace(" 60 ", " 6x ")) == (
        "trace:2: run time: expected a whole number, found '6x'"
    )
    assert "expected a whole number" in mistake(tmp_path, SWF.replace(" 60 ", " nan "))


def test_anything_else_is_csv(tmp_path: Path) -> None:
    jobs = read(tmp_path, "submit_s,duration_s,gpus,pool\n0,1,1,gpu\n")
    assert jobs.job_id == ["1"]
    assert mistake(tmp_path, "hello\n").startswith("trace:1: submit_s: expected a column")


@pytest.mark.parametrize(
    "text",
    [
        "submit_s,duration_s,gpus,pool\n0,9,1,ant\n",
        "JobID|Partition|State|Submit|ElapsedRaw|AllocTRES\n7|ant|COMPLETED|100|9|gres/gpu=1\n",
    ],
)
def test_a_pipe_is_read_once(text: str) -> None:
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)
    pools = [TracePool(name="ant", nodes=1, gpus_per_node=8)]
    try:
        assert len(read_any_trace(Path(f"/dev/fd/{reader}"), pools)) == 1
    finally:
        os.close(reader)


def test_a_file_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federator.sim.importers.trace_csv.MAX_UNPACKED", 1000)
    (tmp_path / "T.gz").write_bytes(gzip.compress(b"x" * 2000))
    with pytest.raises(InvalidRequest, match="unpacks to more than 1000 bytes"):
        read_any_trace(tmp_path / "T.gz", [GPU])
